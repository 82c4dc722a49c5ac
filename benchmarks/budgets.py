"""Latency budgets: how near the default solver comes to the optimum, how fast, and with how many calls.

Times are processor time of this process, so that other work on the machine does not count; ratios are of
the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.budgets.exact import solve_exact
from penstock.budgets.graphs import random_problem
from penstock.budgets.greedy import solve_greedy
from penstock.budgets.hull import solve_hull
from penstock.budgets.paths import solve_path_programme
from penstock.budgets.problem import BudgetProblem, Solution
from penstock.report.figures import Figure

UNITS = 100
GRAPHS = 50
PATH_GRAPHS = 6
"""The path programme takes seconds a graph: a few are enough for a ratio."""
PATH_LIMIT_S = 60.0
STEPS_S = (1.0, 2.0, 3.0, 4.0, 5.0)
STEP_GRAPHS = 10
LARGE_UNITS = 10_000
LARGE_BOUND_S = 400.0
"""About sixteen seconds for each unit of the longest path, as bound factor 2 gives at 100 units."""


def timed(solver: Callable[[BudgetProblem], Solution], problem: BudgetProblem) -> tuple[float, Solution]:
    """Processor seconds and the answer."""
    began_s = time.process_time()
    solution = solver(problem)
    return time.process_time() - began_s, solution


def figures() -> list[Figure]:
    """Every claim about latency budgets."""
    problems = [random_problem(UNITS, seed) for seed in range(GRAPHS)]
    solve_hull(problems[0])
    hulls = [timed(solve_hull, problem) for problem in problems]
    exacts = [timed(solve_exact, problem) for problem in problems]
    gaps = [h.cost / e.cost - 1 for (_, h), (_, e) in zip(hulls, exacts, strict=True)]
    near = sum(gap <= 0.01 for gap in gaps)
    found = [
        Figure(
            f"hull within 1 % of exact, {UNITS} units mixed", near, f"= {GRAPHS} graphs", holds=near == GRAPHS
        ),
        Figure("largest gap of hull to exact", 100 * max(gaps), "<= 1 %", holds=max(gaps) <= 0.01, unit="%"),
    ]
    paths = [
        timed(lambda p: solve_path_programme(p, time_limit_s=PATH_LIMIT_S), p) for p in problems[:PATH_GRAPHS]
    ]
    agree = all(
        not path.optimal or abs(path.cost - exact.cost) < 1e-6 * exact.cost
        for (_, path), (_, exact) in zip(paths, exacts, strict=False)
    )
    ratios = [path_s / hull_s for (path_s, _), (hull_s, _) in zip(paths, hulls, strict=False)]
    found += [
        Figure("hull, mean time a graph", sum(s for s, _ in hulls) / GRAPHS, unit="s"),
        Figure("exact, mean time a graph", sum(s for s, _ in exacts) / GRAPHS, unit="s"),
        Figure("path ILP, mean time a graph", sum(s for s, _ in paths) / len(paths), unit="s"),
        Figure("path ILP finds the optimum of exact", str(agree), "True", holds=agree),
        Figure("path ILP over hull, least ratio", min(ratios), ">= 20", holds=min(ratios) >= 20, unit="×"),
    ]
    for step_s in STEPS_S:
        runs = [timed(solve_exact, random_problem(UNITS, seed, step_s=step_s)) for seed in range(STEP_GRAPHS)]
        slowest_s = max(seconds for seconds, _ in runs)
        proved = all(solution.optimal for _, solution in runs)
        found.append(
            Figure(
                f"exact with proof, step {step_s:g}, slowest of {STEP_GRAPHS}",
                slowest_s,
                "< 5 s",
                paper="no answer in 1 h" if step_s > 1 else None,
                holds=proved and slowest_s < 5.0,
                unit="s",
            )
        )
    large = random_problem(LARGE_UNITS, 0, bound_s=LARGE_BOUND_S)
    large_s = min(timed(solve_hull, large)[0] for _ in range(3))
    found.append(Figure(f"hull, {LARGE_UNITS:,} units", large_s, "< 2 s", holds=large_s < 2.0, unit="s"))
    greedy = [solve_greedy(problem) for problem in problems]
    plain = [solve_greedy(problem, cached=False) for problem in problems]
    cheapest = [
        e.cost <= min(h.cost, g.cost) * (1 + 1e-9)
        for (_, e), (_, h), g in zip(exacts, hulls, greedy, strict=True)
    ]
    table = UNITS * (2 * UNITS + 1)
    fewer = sum(solution.calls < table for solution in plain)
    share = max(c.calls / p.calls for c, p in zip(greedy, plain, strict=True))
    found += [
        Figure(
            "exact never dearer than hull and greedy",
            sum(cheapest),
            f"= {GRAPHS} graphs",
            holds=all(cheapest),
        ),
        Figure(
            "greedy asks for less than the full table, no cache",
            fewer,
            f"= {GRAPHS} graphs",
            holds=fewer == GRAPHS,
        ),
        Figure("greedy calls, mean", sum(s.calls for s in greedy) / GRAPHS, paper="fewer than the ILP"),
        Figure("full table calls", table),
        Figure("cached calls of greedy over uncached, largest", share, "<= 0.6", holds=share <= 0.6),
        Figure(
            "greedy cost over optimum, mean",
            sum(g.cost / e.cost for g, (_, e) in zip(greedy, exacts, strict=True)) / GRAPHS,
            paper="slightly above 1",
        ),
    ]
    return found
