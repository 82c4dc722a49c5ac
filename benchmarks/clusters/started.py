"""What all clusters that are started here have in common: a folder, processes, an end that always comes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from penstock.errors import ClusterError
from penstock.machine.processes import ChildProcesses, log_tail, wait_until

START_S = 120.0
"""Daemons take seconds; on a busy machine many times that."""


class Started:
    """Daemons in a folder of their own; as a context manager they are stopped on leaving."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children = ChildProcesses(f"{type(self).__name__} {folder}")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until it takes work."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop everything; calling it again does nothing."""
        self._children.stop_all(3.0)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _wait_for(self, name: str, ready: Callable[[], bool]) -> None:
        """Return when a daemon is ready; ClusterError with its last words where it is not in time."""
        wait_until(lambda: ready() or not self._children.alive(name), START_S)
        if not ready():
            raise ClusterError(f"{name} did not come up:\n{log_tail(self._log(name))}")
