"""The default solver: a linear programme over lower hulls, then a repair.

Each cost function is replaced by its lower convex hull. With node potentials (a finishing time for
each unit, one row an edge) the programme is the dual of a network flow: small, quick, and integral
where the costs are convex. Where they are not, budgets fall between two whole configurations; the
repair rounds them down (which never breaks a bound) and hands the freed time out again where it saves
most. The programme's value is a lower bound on every distribution, so the answer knows how good it is.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csc_matrix

from penstock.budgets.costs import FloatArray
from penstock.budgets.network import TOLERANCE, IntArray, Schedule
from penstock.budgets.pricing import WIDE, Prepared
from penstock.budgets.problem import BudgetProblem, Solution
from penstock.errors import PenstockError

GAP = 1e-9
"""Relative distance between answer and bound below which an answer counts as optimal."""

SMALL = 40
"""Units up to which single units are also tried a step back: there one unit's rounding weighs."""

SAMPLED_CALLS = 48
"""Most calls the hull makes to one remote cost function."""

MOST_SEGMENTS = 100_000
"""About how many hull segments the programme has in all; each unit gets an even share, from 8 to 48."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The budgets of one unit worth considering: each the smallest with its cost."""

    steps: IntArray
    costs: FloatArray
    complete: bool
    """Whether these are all of them, so that a bound computed from them is a true one."""


