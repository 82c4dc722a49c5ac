"""The frozen model of a topology: the words of the whole product.

Everything here is a value: compared by content, made once, never changed. The YAML file and the builder in
Python both end in a `Topology`; the simulator, the Spark plane and every policy read it. Structural mistakes
(cycles, unknown names) are found by `penstock.topology.validation`: a broken file can so be described whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from types import MappingProxyType
from typing import Any

from penstock.topology.graph import in_order


@dataclass(frozen=True, slots=True)
class Choice:
    """A named thing out of a registry with its parameters, such as policy `threshold` with `up_queue=50`."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted((key, repr(value)) for key, value in self.parameters.items()))))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Choice, (self.name, dict(self.parameters)))


@dataclass(frozen=True, slots=True)
class Service:
    """How long an operator works on one record, for the simulator: mean, spread and shape."""

    mean_s: float
    cv: float = 0.25
    """Coefficient of variation of the service time."""
    shape: str = "lognormal"
    """`lognormal`, `exponential` or `deterministic`."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where records enter: a Spark reader function for a real run, a workload for a simulated one."""

    name: str
    function: str | None = None
    """`module:function` taking a SparkSession and returning a streaming DataFrame."""
    workload: Choice | None = None
    """The arrival pattern, by its name in the workload registry."""
    schema: str | None = None
    """The records' columns as a Spark DDL string."""
    share: float = 1.0
    """Records this source emits for every record of the workload."""
    records: str | None = None
    """`module:function` that makes the columns of generated records; by default they are filled by type."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A named step: a function from DataFrames to a DataFrame, with its SLO and its needs."""

    name: str
    inputs: tuple[str, ...]
    function: str | None = None
    """`module:function`; takes one DataFrame for each input, by input name where there are several."""
    slo_s: float = 1.0
    """The longest acceptable processing duration of one record."""
    cores: float = 1.0
    memory_mib: int = 512
    stateful: bool = False
    ratio: float = 1.0
    """Records emitted towards each successor for every record consumed."""
    service: Service | None = None
    """Service time for the simulator; by default its mean is the SLO."""
    schema: str | None = None
    """Columns of the outgoing records as a Spark DDL string; needed where an edge crosses units."""
    on_error: str = "stop"
    """What a record the function throws on does: `stop`, `skip` (to the dead-letter channel) or `retry`."""

    @property
    def service_time(self) -> Service:
        """The service time to simulate: the given one, or one whose mean is the SLO."""
        return self.service if self.service is not None else Service(self.slo_s)


@dataclass(frozen=True, slots=True)
class Sink:
    """Where results leave: a function that takes a batch of records, or nothing (count and discard)."""

    name: str
    inputs: tuple[str, ...]
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """Operators deployed, scaled and budgeted together by one policy; one Spark application."""

    name: str
    operators: tuple[str, ...]
    sites: tuple[str, ...] = ()
    """Sites it may be at, the preferred first where they cost the same; none means every site."""
    policy: Choice = Choice("auto")
    filter: Choice = Choice("none")
    min_instances: int = 1
    max_instances: int = 50
    initial_instances: int = 1
    slots: int = 1
    """Parallel places inside one instance (executor cores on Spark)."""
    channel: str | None = None
    """The channel its outgoing edges cross; None means the topology's first."""
    max_slots: int | None = None
    """An instance may grow in place up to this many slots; None means that all have `slots`."""
    slot_memory_mib: int = 0
    """Memory that every slot beyond `slots` adds to an instance."""
    trigger_s: float = 0.0
    """The least time between the beginnings of two micro-batches; 0 means as soon as it can."""
    shards: int | None = None
    """Pieces its state is kept in: no more slots than these work on it. None means as many as Spark makes."""
    places: int = 1
    """Simulated, by a run's profile: records a slot has in hand at once, each so many times its work long."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of one instance of a unit: what a plan places is what a plane starts."""

    slots: int
    """Parallel places inside it (executor cores on Spark)."""
    cores: float
    memory_mib: int

    def fits(self, flavour: HostFlavour) -> bool:
        """Whether an empty host of this flavour holds one."""
        return flavour.cores >= self.cores and flavour.memory_mib >= self.memory_mib


