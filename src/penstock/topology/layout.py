"""Where the nodes of a topology stand in a drawing: layers from the sources down, few crossings.

An edge over several layers gets a waypoint in each layer it passes, so that drawings never run a line
through a box. Terminal and page share the result, so both show the same picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from penstock.topology.model import Topology

_SWEEPS = 8


@dataclass(frozen=True, slots=True)
class Node:
    """A source, operator or sink; or a waypoint of a long edge, which has no name."""

    key: str
    name: str | None
    kind: str

    @property
    def is_waypoint(self) -> bool:
        """Whether it only leads an edge through a layer."""
        return self.name is None


@dataclass(frozen=True, slots=True)
class Layout:
    """Layers of nodes from top to bottom, each from left to right, and the edges between adjoining layers."""

    layers: tuple[tuple[Node, ...], ...]
    edges: tuple[tuple[str, str], ...]
    """Pairs of node keys; the second stands one layer below the first."""

    def sources_of(self, key: str) -> tuple[str, ...]:
        """The keys one layer above that lead to this node."""
        return tuple(before for before, after in self.edges if after == key)

    def targets_of(self, key: str) -> tuple[str, ...]:
        """The keys one layer below that this node leads to."""
        return tuple(after for before, after in self.edges if before == key)


def layout(topology: Topology) -> Layout:
    """Layers by the longest way from a source, ordered so that few edges cross."""
    kinds = {source.name: "source" for source in topology.sources}
    inputs: dict[str, tuple[str, ...]] = {source.name: () for source in topology.sources}
    for operator in topology.operators_in_order:
        kinds[operator.name] = "operator"
        inputs[operator.name] = operator.inputs
    for sink in topology.sinks:
        kinds[sink.name] = "sink"
        inputs[sink.name] = sink.inputs
    depth: dict[str, int] = {}
    for name, names in inputs.items():
        depth[name] = 1 + max((depth[i] for i in names), default=-1)
    # A source stands right above the first operator that takes its records, so its edge stays short.
    for source in topology.sources:
        takers = [depth[name] for name in topology.successors[source.name]]
        depth[source.name] = max(0, min(takers, default=1) - 1)
    layers: list[list[Node]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name, kind in kinds.items():
        layers[depth[name]].append(Node(name, name, kind))
    edges: list[tuple[str, str]] = []
    for name, names in inputs.items():
        for before in dict.fromkeys(names):
            edges += _with_waypoints(before, name, depth, layers)
    ordered = _ordered(layers, edges)
    return Layout(tuple(tuple(layer) for layer in ordered), tuple(edges))


def _with_waypoints(
    before: str, after: str, depth: Mapping[str, int], layers: list[list[Node]]
) -> list[tuple[str, str]]:
    """An edge as steps of one layer; edges out of the same node share their waypoints."""
    steps = [before]
    known = {node.key for layer in layers for node in layer}
    for level in range(depth[before] + 1, depth[after]):
        key = f"{before}\N{RIGHTWARDS ARROW}{level}"
        if key not in known:
            layers[level].append(Node(key, None, "waypoint"))
        steps.append(key)
    return [pair for pair in pairwise([*steps, after]) if pair[1] == after or pair[1] not in known]


def _ordered(layers: list[list[Node]], edges: list[tuple[str, str]]) -> list[list[Node]]:
    """Sort each layer by the mean place of its neighbours, down and up again, and keep the best."""
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for before, after in edges:
        above.setdefault(after, []).append(before)
        below.setdefault(before, []).append(after)
    best, fewest = [list(layer) for layer in layers], _crossings(layers, edges)
    current = [list(layer) for layer in layers]
    for sweep in range(_SWEEPS):
        neighbours = above if sweep % 2 == 0 else below
        for layer in current if sweep % 2 == 0 else reversed(current):
            place = {node.key: i / max(1, len(row) - 1) for row in current for i, node in enumerate(row)}
            means = {
                node.key: _mean([place[k] for k in neighbours.get(node.key, ())], place[node.key])
                for node in layer
            }
            layer.sort(key=lambda node: means[node.key])
        crossings = _crossings(current, edges)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in current], crossings
    return best


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(layers: list[list[Node]], edges: list[tuple[str, str]]) -> int:
    """How many pairs of edges between adjoining layers cross."""
    place = {node.key: (level, i) for level, layer in enumerate(layers) for i, node in enumerate(layer)}
    by_level: dict[int, list[tuple[int, int]]] = {}
    for before, after in edges:
        by_level.setdefault(place[before][0], []).append((place[before][1], place[after][1]))
    return sum(
        (a[0] - b[0]) * (a[1] - b[1]) < 0
        for pairs in by_level.values()
        for i, a in enumerate(pairs)
        for b in pairs[i + 1 :]
    )
