"""The driver processes of a run's units, on this machine: started, ended, and found again after a crash."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from penstock.errors import ClusterError
from penstock.machine.processes import ChildProcesses, log_tail
from penstock.spark.unit.driver import DRAINED, EXIT_USELESS
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.preparing import PREPARED

NEXT = "+next"
"""Behind a unit's name: the process that is prepared to take it over."""


class Drivers:
    """One process a unit. Starting again goes on from the unit's checkpoint."""

    def __init__(self, run: str, folders: RunFolders) -> None:
        self._children = ChildProcesses(f"{run}-units")
        self._folders = folders

    def adopt(self) -> list[str]:
        """Take over drivers that an earlier controller of the run left running; their units."""
        found = self._children.adopt()
        # Whoever prepared them is gone, and with it what they were told to become.
        self._children.stop(*(name for name in found if name.endswith(NEXT)), grace_s=0.0)
        return sorted(name for name in found if not name.endswith(NEXT))

    def start(self, unit: str, attempt: int, *, prepared: bool = False) -> None:
        """Start this attempt at a unit; what an earlier one left behind is ended first.

        With `prepared` it is the process that waits for it, where that one lives.
        """
        if self.alive(unit) and self.attempt(unit) == attempt:
            return
        # What its process left behind (its Java) must be gone before another uses the checkpoint.
        self._children.stop(unit, grace_s=0.0)
        folder = self._folders.unit(unit)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / DRAINED).unlink(missing_ok=True)
            self._folders.note_attempt(unit, attempt)
        except OSError as error:
            raise ClusterError(f"unit {unit} cannot be started: {error}") from error
        if prepared and self._children.alive(unit + NEXT):
            self._children.rename(unit + NEXT, unit)
        else:
            self._children.start(unit, self._command(unit, attempt), log=self.log(unit))

    def prepare(self, unit: str) -> None:
        """Start the process that shall take a unit over, beside the one that runs."""
        self.dismiss(unit)
        folder = self._folders.unit(unit)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / PREPARED).unlink(missing_ok=True)
        except OSError as error:
            raise ClusterError(f"unit {unit} cannot be prepared: {error}") from error
        self._children.start(unit + NEXT, self._command(unit, 0), log=self.log(unit))

    def dismiss(self, unit: str) -> None:
        """End the process that was to take a unit over."""
        self._children.stop(unit + NEXT, grace_s=0.0)

    def preparing(self, unit: str) -> bool:
        """Whether a process that shall take a unit over runs."""
        return self._children.alive(unit + NEXT)

    def _command(self, unit: str, attempt: int) -> list[str]:
        root = str(self._folders.root)
        return [sys.executable, "-m", "penstock.spark.unit.driver", root, unit, str(attempt)]

    def alive(self, unit: str) -> bool:
        """Whether a unit's driver runs."""
        return self._children.alive(unit)

    def signal(self, unit: str, number: int) -> None:
        """Send a signal to a unit's driver process alone."""
        self._children.signal(unit, number)

    def attempt(self, unit: str) -> int:
        """Which attempt a unit's driver process is; 0 where there was none."""
        return self._folders.attempt(unit)

    def is_useless(self, unit: str) -> bool:
        """Whether a driver that left said that starting it again would not help."""
        return self._children.exit_code(unit) == EXIT_USELESS

    def is_drained(self, unit: str) -> bool:
        """Whether a driver that left had finished all there was, as it was told to."""
        try:
            return int((self._folders.unit(unit) / DRAINED).read_text()) == self.attempt(unit)
        except (OSError, ValueError):
            return False

    def last_words(self, unit: str) -> str:
        """Why a driver left, as far as it is known."""
        code = self._children.exit_code(unit)
        how = "its driver is gone" if code is None else f"its driver ended with code {code}"
        words = log_tail(self.log(unit), 4)
        return f"{how}; its last words:\n{words}" if words else how

    def log(self, unit: str) -> Path:
        """Where a unit's driver writes what it does."""
        return Drivers.log_in(self._folders, unit)

    @staticmethod
    def log_in(folders: RunFolders, unit: str) -> Path:
        """Where a unit's driver writes what it does, in the folders of a run."""
        return folders.unit(unit) / "driver.log"

    def end(self, unit: str) -> None:
        """End a unit's driver with all it started, in the midst of whatever it does."""
        self._children.stop(unit, grace_s=0.0)

    def wait(self, timeout_s: float) -> bool:
        """Whether every driver has left by itself in time."""
        deadline_s = time.monotonic() + timeout_s
        while any(self.alive(unit) for unit in tuple(self._children.records) if not unit.endswith(NEXT)):
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(0.1)
        return True

    def stop(self, grace_s: float = 8.0) -> None:
        """Stop every driver with all it started."""
        self._children.stop_all(grace_s)
