"""Drivers of the next version, made ready beside those that run, so that no unit waits for Java.

A change that starts units again has their next drivers started first, some at a time. Each tries its version
on the newest records where there is room for an executor more (`spark/unit/preparing.py`). Where one fails,
the change is given up, and nobody was stopped for it.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.fleet.ports import Submission, Wanted, WantedInstance
from penstock.runs.changes import Preview
from penstock.runs.part import here
from penstock.spark.unit.preparing import Prepared
from penstock.topology.model import Topology

if TYPE_CHECKING:
    from penstock.runs.run import Run

LONGEST_S = 240.0
"""A driver that is not ready by then never will be."""
AT_ONCE = max(1, (os.cpu_count() or 2) // 2)
"""How many are started at a time: those that run need the machine as well."""


class Preparing:
    """The drivers of one change. Ask `step` until it is over."""

    def __init__(self, run: Run, topology: Topology, found: Preview, *, insists: bool = False) -> None:
        """`insists` says that every version must have been tried on records."""
        self._run, self._topology, self._insists = run, topology, insists
        self._places = found.places
        self._left = [*found.restarts, *found.renewals, *found.starts]
        self._started_s: dict[str, float] = {}
        self.ready: dict[str, Prepared] = {}
        """Units whose next version is ready, and how that went."""
        self.problem: str | None = None
        """Why the change would fail; None where nothing is known against it."""
        reason = "room for the next version beside the one that runs"
        part = here(topology, found.places, run.plan.site)
        planned = run.clusters.seeing(part, found.places).planned()
        run.running_controller().room.make(self._left, planned, reason)

    def step(self) -> bool:
        """Whether it is over: all are ready, or something speaks against the change."""
        for unit in [unit for unit in self._started_s if unit not in self.ready]:
            self._look_at(unit)
        under_way = len(self._started_s) - len(self.ready)
        while self._left and under_way < AT_ONCE and self.problem is None:
            self._begin(self._left.pop(0))
            under_way += 1
        return self.problem is not None or not (self._left or under_way)

    def stop(self) -> None:
        """End those that were prepared and have not taken over."""
        for unit in self._started_s:
            self._run.plane.dismiss(unit)
        self._run.running_controller().room.end(self._run.clock.now_s())

    def said(self) -> str:
        """How it went, in words; empty where there was nothing to prepare."""
        tried = sum(found.records or 0 for found in self.ready.values())
        parts = [f"{tried} records tried on the next version"] if tried else []
        untried = [f"{unit}: {found.why_not}" for unit, found in self.ready.items() if found.records is None]
        return "; ".join(parts + untried)

    def _look_at(self, unit: str) -> None:
        run = self._run
        found = Prepared.read(run.folder.units.unit(unit))
        if found is not None and found.problem is not None:
            self.problem = f"its next version failed beside the one that runs: {found.problem}"
        elif found is not None and found.records is None and self._insists:
            self.problem = f"unit {unit} could not be tried: {found.why_not}"
        elif found is not None:
            self.ready[unit] = found
        elif not run.drivers.preparing(unit):
            self.problem = f"the driver of its next version of unit {unit} ended; see {run.drivers.log(unit)}"
        elif time.monotonic() - self._started_s[unit] > LONGEST_S:
            self.problem = f"its next version of unit {unit} was not ready within {LONGEST_S:.0f} s"

    def _begin(self, unit: str) -> None:
        run, topology = self._run, self._topology
        fleet = run.running_controller().fleet
        if unit in fleet.units:
            wanted = Wanted(fleet.wanted(unit).instances)
        else:
            shape, least = topology.unit_shape(unit), max(1, topology.unit_by_name[unit].min_instances)
            wanted = Wanted((WantedInstance(f"{unit}-next", None, shape.cores, shape.memory_mib),) * least)
        self._started_s[unit] = time.monotonic()
        submission = Submission(unit, run.plan.revision + 1, 0, wanted)
        specification = run.specification(submission, topology, self._places)
        run.plane.prepare(replace(specification, prepare=True))
