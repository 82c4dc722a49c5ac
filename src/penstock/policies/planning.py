"""A what-if deployment: starts, stops, leases and releases are tried here before they become actions.

Every policy plans on it, so capacity, quotas and the naming of new hosts and instances exist once.
Nothing here decides when to scale; it only answers where, and remembers what was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from penstock.fleet.actions import (
    Action,
    Hold,
    LeaseHost,
    MigrateInstance,
    ProlongLease,
    ReleaseHost,
    ResizeInstance,
    StartInstance,
    StopInstance,
)
from penstock.fleet.deployment import (
    Deployment,
    Host,
    HostState,
    Instance,
    InstanceState,
)
from penstock.infrastructure.placement import Room, flavour_to_lease
from penstock.policies.view import View
from penstock.quantities import counted

MOST_STARTS = 100
"""So many instances are started by one decision. The rest is wanted still and planned at the next turn: each
stays short however many hosts are asked for, and no cloud gives them faster."""

HostChooser = Callable[["Plan", str, tuple[str, ...]], str | None]
"""Picks one of the candidate hosts for an instance of a unit, or None to take none of them."""


def most_filled(plan: Plan, unit: str, candidates: tuple[str, ...]) -> str | None:
    """The candidate with the least room left: packs instances tightly, so that hosts can empty."""
    return min(candidates, key=lambda host: (plan.room[host].cores, plan.room[host].memory_mib, host))


NO_HOST = "no host can be leased"
"""In the reason of a hold: the unit needs one more, and none of its sites has one to give."""


class Plan:
    """A mutable copy of the deployment in a view, on which a policy tries its actions."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._actions: list[Action] = []
        self._next_host = view.next_host
        self._next_instance = view.next_instance
        self._starts = view.started
        deployment = view.deployment
        self._leased = {site: dict(counts) for site, counts in deployment.leased.items()}
        self.room: dict[str, Room] = dict(deployment.room)
        """Room left on each host that takes instances, after everything planned so far."""
        self.site_of: dict[str, str] = {host: deployment.hosts[host].site for host in self.room}
        """The site of each host that takes instances."""
        # Copied out of the deployment where something changes, and only there: most of it never does.
        self._members: dict[str, dict[str, Instance]] = {}
        self._on_host: dict[str, dict[str, Instance]] = {}
        # Hosts with some room: where a thousand hosts are full, a start must not look at each of them.
        self._with_room = {h: None for h, room in self.room.items() if room.cores > 0 and room.memory_mib > 0}

    # -- looking ---------------------------------------------------------------------------------

    @property
    def actions(self) -> tuple[Action, ...]:
        """Everything planned so far, in order."""
        return tuple(self._actions)

    def count(self, unit: str) -> int:
        """Instances of a unit after everything planned so far (retiring ones are gone)."""
        members = self._members.get(unit)
        return len(self.view.deployment.of_unit(unit) if members is None else members)

    def instances(self, unit: str) -> tuple[Instance, ...]:
        """The unit's instances after everything planned so far, oldest first."""
        members = self._members.get(unit)
        return self.view.deployment.of_unit(unit) if members is None else tuple(members.values())

    def on_host(self, host: str) -> tuple[Instance, ...]:
        """Instances on a host after everything planned so far."""
        members = self._on_host.get(host)
        if members is None:
            return tuple(self.view.deployment.counted_by_host.get(host, ()))
        return tuple(members.values())

    def candidates(self, unit: str, exclude: Collection[str] = ()) -> tuple[str, ...]:
        """Hosts at the unit's sites with room for one more instance of it."""
        cores = self.view.topology.unit_cores(unit)
        memory_mib = self.view.topology.unit_memory_mib(unit)
        allowed = {site.name for site in self.view.topology.sites_of(unit)}
        return tuple(
            host
            for host in self._with_room
            if self.room[host].holds(cores, memory_mib)
            and self.site_of[host] in allowed
            and host not in exclude
        )

    # -- planning --------------------------------------------------------------------------------

    def hold(self, unit: str, reason: str) -> None:
        """Record that nothing is done for a unit, on purpose."""
        self._actions.append(Hold(unit, reason))

    def start(
        self,
        unit: str,
        reason: str,
        *,
        choose: HostChooser = most_filled,
        exclude: Collection[str] = (),
        may_lease: bool = True,
        wanted: int | None = None,
    ) -> bool:
        """Start one instance on the chosen host with room, else on a newly leased one.

        Where so many are `wanted` in all, the host is of the flavour that holds them for the least money.
        False, with a recorded hold, where the unit is at its bound or no host can be had.
        """
        bound = self.view.topology.unit_by_name[unit].max_instances
        if self.count(unit) >= bound:
            self.hold(unit, f"{reason}; but it has its {counted(bound, 'instance')} already")
            return False
        if self._starts >= MOST_STARTS:
            self.hold(unit, f"{reason}; the rest follows: {counted(MOST_STARTS, 'instance')} start already")
            return False
        candidates = self.candidates(unit, exclude)
        host = choose(self, unit, candidates) if candidates else None
        if host is None and may_lease:
            host = self.lease(unit, reason, wanted)
        if host is None:
            return False
        self.start_on(unit, host, reason)
        return True

    def grow(self, unit: str, wanted: int, reason: str) -> None:
        """Start instances until there are so many, or no host can be had for one."""
        while (more := wanted - self.count(unit)) > 0 and self.start(unit, reason, wanted=more):
            pass

    def start_on(self, unit: str, host: str | None, reason: str, slots: int | None = None) -> str:
        """Start one instance on this very host, of so many slots where given; its name."""
        instance = self._new_instance(unit, host, slots)
        self._starts += 1
        self._actions.append(StartInstance(instance.id, unit, host, reason, slots))
        return instance.id

    def slots(self, instance: Instance) -> int:
        """The slots of an instance."""
        return self.view.topology.slots_of(instance.unit, instance.cores)

    def resize(self, instance: Instance, slots: int, reason: str) -> Instance:
        """Give an instance another number of slots, in place; what it is from then on."""
        shape = self.view.topology.unit_shape(instance.unit, slots)
        changed = replace(instance, cores=shape.cores, memory_mib=shape.memory_mib)
        order = list(self._members_of(instance.unit))
        self._remove(instance)
        self._place(changed)
        members = self._members_of(instance.unit)
        self._members[instance.unit] = {name: members[name] for name in order}
        self._actions.append(ResizeInstance(instance.id, instance.unit, slots, reason))
        return changed

    def stop(self, instance: Instance, reason: str) -> bool:
        """Retire an instance; False, with a recorded hold, where it is the unit's last or at its bound."""
        least = max(1, self.view.topology.unit_by_name[instance.unit].min_instances)
        if self.count(instance.unit) <= least:
            self.hold(instance.unit, f"{reason}; but it has its least of {counted(least, 'instance')}")
            return False
        self._remove(instance)
        self._actions.append(StopInstance(instance.id, instance.unit, reason))
        return True

    def migrate(self, instance: Instance, to_host: str, reason: str) -> str:
        """Move an instance to another host: a replacement starts there, then the old one retires."""
        self._remove(instance)
        slots = self.slots(instance)
        grown = slots if slots != self.view.topology.unit_by_name[instance.unit].slots else None
        replacement = self._new_instance(instance.unit, to_host, grown)
        unit = instance.unit
        self._actions.append(MigrateInstance(instance.id, replacement.id, unit, to_host, reason, grown))
        return replacement.id

    def lease(self, unit: str, reason: str, wanted: int | None = None) -> str | None:
        """Lease a host for a unit; its name, or None with a recorded hold where no site has one to give."""
        found = flavour_to_lease(self.view.topology, unit, self._leased, self.view.withheld, wanted)
        if isinstance(found, str):
            self.hold(unit, f"{reason}; but {NO_HOST}: {found}")
            return None
        site, flavour = found
        host = f"{site.name}-h{self._next_host}"
        self._next_host += 1
        counts = self._leased.setdefault(site.name, {})
        counts[flavour.name] = counts.get(flavour.name, 0) + 1
        self.site_of[host] = site.name
        self._set_room(host, Room(flavour.cores, flavour.memory_mib))
        self._actions.append(LeaseHost(host, site.name, flavour.name, reason, unit))
        return host

    def prolong(self, host: str, reason: str) -> None:
        """Pay one more billing time unit for a host."""
        self._actions.append(ProlongLease(host, reason))

    def release(self, host: str, reason: str) -> None:
        """Give an empty host back."""
        self.room.pop(host, None)
        self._with_room.pop(host, None)
        self._actions.append(ReleaseHost(host, reason))

    def release_empty_hosts(self, reason: str = "no instance is on it") -> None:
        """Give back every host that is up and that nothing runs on after what was planned so far.

        A host that other policies' instances use is not empty; one still starting is about to be used.
        """
        deployment = self.view.deployment
        occupied = {**deployment.counted_by_host, **self._on_host}
        for host in [host for host in self.room if not occupied.get(host)]:
            known = deployment.hosts.get(host)
            if known is not None and known.state is HostState.UP and known.leased:
                self.release(host, reason)

    # -- inside ----------------------------------------------------------------------------------

    def _new_instance(self, unit: str, host: str | None, slots: int | None = None) -> Instance:
        shape = self.view.topology.unit_shape(unit, slots)
        instance = Instance(
            f"{unit}-{self._next_instance}",
            unit,
            host,
            InstanceState.REQUESTED,
            shape.cores,
            shape.memory_mib,
            self.view.now_s,
        )
        self._next_instance += 1
        self._place(instance)
        return instance

    def _place(self, instance: Instance) -> None:
        self._members_of(instance.unit)[instance.id] = instance
        if instance.host is not None:
            self._inside(instance.host)[instance.id] = instance
            room = self.room.get(instance.host)
            if room is not None:
                self._set_room(instance.host, room.less(instance.cores, instance.memory_mib))

    def _remove(self, instance: Instance) -> None:
        del self._members_of(instance.unit)[instance.id]
        if instance.host is not None:
            self._inside(instance.host).pop(instance.id, None)
            room = self.room.get(instance.host)
            if room is not None:
                self._set_room(instance.host, room.more(instance.cores, instance.memory_mib))

    def _members_of(self, unit: str) -> dict[str, Instance]:
        """The unit's instances, free to be changed."""
        if unit not in self._members:
            self._members[unit] = {i.id: i for i in self.view.deployment.of_unit(unit)}
        return self._members[unit]

    def _inside(self, host: str) -> dict[str, Instance]:
        """The instances on a host, free to be changed."""
        if host not in self._on_host:
            known = self.view.deployment.counted_by_host.get(host, ())
            self._on_host[host] = {i.id: i for i in known}
        return self._on_host[host]

    def _set_room(self, host: str, room: Room) -> None:
        self.room[host] = room
        if room.cores > 0 and room.memory_mib > 0:
            self._with_room[host] = None
        else:
            self._with_room.pop(host, None)


