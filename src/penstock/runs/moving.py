"""Moves units whose site cannot serve them, for it is full or nothing runs there any more, or is too dear.

A unit that may be at several sites is watched. Where it needs hosts that its site has not got, or has been
without any instance for long, it goes to the best of the others, by the way every change goes. It leaves
at once and goes on from its checkpoint, as after a crash: there may be nothing left to finish a batch with.
Where prices by the providers' lists have made its site far dearer than another, it goes there as by command.

Where every site has a run of its own, it goes to another site's run as by command, and only to one that the
service here has just heard of. It finishes what there is to read first, unless it has no instance to do so
with. One that keeps something no other run could go on with stays, which is said once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.controller.loop import Tick
from penstock.controller.mode import Mode
from penstock.errors import PenstockError
from penstock.fleet.actions import Hold
from penstock.fleet.deployment import INSTANCE_COUNTED, Instance, InstanceState
from penstock.infrastructure.siting import best_site, too_dear
from penstock.policies.planning import NO_HOST
from penstock.runs.clusters import host_start_s
from penstock.runs.part import kept_by
from penstock.runs.plan import Pending
from penstock.runs.pricing import Pricing
from penstock.topology.model import Topology

if TYPE_CHECKING:
    from penstock.runs.run import Run

FULL_DECISIONS = 3
"""A site that has no host for a unit at so many decisions in a row is full for it."""
START_S = 180.0
"""How long an instance may take to serve once its host is there."""
STAYS_S = 600.0
"""How long a unit stays at a site to which it was moved."""


class Moving:
    """Watches the units of a run and moves those whose site cannot serve them or is too dear."""

    def __init__(self, run: Run, pricing: Pricing) -> None:
        self._run = run
        self._pricing = pricing
        self._without_host: dict[str, int] = {}
        """At how many decisions in a row a unit got no host."""
        self._served_s: dict[str, float] = {}
        """When a unit last had an instance that served."""
        self._moved_s: dict[str, float] = {}
        """When a unit was last moved, or came from another site's run."""
        self._present = set(run.here.unit_by_name)
        self._said: set[str] = set()
        """Why units stay that would have to go: each is said once."""

    def look(self, tick: Tick) -> None:
        """Take in a tick, and begin to move one unit where that has to be."""
        run = self._run
        self._note(tick)
        if run.changing.under_way or run.running_controller().mode is not Mode.ACT:
            return
        for unit in run.here.unit_by_name:
            why = self._why(unit, tick.at_s)
            if why is not None and self._move(unit, why, tick.at_s):
                return
        prices = self._pricing.look(run.topology, tick.at_s)
        if prices is not None:
            self._save(*prices, tick.at_s)

    def _note(self, tick: Tick) -> None:
        present = set(self._run.here.unit_by_name)
        for unit in (present - self._present) & set(self._run.plan.handed):
            self._begins_to_stay(unit, tick.at_s)
        self._present = present
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
        if len(run.topology.sites_of(unit)) < 2 or self._has_just_moved(unit, now_s):
            return None
        longest_s = host_start_s(run.here) + START_S
        if now_s - self._served_s.get(unit, now_s) > longest_s:
            return f"it has had no instance at site {site} for {longest_s:.0f} s"
        if self._without_host.get(unit, 0) >= FULL_DECISIONS:
            return f"site {site} has had no host for it at {FULL_DECISIONS} decisions"
        return None

    def _move(self, unit: str, why: str, now_s: float) -> bool:
        run, here = self._run, self._run.plan.places[unit]
        if self._is_kept(unit, why):
            return False
        out = {here, *self._closed(unit)}
        if out >= {site.name for site in run.topology.sites_of(unit)}:
            self._say(f"unit {unit} would go elsewhere, for {why}; no other site has room for it and answers")
            return False
        target = best_site(run.topology, unit, run.plan.places, without=out)
        # What goes to another run is read to its end wherever it can be: a batch that is cut off comes twice.
        at_once = run.plan.site is None or not self._serves(unit)
        pending = Pending(f"unit {unit} goes to site {target}: {why}", places={unit: target}, at_once=at_once)
        return self._begin(run.topology, (unit,), pending, now_s)

    def _save(self, before: Topology, now: Topology, now_s: float) -> None:
        """Move the units whose site has become too dear; prices by which nobody goes are kept in mind."""
        places, why = dict(self._run.plan.places), {}
        for unit in self._run.here.unit_by_name:
            dear = too_dear(before, now, unit, places)
            if dear is None or self._is_kept(unit, dear[1]):
                continue
            found = too_dear(before, now, unit, places, self._closed(unit) - {places[unit]})
            if found is None or self._has_just_moved(unit, now_s):
                return  # until there is room, and it has stayed for a while
            places[unit] = found[0]
            why[unit] = f"unit {unit} goes to site {found[0]}: {found[1]}"
        if why:
            # Between runs a unit goes in the version there is: others would have to take the next one first.
            version = now if self._run.plan.site is None else self._run.topology
            self._begin(version, list(why), Pending("; ".join(why.values()), places=places), now_s)
        self._pricing.decided()

    def _begin(self, topology: Topology, units: Sequence[str], pending: Pending, now_s: float) -> bool:
        """Begin a change by which these units go; whether it could be begun."""
        for unit in units:
            self._begins_to_stay(unit, now_s)
        try:
            self._run.changing.begin(topology, pending)
        except PenstockError as error:
            self._say(f"unit {', '.join(units)} could not be moved: {error}")
            return False
        return True

    def _is_kept(self, unit: str, why: str) -> bool:
        """Whether a unit that would have to go keeps what no other site's run could go on with."""
        run = self._run
        if run.plan.site is None:
            return False
        reasons = list(kept_by(run.topology, unit, run.plan.site))
        if reasons:
            self._say(f"unit {unit} would go to another site, for {why}; it stays: {'; '.join(reasons)}")
        return bool(reasons)

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._run.plane.note(text)

    def _closed(self, unit: str) -> set[str]:
        """Sites that are full, or do not answer."""
        run = self._run
        counts = Counter(h.site for h in run.running_controller().fleet.deployment().hosts.values())
        silent = set(run.clusters.silent)
        if run.plan.site is not None:
            elsewhere = run.folder.neighbours()
            counts.update({site: hosts for site, hosts in elsewhere.items() if site != run.plan.site})
            silent |= set(run.topology.site_by_name) - {run.plan.site, *elsewhere}
        mine = len({i.host for i in self._members(unit)})
        full = [s.name for s in run.topology.sites if s.max_hosts - counts[s.name] <= mine]
        return {*full, *silent}

    def _begins_to_stay(self, unit: str, now_s: float) -> None:
        """A unit is told to go, or has come: what was seen of it before counts no more."""
        self._moved_s[unit] = now_s
        self._without_host.pop(unit, None)
        self._served_s.pop(unit, None)

    def _has_just_moved(self, unit: str, now_s: float) -> bool:
        return now_s - self._moved_s.get(unit, -math.inf) < STAYS_S

    def _serves(self, unit: str) -> bool:
        return any(i.state is InstanceState.RUNNING for i in self._members(unit))

    def _members(self, unit: str) -> list[Instance]:
        return list(self._run.running_controller().fleet.deployment().of_unit(unit))
