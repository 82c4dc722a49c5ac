"""The latency-distribution problem of paper 004 and its answer.

A problem is a graph of units, each with a cost function, and bounds on paths through it; an answer
gives every unit a budget so that the sum along each path keeps the path's bound. Paths are never
enumerated: `Network` carries earliest and latest finishing times, one relation an edge, from which
slack, the longest path and the reason for having no solution are read.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.budgets.costs import CostFunction, CostFunctionError, FloatArray, UnansweredError, cost_function
from penstock.errors import ConfigurationError, InfeasibleError, PenstockError

IntArray = NDArray[np.int64]

TOLERANCE = 1e-7
"""Steps by which a sum of floats may exceed a bound before it counts as broken."""

WIDE = 2048
"""Steps beyond which a cost function is sampled instead of tabulated."""

_LARGEST_STEPS = 1 << 24
"""Steps after which a cost function that is infinite everywhere is given up."""


class InfeasibleBoundError(InfeasibleError):
    """No distribution keeps a bound: its path's least latencies already exceed it."""

    def __init__(
        self, path: Sequence[str], minimums_s: Sequence[float], minimum_s: float, bound: PathBound
    ) -> None:
        bound_s = bound.bound_s
        self.path = tuple(path)
        self.minimum_s = minimum_s
        self.bound = bound
        self.bound_s = bound_s
        self.smallest_bound_s = minimum_s
        parts = " → ".join(f"{name} ({least:g} s)" for name, least in zip(path, minimums_s, strict=True))
        super().__init__(
            f"no distribution keeps the bound of {bound_s:g} s: the path {parts} needs at least "
            f"{minimum_s:g} s; the smallest bound that would work is {minimum_s:g} s"
        )


@dataclass(frozen=True, slots=True)
class BudgetUnit:
    """A unit as the optimiser sees it."""

    name: str
    cost: CostFunction | Callable[[float], float] | Sequence[tuple[float, float]]
    min_latency_s: float = 0.0
    """The least budget it may get, beside what its cost function says."""
    fixed_s: float | None = None
    """A fixed SLA: the unit takes exactly this much and is not optimised."""
    fixed_cost: float | None = None
    """What the fixed SLA costs; None asks the cost function."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", cost_function(self.cost))
        for what in ("min_latency_s", "fixed_s", "fixed_cost"):
            value = getattr(self, what)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ConfigurationError(f"unit {self.name!r}: {what} must be a number ≥ 0, got {value!r}")

    @property
    def function(self) -> CostFunction:
        """Its cost function."""
        assert isinstance(self.cost, CostFunction)
        return self.cost


@dataclass(frozen=True, slots=True)
class PathBound:
    """The longest latency of every path from one of the units `first` to one of the units `last`."""

    bound_s: float
    first: tuple[str, ...] = ()
    """Empty means every unit without predecessors."""
    last: tuple[str, ...] = ()
    """Empty means every unit without successors."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bound_s) and self.bound_s > 0):
            raise ConfigurationError(f"a latency bound must be above 0 s, got {self.bound_s!r}")