@dataclass(frozen=True, slots=True)
class HostFlavour:
    """A kind of machine a site leases out."""

    name: str
    cores: float
    memory_mib: int
    price_per_btu: Decimal
    max_hosts: int | None = None
    type: str | None = None
    """The provider's own name for it; None means that it is the flavour's."""
    spot: bool = False
    """Whether it is bought as what nobody else wants: cheaper, and taken away at short notice."""
    listed: bool = False
    """Whether its price is by the provider's own list; until that was read it is 0."""

    @property
    def machine_type(self) -> str:
        """What the provider calls it."""
        return self.type or self.name

    @property
    def unread(self) -> bool:
        """Whether its price is yet to be read from the provider's list."""
        return self.listed and not self.price_per_btu


@dataclass(frozen=True, slots=True)
class Site:
    """A place with its own provider, prices, limits and Spark master."""

    name: str
    provider: Choice = Choice("simulated")
    btu_s: float = 3600.0
    """The billing time unit, which prices are for: every started one is paid whole."""
    flavours: tuple[HostFlavour, ...] = (HostFlavour("standard", 4.0, 7168, Decimal(6)),)
    max_hosts: int = 100
    currency: str = ""
    distance_s: Mapping[str, float] = field(default_factory=dict)
    """One-way delay to other sites, by name."""
    master: str | None = None
    """The Spark master's URL, where the site is an existing cluster."""
    minimum_s: float | None = None
    """The least time a lease is paid for; None means one increment."""
    increment_s: float | None = None
    """The steps in which time after the minimum is paid, each started one whole; None means the BTU."""
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """What the cluster manager behind the master has to know, such as a queue or a namespace."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark settings of every application at this site."""
    storage: str | None = None
    """What all of an existing cluster's machines share: a folder, or a URL of a distributed file system."""
    core_hour: Decimal = Decimal(0)
    """What one core of an instance costs for an hour, where hosts are the cluster manager's."""
    gib_hour: Decimal = Decimal(0)
    """What one GiB of an instance's memory costs for an hour, where hosts are the cluster manager's."""
    budget: Decimal = Decimal(0)
    """Most that leases may cost in 30 days before no further host is leased; 0 means no limit."""

    def __post_init__(self) -> None:
        for name in ("distance_s", "cluster", "settings"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __hash__(self) -> int:
        return hash((self.name, self.provider, self.btu_s, self.flavours, self.max_hosts))

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            Site,
            (self.name, self.provider, self.btu_s, self.flavours, self.max_hosts, self.currency,
             dict(self.distance_s), self.master, self.minimum_s, self.increment_s, dict(self.cluster),
             dict(self.settings), self.storage, self.core_hour, self.gib_hour, self.budget),
        )  # fmt: skip

    @property
    def step_s(self) -> float:
        """The steps in which a lease is paid: the increment, or the whole billing time unit."""
        return self.btu_s if self.increment_s is None else self.increment_s

    @property
    def least_steps(self) -> int:
        """Steps a lease is paid for at least, however soon it ends."""
        minimum_s = self.step_s if self.minimum_s is None else self.minimum_s
        # 60 s of steps of 0.1 s must not become 601 for the last bit.
        return max(1, math.ceil(minimum_s / self.step_s - 1e-9))

    def price_per_step(self, flavour: HostFlavour) -> Decimal:
        """What one step of a host costs."""
        if self.increment_s is None:
            return flavour.price_per_btu
        return flavour.price_per_btu * Decimal(str(self.increment_s)) / Decimal(str(self.btu_s))

    def first_price(self, flavour: HostFlavour) -> Decimal:
        """What a lease costs as soon as it begins."""
        return self.price_per_step(flavour) * self.least_steps

    def flavour(self, name: str) -> HostFlavour:
        """The flavour of this name; KeyError where the site has none."""
        return {flavour.name: flavour for flavour in self.flavours}[name]


