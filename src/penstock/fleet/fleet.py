"""The fleet: the one book of hosts, instances and units, planned, requested and observed.

`apply` enters what was decided, `observed` what was seen, `orders` says what has to be said below, and
`deployment` is what policies see. It owns names, the binding to the plane's own ids, replacement before
retirement, drain before release, loss and silence. It is pure: no clock, no input, no output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from penstock.fleet.actions import Action, LeaseHost, MigrateInstance, ReleaseHost, ResizeInstance
from penstock.fleet.binding import Bound, bind, lost
from penstock.fleet.book import Book, Living
from penstock.fleet.deployment import (
    HOST_ALIVE,
    HOST_TAKES,
    INSTANCE_COUNTED,
    Host,
    HostState,
    Instance,
    InstanceState,
)
from penstock.fleet.limits import Limits, Orders
from penstock.fleet.ports import SeenInstance, UnitReport, Wanted
from penstock.fleet.times import MeasuredTimes, Stopwatch
from penstock.fleet.units import UnitLife, UnitState
from penstock.fleet.wanting import wanted_of
from penstock.monitoring.measurements import Measurement
from penstock.topology.model import Topology

_COMING = (HostState.REQUESTED, HostState.STARTING)
_RUNNING, _RETIRING, _REQUESTED = InstanceState.RUNNING, InstanceState.RETIRING, InstanceState.REQUESTED


class Fleet(Book):
    """Hosts, instances and units of one run. Use it from one thread."""

    def __init__(self, topology: Topology, limits: Limits | None = None) -> None:
        super().__init__(topology, limits)
        self.follows = False
        """Whether somebody else adds and removes instances: what is seen is taken as it is."""
        self._hosts_shown: dict[str, Host] = {}
        self._bound: dict[str, Bound] = {}
        """What the last report of each unit came to: the instances it showed, and those that are nobody's."""
        self._moving_s: dict[str, float] = {}
        """When it was decided to move an instance away, by its name."""
        self._watch = Stopwatch()

    # -- what there is ---------------------------------------------------------------------------

    @property
    def times(self) -> MeasuredTimes:
        """How long things take here, as measured."""
        return self._watch.times

    def wanted(self, unit: str) -> Wanted:
        """All that is wanted of a unit."""
        found = self._wanted.get(unit)
        if found is None:
            found = self._wanted[unit] = self._all_wanted(unit)
        return found

    def named(self, measurement: Measurement) -> Measurement:
        """A measurement whose readings carry the fleet's names of instances instead of the plane's ids."""
        bound = self._bound.get(measurement.unit)
        if bound is None or bound.named or not measurement.readings:
            return measurement
        names = {i.external_id: i.id for i in self._members[measurement.unit].values()}
        readings = tuple(
            reading._replace(instance=names[reading.instance])
            for reading in measurement.readings
            if reading.instance in names
        )
        return replace(measurement, readings=readings)

    # -- what was decided ------------------------------------------------------------------------

    def apply(self, action: Action, now_s: float) -> str | None:
        """Enter an action; a second time it changes nothing. The reason in words where it cannot be."""
        if isinstance(action, LeaseHost):
            if action.host not in self._hosts:
                flavour = self.topology.site_by_name[action.site].flavour(action.flavour)
                self._set_host(Host(action.host, action.site, flavour, HostState.REQUESTED, now_s))
            return None
        if isinstance(action, ReleaseHost):
            return self._drain(action.host, action.asked)
        if isinstance(action, ResizeInstance):
            return self._resize(action)
        new = action.starts
        if new is not None and new.instance not in self._instances:
            problem = self._no_place(new.host)
            if problem is not None:
                return problem
            replaced = action.leaves if isinstance(action, MigrateInstance) else None
            if replaced is not None:
                if replaced not in self._instances:
                    return f"instance {replaced} is not there"
                self._moving_s[replaced] = now_s
            unit = new.unit
            shape = self.topology.unit_shape(unit, new.slots)
            cores, memory_mib = shape.cores, shape.memory_mib
            self._set(
                Instance(
                    new.instance, unit, new.host, _REQUESTED, cores, memory_mib, now_s, replaces=replaced
                )
            )
        elif new is None and action.leaves is not None:
            self._retire(action.leaves, now_s)
        return None

    def refuse(self, host: str, problem: str) -> tuple[str, ...]:
        """A provider will not give a host: it is gone; the names of what was meant for it, gone with it."""
        known = self._hosts.get(host)
        if known is None or known.state is not HostState.REQUESTED:
            return ()
        meant = [i for i in self._instances.values() if i.host == host]
        for instance in meant:
            self._end(instance, InstanceState.FAILED)
        self._drop_host(known.moved(HostState.RELEASED, problem=problem))
        return tuple(instance.id for instance in meant)

    def kept(self, host: str) -> bool:
        """Take a release back that has not come to its end: the host takes instances again."""
        known = self._hosts.get(host)
        if known is None or known.state is not HostState.DRAINING:
            return False
        self._set_host(known.moved(HostState.UP, leaving=False))
        staying = {i.id for i in self._instances.values() if i.host == host and i.state is _RUNNING}
        for instance in [i for i in self._instances.values() if i.replaces in staying]:
            self._moving_s.pop(str(instance.replaces), None)
            self._retire(instance.id, 0.0)
        return True

    def hurry(self, host: str) -> None:
        """What still retires on a host goes at once."""
        for instance in [i for i in self._instances.values() if i.host == host and i.state is _RETIRING]:
            self._hurried.add(instance.id)
            self._touched(instance.unit)

    def let_go(self, host: str) -> None:
        """Give a draining host back now, with what still ends on it."""
        self._set_host(replace(self._hosts[host], leaving=True))

    def stop(self) -> None:
        """Tell every unit to end."""
        self.stopping = True
        for unit in self._members:
            self._touched(unit)

    # -- what was seen ---------------------------------------------------------------------------

    def observed(
        self, hosts: Mapping[str, Sequence[Host]], reports: Iterable[UnitReport], now_s: float
    ) -> list[str]:
        """Enter what providers (by site) and the plane have shown; what is news, in words."""
        notices, self._news = self._news, []
        self._see_hosts(hosts, now_s, notices)
        for report in reports:
            if report.unit in self._units and report.unit not in self._restarting:
                self._hear(report, now_s, notices)
        self._give_up_wishes(now_s, notices)
        self._find_hung(now_s, notices)
        return notices

    def orders(self, now_s: float) -> Orders:
        """What has to be said below now; a host that is to go and is empty is marked as leaving."""
        delete = []
        occupied: frozenset[str] | None = None
        for host in tuple(self._hosts.values()):
            if host.leaving:
                delete.append(host)
            elif host.state is HostState.DRAINING:
                if occupied is None:
                    occupied = self._occupied()
                if host.id not in occupied:
                    delete.append(self._set_host(replace(host, leaving=True)))
        idle = [life for life in self._units.values() if life.state is not UnitState.RUNNING]
        submit = tuple(life.name for life in idle if self._due(life, now_s))
        for name in submit:
            life = self._units[name]
            if life.state is not UnitState.SUBMITTED:
                submitted = {"submitted_s": now_s, "next_start_s": None, "attempt": life.attempt + 1}
                self._set_unit(life.moved(UnitState.SUBMITTED, **submitted))
            self._unsubmitted.discard(name)
            self._restarting.discard(name)
            self._heard_s[name] = now_s
            self._untold.pop(name, None)
        tell = tuple(self._untold)
        self._untold.clear()
        create = tuple(host for host in self._hosts.values() if host.state is HostState.REQUESTED)
        return Orders(create, tuple(delete), submit, tell)

    def not_deleted(self, host: str) -> None:
        """A provider could not take a host back: it is asked again."""
        known = self._hosts.get(host)
        if known is not None and known.leaving:
            self._set_host(replace(known, leaving=known.state is HostState.FAILED))

    def say_again(self) -> None:
        """Everything wanted is said anew, as after a restart."""
        self._untold = dict.fromkeys(self._members)

    def restore(self, living: Iterable[Living], now_s: float) -> None:
        """Take up what an earlier controller of the run wrote down; silence counts from now on."""
        for one in living:
            if isinstance(one, Host):
                # It may still come up: the time it may take to do so begins anew.
                waits = one.state in _COMING
                self._hosts[one.id] = replace(one, requested_s=now_s) if waits else one
                self._see_host_anew(one.id)
            elif isinstance(one, UnitLife):
                if one.name in self._units:
                    # Whoever starts the run again has it tried again.
                    self._units[one.name] = replace(one, failures=0, next_start_s=now_s) if one.asks else one
                    self._heard_s[one.name] = now_s
                    if one.state is UnitState.SUBMITTED:
                        self._unsubmitted.add(one.name)
            elif one.unit in self._members:
                self._instances[one.id] = self._members[one.unit][one.id] = one
                self._see_instances(one.unit)
        self._wanted.clear()
        self.say_again()

    # -- hosts -----------------------------------------------------------------------------------

    def _see_hosts(self, hosts: Mapping[str, Sequence[Host]], now_s: float, notices: list[str]) -> None:
        shown = self._hosts_shown
        present = {host.id: host for seen in hosts.values() for host in seen}
        for name, host in present.items():
            # A provider shows the same object while nothing changed: a thousand hosts cost nothing.
            if shown.get(name) is not host:
                shown[name] = host
                self._see_host(host, now_s, notices)
        for name in [name for name in self._hosts if name not in present]:
            shown.pop(name, None)
            host = self._hosts[name]
            # What was asked for may not be listed yet. What was listed and is not any more is gone.
            if host.site in hosts and (host.state is not HostState.REQUESTED or host.leaving):
                self._lose_instances(host, now_s, notices)
                self._drop_host(host.moved(HostState.RELEASED))

    def _see_host(self, seen: Host, now_s: float, notices: list[str]) -> None:
        known = self._hosts.get(seen.id)
        if known is None:
            if seen.state in HOST_ALIVE:
                self._set_host(seen)
            return
        state = known.state
        if seen.state is HostState.FAILED and state is not HostState.FAILED:
            state = HostState.FAILED
            notices.append(f"host {seen.id} failed{f': {seen.problem}' if seen.problem else ''}")
        elif state in _COMING and seen.state in HOST_TAKES:
            state = seen.state
            if state is HostState.UP and seen.up_s is not None:
                self._watch.add("host_start_s", seen.up_s - known.requested_s)
        host = known.moved(
            state,
            up_s=seen.up_s if seen.up_s is not None else known.up_s,
            address=seen.address or known.address,
            problem=seen.problem or known.problem,
            taken_s=seen.taken_s,
        )
        if host != known:
            self._set_host(host)
        if state is HostState.FAILED:
            self._lose_instances(host, now_s, notices)

    def _drain(self, name: str, asked: bool = False) -> str | None:
        host = self._hosts.get(name)
        if host is None or host.state is HostState.DRAINING or host.leaving:
            return None
        if host.state is HostState.FAILED:
            self._set_host(replace(host, leaving=True))
        else:
            self._set_host(host.moved(HostState.DRAINING, asked=asked))
        return None

    def _occupied(self) -> frozenset[str]:
        """Hosts on which something runs or still retires, and those of instances that are nobody's."""
        found = {i.host for i in self._instances.values() if i.host is not None}
        for bound in self._bound.values():
            found.update(host for host in bound.strays.values() if host is not None)
        return frozenset(found)

    def _lose_instances(self, host: Host, now_s: float, notices: list[str]) -> None:
        """What was on a host that is no more: what retired is gone, the rest goes where there is room."""
        for instance in [i for i in self._instances.values() if i.host == host.id]:
            self._lose(instance, host.id, now_s, notices)

    def _lose(self, instance: Instance, host: str, now_s: float, notices: list[str]) -> None:
        if instance.state is _RETIRING:
            self._end(instance, InstanceState.STOPPED)
            return
        # Not to be waited for on this host: the room on the others is looked at without it.
        self._set(replace(instance, host=None))
        place = self._place_for(instance, host)
        if place is None:
            self._end(instance, InstanceState.FAILED)
            notices.append(f"{instance.id} was lost with host {host}: no room elsewhere")
        else:
            self._set(lost(instance, now_s, place))
            notices.append(f"{instance.id} was lost with host {host}; it is asked for on {place}")

    def _give_up_wishes(self, now_s: float, notices: list[str]) -> None:
        """What does not serve yet on a host that its provider takes away never will: it is not waited for."""
        taken = {
            h.id for h in self._hosts.values() if h.taken_s is not None and h.state is HostState.DRAINING
        }
        if not taken:
            return
        replaced = {i.replaces for i in self._instances.values()}
        for instance in [i for i in self._instances.values() if i.state is _REQUESTED and i.host in taken]:
            if instance.id in replaced:
                self._end(instance, InstanceState.STOPPED)
            else:
                self._lose(instance, str(instance.host), now_s, notices)

    # -- units and instances ---------------------------------------------------------------------

    def _hear(self, report: UnitReport, now_s: float, notices: list[str]) -> None:
        unit, life = report.unit, self._units[report.unit]
        first = life.application is None
        self._unsubmitted.discard(unit)
        self._heard_s[unit] = report.at_s
        anew = report.application is not None and report.application != life.application
        if report.state is not life.state or anew:
            life = self._lives_on(life, report, now_s, notices)
        known = self._bound.get(unit)
        if known is not None and known.shown is report.instances and not anew:
            return
        adopted = self._found_in(unit, now_s) if first and not self._members[unit] else None
        bound = bind(self._members[unit], report.instances, self._hosts, now_s, adopted=adopted, anew=anew)
        self._bound[unit] = bound
        for before, after in bound.changes:
            self._enter(before, after, now_s, notices, told=not anew)
        if known is None or (known.surplus, known.plugs) != (bound.surplus, bound.plugs):
            self._touched(unit)

    def _found_in(self, unit: str, now_s: float) -> Callable[[SeenInstance], Instance]:
        """Makes an instance of one that ran before anybody asked for it."""
        cores, memory_mib = self.topology.unit_cores(unit), self.topology.unit_memory_mib(unit)
        return lambda seen: Instance(
            f"{unit}-found-{seen.id}", unit, None, _REQUESTED, cores, memory_mib, now_s
        )

    def _enter(
        self, before: Instance | None, after: Instance, now_s: float, notices: list[str], *, told: bool
    ) -> None:
        """Enter what a report came to for one instance."""
        if after.state is InstanceState.STOPPED:
            assert before is not None
            self._end(after, InstanceState.STOPPED)
            if before.retiring_s is not None:
                self._watch.add("retire_s", now_s - before.retiring_s)
            if before.id in self._moving_s:
                self._watch.add("move_s", now_s - self._moving_s.pop(before.id))
            return
        bound_to = before.external_id if before is not None else None
        if before is not None and bound_to is not None and after.external_id != bound_to:
            self._set(lost(before, now_s))
            if told:
                notices.append(
                    f"{before.id} of unit {before.unit} was lost ({bound_to}); another is asked for"
                )
            if after.external_id is None:
                return
        self._set(after)
        self._make_way(before.host if before is not None else None, after.host)
        host = self._hosts.get(after.host or "")
        if host is not None and after.unit not in host.images:
            self._set_host(replace(host, images=host.images | {after.unit}))
        if after.state is _RUNNING and (before is None or before.state is not _RUNNING):
            if before is not None and after.running_s is not None:
                up_s = host.up_s if host is not None and host.up_s is not None else after.requested_s
                self._watch.add("instance_start_s", after.running_s - max(after.requested_s, up_s))
            if after.replaces is not None:
                self._retire(after.replaces, now_s)
                self._set(replace(after, replaces=None))

    def _retire(self, name: str, now_s: float) -> None:
        """An instance finishes and goes; one that does not serve yet is gone at once."""
        instance = self._instances.get(name)
        if instance is None or instance.state is _RETIRING:
            return
        if instance.state is not _RUNNING:
            self._end(instance, InstanceState.STOPPED)
            return
        heir = self._heir(instance)
        if heir is not None:
            # Instances of such a plane are alike: rather than end one that serves and wait for another to
            # start, the one that waits takes it over, and one wish less is open.
            self._end(instance, InstanceState.STOPPED)
            self._set(heir.moved(_RUNNING, external_id=instance.external_id, running_s=instance.running_s))
            return
        self._set(instance.moved(_RETIRING, retiring_s=now_s))

    def _resize(self, action: ResizeInstance) -> str | None:
        known = self._instances.get(action.instance)
        if known is None or known.state not in INSTANCE_COUNTED:
            return f"instance {action.instance} is not there"
        shape = self.topology.unit_shape(known.unit, action.slots)
        if known.cores != shape.cores:
            self._set(replace(known, cores=shape.cores, memory_mib=shape.memory_mib))
        return None

    def _heir(self, instance: Instance) -> Instance | None:
        bound = self._bound.get(instance.unit)
        if bound is None or bound.named:
            return None
        for other in self._members[instance.unit].values():
            if other.state is _REQUESTED and other.host == instance.host and other.replaces is None:
                return other
        return None

    def _find_hung(self, now_s: float, notices: list[str]) -> None:
        """Units, hosts and instances that were not heard of for longer than they may be."""
        limits = self.limits
        self._listens(now_s)
        allowed_s = {UnitState.RUNNING: limits.unit_silent_s, UnitState.SUBMITTED: limits.unit_start_s}
        for unit, life in self._units.items():
            silent_s = now_s - self._heard_s.get(unit, now_s)
            if silent_s > allowed_s.get(life.state, math.inf) and not self.stopping:
                self._goes_down(life, f"silent for {silent_s:.0f} s", now_s, notices)
        for host in [h for h in self._hosts.values() if h.state in _COMING]:
            if now_s - max(host.requested_s, self._awake_s) > limits.host_start_s:
                problem = f"it did not join within {limits.host_start_s:.0f} s"
                notices.append(f"host {host.id} is given up: {problem}")
                given_up = self._set_host(host.moved(HostState.FAILED, problem=problem))
                self._lose_instances(given_up, now_s, notices)
        for instance in [i for i in self._instances.values() if i.state is _REQUESTED]:
            waits = now_s - max(instance.requested_s, self._awake_s) > limits.instance_start_s
            if waits and instance.id not in self._told_of:
                self._told_of.add(instance.id)
                notices.append(
                    f"{instance.id} was not granted within {limits.instance_start_s:.0f} s: the cluster has "
                    "no room for it or does not answer; the wish for it stands"
                )

    def _all_wanted(self, unit: str) -> Wanted:
        members, bound = tuple(self._members[unit].values()), self._bound.get(unit)
        found = wanted_of(self.topology, unit, members, bound, self._hurried, self.stopping)
        return replace(found, drain=True) if unit in self._draining else found