@dataclass(frozen=True)
class BudgetProblem:
    """Units, edges and bounds; budgets are multiples of the step."""

    units: tuple[BudgetUnit, ...]
    edges: tuple[tuple[str, str], ...]
    bounds: tuple[PathBound, ...]
    step_s: float = 1.0
    delays_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Time a record spends on an edge (between sites), by edge."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", tuple(self.units))
        object.__setattr__(self, "edges", tuple(dict.fromkeys((u, v) for u, v in self.edges)))
        object.__setattr__(self, "bounds", tuple(self.bounds))
        object.__setattr__(self, "delays_s", MappingProxyType(dict(self.delays_s)))
        if not self.units:
            raise ConfigurationError("a budget problem needs at least one unit, got none")
        if not self.bounds:
            raise ConfigurationError("a budget problem needs at least one latency bound, got none")
        if not (math.isfinite(self.step_s) and self.step_s > 0):
            raise ConfigurationError(f"step_s must be above 0, got {self.step_s!r}")
        names = [unit.name for unit in self.units]
        twice = (
            sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        )
        if twice:
            raise ConfigurationError(f"unit names must differ, got {', '.join(twice)} more than once")
        known = set(names)
        for u, v in (*self.edges, *self.delays_s):
            for name in (u, v):
                if name not in known:
                    raise ConfigurationError(f"the edge {u} → {v} names {name!r}, which is no unit")
        for (u, v), delay_s in self.delays_s.items():
            if not (math.isfinite(delay_s) and delay_s >= 0):
                raise ConfigurationError(f"the delay of {u} → {v} must be a number ≥ 0, got {delay_s!r}")
        for bound in self.bounds:
            for name in (*bound.first, *bound.last):
                if name not in known:
                    raise ConfigurationError(f"a latency bound names {name!r}, which is no unit")


@dataclass(frozen=True)
class Solution:
    """A feasible distribution of budgets, with what it costs and how it was found."""

    problem: BudgetProblem
    solver: str
    budgets_s: Mapping[str, float]
    """By unit; units on no bounded path have none."""
    costs: Mapping[str, float]
    cost: float
    slack_s: Mapping[str, float]
    """How much more each unit alone could get before a bound breaks."""
    calls: int
    """Cost-function calls made to find it."""
    fee: float
    """What those calls cost; not part of `cost`."""
    optimal: bool = False
    """Whether it is proved to be the cheapest on this grid of budgets."""
    lower_bound: float | None = None
    """No distribution costs less than this, where the solver knows."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Units whose cost function did not answer and which keep their last budget, with the reason."""

    @cached_property
    def parallelism(self) -> Mapping[str, int | None]:
        """Instances each unit needs for its budget; None where its cost function does not say."""
        return {
            unit.name: None
            if unit.fixed_cost is not None
            else unit.function.parallelism(self.budgets_s[unit.name])
            for unit in self.problem.units
            if unit.name in self.budgets_s
        }


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

    def _topological(self) -> list[int]:
        missing = [len(inputs) for inputs in self.before]
        ready = deque(v for v, number in enumerate(missing) if number == 0)
        order: list[int] = []
        while ready:
            v = ready.popleft()
            order.append(v)
            for w in self.after[v]:
                missing[w] -= 1
                if missing[w] == 0:
                    ready.append(w)
        if len(order) < len(self.names):
            raise ConfigurationError(
                f"the unit graph must be acyclic, but has the cycle {self._cycle(missing)}"
            )
        return order

    def _cycle(self, missing: Sequence[int]) -> str:
        v = next(i for i, number in enumerate(missing) if number > 0)
        seen: list[int] = []
        while v not in seen:
            seen.append(v)
            v = next(u for u in self.before[v] if missing[u] > 0)
        cycle = [*seen[seen.index(v) :], v]
        return " → ".join(self.names[i] for i in reversed(cycle))

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
        reached = self._closure(release, self.after)
        nodes = reached & self._closure(cap, self.before)
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

    @staticmethod
    def _closure(begin: Iterable[int], neighbours: Sequence[Sequence[int]]) -> set[int]:
        found = set(begin)
        waiting = list(found)
        while waiting:
            for w in neighbours[waiting.pop()]:
                if w not in found:
                    found.add(w)
                    waiting.append(w)
        return found

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
            [_tidy(size[u] * self.step_s) for u in path],
            _tidy(minimum * self.step_s),
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


def _tidy(seconds: float) -> float:
    """A number of seconds without the dust of float arithmetic."""
    return float(f"{seconds:.12g}")


@dataclass(frozen=True, slots=True)
class Row:
    """A unit's table as its corners: the smallest budget of each cost."""

    least: int
    steps: IntArray
    costs: FloatArray
    complete: bool
    """Whether every step was asked for, so that costs between corners are known."""


