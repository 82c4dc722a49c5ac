"""The book itself: hosts, instances and units as they are now, and what changed since somebody asked.

Every change goes through here, so that it is recorded, shown and said once. What may follow what is in the
tables of `deployment` and `units`; when it does is the fleet's to decide.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeAlias

from penstock.fleet.deployment import Deployment, Host, Instance, InstanceState
from penstock.fleet.limits import Limits
from penstock.fleet.ports import UnitReport, Wanted
from penstock.fleet.tables import KeptTables
from penstock.fleet.units import UnitLife, UnitState
from penstock.topology.model import Topology

Living: TypeAlias = Host | Instance | UnitLife
"""Whatever has a life in the book."""


class Book:
    """Hosts, instances and units of one run, each in its present state."""

    def __init__(self, topology: Topology, limits: Limits | None = None) -> None:
        self.topology = topology
        self.limits = limits or Limits()
        self.stopping = False
        """Whether every unit was told to end."""
        self._hosts: dict[str, Host] = {}
        self._instances: dict[str, Instance] = {}
        self._members: dict[str, dict[str, Instance]] = {unit.name: {} for unit in topology.units}
        self._units = {unit.name: UnitLife(unit.name) for unit in topology.units}
        self._heard_s: dict[str, float] = {}
        self._listened_s: float | None = None
        self._awake_s = -math.inf
        """When somebody listened again after nobody had for long."""
        self._unsubmitted: set[str] = set()
        """Units that an earlier controller may not have got to submit."""
        self._restarting: set[str] = set()
        """Units to be submitted anew: what is heard of them before that is of what ends."""
        self._draining: frozenset[str] = frozenset()
        """Units told to finish what they have and leave, because they are about to be changed."""
        self._hurried: set[str] = set()
        """Instances that retire and must go at once."""
        self._told_of: set[str] = set()
        """Instances of which it was told that they are waited for."""
        self._deployment: Deployment | None = None
        self._tables = KeptTables()
        self._wanted: dict[str, Wanted] = {}
        self._untold: dict[str, None] = dict.fromkeys(self._members)
        """Units that were not told yet what is wanted of them now."""
        self._changed: dict[tuple[type[Living], str], list[Living]] = {}
        self._news: list[str] = []
        """What is to be said at the next look."""

    # -- what there is ---------------------------------------------------------------------------

    @property
    def units(self) -> Mapping[str, UnitLife]:
        """Every unit as last known."""
        return self._units

    def deployment(self) -> Deployment:
        """Hosts and instances that are alive, or failed and not yet cleared away."""
        if self._deployment is None:
            self._deployment = self._tables.deployment(self._hosts, self._instances, self._members)
        return self._deployment

    def silent_s(self, unit: str, now_s: float) -> float:
        """How long nothing was heard of a unit: an observation with an age, not a guess."""
        since_s = self._heard_s.get(unit)
        return 0.0 if since_s is None else max(0.0, now_s - since_s)

    def _listens(self, now_s: float) -> None:
        """Nothing is heard while nobody listens: a frozen controller or machine is no silence of anybody."""
        before_s, self._listened_s = self._listened_s, now_s
        unheard_s = 0.0 if before_s is None else now_s - before_s - self.limits.unit_silent_s / 2
        if unheard_s > 0:
            self._awake_s = now_s
            self._heard_s = {unit: heard_s + unheard_s for unit, heard_s in self._heard_s.items()}

    def taken_changes(self) -> tuple[Living, ...]:
        """Every host, instance and unit that changed since the last call, once for each state it was in."""
        taken = tuple([living for states in self._changed.values() for living in states])
        self._changed.clear()
        return taken

    def put_off(self, unit: str, problem: str, now_s: float) -> None:
        """A unit could not be submitted: it is tried again after a pause."""
        self._goes_down(self._units[unit], problem, now_s, self._news)

    def try_again(self, now_s: float) -> None:
        """Start units again for which a person was asked: one has looked."""
        for life in [life for life in self._units.values() if life.asks]:
            self._set_unit(replace(life, failures=0, next_start_s=now_s))

    def change(
        self,
        topology: Topology,
        revision: int,
        restarts: Collection[str],
        now_s: float,
        attempts: Mapping[str, int] | None = None,
    ) -> None:
        """Go on with another version of the topology; units in `restarts` run it from now on.

        Units that are new are submitted like any other; those that are not in it any more are forgotten,
        and whoever changed the topology ends them. One that was there before goes on counting its
        `attempts`: what is still heard of an earlier one is told apart by that.
        """
        self.topology = topology
        self.drain(())
        for unit in [name for name in self._units if name not in topology.unit_by_name]:
            self._forget(unit)
        for unit in topology.unit_by_name:
            if unit not in self._units:
                self._members[unit] = {}
                self._set_unit(UnitLife(unit, revision, attempt=(attempts or {}).get(unit, 0)))
                self._touched(unit)
        for unit in restarts:
            self.restart(unit, revision, now_s)

    def restart(self, unit: str, revision: int, now_s: float) -> None:
        """Submit a unit anew, in this version; instances are asked for in the size it has there.

        Those at a site it may not be at any more are over: its driver goes elsewhere, without them.
        """
        shape = self.topology.unit_shape(unit)
        allowed = {site.name for site in self.topology.sites_of(unit)}
        for instance in tuple(self._members[unit].values()):
            host = self._hosts.get(instance.host or "")
            if host is not None and host.site not in allowed:
                self._end(instance, InstanceState.STOPPED)
            elif (instance.cores, instance.memory_mib) != (shape.cores, shape.memory_mib):
                self._set(replace(instance, cores=shape.cores, memory_mib=shape.memory_mib))
        life = self._units[unit]
        self._set_unit(
            life.moved(
                UnitState.SUBMITTED, revision=revision, attempt=life.attempt + 1, submitted_s=now_s,
                next_start_s=None, failures=0, running_s=None, problem=None,
            )
        )  # fmt: skip
        self._unsubmitted.add(unit)
        self._restarting.add(unit)
        self._heard_s[unit] = now_s

    def drain(self, units: Collection[str]) -> None:
        """Tell these units, and no others, to finish what there is to read and leave."""
        wanted = frozenset(units)
        for unit in (self._draining ^ wanted) & self._units.keys():
            self._touched(unit)
        self._draining = wanted

    # -- the lives of units ----------------------------------------------------------------------

    def _lives_on(self, life: UnitLife, report: UnitReport, now_s: float, notices: list[str]) -> UnitLife:
        if report.state is UnitState.DOWN:
            if life.state is UnitState.DOWN:
                return life
            return self._goes_down(life, report.problem or "it ended", now_s, notices)
        if report.state is UnitState.FAILED and life.state is not UnitState.FAILED:
            notices.append(f"unit {life.name} stopped by itself and is not started again: {report.problem}")
        anew = report.application is not None and life.application not in (None, report.application)
        running = report.state is UnitState.RUNNING
        if anew and running and life.failures <= 1:  # that it came back is said once, as that it went down is
            notices.append(f"unit {life.name} runs as a new application: it was started again")
        runs_on = running and life.state is UnitState.RUNNING and not anew
        return self._set_unit(
            life.moved(
                report.state,
                application=report.application or life.application,
                running_s=(life.running_s if runs_on else now_s) if running else None,
                problem=report.problem,
            )
        )

    def _goes_down(self, life: UnitLife, problem: str, now_s: float, notices: list[str]) -> UnitLife:
        """It is started again after a pause, or a person is asked; the first time and the last are told."""
        pauses, name = self.limits.pauses, life.name
        ran_s = 0.0 if life.running_s is None else self._heard_s.get(name, now_s) - life.running_s
        failures = 0 if ran_s >= pauses.held_s else life.failures
        pause_s = pauses.after(failures)
        if pause_s is None:
            notices.append(
                f"unit {name} went down {failures + 1} times in a row ({problem}); a person is asked: it is "
                f"not started again until told so (penstock tell RUN restart {name})"
            )
        elif failures == 0:
            notices.append(f"unit {name} went down ({problem}); it is started again in {pause_s:g} s")
        return self._set_unit(
            life.moved(
                UnitState.DOWN,
                failures=failures + 1,
                running_s=None,
                next_start_s=None if pause_s is None else now_s + pause_s,
                problem=problem,
            )
        )

    def _due(self, life: UnitLife, now_s: float) -> bool:
        if self.stopping:
            return False
        if life.state is UnitState.PLANNED or life.name in self._unsubmitted:
            return True
        return life.state is UnitState.DOWN and life.next_start_s is not None and now_s >= life.next_start_s

    def _place_for(self, instance: Instance, lost: str) -> str | None:
        allowed = {site.name for site in self.topology.sites_of(instance.unit)}
        for name, room in self.deployment().room.items():
            if name == lost or self._hosts[name].site not in allowed:
                continue
            if room.holds(instance.cores, instance.memory_mib):
                return name
        return None

    def _no_place(self, host: str | None) -> str | None:
        if host is None:
            return None
        known = self._hosts.get(host)
        if known is None:
            return f"host {host} does not exist"
        if known.taken_s is not None:
            return f"host {host} takes no instances: its provider takes it away"
        return None if known.takes else f"host {host} takes no instances: it is {known.state}"

    def _make_way(self, meant: str | None, taken: str | None) -> None:
        """An instance came up on another host than it was meant for, on a plane that places by itself.

        Whoever still waits for the room it took is meant for the room it left: else the one host would look
        empty and be given back, and the other would be waited for in vain.
        """
        if meant is None or taken is None or meant == taken:
            return
        left = self._hosts.get(meant)
        for other in self.deployment().counted_by_host.get(taken, ()):
            room = self.deployment().room.get(taken)
            if room is None or (room.cores >= 0 and room.memory_mib >= 0):
                return
            if other.state is InstanceState.REQUESTED and other.external_id is None:
                usable = left is not None and left.takes
                self._set(replace(other, host=meant if usable else None))

    # -- entering --------------------------------------------------------------------------------

    def _note(self, kind: type[Living], name: str, living: Living) -> None:
        states = self._changed.setdefault((kind, name), [])
        if states and states[-1].state is living.state:
            states[-1] = living
        else:
            states.append(living)

    def _forget(self, unit: str) -> None:
        """A unit that is not in the topology any more: it and its instances are over."""
        for instance in tuple(self._members[unit].values()):
            self._end(instance, InstanceState.STOPPED)
        self._set_unit(self._units[unit].moved(UnitState.STOPPED))
        del self._units[unit]
        self._wanted.pop(unit, None)
        self._untold.pop(unit, None)
        self._heard_s.pop(unit, None)
        self._unsubmitted.discard(unit)
        self._restarting.discard(unit)

    def _see_instances(self, unit: str) -> None:
        self._tables.changed(unit)
        self._deployment = None
        self._touched(unit)

    def _see_host_anew(self, host: str) -> None:
        self._tables.changed_host(host)
        self._deployment = None

    def _touched(self, unit: str) -> None:
        self._wanted.pop(unit, None)
        self._untold[unit] = None

    def _set(self, instance: Instance) -> None:
        self._instances[instance.id] = self._members[instance.unit][instance.id] = instance
        self._note(Instance, instance.id, instance)
        self._see_instances(instance.unit)

    def _end(self, instance: Instance, state: InstanceState) -> None:
        del self._instances[instance.id]
        del self._members[instance.unit][instance.id]
        self._note(Instance, instance.id, instance if instance.state is state else instance.moved(state))
        self._hurried.discard(instance.id)
        self._told_of.discard(instance.id)
        self._see_instances(instance.unit)

    def _set_host(self, host: Host) -> Host:
        self._hosts[host.id] = host
        self._note(Host, host.id, host)
        self._see_host_anew(host.id)
        return host

    def _drop_host(self, host: Host) -> None:
        del self._hosts[host.id]
        self._note(Host, host.id, host)
        self._see_host_anew(host.id)

    def _set_unit(self, life: UnitLife) -> UnitLife:
        self._units[life.name] = life
        self._note(UnitLife, life.name, life)
        return life