@dataclass(frozen=True, slots=True)
class Channel:
    """The durable, replayable stream between units: its kind, such as `files`, and its options."""

    name: str
    kind: str = "files"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    def __hash__(self) -> int:
        return hash((self.name, self.kind))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Channel, (self.name, self.kind, dict(self.options)))


@dataclass(frozen=True, slots=True)
class LatencyBound:
    """The longest acceptable end-to-end latency of the paths between a source and a sink."""

    bound_s: float
    source: str | None = None
    """None means from every source."""
    sink: str | None = None
    """None means to every sink."""


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How the control loop runs: its intervals and its guards."""

    monitoring_s: float = 15.0
    provisioning_s: float = 60.0
    cooldown_s: float = 0.0
    """Least time between two scalings of the same unit."""
    largest_step: int | None = None
    """Most instances started or stopped for a unit in one tick; None means no limit."""
    blackout: tuple[tuple[float, float], ...] = ()
    """Hours of the day, as (from, to), in which nothing is scaled."""
    hold_backlog: int | None = None
    """No unit shrinks while more of its records than this wait or are in work; None: no such guard."""
    advisory: bool = False
    """Decide and record, but do nothing."""
    penalty: Decimal = Decimal("0.0001")
    """Cost of one record that misses its SLO."""
    silence_s: float = 120.0
    """A unit that runs, or a controller, that was not heard of for so long hangs: it is started again."""
    journal_s: float = 30 * 86_400.0
    """How long the journal keeps every row; older observations become one a unit and hour."""

    @property
    def longest_signal_age_s(self) -> float:
        """No policy decides on a signal older than this: four measurements were missed, or a decision."""
        return max(4 * self.monitoring_s, self.provisioning_s)


@dataclass(frozen=True)
class Topology:
    """An acyclic graph of sources, operators and sinks, cut into units placed at sites."""

    name: str
    sources: tuple[Source, ...]
    operators: tuple[Operator, ...]
    sinks: tuple[Sink, ...] = ()
    units: tuple[Unit, ...] = ()
    sites: tuple[Site, ...] = (Site("local"),)
    channels: tuple[Channel, ...] = (Channel("files"),)
    latency_bounds: tuple[LatencyBound, ...] = ()
    loop: LoopSettings = LoopSettings()

    def __post_init__(self) -> None:
        """Give every operator that no unit names a unit of its own."""
        taken = {operator for unit in self.units for operator in unit.operators}
        own = tuple(Unit(o.name, (o.name,)) for o in self.operators if o.name not in taken)
        if own:
            object.__setattr__(self, "units", self.units + own)

    @cached_property
    def source_by_name(self) -> Mapping[str, Source]:
        """Sources by name."""
        return {source.name: source for source in self.sources}

    @cached_property
    def operator_by_name(self) -> Mapping[str, Operator]:
        """Operators by name."""
        return {operator.name: operator for operator in self.operators}

    @cached_property
    def unit_by_name(self) -> Mapping[str, Unit]:
        """Units by name."""
        return {unit.name: unit for unit in self.units}

    @cached_property
    def site_by_name(self) -> Mapping[str, Site]:
        """Sites by name."""
        return {site.name: site for site in self.sites}

    @cached_property
    def channel_by_name(self) -> Mapping[str, Channel]:
        """Channels by name."""
        return {channel.name: channel for channel in self.channels}

    @cached_property
    def unit_of(self) -> Mapping[str, str]:
        """The unit of each operator, by names."""
        return {operator: unit.name for unit in self.units for operator in unit.operators}

    @cached_property
    def successors(self) -> Mapping[str, tuple[str, ...]]:
        """For each source and operator, the operators and sinks that take its records."""
        names = [source.name for source in self.sources] + [operator.name for operator in self.operators]
        takers = [(o.name, o.inputs) for o in self.operators] + [(k.name, k.inputs) for k in self.sinks]
        found: dict[str, list[str]] = {name: [] for name in names}
        for taker, inputs in takers:
            for name in inputs:
                found.setdefault(name, []).append(taker)
        return {name: tuple(names) for name, names in found.items()}

    @cached_property
    def operators_in_order(self) -> tuple[Operator, ...]:
        """Operators sorted so that each stands after its inputs (stable in the order of the file)."""
        known = self.operator_by_name
        inputs = {operator.name: operator.inputs for operator in self.operators}
        return tuple(known[name] for name in in_order(inputs))

    @cached_property
    def unit_inputs(self) -> Mapping[str, tuple[str, ...]]:
        """For each unit, the other units whose records it takes."""
        found: dict[str, list[str]] = {unit.name: [] for unit in self.units}
        for operator in self.operators:
            own = self.unit_of[operator.name]
            for name in operator.inputs:
                other = self.unit_of.get(name)
                if other is not None and other != own and other not in found[own]:
                    found[own].append(other)
        return {name: tuple(names) for name, names in found.items()}

    @cached_property
    def units_in_order(self) -> tuple[Unit, ...]:
        """Units sorted so that each stands after the units it takes records from."""
        return tuple(self.unit_by_name[name] for name in in_order(self.unit_inputs))

    def sites_of(self, unit: str) -> tuple[Site, ...]:
        """The sites a unit may run at, in order of preference."""
        names = self.unit_by_name[unit].sites
        return tuple(self.site_by_name[name] for name in names) if names else self.sites

    def unit_shape(self, unit: str, slots: int | None = None) -> Shape:
        """The size of one instance, the one place everybody takes it from; of so many slots, where given.

        Cores: its slots times the hungriest operator (they run in turn). Memory: the sum over its operators,
        which are all loaded at once, and what further slots add.
        """
        known = self._shapes.get((unit, slots))
        if known is None:
            found = self.unit_by_name[unit]
            operators = [self.operator_by_name[name] for name in found.operators]
            number = found.slots if slots is None else slots
            cores = number * max(operator.cores for operator in operators)
            memory_mib = sum(operator.memory_mib for operator in operators)
            known = Shape(number, cores, memory_mib + max(0, number - found.slots) * found.slot_memory_mib)
            self._shapes[unit, slots] = known
        return known

    def slots_of(self, unit: str, cores: float) -> int:
        """The slots of an instance of the unit that has so many cores."""
        shape = self.unit_shape(unit)
        return max(1, round(cores * shape.slots / shape.cores)) if shape.cores > 0 else shape.slots

    def most_slots(self, unit: str) -> int:
        """The slots an instance of the unit may grow to."""
        found = self.unit_by_name[unit]
        return found.slots if found.max_slots is None else max(found.slots, found.max_slots)

    @cached_property
    def _shapes(self) -> dict[tuple[str, int | None], Shape]:
        """Sizes that were asked for: planners ask a thousand times a tick."""
        return {}

    def unit_cores(self, unit: str) -> float:
        """Cores one instance needs; see `unit_shape`."""
        return self.unit_shape(unit).cores

    def unit_memory_mib(self, unit: str) -> int:
        """Memory one instance needs; see `unit_shape`."""
        return self.unit_shape(unit).memory_mib

    def unit_slo_s(self, unit: str) -> float:
        """The unit's SLO: the longest sum of operator SLOs along a path inside it."""
        return self._unit_slos[unit]

    @cached_property
    def _unit_slos(self) -> Mapping[str, float]:
        longest: dict[str, float] = {}
        result: dict[str, float] = {}
        for operator in self.operators_in_order:
            own = self.unit_of[operator.name]
            before = [longest[i] for i in operator.inputs if self.unit_of.get(i) == own]
            longest[operator.name] = operator.slo_s + max(before, default=0.0)
            result[own] = max(result.get(own, 0.0), longest[operator.name])
        return result