class Pricing:
    """One run's access to the cost functions: asks, checks, remembers and counts."""

    def __init__(self, network: Network, cached: bool = True) -> None:
        self.network = network
        self.cached = cached
        self.calls = 0
        self.fee = 0.0
        self._known: list[dict[int, float]] = [{} for _ in network.units]
        self._asked: list[list[int]] = [[] for _ in network.units]
        """The steps asked for one by one, ascending."""
        self._rows: dict[int, Row] = {}
        self._tables: dict[int, tuple[int, FloatArray]] = {}

    def at(self, v: int, steps: int) -> float:
        """The cost of unit v at a number of steps."""
        if self.cached:
            row = self._rows.get(v)
            if row is not None and row.complete and steps >= row.least:
                return float(row.costs[np.searchsorted(row.steps, steps, side="right") - 1])
            table = self._tables.get(v)
            if table is not None and 0 <= steps - table[0] < len(table[1]):
                return float(table[1][steps - table[0]])
            known = self._inferred(v, steps)
            if known is not None:
                return known
        found = float(self._ask(v, np.array([steps]))[0])
        order, costs = self._asked[v], self._known[v]
        at = bisect_left(order, steps)
        around = [*order[max(0, at - 1) : at], steps, *[k for k in order[at : at + 1] if k != steps]]
        costs[steps] = found
        self._require_falling(v, np.array(around), np.array([costs[k] for k in around]))
        if at == len(order) or order[at] != steps:
            order.insert(at, steps)
        return found

    def _inferred(self, v: int, steps: int) -> float | None:
        """The cost where it is known, or follows: costs fall, so between two equal ones all are equal."""
        costs, order = self._known[v], self._asked[v]
        known = costs.get(steps)
        if known is not None:
            return known
        at = bisect_left(order, steps)
        if 0 < at < len(order) and costs[order[at - 1]] == costs[order[at]]:
            return costs[order[at]]
        return None

    def many(self, v: int, steps: IntArray) -> FloatArray:
        """The costs of unit v at several ascending numbers of steps, asked for together."""
        costs = self._ask(v, steps)
        self._require_falling(v, steps, costs)
        return costs

    def table(self, v: int, least: int, most: int) -> FloatArray:
        """The costs of unit v at every number of steps from least to most."""
        table = self._tables.get(v)
        if table is None or table[0] > least or table[0] + len(table[1]) <= most:
            steps = np.arange(least, most + 1)
            costs = self._ask(v, steps)
            self._require_falling(v, steps, costs)
            table = (least, costs)
            if self.cached:
                self._tables[v] = table
        return table[1][least - table[0] : most - table[0] + 1]

    def tabulate(self) -> dict[int, Row]:
        """The tables of all local cost functions over the longest bound, class by class in one go.

        Beyond WIDE steps the table is dense at first and then ever sparser.
        """
        network = self.network
        longest = math.floor(max(cap for layer in network.layers for cap in layer.cap.values()) + TOLERANCE)
        if longest <= WIDE:
            steps: IntArray = np.arange(longest + 1)
        else:
            wide = np.geomspace(WIDE // 4, longest, WIDE // 4).astype(np.int64)
            steps = np.unique(np.concatenate([np.arange(WIDE // 4), wide]))
        groups: dict[type[CostFunction], list[int]] = {}
        for v in network.covered:
            function = network.units[v].function
            if not network.fixed[v] and function.local and function.known:
                groups.setdefault(type(function), []).append(v)
        rows: dict[int, Row] = {}
        for kind, members in groups.items():
            functions = [network.units[v].function for v in members]
            costs = kind.together(functions, steps.astype(np.float64) * network.step_s)
            self.calls += costs.size
            least_s = np.array([network.units[v].min_latency_s for v in members])
            costs = np.where(steps < np.ceil(least_s / network.step_s - 1e-12)[:, None], np.inf, costs)
            self._require_costs(members, steps, costs)
            # Corners: the first finite cost (exact where the table is dense) and every fall after it.
            finite = np.isfinite(costs)
            first = np.argmax(finite, axis=1)
            corner = np.zeros(costs.shape, dtype=bool)
            with np.errstate(invalid="ignore"):
                corner[:, 1:] = costs[:, :-1] - costs[:, 1:] > 1e-12 * (1.0 + costs[:, 1:])
            corner[:, 1:] &= finite[:, :-1]
            corner[np.arange(len(members)), first] = True
            row_of, column = np.nonzero(corner)
            splits = np.searchsorted(row_of, np.arange(len(members) + 1)).tolist()
            corner_steps, corner_costs = steps[column], costs[row_of, column]
            for i, (v, start) in enumerate(zip(members, first.tolist(), strict=True)):
                if not finite[i, start] or (start > 0 and steps[start] - steps[start - 1] > 1):
                    continue  # beyond the bound or between sparse points: asked for one by one
                own = slice(splits[i], splits[i + 1])
                rows[v] = Row(int(steps[start]), corner_steps[own], corner_costs[own], longest <= WIDE)
                if self.cached:
                    self._rows[v] = rows[v]
        return rows

    def _require_costs(self, members: Sequence[int], steps: IntArray, costs: FloatArray) -> None:
        """The checks of single answers, for a whole table: it names the first unit that is wrong."""
        with np.errstate(invalid="ignore"):
            wrong = np.isnan(costs) | (costs < 0)
            rises = costs[:, 1:] > costs[:, :-1] * (1 + 1e-9) + 1e-12
        for i in np.flatnonzero(wrong.any(axis=1) | rises.any(axis=1)).tolist():
            self._require_numbers(members[i], steps.astype(np.float64) * self.network.step_s, costs[i])
            self._require_falling(members[i], steps, costs[i])

    def fixed(self, v: int) -> float:
        """The cost of a unit with a fixed SLA."""
        unit = self.network.units[v]
        if unit.fixed_cost is not None:
            return unit.fixed_cost
        assert unit.fixed_s is not None
        cost = float(self._ask_at(v, np.array([unit.fixed_s]))[0])
        if math.isinf(cost):
            raise CostFunctionError(
                f"unit {unit.name!r} has a fixed SLA of {unit.fixed_s:g} s, but its cost function "
                "is infinite there: it cannot keep it"
            )
        return cost

    def least(self, v: int) -> int:
        """The fewest steps unit v can keep: its minimum, or the first finite cost above it."""
        unit = self.network.units[v]
        if unit.fixed_s is not None:
            return 0
        least_s = max(unit.min_latency_s, unit.function.least_s)
        if math.isinf(least_s):
            raise CostFunctionError(f"unit {unit.name!r} can keep no budget: {unit.function.why_not()}")
        low = max(0, math.ceil(least_s / self.network.step_s - 1e-12))
        if unit.function.known or math.isfinite(self.at(v, low)):
            return low
        width = 1
        while not math.isfinite(self.at(v, low + width)):
            low, width = low + width, width * 2
            if low > _LARGEST_STEPS:
                raise CostFunctionError(
                    f"the cost function of unit {unit.name!r} is infinite at every budget up to "
                    f"{low * self.network.step_s:g} s: it cannot follow its load, or has too few instances"
                )
        high = low + width
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if math.isfinite(self.at(v, middle)) else (middle, high)
        return high

    def _ask(self, v: int, steps: IntArray) -> FloatArray:
        return self._ask_at(v, steps.astype(np.float64) * self.network.step_s)

    def _ask_at(self, v: int, latencies_s: FloatArray) -> FloatArray:
        unit = self.network.units[v]
        function = unit.function
        sent = function.requests
        try:
            costs = function.costs(latencies_s)
        except UnansweredError as error:
            raise UnansweredError(unit.name, error.reason) from error
        except PenstockError as error:
            raise CostFunctionError(f"the cost function of unit {unit.name!r} failed: {error}") from error
        except Exception as error:
            raise CostFunctionError(
                f"the cost function of unit {unit.name!r} failed between {latencies_s[0]:g} s and "
                f"{latencies_s[-1]:g} s: {type(error).__name__}: {error}"
            ) from error
        finally:
            made = len(latencies_s) if sent is None else (function.requests or 0) - sent
            self.calls += made
            self.fee += function.fee_per_call * made
        self._require_numbers(v, latencies_s, costs)
        return costs

    def _require_numbers(self, v: int, latencies_s: FloatArray, costs: FloatArray) -> None:
        for wrong, what in ((np.isnan(costs), "is not a number"), (costs < 0, "is negative")):
            if wrong.any():
                at = int(np.argmax(wrong))
                raise CostFunctionError(
                    f"the cost of unit {self.network.names[v]!r} at {latencies_s[at]:g} s {what} "
                    f"({costs[at]:g}); a cost must be a number ≥ 0, or infinite where the budget "
                    "cannot be kept"
                )

    def _require_falling(self, v: int, steps: IntArray, costs: FloatArray) -> None:
        if len(costs) < 2:
            return
        rises = costs[1:] > costs[:-1] * (1 + 1e-9) + 1e-12
        if rises.any():
            at = int(np.argmax(rises))
            step_s = self.network.step_s
            raise CostFunctionError(
                f"the cost of unit {self.network.names[v]!r} rises from {costs[at]:g} at "
                f"{steps[at] * step_s:g} s to {costs[at + 1]:g} at {steps[at + 1] * step_s:g} s; "
                "a larger budget must never cost more"
            )


class Prepared:
    """A network with its pricing and the range of steps each unit may get: where every solver starts."""

    def __init__(self, problem: BudgetProblem, *, cached: bool = True, tabulated: bool = False) -> None:
        """`tabulated` asks local cost functions for their whole table at once, many units together."""
        self.network = Network(problem)
        self.pricing = Pricing(self.network, cached)
        self.tabulated = self.pricing.tabulate() if tabulated else {}
        count = len(self.network.names)
        self.least = np.zeros(count, dtype=np.int64)
        for v in self.network.covered:
            row = self.tabulated.get(v)
            self.least[v] = self.pricing.least(v) if row is None else row.least
        self.fixed_costs = {v: self.pricing.fixed(v) for v in self.network.covered if self.network.fixed[v]}
        slack = self.network.require_feasible(self.least)
        self.most = self.least.copy()
        for v in self.network.covered:
            if not self.network.fixed[v]:
                self.most[v] += math.floor(slack[v] + TOLERANCE)

    @property
    def free(self) -> list[int]:
        """The units to give budgets to: on a bounded path and without a fixed SLA."""
        return [v for v in self.network.covered if not self.network.fixed[v]]

    def solution(self, solver: str, steps: IntArray, calls: int | None = None, **how: Any) -> Solution:
        """The answer in words and seconds; raises where the steps break a bound (a solver's defect)."""
        network = self.network
        slack = network.slack(steps)
        broken = [network.names[v] for v in network.covered if slack[v] < -1e-6]
        if broken:
            raise AssertionError(f"the {solver} solver broke the bound at {', '.join(broken)}")
        budgets, costs, slacks = {}, {}, {}
        for v in network.covered:
            unit = network.units[v]
            budgets[unit.name] = (
                unit.fixed_s if unit.fixed_s is not None else _tidy(int(steps[v]) * network.step_s)
            )
            costs[unit.name] = self.fixed_costs[v] if network.fixed[v] else self.pricing.at(v, int(steps[v]))
            slacks[unit.name] = _tidy(max(0.0, float(slack[v])) * network.step_s)
        return Solution(
            problem=network.problem,
            solver=solver,
            budgets_s=budgets,
            costs=costs,
            cost=math.fsum(costs.values()),
            slack_s=slacks,
            calls=self.pricing.calls if calls is None else calls,
            fee=self.pricing.fee,
            **how,
        )
