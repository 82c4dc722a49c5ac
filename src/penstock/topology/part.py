"""Some units of a topology as a topology of their own: what one site of several runs.

Records that come from units elsewhere come from a source that nobody here feeds. A bound on the latency of
the whole is nothing that a part could keep by itself, so a part has none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from penstock.topology.model import Source, Topology


def part_of(topology: Topology, units: Collection[str], sites: Collection[str]) -> Topology:
    """These units at these sites, as the loop sees them; the whole topology where these are all of them."""
    if topology.unit_by_name.keys() <= set(units) and topology.site_by_name.keys() <= set(sites):
        return topology
    own = tuple(unit for unit in topology.units if unit.name in units)
    names = {operator for unit in own for operator in unit.operators}
    operators = tuple(operator for operator in topology.operators if operator.name in names)
    read = dict.fromkeys(name for operator in operators for name in operator.inputs if name not in names)
    elsewhere = [name for name in read if name in topology.operator_by_name]
    sinks = (replace(k, inputs=tuple(n for n in k.inputs if n in names)) for k in topology.sinks)
    return replace(
        topology,
        sources=(
            *(source for source in topology.sources if source.name in read),
            *(Source(name, schema=topology.operator_by_name[name].schema) for name in elsewhere),
        ),
        operators=operators,
        sinks=tuple(sink for sink in sinks if sink.inputs),
        units=own,
        sites=tuple(site for site in topology.sites if site.name in sites),
        latency_bounds=(),
    )


def crossing(topology: Topology, places: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The streams between units at different sites: the operator whose records they are, and the reader."""
    for operator in topology.operators:
        reader = topology.unit_of[operator.name]
        for name in operator.inputs:
            writer = topology.unit_of.get(name)
            if writer is not None and places[writer] != places[reader]:
                yield name, reader
