"""Hosts and instances, the states they pass through, and what runs where.

The life of a host and of an instance is one table each, below. Every adapter moves them only along
these tables (`moved`), so a simulated host and a real one live the same life.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from penstock.errors import TransitionError
from penstock.topology.model import HostFlavour


class HostState(StrEnum):
    """Where a host is in its life."""

    REQUESTED = "requested"
    STARTING = "starting"
    UP = "up"
    DRAINING = "draining"
    RELEASED = "released"
    FAILED = "failed"


class InstanceState(StrEnum):
    """Where an instance is in its life."""

    REQUESTED = "requested"
    STARTING = "starting"
    RUNNING = "running"
    RETIRING = "retiring"
    STOPPED = "stopped"
    FAILED = "failed"


HOST_TRANSITIONS: Mapping[HostState, frozenset[HostState]] = {
    # Leased in the books, not yet acknowledged by the provider. Paid from here on.
    HostState.REQUESTED: frozenset({HostState.STARTING, HostState.UP, HostState.FAILED, HostState.RELEASED}),
    # The provider boots it. Released while starting: the boot is abandoned, the unit stays paid.
    HostState.STARTING: frozenset({HostState.UP, HostState.FAILED, HostState.DRAINING, HostState.RELEASED}),
    # Takes instances.
    HostState.UP: frozenset({HostState.DRAINING, HostState.RELEASED, HostState.FAILED}),
    # Takes no new instances; those on it retire.
    HostState.DRAINING: frozenset({HostState.RELEASED, HostState.FAILED}),
    # Final: given back, the lease is closed.
    HostState.RELEASED: frozenset(),
    # It died: instances on it are gone. It still has to be released, or it would be paid for ever.
    HostState.FAILED: frozenset({HostState.RELEASED}),
}

INSTANCE_TRANSITIONS: Mapping[InstanceState, frozenset[InstanceState]] = {
    # Wanted, but its host is not up yet or Spark has not granted the executor.
    InstanceState.REQUESTED: frozenset(
        {InstanceState.STARTING, InstanceState.RUNNING, InstanceState.STOPPED, InstanceState.FAILED}
    ),
    # Image download, process start.
    InstanceState.STARTING: frozenset({InstanceState.RUNNING, InstanceState.STOPPED, InstanceState.FAILED}),
    # Serves records.
    InstanceState.RUNNING: frozenset({InstanceState.RETIRING, InstanceState.STOPPED, InstanceState.FAILED}),
    # Finishes what it has begun, takes nothing new.
    InstanceState.RETIRING: frozenset({InstanceState.STOPPED, InstanceState.FAILED}),
    # Final.
    InstanceState.STOPPED: frozenset(),
    # Final: it died; the records it held wait again.
    InstanceState.FAILED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Room:
    """Room left on a host: cores and memory."""

    cores: float
    memory_mib: int

    def holds(self, cores: float, memory_mib: int) -> bool:
        """Whether an instance of these needs fits."""
        # Needs such as 0.1 + 0.2 cores must not fail on the last bit.
        return self.cores >= cores - 1e-9 and self.memory_mib >= memory_mib

    def less(self, cores: float, memory_mib: int) -> Room:
        """The room left after an instance of these needs is placed."""
        return Room(self.cores - cores, self.memory_mib - memory_mib)

    def more(self, cores: float, memory_mib: int) -> Room:
        """The room left after an instance of these needs is gone."""
        return Room(self.cores + cores, self.memory_mib + memory_mib)


HOST_ALIVE = frozenset({HostState.REQUESTED, HostState.STARTING, HostState.UP, HostState.DRAINING})
HOST_TAKES = HOST_ALIVE - {HostState.DRAINING}
"""The states in which a host takes instances, now or once it is up."""
INSTANCE_ALIVE = frozenset(
    {InstanceState.REQUESTED, InstanceState.STARTING, InstanceState.RUNNING, InstanceState.RETIRING}
)
INSTANCE_COUNTED = frozenset({InstanceState.REQUESTED, InstanceState.STARTING, InstanceState.RUNNING})
"""The states in which an instance counts for its unit's parallelism: it serves or will serve."""


