"""The paper's heuristic, as published (paper 004, Algorithms 1 and 2, with the corrections of its text).

Path by path, tightest first: spread the free latency evenly over the units that are still active, swap
steps between them while that saves, then freeze them. The tightest path is found from finishing times,
so that paths are not enumerated here either. Kept for comparison, and for cost functions whose calls are
slow or cost money: it asks for few budgets, fewer still with its cache.
"""

from __future__ import annotations

import math

from penstock.budgets.network import TOLERANCE, IntArray, Layer
from penstock.budgets.pricing import Prepared
from penstock.budgets.problem import BudgetProblem, Solution


def solve_greedy(problem: BudgetProblem, *, cached: bool = True) -> Solution:
    """Budgets by Algorithm 1; `cached=False` asks the cost functions again each time."""
    prepared = Prepared(problem, cached=cached)
    # Algorithm 1, lines 4-6: every unit gets its minimum.
    steps = prepared.least.copy()
    active = set(prepared.free)
    while active:
        # Lines 9-10: the path with the least free latency, and its active units.
        free, path = min(
            (
                found
                for layer in prepared.network.layers
                if (found := _tightest(prepared, layer, steps, active))
            ),
            key=lambda found: found[0],
        )
        members = [v for v in path if v in active]
        whole = math.floor(free + TOLERANCE)
        # Line 11: an even share each; the first ones get the steps that do not divide.
        share, rest = divmod(whole, len(members))
        for i, v in enumerate(members):
            steps[v] += share + (1 if i < rest else 0)
        # Lines 12-15: optimise, then freeze.
        swaps = _Swaps(prepared, members, {v: int(steps[v]) for v in members})
        swaps.optimise()
        for v in members:
            steps[v] = swaps.steps[v]
        active.difference_update(members)
    return prepared.solution("greedy", steps)


def _tightest(
    prepared: Prepared, layer: Layer, steps: IntArray, active: set[int]
) -> tuple[float, list[int]] | None:
    """The path with the least free latency among those with an active unit, and how much is free.

    Two longest times to each unit are carried: over all paths, and over paths with an active unit.
    """
    size = steps + prepared.network.offset
    end: dict[int, float] = {}
    end_active: dict[int, float] = {}
    from_any: dict[int, int | None] = {}
    from_active: dict[int, tuple[int, bool] | None] = {}
    for v in layer.nodes:
        best, best_from = layer.release.get(v, -math.inf), None
        best_active, best_active_from = -math.inf, None
        for u, delay in layer.before[v]:
            if end[u] + delay > best:
                best, best_from = end[u] + delay, u
            if end_active[u] + delay > best_active:
                best_active, best_active_from = end_active[u] + delay, (u, True)
        if v in active and best >= best_active:
            best_active = best
            best_active_from = (best_from, False) if best_from is not None else None
        end[v], from_any[v] = best + float(size[v]), best_from
        end_active[v], from_active[v] = best_active + float(size[v]), best_active_from
    reached = [(layer.cap[v] - end_active[v], v) for v in layer.cap if end_active[v] > -math.inf]
    if not reached:
        return None
    free, last = min(reached)
    path, at, with_active = [last], last, True
    while True:
        if with_active:
            previous = from_active[at]
            if previous is None:
                break
            at, with_active = previous
        else:
            before = from_any[at]
            if before is None:
                break
            at = before
        path.append(at)
    return free, path[::-1]


class _Swaps:
    """One path's optimisation (Algorithm 2): what a step up saves and a step down costs each active unit.

    The differences are stored for each unit, as in the paper's Table 1, so that a swap asks only about its
    two units. A difference takes two calls; the cache knows one of them already.
    """

    def __init__(self, prepared: Prepared, members: list[int], steps: dict[int, int]) -> None:
        self._prepared = prepared
        self._members = members
        self.steps = steps
        self._gain: dict[int, float] = {}
        self._loss: dict[int, float] = {}

    def optimise(self) -> None:
        """Swap steps between units while the gain of one exceeds the loss of another."""
        if len(self._members) < 2:
            return
        for v in self._members:
            # The far ends first: where they are equal, the cache knows what lies between.
            lowest = self.steps[v] <= self._prepared.least[v]
            below = math.inf if lowest else self._cost(v, self.steps[v] - 1)
            above = self._cost(v, self.steps[v] + 1)
            self._loss[v] = below - self._cost(v, self.steps[v])
            self._gain[v] = self._cost(v, self.steps[v]) - above
        while True:
            reduced = min(self._members, key=self._loss.__getitem__)
            increased = max((v for v in self._members if v != reduced), key=self._gain.__getitem__)
            if not self._gain[increased] > self._loss[reduced] + 1e-9:
                return
            self._swap(reduced, increased)

    def _swap(self, reduced: int, increased: int) -> None:
        """Move a step, or as many as cost `reduced` no more than one does (Section 5.2.1, multi-step)."""
        moved = self._movable(reduced)
        self.steps[reduced] -= moved
        self.steps[increased] += moved
        # Lines 10-11: one step back undoes one step forth.
        self._gain[reduced] = self._loss[reduced] if moved == 1 else self._increase_gain(reduced)
        self._loss[increased] = self._gain[increased] if moved == 1 else self._reduce_cost(increased)
        # Lines 14-15, which print costs where differences are needed.
        self._loss[reduced] = self._reduce_cost(reduced)
        self._gain[increased] = self._increase_gain(increased)

    def _movable(self, v: int) -> int:
        """Steps the unit can give up for the cost of one: found by doubling, then halving, to save calls."""
        if not self._prepared.network.units[v].function.stepped:
            return 1
        now = self.steps[v]
        one_down = self._cost(v, now - 1)
        most = now - int(self._prepared.least[v])
        low, high = 1, 2
        while high <= most and self._cost(v, now - high) == one_down:
            low, high = high, high * 2
        high = min(high, most + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._cost(v, now - middle) == one_down else (low, middle)
        return low

    def _increase_gain(self, v: int) -> float:
        return self._cost(v, self.steps[v]) - self._cost(v, self.steps[v] + 1)

    def _reduce_cost(self, v: int) -> float:
        """What a step less costs; infinite at the unit's minimum."""
        if self.steps[v] <= self._prepared.least[v]:
            return math.inf
        return self._cost(v, self.steps[v] - 1) - self._cost(v, self.steps[v])

    def _cost(self, v: int, steps: int) -> float:
        return self._prepared.pricing.at(v, steps)
