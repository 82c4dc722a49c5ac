"""Streams that have to be empty between two versions of a topology, so that each record takes one way.

An operator or sink that gives up an input and takes up another has had some records by the old way, and
gets the others by the new one. Records that are on their way at that moment may be in a stream of the new way
alone, and come a second time; or in one of the old way alone, and never come. So streams of one way alone,
behind the place where both part, are read to their end while nobody writes them. Streams of both ways may
have records in them: these take the new way, as all after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.topology.graph import reached
from penstock.topology.model import Topology

Edge = tuple[str, str]
"""A stream: the source or operator whose records they are, and the unit that reads them."""


@dataclass(frozen=True, slots=True)
class Rewired:
    """An operator or sink that gets its records by another way, and what is empty when it begins to."""

    kind: str
    name: str
    emptied: tuple[Edge, ...]


def rewired(old: Topology, new: Topology) -> Iterator[Rewired]:
    """Who gets records of one origin by another way in the next version.

    Who only takes up an input, or only gives one up, is not among them: its records have no two ways.
    """
    present, above = tuple(_edges(old)), _inputs(old)
    after = _takers(new)
    for (kind, name), had in _takers(old).items():
        has = after.get((kind, name), had)
        gone, come = had - has, has - had
        if not (gone and come):
            continue
        was, now = _way(old, gone), _way(new, come)
        once = reached(above, (producer for producer, _ in gone))
        next_ = reached(_inputs(new), (producer for producer, _ in come))
        emptied = tuple(
            edge
            for edge in present
            if (edge in was) != (edge in now) and reached(above, edge[:1]) & (next_ if edge in was else once)
        )
        if emptied:
            yield Rewired(kind, name, emptied)


def _takers(topology: Topology) -> dict[tuple[str, str], set[Edge]]:
    """Every operator and sink with its inputs, and the unit that takes them: a sink's is who writes to it."""
    unit_of = topology.unit_of
    found = {("operator", o.name): {(name, unit_of[o.name]) for name in o.inputs} for o in topology.operators}
    return found | {
        ("sink", s.name): {(name, unit_of.get(name, "")) for name in s.inputs} for s in topology.sinks
    }


def _inputs(topology: Topology) -> Mapping[str, tuple[str, ...]]:
    return {operator.name: operator.inputs for operator in topology.operators}


def _edges(topology: Topology) -> Iterable[Edge]:
    """All streams, each once; what stays inside a unit is none."""
    return dict.fromkeys(
        (name, unit)
        for operator in topology.operators_in_order
        for unit in (topology.unit_of[operator.name],)
        for name in operator.inputs
        if topology.unit_of.get(name) != unit
    )


def _way(topology: Topology, taken: Iterable[Edge]) -> set[Edge]:
    """The streams by which records come to these inputs."""
    inputs, found, waiting = topology.operator_by_name, set(taken), list(taken)
    while waiting:
        producer, _ = waiting.pop()
        operator = inputs.get(producer)
        given = operator.inputs if operator is not None else ()
        new = {(name, topology.unit_of[producer]) for name in given} - found
        found |= new
        waiting.extend(new)
    return found.intersection(_edges(topology))
