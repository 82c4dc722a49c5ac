"""The exact solver: the cheapest distribution on the grid of steps, with proof.

Where every unit feeds at most one other (or is fed by at most one), paths share only what lies towards
the root and a dynamic programme over "steps used on the way to the root" is exact for any cost function.
Elsewhere a mixed-integer programme with node potentials is solved by HiGHS. It stays small because the
hull's answer is an upper bound: every budget whose reduced cost exceeds the remaining gap is left out,
which loses no optimum. Paths are never enumerated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from penstock.budgets.costs import FloatArray
from penstock.budgets.hull import GAP, Choices, Relaxation, choices, relax, repair
from penstock.budgets.network import TOLERANCE, IntArray
from penstock.budgets.pricing import Prepared
from penstock.budgets.problem import BudgetProblem, Solution
from penstock.errors import PenstockError

Neighbours = Mapping[int, tuple[tuple[int, float], ...]]


def solve_exact(problem: BudgetProblem, *, time_limit_s: float | None = None) -> Solution:
    """The cheapest budgets; `optimal` is False only where the time limit came first."""
    prepared = Prepared(problem, tabulated=True)
    if len(prepared.network.layers) == 1:
        layer = prepared.network.layers[0]
        nodes, before, after = layer.nodes, layer.before, layer.after
        inner_caps = any(after[v] for v in layer.cap)
        if not inner_caps and all(len(after[v]) <= 1 for v in nodes):
            return _proved(prepared, _tree(prepared, nodes, before, after, layer.release, layer.cap))
        inner_releases = any(before[v] for v in layer.release)
        if not inner_releases and all(len(before[v]) <= 1 for v in nodes):
            # A tree that spreads: the same programme on the reversed graph, with clocks running backwards.
            longest = max(layer.cap.values())
            release = {v: longest - at for v, at in layer.cap.items()}
            cap = {v: longest - at for v, at in layer.release.items()}
            return _proved(prepared, _tree(prepared, nodes[::-1], after, before, release, cap))
    return _by_programme(prepared, time_limit_s)


def _proved(prepared: Prepared, steps: IntArray) -> Solution:
    cost = math.fsum(prepared.pricing.at(v, int(steps[v])) for v in prepared.free)
    return prepared.solution(
        "exact", steps, optimal=True, lower_bound=cost + math.fsum(prepared.fixed_costs.values())
    )


def _tree(
    prepared: Prepared,
    nodes: Sequence[int],
    before: Neighbours,
    after: Neighbours,
    release: Mapping[int, float],
    cap: Mapping[int, float],
) -> IntArray:
    """Dynamic programme on a tree whose units feed at most one other; `nodes` with the starts first.

    f_v(k): least cost of v and all before it when k steps are used after v. A start's way to the root is
    unique, so its bound is a limit on steps: f_v(k) = min over x of c_v(x) + g_v(k + x), where g_v sums f
    over the predecessors and is infinite beyond v's own limit.
    """
    offset = prepared.network.offset
    room: dict[int, float] = {}
    """The root's cap, less the time that passes from v on whatever the steps: delays and fixed SLAs."""
    for v in reversed(nodes):
        if after[v]:
            w, delay = after[v][0]
            room[v] = room[w] - delay - offset[v]
        else:
            room[v] = cap[v] - offset[v]
    limit = {v: math.floor(room[v] - at + TOLERANCE) for v, at in release.items()}
    width = max(limit.values()) + 1
    options = {v: choices(prepared, v, exact=True) for v in prepared.free}
    value: dict[int, FloatArray] = {}
    taken: dict[int, IntArray] = {}
    for v in nodes:
        total = np.zeros(width)
        for u, _ in before[v]:
            total += value.pop(u)
        if v in limit:
            total[limit[v] + 1 :] = math.inf
        if v not in options:
            value[v] = total
            continue
        best = np.full(width, math.inf)
        chosen = np.zeros(width, dtype=np.int64)
        for x, cost in zip(options[v].steps.tolist(), options[v].costs.tolist(), strict=True):
            if x >= width:
                break
            candidate = total[x:] + cost
            end = width - x
            better = candidate < best[:end]
            best[:end] = np.where(better, candidate, best[:end])
            chosen[:end] = np.where(better, x, chosen[:end])
        value[v], taken[v] = best, chosen
    steps = prepared.least.copy()
    used = dict.fromkeys(nodes, 0)
    for v in reversed(nodes):
        if v in taken:
            steps[v] = taken[v][used[v]]
        for u, _ in before[v]:
            used[u] = used[v] + (int(steps[v]) if v in taken else 0)
    return steps