def choices(prepared: Prepared, v: int, *, exact: bool = False) -> Choices:
    """The unit's budgets worth considering; all of them where `exact`, else few calls come first."""
    least, most = int(prepared.least[v]), int(prepared.most[v])
    row = prepared.tabulated.get(v)
    if row is not None and (row.complete or not exact):
        end = int(np.searchsorted(row.steps, most, side="right"))
        return Choices(row.steps[:end], row.costs[:end], row.complete)
    pricing = prepared.pricing
    function = prepared.network.units[v].function
    if function.local and (exact or most - least <= WIDE):
        steps: IntArray = np.arange(least, most + 1)
        costs = pricing.table(v, least, most)
        complete = True
    elif function.local:
        wide = np.geomspace(1, most - least, WIDE // 4).astype(np.int64)
        steps = np.unique(np.concatenate([np.arange(WIDE // 4), wide, [most - least]])) + least
        costs = pricing.many(v, steps)
        complete = False
    else:
        steps, costs, complete = _sampled(prepared, v, math.inf if exact else SAMPLED_CALLS)
    first = np.empty(len(costs), dtype=bool)
    first[0] = True
    # Smallest budget of each cost; a fall within rounding is no fall.
    first[1:] = costs[1:] < costs[:-1] - 1e-12 * (1.0 + np.abs(costs[:-1]))
    return Choices(steps[first], costs[first], complete)


def _sampled(prepared: Prepared, v: int, most_calls: float) -> tuple[IntArray, FloatArray, bool]:
    """Points of a falling function by halving the interval with the largest open area first.

    Between two budgets of equal cost every cost is the same, so such intervals need no call.
    """
    least, most = int(prepared.least[v]), int(prepared.most[v])
    pricing = prepared.pricing
    known = {least: pricing.at(v, least), most: pricing.at(v, most)}
    open_areas: list[tuple[float, int, int]] = []

    def consider(low: int, high: int) -> None:
        fall = known[low] - known[high]
        if high - low > 1 and fall > 1e-12 * (1.0 + known[low]):
            heapq.heappush(open_areas, (-fall * (high - low), low, high))

    consider(least, most)
    while open_areas and len(known) < most_calls:
        _, low, high = heapq.heappop(open_areas)
        middle = (low + high) // 2
        known[middle] = pricing.at(v, middle)
        consider(low, middle)
        consider(middle, high)
    steps = np.array(sorted(known), dtype=np.int64)
    return steps, np.array([known[k] for k in steps.tolist()]), not open_areas


@dataclass(frozen=True, slots=True)
class Segments:
    """A lower convex hull as segments from its first point on, steepest first."""

    widths: FloatArray
    slopes: FloatArray
    whole: bool
    """False where hull points were left out to keep the programme small."""


def lower_hull(steps: IntArray, costs: FloatArray, most: int | None = None) -> Segments:
    """The lower convex hull of a unit's choices, of at most so many segments."""
    widths = (steps[1:] - steps[:-1]).astype(np.float64)
    slopes = (costs[1:] - costs[:-1]) / widths
    if not bool((slopes[1:] >= slopes[:-1]).all()):
        kept = _scan(steps.tolist(), costs.tolist())
        steps, costs = steps[kept], costs[kept]
        widths = (steps[1:] - steps[:-1]).astype(np.float64)
        slopes = (costs[1:] - costs[:-1]) / widths
    if most is None or len(slopes) <= most:
        return Segments(widths, slopes, True)
    # Left out evenly over the logarithm of the slope. Slopes ascend along a hull, so the first segment of
    # each level is found by search.
    steepest = float(slopes[0])
    ratio = max(float(slopes[-1]) / steepest, 1e-6) if steepest < 0 else 1.0
    levels = steepest * ratio ** (np.arange(1, most) / most)
    points = sorted({0, *slopes.searchsorted(levels).tolist(), len(slopes)})
    steps, costs = steps[points], costs[points]
    widths = (steps[1:] - steps[:-1]).astype(np.float64)
    return Segments(widths, (costs[1:] - costs[:-1]) / widths, False)


def _scan(x: list[int], y: list[float]) -> list[int]:
    """Indices of the points on the lower hull, from left to right."""
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) >= 2:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) >= (y[i] - y[a]) * (x[b] - x[a]):
                kept.pop()
            else:
                break
        kept.append(i)
    return kept


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The linear programme's answer: budgets that may lie between choices, prices and a bound."""

    steps: FloatArray
    """By unit, in steps."""
    prices: FloatArray
    """By unit: what one step less for it would be worth, summed over the paths through it."""
    lower_bound: float
    choices: Mapping[int, Choices]
    complete: bool
    """Whether `lower_bound` bounds every distribution on the grid."""


def relax(prepared: Prepared, *, exact: bool = False) -> Relaxation:
    """Solve the potential programme over lower hulls; `exact` uses every choice and every hull point."""
    free = prepared.free
    options = {v: choices(prepared, v, exact=exact) for v in free}
    share = None if exact else min(48, max(8, MOST_SEGMENTS // max(1, len(free))))
    hulls = {v: lower_hull(found.steps, found.costs, share) for v, found in options.items()}
    programme = _programme(prepared, hulls)
    answer = linprog(
        programme.objective,
        A_ub=programme.matrix,
        b_ub=programme.right,
        bounds=np.column_stack([np.zeros(len(programme.upper)), programme.upper]),
        method="highs-ds",
        # Presolve takes longer than it saves on this structure.
        options={"presolve": False},
    )
    if answer.x is None:
        raise PenstockError(f"the linear programme over {len(free)} units gave no answer: {answer.message}")
    steps = prepared.least.astype(np.float64)
    used = np.concatenate([[0.0], np.cumsum(answer.x[: programme.segments])])
    for v in free:
        steps[v] += used[programme.begin[v] + len(hulls[v].widths)] - used[programme.begin[v]]
    # What a step of a unit is worth is the sum of the prices of the rows it stands in.
    prices = np.zeros(len(prepared.network.names))
    np.add.at(prices, programme.owner, -answer.ineqlin.marginals)
    lower = math.fsum(float(found.costs[0]) for found in options.values()) + float(answer.fun)
    lower += math.fsum(prepared.fixed_costs.values())
    complete = all(found.complete for found in options.values())
    if complete and not all(hull.whole for hull in hulls.values()):
        complete = len(free) <= WIDE  # beyond that the correction takes longer than it is worth
        if complete:
            lower += math.fsum(_overrated(options[v], hulls[v], float(prices[v])) for v in free)
    return Relaxation(steps, prices, lower, options, complete)


def _overrated(found: Choices, hull: Segments, price: float) -> float:
    """What a unit's left-out hull points could save at a price, as a number ≤ 0.

    By duality the programme's value is the sum over units of min c(x) + π·x, plus a constant in π. Taking
    each minimum over all choices instead of the kept ones makes it a lower bound again.
    """
    if hull.whole:
        return 0.0
    rest = np.concatenate([[0.0], np.cumsum((hull.slopes + price) * hull.widths)])
    kept = float(found.costs[0]) + price * float(found.steps[0]) + float(rest.min())
    return min(0.0, float((found.costs + price * found.steps).min()) - kept)


@dataclass(frozen=True, slots=True)
class _Programme:
    """min objective·z with matrix·z ≤ right and 0 ≤ z ≤ upper: first the segments, then the times."""

    objective: FloatArray
    matrix: csc_matrix
    right: FloatArray
    upper: FloatArray
    segments: int
    begin: IntArray
    """By unit, its first segment."""
    owner: IntArray
    """By row, the unit whose segments stand in it."""


def _programme(prepared: Prepared, hulls: Mapping[int, Segments]) -> _Programme:
    """The potential programme.

    Variables: how much of each hull segment is used, and a finishing time t for each unit and layer. Rows:
    Σ segments_v + t_u − t_v ≤ −(least_v + delay_uv) for each edge; releases have no t_u; caps bound t.
    """
    network = prepared.network
    begin = np.zeros(len(network.names), dtype=np.int64)
    count = np.zeros(len(network.names), dtype=np.int64)
    position = 0
    for v, hull in hulls.items():
        begin[v], count[v] = position, len(hull.widths)
        position += len(hull.widths)
    segments = position
    owners: list[int] = []
    before: list[int] = []
    ends: list[int] = []
    delays: list[float] = []
    caps: list[float] = []
    for layer in network.layers:
        time_of = {v: position + i for i, v in enumerate(layer.nodes)}
        position += len(layer.nodes)
        caps.extend(layer.cap.get(v, math.inf) for v in layer.nodes)
        for v in layer.nodes:
            inputs = [(time_of[u], delay) for u, delay in layer.before[v]]
            if v in layer.release:
                inputs.append((-1, layer.release[v]))
            for u, delay in inputs:
                owners.append(v)
                before.append(u)
                ends.append(time_of[v])
                delays.append(delay)
    owner, u_of = np.array(owners, dtype=np.int64), np.array(before, dtype=np.int64)
    row = np.arange(len(owner))
    # Every row of a unit holds all its segments: their columns, row after row.
    per_row = count[owner]
    segment_rows = np.repeat(row, per_row)
    within = np.arange(len(segment_rows)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
    segment_columns = np.repeat(begin[owner], per_row) + within
    has_input = u_of >= 0
    matrix = csc_matrix(
        (
            np.concatenate([np.ones(len(segment_rows)), -np.ones(len(row)), np.ones(int(has_input.sum()))]),
            (
                np.concatenate([segment_rows, row, row[has_input]]),
                np.concatenate([segment_columns, np.array(ends, dtype=np.int64), u_of[has_input]]),
            ),
        ),
        shape=(len(row), position),
    )
    return _Programme(
        objective=np.concatenate([*(hull.slopes for hull in hulls.values()), np.zeros(position - segments)]),
        matrix=matrix,
        right=-(prepared.least[owner] + network.offset[owner] + np.array(delays)),
        upper=np.concatenate([*(hull.widths for hull in hulls.values()), np.array(caps)]),
        segments=segments,
        begin=begin,
        owner=owner,
    )


def solve_hull(problem: BudgetProblem) -> Solution:
    """Near-optimal budgets, fast: within a fraction of a percent of the cheapest in practice."""
    prepared = Prepared(problem, tabulated=True)
    relaxation = relax(prepared)
    steps = repair(prepared, relaxation)
    if not relaxation.complete:
        return prepared.solution("hull", steps)
    solution = prepared.solution("hull", steps, lower_bound=relaxation.lower_bound)
    proved = solution.cost - relaxation.lower_bound <= GAP * max(1.0, solution.cost)
    return replace(solution, optimal=proved)


def repair(prepared: Prepared, relaxation: Relaxation) -> IntArray:
    """Whole choices near the relaxation's budgets that keep every bound."""
    steps = prepared.least.copy()
    at: dict[int, int] = {}
    for v, found in relaxation.choices.items():
        at[v] = int(np.searchsorted(found.steps, relaxation.steps[v] + TOLERANCE * 10, side="right")) - 1
        steps[v] = found.steps[at[v]]
    fill(prepared, relaxation.choices, steps, at)
    if len(at) <= SMALL:
        steps = _exchanged(prepared, relaxation.choices, steps, at)
    return steps


def _exchanged(
    prepared: Prepared, options: Mapping[int, Choices], steps: IntArray, at: dict[int, int]
) -> IntArray:
    """Let single units step back where others save more with the time that frees, until none does."""

    def cost(places: Mapping[int, int]) -> float:
        return math.fsum(float(options[v].costs[i]) for v, i in places.items())

    best = cost(at)
    improved = True
    while improved:
        improved = False
        for v in options:
            if at[v] == 0:
                continue
            trial, trial_at = steps.copy(), dict(at)
            trial_at[v] -= 1
            trial[v] = options[v].steps[trial_at[v]]
            others = {u: found for u, found in options.items() if u != v}
            fill(prepared, others, trial, trial_at)
            found = cost(trial_at)
            if found < best - 1e-9 * max(1.0, best):
                steps, best, improved = trial, found, True
                at.update(trial_at)
    return steps


def fill(prepared: Prepared, options: Mapping[int, Choices], steps: IntArray, at: dict[int, int]) -> None:
    """Hand out what slack is left, best saving for each step first; changes `steps` and `at`."""
    schedule = Schedule(prepared.network, steps)

    def best(v: int) -> tuple[float, int, int] | None:
        found, i = options[v], at[v]
        room = schedule.slack(v)
        if i + 1 >= len(found.steps) or found.steps[i + 1] - steps[v] > room + TOLERANCE:
            return None
        reach = int(np.searchsorted(found.steps, steps[v] + room + TOLERANCE, side="right"))
        gains = (found.costs[i] - found.costs[i + 1 : reach]) / (found.steps[i + 1 : reach] - steps[v])
        j = int(np.argmax(gains))
        return -float(gains[j]), v, i + 1 + j

    waiting = [move for v in options if (move := best(v)) is not None]
    heapq.heapify(waiting)
    while waiting:
        move = heapq.heappop(waiting)
        v = move[1]
        # Slack only shrinks here, so a move found earlier is at best as good as it was.
        now = best(v)
        if now is None:
            continue
        if now == move:
            at[v] = now[2]
            grown = int(options[v].steps[now[2]] - steps[v])
            steps[v] += grown
            schedule.grow(v, grown)
            now = best(v)
        if now is not None:
            heapq.heappush(waiting, now)
