"""Faults while the laboratory runs: an executor of the unit with the state is killed, then its driver."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection

import psutil

from penstock.controller.loop import Tick
from penstock.runs.run import Run

EXECUTOR, DRIVER = "executor", "driver"


class Killer:
    """Kills an executor of the unit with the state and later its driver, each once, while images are sent."""

    def __init__(self, duration_s: float, kinds: Collection[str] = (EXECUTOR, DRIVER)) -> None:
        at_s = {EXECUTOR: 0.35 * duration_s, DRIVER: 0.6 * duration_s}
        self._at_s = {what: at_s[what] for what in kinds}
        self.killed: list[str] = []

    def __call__(self, run: Run, tick: Tick) -> None:
        """What is due at a tick."""
        started_s = run.feed.started_s
        if started_s is None:
            return
        for what, at_s in self._at_s.items():
            if tick.at_s - started_s > at_s and what not in self.killed:
                done = _kill_executor(run) if what == EXECUTOR else _kill_driver(run)
                if done:
                    self.killed.append(what)
                return


def _kill_driver(run: Run) -> bool:
    unit = run.topology.units[-1].name
    if not run.drivers.alive(unit):
        return False
    run.drivers.signal(unit, signal.SIGKILL)
    return True


def _kill_executor(run: Run) -> bool:
    if run.controller is None:
        return False
    application = run.controller.fleet.units[run.topology.units[-1].name].application
    for record in run.clusters.only.processes.values():
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(record.pid).children(recursive=True):
                if child.status() == psutil.STATUS_ZOMBIE:
                    continue
                words = child.cmdline()
                if "--executor-id" in words and application in words:
                    os.kill(child.pid, signal.SIGKILL)
                    return True
    return False
