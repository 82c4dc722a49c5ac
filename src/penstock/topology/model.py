"""The frozen model of a topology: the words of the whole product.

Everything here is a value: compared by content, made once, never changed. The YAML file and the
Python builder both end in a `Topology`; the simulator, the Spark plane and every policy read it.
Structural mistakes (cycles, unknown names) are found by `penstock.topology.validation`, not here,
so that a broken file can be described whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from types import MappingProxyType
from typing import Any


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
    """Sites it may run at, in order of preference; none means every site."""
    policy: Choice = Choice("threshold")
    filter: Choice = Choice("none")
    min_instances: int = 1
    max_instances: int = 50
    initial_instances: int = 1
    slots: int = 1
    """Parallel places inside one instance (executor cores on Spark)."""
    channel: str | None = None
    """The channel its outgoing edges cross; None means the topology's first."""


@dataclass(frozen=True, slots=True)
class HostFlavour:
    """A kind of machine a site leases out."""

    name: str
    cores: float
    memory_mib: int
    price_per_btu: Decimal
    max_hosts: int | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """A place with its own provider, prices, limits and Spark master."""

    name: str
    provider: Choice = Choice("simulated")
    btu_s: float = 3600.0
    """The billing time unit: every started one is paid whole. 1 means per-second billing."""
    flavours: tuple[HostFlavour, ...] = (HostFlavour("standard", 4.0, 7168, Decimal(6)),)
    max_hosts: int = 100
    currency: str = ""
    distance_s: Mapping[str, float] = field(default_factory=dict)
    """One-way delay to other sites, by name."""
    master: str | None = None
    """The Spark master's URL, where the site is an existing cluster."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "distance_s", MappingProxyType(dict(self.distance_s)))

    def __hash__(self) -> int:
        return hash((self.name, self.provider, self.btu_s, self.flavours, self.max_hosts))

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            Site,
            (self.name, self.provider, self.btu_s, self.flavours, self.max_hosts, self.currency,
             dict(self.distance_s), self.master),
        )  # fmt: skip

    def flavour(self, name: str) -> HostFlavour:
        """The flavour of this name; KeyError where the site has none."""
        for flavour in self.flavours:
            if flavour.name == name:
                return flavour
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Channel:
    """The durable, replayable stream between units: `files` or `kafka`, with its options."""

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
        own = tuple(
            Unit(operator.name, (operator.name,)) for operator in self.operators if operator.name not in taken
        )
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
        inputs = {o.name: tuple(name for name in o.inputs if name in known) for o in self.operators}
        return tuple(known[name] for name in _sorted_by_inputs(inputs))

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
        return tuple(self.unit_by_name[name] for name in _sorted_by_inputs(self.unit_inputs))

    def sites_of(self, unit: str) -> tuple[Site, ...]:
        """The sites a unit may run at, in order of preference."""
        names = self.unit_by_name[unit].sites
        return tuple(self.site_by_name[name] for name in names) if names else self.sites

    def unit_cores(self, unit: str) -> float:
        """Cores one instance needs: its slots times the hungriest operator (they run in turn)."""
        found = self.unit_by_name[unit]
        return found.slots * max(self.operator_by_name[name].cores for name in found.operators)

    def unit_memory_mib(self, unit: str) -> int:
        """Memory one instance needs: the sum over its operators, which are all loaded at once."""
        return sum(self.operator_by_name[name].memory_mib for name in self.unit_by_name[unit].operators)

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


def _sorted_by_inputs(inputs: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Names sorted so that each follows its inputs, otherwise in the given order; cycles are cut last."""
    order: list[str] = []
    placed: set[str] = set()
    remaining = list(inputs)
    while remaining:
        ready = [name for name in remaining if all(i in placed or i not in inputs for i in inputs[name])]
        chosen = ready or remaining[:1]
        order.extend(chosen)
        placed.update(chosen)
        remaining = [name for name in remaining if name not in placed]
    return tuple(order)