def _by_programme(prepared: Prepared, time_limit_s: float | None) -> Solution:
    relaxation = relax(prepared, exact=True)
    steps = repair(prepared, relaxation)
    found = math.fsum(prepared.pricing.at(v, int(steps[v])) for v in prepared.free)
    found += math.fsum(prepared.fixed_costs.values())
    gap = found - relaxation.lower_bound
    if gap <= GAP * max(1.0, found):
        return prepared.solution("exact", steps, optimal=True, lower_bound=found)
    kept = _within(relaxation, gap * (1 + 1e-6) + 1e-7 * max(1.0, found))
    best, bound, proved = _programme(prepared, kept, time_limit_s)
    lower = relaxation.lower_bound if bound is None else max(bound, relaxation.lower_bound)
    if best is None:
        return prepared.solution("exact", steps, optimal=False, lower_bound=lower)
    return prepared.solution("exact", best, optimal=proved, lower_bound=lower)


def _within(relaxation: Relaxation, gap: float) -> dict[int, Choices]:
    """The choices some optimum may use: those whose reduced cost c(x) + π·x − min is within the gap."""
    kept = {}
    for v, found in relaxation.choices.items():
        reduced = found.costs + relaxation.prices[v] * found.steps
        near = reduced - reduced.min() <= gap
        kept[v] = Choices(found.steps[near], found.costs[near], found.complete)
    return kept


def _programme(
    prepared: Prepared, options: Mapping[int, Choices], time_limit_s: float | None
) -> tuple[IntArray | None, float | None, bool]:
    """One binary for each unit and budget, one finishing time for each unit and layer, one row an edge."""
    network = prepared.network
    begin: dict[int, int] = {}
    position = 0
    for v, found in options.items():
        begin[v] = position
        position += len(found.steps)
    binaries = position
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    low: list[float] = []
    high: list[float] = []

    def add(entries: Sequence[tuple[int, float]], least: float, most: float) -> None:
        rows.extend([len(low)] * len(entries))
        columns.extend(column for column, _ in entries)
        values.extend(value for _, value in entries)
        low.append(least)
        high.append(most)

    for v, found in options.items():
        add([(begin[v] + j, 1.0) for j in range(len(found.steps))], 1.0, 1.0)
    upper = [1.0] * binaries
    for layer in network.layers:
        time_of = {v: position + i for i, v in enumerate(layer.nodes)}
        position += len(layer.nodes)
        upper.extend(layer.cap.get(v, math.inf) + TOLERANCE for v in layer.nodes)
        for v in layer.nodes:
            own = [(time_of[v], 1.0)]
            if v in options:
                own += [(begin[v] + j, -float(x)) for j, x in enumerate(options[v].steps.tolist())]
            for u, delay in layer.before[v]:
                add([*own, (time_of[u], -1.0)], float(network.offset[v]) + delay, math.inf)
            if v in layer.release:
                add(own, float(network.offset[v]) + layer.release[v], math.inf)
    objective = np.zeros(position)
    for v, found in options.items():
        objective[begin[v] : begin[v] + len(found.costs)] = found.costs
    limits = {"mip_rel_gap": GAP}
    if time_limit_s is not None:
        limits["time_limit"] = time_limit_s
    answer = milp(
        objective,
        constraints=LinearConstraint(
            csr_matrix((values, (rows, columns)), shape=(len(low), position)), low, high
        ),
        bounds=Bounds(np.zeros(position), np.array(upper)),
        integrality=np.concatenate([np.ones(binaries), np.zeros(position - binaries)]),
        options=limits,
    )
    fixed = math.fsum(prepared.fixed_costs.values())
    bound = None if answer.mip_dual_bound is None else float(answer.mip_dual_bound) + fixed
    if answer.x is None:
        if answer.status == 1:
            return None, bound, False
        raise PenstockError(f"the programme over {len(options)} units gave no answer: {answer.message}")
    steps = prepared.least.copy()
    for v, found in options.items():
        steps[v] = found.steps[int(np.argmax(answer.x[begin[v] : begin[v] + len(found.steps)]))]
    return steps, bound, answer.status == 0
