"""A budget problem made ready for solving: indices, steps, and the layers of its bounds.

Paths are never enumerated: `Network` carries earliest and latest finishing times, one relation an edge, from
which slack, the longest path and the reason for having no solution are read.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from penstock.budgets.costs import FloatArray
from penstock.budgets.problem import BudgetProblem, InfeasibleBoundError
from penstock.errors import ConfigurationError
from penstock.topology.graph import find_cycles, in_order, reached

IntArray = NDArray[np.int64]

TOLERANCE = 1e-7
"""Steps by which a sum of floats may exceed a bound before it counts as broken."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The part of the graph some bounds run through, with times in steps.

    Every path from a start to an end in it is bounded: a start's clock begins at its release,
    an end must be over by its cap.
    """

    nodes: tuple[int, ...]
    """In topological order."""
    before: Mapping[int, tuple[tuple[int, float], ...]]
    """For each node, its predecessors in the layer with the delay on the edge."""
    after: Mapping[int, tuple[tuple[int, float], ...]]
    release: Mapping[int, float]
    cap: Mapping[int, float]

    def finish(self, size: FloatArray) -> dict[int, float]:
        """The earliest end of each node when every node takes its size."""
        end: dict[int, float] = {}
        for v in self.nodes:
            begin = self.release.get(v, -math.inf)
            for u, delay in self.before[v]:
                begin = max(begin, end[u] + delay)
            end[v] = begin + size[v]
        return end

    def latest(self, size: FloatArray) -> dict[int, float]:
        """The latest end of each node that still keeps every cap."""
        latest: dict[int, float] = {}
        for v in reversed(self.nodes):
            limit = self.cap.get(v, math.inf)
            for w, delay in self.after[v]:
                limit = min(limit, latest[w] - size[w] - delay)
            latest[v] = limit
        return latest

    def slack(self, size: FloatArray) -> dict[int, float]:
        """How much each node alone could take more."""
        end, latest = self.finish(size), self.latest(size)
        return {v: latest[v] - end[v] for v in self.nodes}


class Network:
    """A problem made ready for solving: indices, steps, and the layers of its bounds."""

    def __init__(self, problem: BudgetProblem) -> None:
        self.problem = problem
        self.step_s = problem.step_s
        self.units = problem.units
        self.names = [unit.name for unit in problem.units]
        index = {name: i for i, name in enumerate(self.names)}
        count = len(self.names)
        before: list[list[int]] = [[] for _ in range(count)]
        after: list[list[int]] = [[] for _ in range(count)]
        for u, v in problem.edges:
            before[index[v]].append(index[u])
            after[index[u]].append(index[v])
        self.before, self.after = before, after
        self.order = self._topological()
        self._delay = {
            (index[u], index[v]): delay_s / self.step_s for (u, v), delay_s in problem.delays_s.items()
        }
        # A unit with a fixed SLA takes its time whatever the grid: an offset, and no steps of its own.
        self.offset = np.array([(unit.fixed_s or 0.0) / self.step_s for unit in self.units])
        self.fixed = np.array([unit.fixed_s is not None for unit in self.units])
        self._bounds = self._in_steps(index)
        self.layers = self._layers()
        self.covered: list[int] = sorted({v for layer in self.layers for v in layer.nodes})

    def _topological(self) -> tuple[int, ...]:
        inputs = dict(enumerate(self.before))
        for cycle in find_cycles(inputs):
            names = " → ".join(self.names[i] for i in (*cycle, cycle[0]))
            raise ConfigurationError(f"the unit graph must be acyclic, but has the cycle {names}")
        return in_order(inputs)

    def _in_steps(self, index: Mapping[str, int]) -> list[tuple[frozenset[int], frozenset[int], float]]:
        """The bounds as (starts, ends, steps)."""
        starts = frozenset(v for v in self.order if not self.before[v])
        ends = frozenset(v for v in self.order if not self.after[v])
        return [
            (
                frozenset(index[name] for name in bound.first) or starts,
                frozenset(index[name] for name in bound.last) or ends,
                bound.bound_s / self.step_s,
            )
            for bound in self.problem.bounds
        ]

    def _layers(self) -> tuple[Layer, ...]:
        bounds = self._bounds
        if not self._delay and not self.offset.any():
            # Sums of whole steps never use a part of one: the tighter bound makes programmes integral.
            bounds = [(first, last, math.floor(bound + TOLERANCE)) for first, last, bound in bounds]
        # One layer for each distinct set of starts (caps at the ends) or of ends (releases at the
        # starts), whichever gives fewer: the number of layers multiplies the number of relations.
        by_first: dict[frozenset[int], list[tuple[frozenset[int], float]]] = {}
        by_last: dict[frozenset[int], list[tuple[frozenset[int], float]]] = {}
        for first, last, bound in bounds:
            by_first.setdefault(first, []).append((last, bound))
            by_last.setdefault(last, []).append((first, bound))
        layers = []
        if len(by_first) <= len(by_last):
            for first, members in by_first.items():
                cap: dict[int, float] = {}
                for last, bound in members:
                    for v in last:
                        cap[v] = min(cap.get(v, math.inf), bound)
                layers.append(self._layer(dict.fromkeys(first, 0.0), cap))
        else:
            for last, members in by_last.items():
                longest = max(bound for _, bound in members)
                release: dict[int, float] = {}
                for first, bound in members:
                    for v in first:
                        release[v] = max(release.get(v, 0.0), longest - bound)
                layers.append(self._layer(release, dict.fromkeys(last, longest)))
        return tuple(layers)

    def _layer(self, release: dict[int, float], cap: dict[int, float]) -> Layer:
        nodes = reached(dict(enumerate(self.after)), release) & reached(dict(enumerate(self.before)), cap)
        if not nodes:
            first = ", ".join(sorted(self.names[v] for v in release))
            last = ", ".join(sorted(self.names[v] for v in cap))
            raise ConfigurationError(f"a latency bound runs from {first} to {last}, but no path leads there")
        return Layer(
            nodes=tuple(v for v in self.order if v in nodes),
            before={
                v: tuple((u, self._delay.get((u, v), 0.0)) for u in self.before[v] if u in nodes)
                for v in nodes
            },
            after={
                v: tuple((w, self._delay.get((v, w), 0.0)) for w in self.after[v] if w in nodes)
                for v in nodes
            },
            release={v: at for v, at in release.items() if v in nodes},
            cap={v: at for v, at in cap.items() if v in nodes},
        )

    def slack(self, steps: IntArray | FloatArray) -> FloatArray:
        """How many steps each unit alone could get more; infinite where no bound covers it."""
        size = steps + self.offset
        slack = np.full(len(self.names), math.inf)
        for layer in self.layers:
            for v, rest in layer.slack(size).items():
                slack[v] = min(slack[v], rest)
        return slack

    def require_feasible(self, least: IntArray) -> FloatArray:
        """The slack at the least budgets; InfeasibleBoundError where a path exceeds its bound even so."""
        size = least + self.offset
        slack = np.full(len(self.names), math.inf)
        worst: tuple[float, Layer, int] | None = None
        for layer in self.layers:
            for v, rest in layer.slack(size).items():
                slack[v] = min(slack[v], rest)
                if rest < -TOLERANCE and (worst is None or rest < worst[0] - TOLERANCE):
                    worst = (rest, layer, v)
        if worst is not None:
            raise self._infeasible(worst[1], worst[2], size)
        return slack

    def _infeasible(self, layer: Layer, v: int, size: FloatArray) -> InfeasibleBoundError:
        end, latest = layer.finish(size), layer.latest(size)
        path = [v]
        while True:
            u = path[0]
            begin = end[u] - size[u]
            inputs = [p for p, delay in layer.before[u] if end[p] + delay >= begin - TOLERANCE]
            if not inputs:
                break
            path.insert(0, inputs[0])
        while True:
            u = path[-1]
            if layer.cap.get(u, math.inf) <= latest[u] + TOLERANCE:
                break
            outputs = [
                w for w, delay in layer.after[u] if latest[w] - size[w] - delay <= latest[u] + TOLERANCE
            ]
            path.append(outputs[0])
        covering = [
            (steps, i)
            for i, (first, last, steps) in enumerate(self._bounds)
            if path[0] in first and path[-1] in last
        ]
        minimum = sum(size[u] for u in path) + sum(self._delay.get(edge, 0.0) for edge in pairwise(path))
        return InfeasibleBoundError(
            [self.names[u] for u in path],
            [tidy(size[u] * self.step_s) for u in path],
            tidy(minimum * self.step_s),
            self.problem.bounds[min(covering)[1]],
        )


class Schedule:
    """Earliest and latest finishing times that follow the growth of single units, touching few others."""

    def __init__(self, network: Network, steps: IntArray) -> None:
        self._size = (steps + network.offset).tolist()
        self._layers = network.layers
        size = np.array(self._size)
        self._end = [layer.finish(size) for layer in network.layers]
        self._latest = [layer.latest(size) for layer in network.layers]
        self._place = {v: i for i, v in enumerate(network.order)}

    def slack(self, v: int) -> float:
        """How many steps unit v alone could get more."""
        return min(
            (latest[v] - end[v] for end, latest in zip(self._end, self._latest, strict=True) if v in end),
            default=math.inf,
        )

    def grow(self, v: int, steps: float) -> None:
        """Let unit v take so many steps more (or fewer, where negative)."""
        self._size[v] += steps
        for layer, end, latest in zip(self._layers, self._end, self._latest, strict=True):
            if v in end:
                self._forward(layer, end, v)
                for u, _ in layer.before[v]:
                    self._backward(layer, latest, u)

    def _forward(self, layer: Layer, end: dict[int, float], start: int) -> None:
        waiting = [(self._place[start], start)]
        while waiting:
            _, v = heapq.heappop(waiting)
            begin = layer.release.get(v, -math.inf)
            for u, delay in layer.before[v]:
                begin = max(begin, end[u] + delay)
            if begin + self._size[v] != end[v]:
                end[v] = begin + self._size[v]
                for w, _ in layer.after[v]:
                    heapq.heappush(waiting, (self._place[w], w))

    def _backward(self, layer: Layer, latest: dict[int, float], start: int) -> None:
        waiting = [(-self._place[start], start)]
        while waiting:
            _, v = heapq.heappop(waiting)
            limit = layer.cap.get(v, math.inf)
            for w, delay in layer.after[v]:
                limit = min(limit, latest[w] - self._size[w] - delay)
            if limit != latest[v]:
                latest[v] = limit
                for u, _ in layer.before[v]:
                    heapq.heappush(waiting, (-self._place[u], u))


def tidy(seconds: float) -> float:
    """A number of seconds without the dust of float arithmetic."""
    return float(f"{seconds:.12g}")
