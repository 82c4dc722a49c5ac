"""Moves units whose site cannot serve them: it is full, or nothing runs there any more.

A unit that may be at several sites is watched. Where it needs hosts that its site has not got, or has been
without any instance for long, it goes to the best of the others, by the way every change goes. It leaves
at once and goes on from its checkpoint, as after a crash: there may be nothing left to finish a batch with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.controller.loop import Tick
from penstock.errors import PenstockError
from penstock.fleet.actions import Hold
from penstock.fleet.deployment import INSTANCE_COUNTED, Instance, InstanceState
from penstock.infrastructure.siting import best_site
from penstock.policies.planning import NO_HOST
from penstock.runs.clusters import host_start_s
from penstock.runs.plan import Pending

if TYPE_CHECKING:
    from penstock.runs.run import Run

FULL_DECISIONS = 3
"""A site that has no host for a unit at so many decisions in a row is full for it."""
START_S = 180.0
"""How long an instance may take to serve once its host is there."""
STAYS_S = 600.0
"""How long a unit stays at a site to which it was moved."""


class Moving:
    """Watches the units of a run and moves those whose site cannot serve them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._without_host: dict[str, int] = {}
        """At how many decisions in a row a unit got no host."""
        self._served_s: dict[str, float] = {}
        """When a unit last had an instance that served."""
        self._moved_s: dict[str, float] = {}

    def look(self, tick: Tick) -> None:
        """Take in a tick, and begin to move one unit where that has to be."""
        run = self._run
        self._note(tick)
        if run.changing.under_way:
            return
        for unit in run.here.unit_by_name:
            why = self._why(unit, tick.at_s)
            if why is not None and self._move(unit, why, tick.at_s):
                return

    def _note(self, tick: Tick) -> None:
        holds = {v.action.unit: v.action.reason for v in tick.verdicts if isinstance(v.action, Hold)}
        for unit, reason in holds.items():
            self._without_host[unit] = self._without_host.get(unit, 0) + 1 if NO_HOST in reason else 0
        for instance in tick.deployment.instances.values():
            if instance.state is InstanceState.RUNNING:
                self._served_s[instance.unit] = tick.at_s
            elif instance.state in INSTANCE_COUNTED:
                self._served_s.setdefault(instance.unit, tick.at_s)

    def _why(self, unit: str, now_s: float) -> str | None:
        """Why a unit cannot stay where it is; None where it can, or may be nowhere else."""
        run, site = self._run, self._run.plan.places[unit]
        if run.plan.site is not None or len(run.topology.sites_of(unit)) < 2:
            return None  # it may be nowhere else, or it is another run that it would have to go to
        if now_s - self._moved_s.get(unit, -STAYS_S) < STAYS_S:
            return None
        longest_s = host_start_s(run.here) + START_S
        if now_s - self._served_s.get(unit, now_s) > longest_s:
            return f"it has had no instance at site {site} for {longest_s:.0f} s"
        if self._without_host.get(unit, 0) >= FULL_DECISIONS:
            return f"site {site} has had no host for it at {FULL_DECISIONS} decisions"
        return None

    def _move(self, unit: str, why: str, now_s: float) -> bool:
        run, here = self._run, self._run.plan.places[unit]
        leased = run.running_controller().fleet.deployment().hosts.values()
        counts = {site.name: sum(h.site == site.name for h in leased) for site in run.topology.sites}
        mine = len({i.host for i in self._members(unit)})
        full = [s.name for s in run.topology.sites if s.max_hosts - counts[s.name] <= mine]
        out = {here, *full, *run.clusters.silent}
        if out >= {site.name for site in run.topology.sites_of(unit)}:
            return False
        target = best_site(run.topology, unit, run.plan.places, without=out)
        pending = Pending(f"unit {unit} goes to site {target}: {why}", places={unit: target}, at_once=True)
        self._moved_s[unit] = now_s
        self._without_host.pop(unit, None)
        self._served_s.pop(unit, None)
        try:
            run.changing.begin(run.topology, pending)
        except PenstockError as error:
            run.plane.note(f"unit {unit} could not be moved: {error}")
            return False
        return True

    def _members(self, unit: str) -> list[Instance]:
        return list(self._run.running_controller().fleet.deployment().of_unit(unit))
