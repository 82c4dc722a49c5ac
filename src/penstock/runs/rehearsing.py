"""The next version of units tried before anybody stops: one process a unit, one after the other."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from penstock.machine.processes import ChildProcesses
from penstock.runs.changes import Preview
from penstock.spark.unit.rehearsal import LONGEST_S, Rehearsal, can_be_rehearsed
from penstock.topology.model import Topology

if TYPE_CHECKING:
    from penstock.runs.run import Run


class Rehearsing:
    """The rehearsal of one change. Ask `step` until it is over."""

    def __init__(self, run: Run, topology: Topology, text: str, found: Preview) -> None:
        self._run, self._text = run, text
        concerned = (*found.restarts, *found.renewals, *found.starts)
        self._left = [unit for unit in concerned if can_be_rehearsed(topology, unit)]
        self._children = ChildProcesses(f"{run.plan.name}-rehearsal")
        self._now: str | None = None
        self._since_s = 0.0
        self.problem: str | None = None
        """Why the next version would fail; None where nothing is known against it."""

    def step(self) -> bool:
        """Whether it is over: everything was tried, or something failed."""
        if self._now is not None:
            if self._children.alive(self._now):
                if time.monotonic() - self._since_s <= LONGEST_S:
                    return False
                self.problem = f"its rehearsal in unit {self._now} was not over after {LONGEST_S:.0f} s"
            elif self._children.exit_code(self._now) != 0:
                self.problem = f"its rehearsal failed: {self._last_line(self._now)}"
            self._children.stop(self._now, grace_s=0.0)
            self._now = None
        if self.problem is not None or not self._left:
            return True
        self._begin(self._left.pop(0))
        return False

    def stop(self) -> None:
        """End what runs of it."""
        self._children.stop_all(0.0)

    def _begin(self, unit: str) -> None:
        run, folder = self._run, self._run.folder.units.unit(unit)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "rehearsal.json"
        settings = {name: value for name, value in run.plan.settings.items() if "master" not in name}
        Rehearsal(str(run.folder.root), unit, self._text, run.plan.code, settings).write(file)
        (folder / "rehearsal.log").unlink(missing_ok=True)
        command = [sys.executable, "-m", "penstock.spark.unit.rehearsal", str(file)]
        self._children.start(unit, command, log=folder / "rehearsal.log")
        self._now, self._since_s = unit, time.monotonic()

    def _last_line(self, unit: str) -> str:
        try:
            log = (self._run.folder.units.unit(unit) / "rehearsal.log").read_text(errors="replace")
        except OSError:
            return f"unit {unit}"
        return log.strip().splitlines()[-1] if log.strip() else f"unit {unit}"
