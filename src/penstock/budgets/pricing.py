"""What solvers start from: a network, access to its cost functions, and the steps each unit may get.

`Pricing` asks the cost functions, checks, remembers and counts their answers; `Prepared` puts it together
with the network and finds the least and the most every unit can take.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.budgets.costs import CostFunction, CostFunctionError, FloatArray, UnansweredError
from penstock.budgets.network import TOLERANCE, IntArray, Network, tidy
from penstock.budgets.problem import BudgetProblem, Solution
from penstock.errors import PenstockError

WIDE = 2048
"""Steps beyond which a cost function is sampled instead of tabulated."""

_LARGEST_STEPS = 1 << 24
"""Steps after which a cost function that is infinite everywhere is given up."""


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
                unit.fixed_s if unit.fixed_s is not None else tidy(int(steps[v]) * network.step_s)
            )
            costs[unit.name] = self.fixed_costs[v] if network.fixed[v] else self.pricing.at(v, int(steps[v]))
            slacks[unit.name] = tidy(max(0.0, float(slack[v])) * network.step_s)
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
