"""Hosts and instances, the states they pass through, and what runs where.

The life of a host and of an instance is one table each, below. Only the fleet moves them, and only along
these tables (`moved`), so a simulated host and a real one live the same life.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from penstock.errors import TransitionError
from penstock.infrastructure.placement import Room
from penstock.plain import Word
from penstock.topology.model import HostFlavour


class HostState(Word):
    """Where a host is in its life."""

    REQUESTED = "requested"
    STARTING = "starting"
    UP = "up"
    DRAINING = "draining"
    RELEASED = "released"
    FAILED = "failed"


class InstanceState(Word):
    """Where an instance is in its life."""

    REQUESTED = "requested"
    STARTING = "starting"
    RUNNING = "running"
    RETIRING = "retiring"
    STOPPED = "stopped"
    FAILED = "failed"


HOST_TRANSITIONS: Mapping[HostState, frozenset[HostState]] = {
    # Leased in the books, not yet shown by the provider. Paid from here on. Released before it was shown:
    # where the provider gave it all the same, it is taken back.
    HostState.REQUESTED: frozenset(
        {HostState.STARTING, HostState.UP, HostState.FAILED, HostState.DRAINING, HostState.RELEASED}
    ),
    # The provider boots it. Released while starting: the boot is abandoned, the unit stays paid.
    HostState.STARTING: frozenset({HostState.UP, HostState.FAILED, HostState.DRAINING, HostState.RELEASED}),
    # Takes instances.
    HostState.UP: frozenset({HostState.DRAINING, HostState.RELEASED, HostState.FAILED}),
    # Takes no new instances; those on it retire. Kept after all where it would not be empty in time.
    HostState.DRAINING: frozenset({HostState.RELEASED, HostState.FAILED, HostState.UP}),
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
    # Image download, process start. Lost meanwhile: the wish for it stands, so it is requested again.
    InstanceState.STARTING: frozenset(
        {InstanceState.RUNNING, InstanceState.REQUESTED, InstanceState.STOPPED, InstanceState.FAILED}
    ),
    # Serves records. Lost: the records it held wait again, and it is requested again under its name.
    InstanceState.RUNNING: frozenset(
        {InstanceState.RETIRING, InstanceState.REQUESTED, InstanceState.STOPPED, InstanceState.FAILED}
    ),
    # Finishes what it has begun, takes nothing new.
    InstanceState.RETIRING: frozenset({InstanceState.STOPPED, InstanceState.FAILED}),
    # Final.
    InstanceState.STOPPED: frozenset(),
    # Final: it was lost and there is no room for it any more.
    InstanceState.FAILED: frozenset(),
}


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
    address: str | None = None
    """Where it is reached; None until it is known, or where its name is enough."""
    problem: str | None = None
    """Why it failed, where it did."""
    leased: bool = True
    """False where it belongs to a cluster manager: it is neither paid nor given back."""
    asked: bool = False
    """Whether a person wants it to go: its release is not taken back."""
    leaving: bool = False
    """Whether it was told to go: nothing is on it any more, and the provider takes it back."""
    taken_s: float | None = None
    """When its provider will take it away, where it has given notice (spot)."""

    @property
    def takes(self) -> bool:
        """Whether instances may be put on it, now or when it is up: it is neither to go nor taken away."""
        return self.state in HOST_TAKES and self.taken_s is None

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
    """The plane's own name for it, for example a Spark executor id."""
    replaces: str | None = None
    """The instance that goes once this one serves."""
    retiring_s: float | None = None
    """When it was told to finish and go."""

    def moved(self, state: InstanceState, **changes: object) -> Instance:
        """The instance in another state; TransitionError where its life does not allow it."""
        if state != self.state and state not in INSTANCE_TRANSITIONS[self.state]:
            raise TransitionError(f"instance {self.id} cannot go from {self.state} to {state}")
        return replace(self, state=state, **changes)  # type: ignore[arg-type]


class Tables(NamedTuple):
    """Who serves where: the tables of a deployment, as far as whoever made it has them already."""

    by_unit: Mapping[str, tuple[Instance, ...]]
    running: Mapping[str, int]
    counted_by_host: Mapping[str, Sequence[Instance]]
    room: Mapping[str, Room]


@dataclass(frozen=True)
class Deployment:
    """What exists now: hosts and instances that are alive (or failed and not yet cleared away)."""

    hosts: Mapping[str, Host] = field(default_factory=dict)
    instances: Mapping[str, Instance] = field(default_factory=dict)
    tables: Tables | None = field(default=None, compare=False, repr=False)
    """The tables below, where whoever made it keeps them; they follow from hosts and instances."""

    @staticmethod
    def of(hosts: Iterable[Host] = (), instances: Iterable[Instance] = ()) -> Deployment:
        """A deployment of these hosts and instances."""
        return Deployment(
            {host.id: host for host in hosts}, {instance.id: instance for instance in instances}
        )

    @cached_property
    def by_unit(self) -> Mapping[str, tuple[Instance, ...]]:
        """Instances that serve or will serve (requested, starting, running), by unit, oldest first.

        One that is being replaced is left out: with its replacement it counts as one.
        """
        if self.tables is not None:
            return self.tables.by_unit
        members: defaultdict[str, list[Instance]] = defaultdict(list)
        for instance in self.instances.values():
            members[instance.unit].append(instance)
        found = {unit: counted(instances) for unit, instances in members.items()}
        return {unit: instances for unit, instances in found.items() if instances}

    @cached_property
    def running(self) -> Mapping[str, int]:
        """How many instances of each unit run; units of which none does are left out."""
        if self.tables is not None:
            return self.tables.running
        return Counter([i.unit for i in self.instances.values() if i.state is InstanceState.RUNNING])

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
        if self.tables is not None:
            return self.tables.counted_by_host
        found: defaultdict[str, list[Instance]] = defaultdict(list)
        for members in self.by_unit.values():
            for instance in members:
                if instance.host is not None:
                    found[instance.host].append(instance)
        return dict(found)

    @cached_property
    def room(self) -> Mapping[str, Room]:
        """Room on each host that takes instances, once those that retire are gone."""
        if self.tables is not None:
            return self.tables.room
        members = self.counted_by_host
        return {name: room_on(host, members.get(name, ())) for name, host in self.hosts.items() if host.takes}

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


def counted(members: Collection[Instance]) -> tuple[Instance, ...]:
    """Those of a unit's instances that serve or will serve, without any that is being replaced."""
    found = tuple([instance for instance in members if instance.state in INSTANCE_COUNTED])
    replaced = {instance.replaces for instance in members}
    if replaced == _NONE_REPLACED:
        return found
    return tuple([instance for instance in found if instance.id not in replaced])


_NONE_REPLACED = {None}


def room_on(host: Host, members: Iterable[Instance]) -> Room:
    """The room that these instances leave on a host."""
    cores, memory_mib = host.flavour.cores, host.flavour.memory_mib
    for instance in members:
        cores -= instance.cores
        memory_mib -= instance.memory_mib
    return Room(cores, memory_mib)
