"""From a unit to what its query is made of, in names: what it reads, which operators, where results leave.

Operators inside a unit are DataFrame functions applied one after the other, so Spark optimises across
them and no record is written between them. Only edges that cross units go through channels. Everything
that leaves a unit leaves in the same micro-batch, so the query's checkpoint covers all of it at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.channels.feeder import DEFAULT_SCHEMA
from penstock.channels.model import Stream
from penstock.errors import ConfigurationError
from penstock.topology.model import Channel, Operator, Sink, Topology


@dataclass(frozen=True, slots=True)
class UnitInput:
    """Something a unit reads: a source of its own, or the stream of another unit's operator."""

    name: str
    """The source or operator whose records they are."""
    stream: Stream | None
    """None where a source's function is called in the unit itself."""
    channel: str | None = None
    """The channel the stream lies in; None for a generated source's."""


@dataclass(frozen=True, slots=True)
class Outlet:
    """One operator whose records leave the unit, and all who take them."""

    operator: str
    streams: tuple[Stream, ...] = ()
    sinks: tuple[Sink, ...] = ()


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """What a unit's query is made of, in names."""

    unit: str
    inputs: tuple[UnitInput, ...]
    operators: tuple[Operator, ...]
    outlets: tuple[Outlet, ...]
    channel: Channel
    """The channel its outgoing edges cross."""
    trigger_s: float = 0.0
    """The least time from one micro-batch to the next; 0 means as soon as it can."""
    shards: int | None = None
    """Pieces its state shall be in; None where it has none, or where they may be as many as there are."""

    @property
    def reads_a_function(self) -> bool:
        """Whether some input is a source's own function, of which no channel knows anything."""
        return any(given.stream is None for given in self.inputs)

    @property
    def branching(self) -> str | None:
        """The operator behind which the unit's ways part, where everything after it is stateless.

        Its records are computed once a micro-batch and kept while the ways behind it are served; None where
        there is one way only, or where the ways share no operator.
        """
        if len(self.outlets) < 2:
            return None
        inside = {operator.name: operator for operator in self.operators}
        for candidate in reversed(self.operators):
            after = reached_from(candidate.name, self.operators)
            leaving = {outlet.operator for outlet in self.outlets}
            fed_only_by = all(
                name == candidate.name or name in after
                for operator in after
                for name in inside[operator].inputs
            )
            stateless = not any(inside[operator].stateful for operator in after)
            if leaving <= after | {candidate.name} and fed_only_by and stateless:
                return candidate.name
        return None


def reached_from(name: str, operators: Iterable[Operator]) -> set[str]:
    """The operators that records of one go through, in a list of operators in their order."""
    reached: set[str] = set()
    for operator in operators:
        if any(given == name or given in reached for given in operator.inputs):
            reached.add(operator.name)
    return reached


def plan_unit(topology: Topology, unit_name: str) -> UnitPlan:
    """What the unit's query is made of; ConfigurationError where an edge that crosses units has no schema."""
    unit = topology.unit_by_name[unit_name]
    operators = tuple(o for o in topology.operators_in_order if o.name in unit.operators)
    inputs: dict[str, UnitInput] = {}
    for operator in operators:
        for name in operator.inputs:
            if name in inputs or name in unit.operators:
                continue
            inputs[name] = _input(topology, unit_name, name)
    outlets = []
    for operator in operators:
        takers = topology.successors.get(operator.name, ())
        sinks = tuple(sink for sink in topology.sinks if operator.name in sink.inputs)
        consumers = dict.fromkeys(
            topology.unit_of[taker]
            for taker in takers
            if taker in topology.unit_of and topology.unit_of[taker] != unit_name
        )
        streams = tuple(Stream(operator.name, consumer, _schema(operator)) for consumer in consumers)
        if streams or sinks:
            outlets.append(Outlet(operator.name, streams, sinks))
        elif not any(operator.name in other.inputs for other in operators):
            # Nobody takes its records: they are computed all the same, for what its function does.
            outlets.append(Outlet(operator.name, (), (Sink(f"{operator.name}-discarded", (operator.name,)),)))
    return UnitPlan(
        unit_name,
        tuple(inputs.values()),
        operators,
        tuple(outlets),
        _channel(topology, unit_name),
        unit.trigger_s,
        unit.shards if any(operator.stateful for operator in operators) else None,
    )


def _channel(topology: Topology, unit: str) -> Channel:
    name = topology.unit_by_name[unit].channel
    if name is None:
        return topology.channels[0]
    if name not in topology.channel_by_name:
        known = ", ".join(topology.channel_by_name)
        raise ConfigurationError(f"unit {unit}: unknown channel {name!r}; known: {known}")
    return topology.channel_by_name[name]


def _schema(operator: Operator) -> str:
    if operator.schema is None:
        raise ConfigurationError(
            f"operator {operator.name}: its records cross to another unit, so its columns must be declared: "
            'give it a schema such as "word string, count long"'
        )
    return operator.schema


def _input(topology: Topology, unit: str, name: str) -> UnitInput:
    source = topology.source_by_name.get(name)
    if source is None:
        producer = topology.operator_by_name[name]
        return UnitInput(
            name, Stream(name, unit, _schema(producer)), _channel(topology, topology.unit_of[name]).name
        )
    if source.function is not None:
        return UnitInput(name, None)
    if source.workload is None:
        raise ConfigurationError(
            f"source {name}: expected a function (module:function) or a workload to generate, got neither"
        )
    return UnitInput(name, Stream(name, unit, source.schema or DEFAULT_SCHEMA))


def is_fed(topology: Topology, name: str) -> bool:
    """Whether a feeder, which goes by the run's clock, is behind a source's or an operator's records.

    Where none is, they are from a time of day.
    """
    source = topology.source_by_name.get(name)
    if source is not None:
        return source.function is None
    return any(is_fed(topology, given) for given in topology.operator_by_name[name].inputs)


def generated_sources(topology: Topology) -> dict[str, tuple[str, ...]]:
    """Sources whose records a feeder writes, and the units that read each."""
    found: dict[str, list[str]] = {}
    for source in topology.sources:
        if source.function is None and source.workload is not None:
            units = [topology.unit_of[o.name] for o in topology.operators if source.name in o.inputs]
            found[source.name] = list(dict.fromkeys(units))
    return {name: tuple(units) for name, units in found.items()}
