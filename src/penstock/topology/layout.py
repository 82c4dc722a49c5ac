"""Where the nodes of a topology stand in a drawing: layers from the sources down, few crossings.

An edge over several layers gets a waypoint in each layer it passes, so that drawings never run a line
through a box. Terminal and page share the result, so both show the same picture.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass, field

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

    sources: Mapping[str, tuple[str, ...]] = field(init=False)
    """By node, the keys one layer above that lead to it."""
    targets: Mapping[str, tuple[str, ...]] = field(init=False)
    """By node, the keys one layer below that it leads to."""

    def __post_init__(self) -> None:
        above: dict[str, list[str]] = {}
        below: dict[str, list[str]] = {}
        for before, after in self.edges:
            above.setdefault(after, []).append(before)
            below.setdefault(before, []).append(after)
        object.__setattr__(self, "sources", {key: tuple(keys) for key, keys in above.items()})
        object.__setattr__(self, "targets", {key: tuple(keys) for key, keys in below.items()})

    def sources_of(self, key: str) -> tuple[str, ...]:
        """The keys one layer above that lead to this node."""
        return self.sources.get(key, ())

    def targets_of(self, key: str) -> tuple[str, ...]:
        """The keys one layer below that this node leads to."""
        return self.targets.get(key, ())


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
    known = set(kinds)
    for name, names in inputs.items():
        for before in dict.fromkeys(names):
            edges += _with_waypoints(before, name, depth, layers, known)
    ordered = _ordered(layers, edges)
    return Layout(tuple(tuple(layer) for layer in ordered), tuple(edges))


def _with_waypoints(
    before: str, after: str, depth: Mapping[str, int], layers: list[list[Node]], known: set[str]
) -> list[tuple[str, str]]:
    """An edge as steps of one layer; edges out of the same node share their waypoints, those `known`."""
    edges: list[tuple[str, str]] = []
    last = before
    for level in range(depth[before] + 1, depth[after]):
        key = f"{before}\N{RIGHTWARDS ARROW}{level}"
        if key not in known:
            known.add(key)
            layers[level].append(Node(key, None, "waypoint"))
            edges.append((last, key))
        last = key
    return [*edges, (last, after)]


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
        place = {node.key: i / max(1, len(row) - 1) for row in current for i, node in enumerate(row)}
        for layer in current if sweep % 2 == 0 else reversed(current):
            means = {
                node.key: _mean([place[k] for k in neighbours.get(node.key, ())], place[node.key])
                for node in layer
            }
            layer.sort(key=lambda node: means[node.key])
            place.update({node.key: i / max(1, len(layer) - 1) for i, node in enumerate(layer)})
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
    return sum(map(_inversions, by_level.values()))


def _inversions(pairs: list[tuple[int, int]]) -> int:
    """How many pairs of edges, given by their places above and below, cross.

    From the left on, an edge crosses those before it that end further to the right. Those that begin at the
    same place come by their ends, and so do not count.
    """
    ends: list[int] = []
    crossed = 0
    for _, end in sorted(pairs):
        crossed += len(ends) - bisect_right(ends, end)
        insort(ends, end)
    return crossed