@dataclass(frozen=True, slots=True)
class Host:
    """A leased machine as last observed."""

    id: str
    site: str
    flavour: HostFlavour
    state: HostState = HostState.REQUESTED
    requested_s: float = 0.0
    up_s: float | None = None
    images: frozenset[str] = frozenset()
    """Units whose code is cached on the host, so that a further instance starts sooner."""

    def moved(self, state: HostState, **changes: object) -> Host:
        """The host in another state; TransitionError where its life does not allow it."""
        if state != self.state and state not in HOST_TRANSITIONS[self.state]:
            raise TransitionError(f"host {self.id} cannot go from {self.state} to {state}")
        return replace(self, state=state, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Instance:
    """One replica of a unit as last observed."""

    id: str
    unit: str
    host: str | None = None
    """The host it runs on; None until it is known (Spark chooses)."""
    state: InstanceState = InstanceState.REQUESTED
    cores: float = 1.0
    memory_mib: int = 512
    requested_s: float = 0.0
    running_s: float | None = None
    external_id: str | None = None
    """The name the cluster gave it, for example a Spark executor id."""

    def moved(self, state: InstanceState, **changes: object) -> Instance:
        """The instance in another state; TransitionError where its life does not allow it."""
        if state != self.state and state not in INSTANCE_TRANSITIONS[self.state]:
            raise TransitionError(f"instance {self.id} cannot go from {self.state} to {state}")
        return replace(self, state=state, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Deployment:
    """What exists now: hosts and instances that are alive (or failed and not yet cleared away)."""

    hosts: Mapping[str, Host] = field(default_factory=dict)
    instances: Mapping[str, Instance] = field(default_factory=dict)

    @staticmethod
    def of(hosts: Iterable[Host] = (), instances: Iterable[Instance] = ()) -> Deployment:
        """A deployment of these hosts and instances."""
        return Deployment(
            {host.id: host for host in hosts}, {instance.id: instance for instance in instances}
        )

    @cached_property
    def by_unit(self) -> Mapping[str, tuple[Instance, ...]]:
        """Instances that serve or will serve (requested, starting, running), by unit, oldest first."""
        found: defaultdict[str, list[Instance]] = defaultdict(list)
        for instance in self.instances.values():
            if instance.state in INSTANCE_COUNTED:
                found[instance.unit].append(instance)
        return {unit: tuple(members) for unit, members in found.items()}

    @cached_property
    def by_host(self) -> Mapping[str, tuple[Instance, ...]]:
        """Every living instance, retiring ones too, by host."""
        found: defaultdict[str, list[Instance]] = defaultdict(list)
        for instance in self.instances.values():
            if instance.host is not None and instance.state in INSTANCE_ALIVE:
                found[instance.host].append(instance)
        return {host: tuple(members) for host, members in found.items()}

    @cached_property
    def counted_by_host(self) -> Mapping[str, Sequence[Instance]]:
        """Instances that serve or will serve, by host: what a host holds once retiring ones are gone."""
        found: dict[str, list[Instance]] = {}
        for members in self.by_unit.values():
            for instance in members:
                host = instance.host
                if host in found:
                    found[host].append(instance)
                elif host is not None:
                    found[host] = [instance]
        return found

    @cached_property
    def room(self) -> Mapping[str, Room]:
        """Room on each host that takes instances, once those that retire are gone."""
        found, members = {}, self.counted_by_host
        for name, host in self.hosts.items():
            if host.state in HOST_TAKES:
                cores, memory_mib = host.flavour.cores, host.flavour.memory_mib
                for instance in members.get(name, ()):
                    cores -= instance.cores
                    memory_mib -= instance.memory_mib
                found[name] = Room(cores, memory_mib)
        return found

    @cached_property
    def leased(self) -> Mapping[str, Mapping[str, int]]:
        """How many living hosts there are, by site and flavour."""
        found: dict[str, dict[str, int]] = {}
        for host in self.hosts.values():
            if host.state in HOST_ALIVE:
                counts = found.setdefault(host.site, {})
                counts[host.flavour.name] = counts.get(host.flavour.name, 0) + 1
        return found

    def of_unit(self, unit: str) -> tuple[Instance, ...]:
        """The unit's instances that serve or will serve."""
        return self.by_unit.get(unit, ())

    def on_host(self, host: str) -> tuple[Instance, ...]:
        """The living instances on a host."""
        return self.by_host.get(host, ())

    def free(self, host: str) -> tuple[float, int]:
        """Cores and MiB of memory still free on a host."""
        flavour = self.hosts[host].flavour
        members = self.on_host(host)
        return (
            flavour.cores - sum(instance.cores for instance in members),
            flavour.memory_mib - sum(instance.memory_mib for instance in members),
        )

    def hosts_at(self, site: str) -> tuple[Host, ...]:
        """The living hosts of a site."""
        return tuple(host for host in self.hosts.values() if host.site == site and host.state in HOST_ALIVE)
