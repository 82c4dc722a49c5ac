"""How records flow between units: ways in, work for each way, and where results go.

Operators of one unit are fused, so the simulator follows a record through a unit, not through each
operator. A record that enters a unit at operator A causes, on the way through the unit, some number of
records at each operator behind A; their service times add up to the record's work. This page does that
arithmetic once, before a run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.topology.model import Operator, Service, Site, Topology


@dataclass(frozen=True, slots=True)
class Way:
    """One way into a unit: through which operator, and how much work a record causes there."""

    operator: str
    mean_s: float
    cv: float
    shape: str


@dataclass(frozen=True, slots=True)
class Edge:
    """Records leaving a unit: `ratio` for each record that came in by `way`."""

    way: int
    ratio: float
    target: str | None
    """The unit they go to; None where they leave the topology."""
    target_way: int
    operator: str = ""
    """The operator they leave behind."""
    first: bool = True
    """Whether it is the first to take the operator's records: each is counted as sent on once."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A unit as the simulator sees it."""

    unit: str
    slo_s: float
    ways: tuple[Way, ...]
    edges: tuple[Edge, ...]
    producers: tuple[str, ...] = ()
    """The sources and operators it takes records from."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A source's records going into a unit by one of its ways."""

    source: str
    unit: str
    way: int


def flows_of(topology: Topology) -> tuple[tuple[Flow, ...], tuple[Entry, ...]]:
    """The flows of a topology in the order records pass them, and where each source's records enter."""
    ways = {unit.name: _entry_operators(topology, unit.name) for unit in topology.units}
    flows = []
    for unit in topology.units_in_order:
        found_ways, edges = [], []
        for number, operator in enumerate(ways[unit.name]):
            counts = _counts_inside(topology, unit.name, operator)
            found_ways.append(_way(topology, operator, counts))
            for name, count in counts.items():
                edges += _edges_out(topology, unit.name, number, name, count, ways)
        slo_s = topology.unit_slo_s(unit.name)
        flows.append(Flow(unit.name, slo_s, tuple(found_ways), tuple(edges), _producers(topology, unit.name)))
    entries = tuple(
        Entry(source.name, topology.unit_of[name], ways[topology.unit_of[name]].index(name))
        for source in topology.sources
        for name in topology.successors[source.name]
        if name in topology.unit_of
    )
    return tuple(flows), entries


def _producers(topology: Topology, unit: str) -> tuple[str, ...]:
    inputs = (topology.operator_by_name[name].inputs for name in topology.unit_by_name[unit].operators)
    return tuple(dict.fromkeys(n for names in inputs for n in names if topology.unit_of.get(n) != unit))


def _entry_operators(topology: Topology, unit: str) -> tuple[str, ...]:
    """Operators of a unit that take records from outside it, in the order of the file."""
    return tuple(
        name
        for name in topology.unit_by_name[unit].operators
        if any(topology.unit_of.get(i) != unit for i in topology.operator_by_name[name].inputs)
    )


def _counts_inside(topology: Topology, unit: str, entry: str) -> dict[str, float]:
    """Records that reach each operator of the unit for one record that enters at `entry`."""
    counts = {entry: 1.0}
    for operator in topology.operators_in_order:
        if topology.unit_of[operator.name] != unit or operator.name not in counts:
            continue
        for successor in topology.successors[operator.name]:
            if topology.unit_of.get(successor) == unit:
                counts[successor] = counts.get(successor, 0.0) + counts[operator.name] * operator.ratio
    return counts


def _way(topology: Topology, entry: str, counts: dict[str, float]) -> Way:
    """Means add up; so do variances of independent parts."""
    members: list[tuple[Operator, float]] = [
        (topology.operator_by_name[name], count) for name, count in counts.items()
    ]
    mean_s = sum(operator.service_time.mean_s * count for operator, count in members)
    variance = sum((o.service_time.mean_s * _cv(o.service_time)) ** 2 * count for o, count in members)
    shape = members[0][0].service_time.shape if len(members) == 1 else "lognormal"
    return Way(entry, mean_s, math.sqrt(variance) / mean_s if mean_s > 0 else 0.0, shape)


def _cv(service: Service) -> float:
    """The coefficient of variation a shape really has: only a lognormal one is free to choose it."""
    return {"deterministic": 0.0, "exponential": 1.0}.get(service.shape, service.cv)


def _edges_out(
    topology: Topology, unit: str, way: int, operator: str, count: float, ways: dict[str, tuple[str, ...]]
) -> list[Edge]:
    ratio = count * topology.operator_by_name[operator].ratio
    edges: list[Edge] = []
    successors = topology.successors[operator]
    for successor in successors:
        target = topology.unit_of.get(successor)
        if target is None:
            edges.append(Edge(way, ratio, None, 0, operator, not edges))
        elif target != unit:
            edges.append(Edge(way, ratio, target, ways[target].index(successor), operator, not edges))
    if not successors:
        # Nothing takes its records: they leave here, finished, whatever its ratio says.
        edges.append(Edge(way, count, None, 0, operator))
    return edges


def distance_s(here: Site, there: Site) -> float:
    """The one-way delay between two sites, which either of them may know; 0 where neither does."""
    if here.name == there.name:
        return 0.0
    return here.distance_s.get(there.name, there.distance_s.get(here.name, 0.0))


def readers_of(topology: Topology, unit: str, by_source: Mapping[str, int]) -> int | None:
    """How many slots of a unit can get records at a time; None where it has an input without that bound."""
    inputs = {
        name
        for operator in topology.unit_by_name[unit].operators
        for name in topology.operator_by_name[operator].inputs
        if topology.unit_of.get(name) != unit
    }
    return sum(by_source[name] for name in inputs) if inputs and inputs <= by_source.keys() else None
