"""The paper's integer programme over paths (paper 004, Equations 5-8), for comparison only.

It enumerates every path, has one binary for each unit and budget and one row a path. Benchmarks and the
experiment measure how much the node potentials of `exact` and `hull` save; no solver of the product uses it.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from penstock.budgets.network import TOLERANCE
from penstock.budgets.pricing import Prepared
from penstock.budgets.problem import BudgetProblem, Solution
from penstock.errors import PenstockError

MOST_PATHS = 200_000


def solve_path_programme(problem: BudgetProblem, *, time_limit_s: float | None = None) -> Solution:
    """The cheapest budgets by the path formulation; `optimal` is False where the time limit came first."""
    prepared = Prepared(problem, tabulated=True)
    free = prepared.free
    begin: dict[int, int] = {}
    position = 0
    for v in free:
        begin[v] = position
        position += int(prepared.most[v] - prepared.least[v]) + 1
    objective = np.zeros(position)
    for v in free:
        least, most = int(prepared.least[v]), int(prepared.most[v])
        objective[begin[v] : begin[v] + most - least + 1] = [
            prepared.pricing.at(v, k) for k in range(least, most + 1)
        ]
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    low: list[float] = []
    high: list[float] = []
    for v in free:  # Equation 7
        count = int(prepared.most[v] - prepared.least[v]) + 1
        rows.extend([len(low)] * count)
        columns.extend(range(begin[v], begin[v] + count))
        values.extend([1.0] * count)
        low.append(1.0)
        high.append(1.0)
    for path, steps in enumerate_paths(prepared):  # Equation 6
        for v in path:
            if v in begin:
                count = int(prepared.most[v] - prepared.least[v]) + 1
                rows.extend([len(low)] * count)
                columns.extend(range(begin[v], begin[v] + count))
                values.extend(range(int(prepared.least[v]), int(prepared.most[v]) + 1))
        low.append(-math.inf)
        high.append(steps + TOLERANCE)
    options: dict[str, float] = {"mip_rel_gap": 1e-9}
    if time_limit_s is not None:
        options["time_limit"] = time_limit_s
    answer = milp(
        objective,
        constraints=LinearConstraint(
            csr_matrix((values, (rows, columns)), shape=(len(low), position)), low, high
        ),
        bounds=Bounds(0, 1),
        integrality=np.ones(position),
        options=options,
    )
    if answer.x is None:
        raise PenstockError(f"the path programme over {len(free)} units gave no answer: {answer.message}")
    found = prepared.least.copy()
    for v in free:
        found[v] += int(
            np.argmax(answer.x[begin[v] : begin[v] + int(prepared.most[v] - prepared.least[v]) + 1])
        )
    return prepared.solution("paths", found, optimal=answer.status == 0)


def enumerate_paths(prepared: Prepared) -> list[tuple[list[int], float]]:
    """Every bounded path with the steps it may take; PenstockError beyond MOST_PATHS of them."""
    found: list[tuple[list[int], float]] = []
    for layer in prepared.network.layers:
        waiting = [([v], layer.release[v] + float(prepared.network.offset[v])) for v in layer.release]
        while waiting:
            path, used = waiting.pop()
            v = path[-1]
            if v in layer.cap:
                found.append((path, layer.cap[v] - used))
            if len(found) + len(waiting) > MOST_PATHS:
                raise PenstockError(f"the graph has more than {MOST_PATHS:,} paths; use exact or hull")
            waiting.extend(
                ([*path, w], used + delay + float(prepared.network.offset[w])) for w, delay in layer.after[v]
            )
    return found
