"""A what-if deployment: starts, stops, leases and releases are tried here before they become actions.

Every policy plans on it, so capacity, quotas and the naming of new hosts and instances exist once.
Nothing here decides when to scale; it only answers where, and remembers what was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from penstock.infrastructure.deployment import (
    HOST_ALIVE,
    Deployment,
    Host,
    HostState,
    Instance,
    InstanceState,
)
from penstock.infrastructure.placement import Room, flavour_to_lease
from penstock.policies.actions import (
    Action,
    Hold,
    LeaseHost,
    MigrateInstance,
    ProlongLease,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.policies.view import View

HostChooser = Callable[["Plan", str, tuple[str, ...]], str | None]
"""Picks one of the candidate hosts for an instance of a unit, or None to take none of them."""


def most_filled(plan: Plan, unit: str, candidates: tuple[str, ...]) -> str | None:
    """The candidate with the least room left: packs instances tightly, so that hosts can empty."""
    return min(candidates, key=lambda host: (plan.room[host].cores, plan.room[host].memory_mib, host))


class Plan:
    """A mutable copy of the deployment in a view, on which a policy tries its actions."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._actions: list[Action] = []
        self._next_host = view.next_host
        self._next_instance = view.next_instance
        self._gone: set[str] = set()
        self._leased: dict[str, dict[str, int]] = {}
        self.room: dict[str, Room] = {}
        """Room left on each host that takes instances, after everything planned so far."""
        self.site_of: dict[str, str] = {}
        """The site of each host that takes instances."""
        self._members: dict[str, dict[str, Instance]] = {}
        self._on_host: dict[str, dict[str, Instance]] = {}
        deployment = view.deployment
        for host in deployment.hosts.values():
            if host.state in HOST_ALIVE:
                counts = self._leased.setdefault(host.site, {})
                counts[host.flavour.name] = counts.get(host.flavour.name, 0) + 1
                if host.state is not HostState.DRAINING:
                    self.room[host.id] = Room(host.flavour.cores, host.flavour.memory_mib)
                    self.site_of[host.id] = host.site
        for members in deployment.by_unit.values():
            for instance in members:
                self._place(instance)

    # -- looking ---------------------------------------------------------------------------------

    @property
    def actions(self) -> tuple[Action, ...]:
        """Everything planned so far, in order."""
        return tuple(self._actions)

    def count(self, unit: str) -> int:
        """Instances of a unit after everything planned so far (retiring ones are gone)."""
        return len(self._members.get(unit, ()))

    def instances(self, unit: str) -> tuple[Instance, ...]:
        """The unit's instances after everything planned so far, oldest first."""
        return tuple(self._members.get(unit, {}).values())

    def on_host(self, host: str) -> tuple[Instance, ...]:
        """Instances on a host after everything planned so far."""
        return tuple(self._on_host.get(host, {}).values())

    def candidates(self, unit: str, exclude: Collection[str] = ()) -> tuple[str, ...]:
        """Hosts at the unit's sites with room for one more instance of it."""
        cores = self.view.topology.unit_cores(unit)
        memory_mib = self.view.topology.unit_memory_mib(unit)
        allowed = {site.name for site in self.view.topology.sites_of(unit)}
        return tuple(
            host
            for host, room in self.room.items()
            if host not in exclude and self.site_of[host] in allowed and room.holds(cores, memory_mib)
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
    ) -> bool:
        """Start one instance on the chosen host with room, else on a newly leased one.

        False, with a recorded hold, where the unit is at its bound or no host can be had.
        """
        bound = self.view.topology.unit_by_name[unit].max_instances
        if self.count(unit) >= bound:
            self.hold(unit, f"{reason}; but it has its {bound} instances already")
            return False
        candidates = self.candidates(unit, exclude)
        host = choose(self, unit, candidates) if candidates else None
        if host is None and may_lease:
            host = self.lease(unit, reason)
        if host is None:
            return False
        self.start_on(unit, host, reason)
        return True

    def start_on(self, unit: str, host: str | None, reason: str) -> str:
        """Start one instance on this very host; its name."""
        instance = self._new_instance(unit, host)
        self._actions.append(StartInstance(instance.id, unit, host, reason))
        return instance.id

    def stop(self, instance: Instance, reason: str) -> bool:
        """Retire an instance; False, with a recorded hold, where it is the unit's last or at its bound."""
        least = max(1, self.view.topology.unit_by_name[instance.unit].min_instances)
        if self.count(instance.unit) <= least:
            self.hold(instance.unit, f"{reason}; but it has its least of {least} instances")
            return False
        self._remove(instance)
        self._actions.append(StopInstance(instance.id, instance.unit, reason))
        return True

    def migrate(self, instance: Instance, to_host: str, reason: str) -> str:
        """Move an instance to another host: a replacement starts there, then the old one retires."""
        self._remove(instance)
        replacement = self._new_instance(instance.unit, to_host)
        self._actions.append(MigrateInstance(instance.id, replacement.id, instance.unit, to_host, reason))
        return replacement.id

    def lease(self, unit: str, reason: str) -> str | None:
        """Lease a host for a unit; its name, or None with a recorded hold where no site has one to give."""
        found = flavour_to_lease(self.view.topology, unit, self._leased)
        if isinstance(found, str):
            self.hold(unit, f"{reason}; but no host can be leased: {found}")
            return None
        site, flavour = found
        host = f"{site.name}-h{self._next_host}"
        self._next_host += 1
        counts = self._leased.setdefault(site.name, {})
        counts[flavour.name] = counts.get(flavour.name, 0) + 1
        self.room[host] = Room(flavour.cores, flavour.memory_mib)
        self.site_of[host] = site.name
        self._actions.append(LeaseHost(host, site.name, flavour.name, reason, unit))
        return host

    def prolong(self, host: str, reason: str) -> None:
        """Pay one more billing time unit for a host."""
        self._actions.append(ProlongLease(host, reason))

    def release(self, host: str, reason: str) -> None:
        """Give an empty host back."""
        self.room.pop(host, None)
        self._actions.append(ReleaseHost(host, reason))

    def release_empty_hosts(self, reason: str = "no instance is on it") -> None:
        """Give back every host that is up and that nothing runs on after what was planned so far.

        A host that other policies' instances use is not empty; one still starting is about to be used.
        """
        for host in tuple(self.room):
            known = self.view.deployment.hosts.get(host)
            if known is not None and known.state is HostState.UP and not self._on_host.get(host):
                self.release(host, reason)

    # -- inside ----------------------------------------------------------------------------------

    def _new_instance(self, unit: str, host: str | None) -> Instance:
        topology = self.view.topology
        instance = Instance(
            f"{unit}-{self._next_instance}",
            unit,
            host,
            InstanceState.REQUESTED,
            topology.unit_cores(unit),
            topology.unit_memory_mib(unit),
            self.view.now_s,
        )
        self._next_instance += 1
        self._place(instance)
        return instance

    def _place(self, instance: Instance) -> None:
        self._members.setdefault(instance.unit, {})[instance.id] = instance
        if instance.host is not None:
            self._on_host.setdefault(instance.host, {})[instance.id] = instance
            room = self.room.get(instance.host)
            if room is not None:
                self.room[instance.host] = room.less(instance.cores, instance.memory_mib)

    def _remove(self, instance: Instance) -> None:
        self._gone.add(instance.id)
        del self._members[instance.unit][instance.id]
        if instance.host is not None:
            self._on_host.get(instance.host, {}).pop(instance.id, None)
            room = self.room.get(instance.host)
            if room is not None:
                self.room[instance.host] = room.more(instance.cores, instance.memory_mib)


def projected(view: View, actions: Sequence[Action]) -> Deployment:
    """The deployment once these actions are carried out, as far as it can be known beforehand."""
    hosts = dict(view.deployment.hosts)
    instances = dict(view.deployment.instances)
    topology = view.topology

    def begin(name: str, unit: str, host: str | None) -> None:
        cores, memory_mib = topology.unit_cores(unit), topology.unit_memory_mib(unit)
        instances[name] = Instance(name, unit, host, InstanceState.REQUESTED, cores, memory_mib, view.now_s)

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
        elif isinstance(action, StartInstance):
            begin(action.instance, action.unit, action.host)
        elif isinstance(action, StopInstance):
            leave(action.instance)
        elif isinstance(action, MigrateInstance):
            leave(action.instance)
            begin(action.replacement, action.unit, action.to_host)
    return Deployment(hosts, instances)
