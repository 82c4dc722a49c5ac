"""Random unit graphs like those of paper 004's evaluation (Section 6.1), for tests and experiments.

Records run from many sources to one consumer through a tree; a share of the units feeds a second
consumer as well, so that units are shared between paths and the graph is a true DAG. Load is a random
integer plus half of what the predecessors carry. The bound is a factor times the number of units.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from penstock.budgets.costs import CostFunction, Exponential, Linear
from penstock.budgets.problem import BudgetProblem, BudgetUnit, PathBound
from penstock.budgets.queues import MM1, Kingman

KINDS = ("mm1", "kingman", "linear", "exponential")
"""The four cost functions of the paper."""

SELECTIVITY = 0.5
LARGEST_LOAD = 10


def random_problem(
    units: int,
    seed: int,
    *,
    kinds: Sequence[str] = KINDS,
    bound_factor: float = 2.0,
    bound_s: float | None = None,
    step_s: float = 1.0,
    shared: float = 0.2,
) -> BudgetProblem:
    """A random problem: `units` units, cost functions drawn from `kinds`, bound factor × units seconds.

    `shared` is the share of units that feed a second consumer; 0 gives a tree.
    """
    draw = random.Random(f"{units}/{seed}/{shared}")
    # Unit 0 is the consumer; every later unit feeds an earlier one, so edges run from high to low.
    edges = [(v, draw.randrange(v)) for v in range(1, units)]
    for v in range(2, units):
        if draw.random() < shared:
            edges.append((v, draw.randrange(v)))
    edges = list(dict.fromkeys(edges))
    before: list[list[int]] = [[] for _ in range(units)]
    for u, v in edges:
        before[v].append(u)
    load = [0.0] * units
    for v in reversed(range(units)):
        load[v] = draw.randint(1, LARGEST_LOAD) + SELECTIVITY * sum(load[u] for u in before[v])
    chosen = [kinds[v % len(kinds)] for v in range(units)]
    draw.shuffle(chosen)
    names = [f"u{v}" for v in range(units)]
    return BudgetProblem(
        units=tuple(
            BudgetUnit(names[v], _cost(chosen[v], load[v], max(1, len(before[v])))) for v in range(units)
        ),
        edges=tuple((names[u], names[v]) for u, v in edges),
        bounds=(PathBound(bound_s if bound_s is not None else bound_factor * units),),
        step_s=step_s,
    )


def _cost(kind: str, load: float, degree: int) -> CostFunction:
    if kind == "mm1":
        return MM1(load)
    if kind == "kingman":
        return Kingman(load, waiting_only=True)
    if kind == "linear":
        return Linear(100.0, float(degree))
    return Exponential(10.0, degree / 100.0, 1.0)