def projected(view: View, actions: Sequence[Action]) -> Deployment:
    """The deployment once these actions are carried out, as far as it can be known beforehand."""
    hosts = dict(view.deployment.hosts)
    instances = dict(view.deployment.instances)
    topology = view.topology

    def begin(name: str, unit: str, host: str | None, slots: int | None) -> None:
        shape = topology.unit_shape(unit, slots)
        instances[name] = Instance(
            name, unit, host, InstanceState.REQUESTED, shape.cores, shape.memory_mib, view.now_s
        )

    def leave(name: str) -> None:
        instance = instances.get(name)
        if instance is None:
            return
        if instance.state is InstanceState.RUNNING:
            instances[name] = instance.moved(InstanceState.RETIRING)
        elif instance.state is not InstanceState.RETIRING:
            del instances[name]

    for action in actions:
        if isinstance(action, LeaseHost):
            flavour = topology.site_by_name[action.site].flavour(action.flavour)
            hosts[action.host] = Host(action.host, action.site, flavour, HostState.REQUESTED, view.now_s)
        elif isinstance(action, ReleaseHost):
            hosts.pop(action.host, None)
        elif isinstance(action, ResizeInstance) and action.instance in instances:
            shape, known = topology.unit_shape(action.unit, action.slots), instances[action.instance]
            instances[known.id] = replace(known, cores=shape.cores, memory_mib=shape.memory_mib)
        if action.leaves is not None:
            leave(action.leaves)
        if action.starts is not None:
            begin(*action.starts)
    return Deployment(hosts, instances)


def right(count: int, what: str = "instance") -> str:
    """In words, for a reason: a unit has as many as it needs."""
    return f"{counted(count, what)} {'is' if count == 1 else 'are'} right"
