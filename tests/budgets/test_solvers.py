"""Solvers: every answer is feasible, none beats exact, and exact agrees with trying everything."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.budgets import BudgetProblem, BudgetUnit, Custom, PathBound, Solution, solve
from penstock.budgets.exact import solve_exact
from penstock.budgets.graphs import KINDS, random_problem
from penstock.budgets.greedy import solve_greedy
from penstock.budgets.hull import solve_hull
from penstock.budgets.paths import enumerate_paths, solve_path_programme
from penstock.budgets.pricing import Prepared


def paths_of(problem: BudgetProblem) -> list[list[str]]:
    """Every path from a unit without predecessors to one without successors, found independently."""
    names = [unit.name for unit in problem.units]
    after = {name: [v for u, v in problem.edges if u == name] for name in names}
    fed = {v for _, v in problem.edges}
    found: list[list[str]] = []

    def walk(path: list[str]) -> None:
        if not after[path[-1]]:
            found.append(path)
        for following in after[path[-1]]:
            walk([*path, following])

    for name in names:
        if name not in fed:
            walk([name])
    return found


def limits_of(problem: BudgetProblem) -> list[tuple[list[str], float]]:
    """Every bounded part of a path with the seconds its budgets may take together."""
    found = []
    for path in paths_of(problem):
        for bound in problem.bounds:
            for i, j in itertools.combinations_with_replacement(range(len(path)), 2):
                starts = path[i] in bound.first if bound.first else i == 0
                ends = path[j] in bound.last if bound.last else j == len(path) - 1
                if starts and ends:
                    part = path[i : j + 1]
                    on_the_way_s = sum(problem.delays_s.get(edge, 0.0) for edge in itertools.pairwise(part))
                    found.append((part, bound.bound_s - on_the_way_s))
    return found


def broken_paths(problem: BudgetProblem, solution: Solution) -> list[list[str]]:
    """Paths whose budgets exceed a bound that covers them."""
    return [
        part
        for part, limit_s in limits_of(problem)
        if sum(solution.budgets_s[name] for name in part) > limit_s + 1e-6
    ]


def cheapest_by_trying_everything(problem: BudgetProblem, most_steps: int) -> float:
    """The least cost over every combination of budgets; infinite where none keeps the bounds."""
    names = [unit.name for unit in problem.units]
    steps = np.indices((most_steps + 1,) * len(names)).reshape(len(names), -1)
    cost = np.zeros(steps.shape[1])
    for i, unit in enumerate(problem.units):
        cost += np.array([unit.function.cost(k * problem.step_s) for k in range(most_steps + 1)])[steps[i]]
    for part, limit_s in limits_of(problem):
        spent_s = sum(steps[names.index(name)] for name in part) * problem.step_s
        cost[spent_s > limit_s + 1e-9] = math.inf
    return float(cost.min())


@st.composite
def tiny_problems(draw: st.DrawFn) -> BudgetProblem:
    """Up to four units in any acyclic shape, with falling cost tables of any form, and one or two bounds."""
    count = draw(st.integers(1, 4))
    names = [f"u{i}" for i in range(count)]
    pairs = list(itertools.combinations(names, 2))
    edges = tuple(pair for pair in pairs if draw(st.booleans()))
    most = draw(st.integers(3, 5))
    step_s = draw(st.sampled_from([1.0, 0.5, 0.1]))
    units = []
    for name in names:
        falls = draw(st.lists(st.integers(0, 9), min_size=most + 1, max_size=most + 1))
        levels = [float(sum(falls[i:])) for i in range(most + 1)]
        impossible = draw(st.integers(0, 1))

        def cost(latency_s: float, levels: list[float] = levels, impossible: int = impossible) -> float:
            k = round(latency_s / step_s)
            return math.inf if k < impossible else levels[min(k, most)]

        units.append(BudgetUnit(name, Custom(cost)))
    bounds = [PathBound((most + draw(st.sampled_from([0.0, 0.4]))) * step_s)]
    if draw(st.booleans()):
        first, last = sorted([draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))])
        reachable = any(
            names[first] in path and names[last] in path
            for path in paths_of(BudgetProblem(tuple(units), edges, tuple(bounds)))
        )
        if reachable:
            bounds.append(PathBound(draw(st.integers(2, most)) * step_s, (names[first],), (names[last],)))
    delays_s = {edge: 0.3 * step_s for edge in edges if draw(st.integers(0, 4)) == 0}
    return BudgetProblem(tuple(units), edges, tuple(bounds), step_s, delays_s)


@settings(max_examples=80, deadline=None)
@given(tiny_problems())
def test_exact_agrees_with_trying_everything_and_all_solvers_keep_the_bounds(problem: BudgetProblem) -> None:
    most = round(max(bound.bound_s for bound in problem.bounds) / problem.step_s)
    cheapest = cheapest_by_trying_everything(problem, most)
    if math.isinf(cheapest):
        with pytest.raises(Exception, match="no distribution keeps the bound"):
            solve_exact(problem)
        return
    solutions: dict[str, Solution] = {name: solve(problem, name) for name in ("exact", "hull", "greedy")}
    solutions["paths"] = solve_path_programme(problem)
    for solution in solutions.values():
        assert not broken_paths(problem, solution)
        assert solution.cost >= cheapest - 1e-6
        assert solution.cost == pytest.approx(
            sum(unit.function.cost(solution.budgets_s[unit.name]) for unit in problem.units)
        )
    assert solutions["exact"].cost == pytest.approx(cheapest)
    assert solutions["exact"].optimal
    assert solutions["paths"].cost == pytest.approx(cheapest)
    bound = solutions["hull"].lower_bound
    assert bound is None or bound <= cheapest + 1e-6


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shared", [0.0, 0.3])
@pytest.mark.parametrize("step_s", [1.0, 3.0])
def test_no_solver_beats_exact_on_mixed_graphs(seed: int, shared: float, step_s: float) -> None:
    problem = random_problem(20, seed, shared=shared, step_s=step_s)
    exact = solve(problem, "exact")
    assert exact.optimal
    for name in ("hull", "greedy"):
        found = solve(problem, name)
        assert not broken_paths(problem, found)
        assert exact.cost <= found.cost + 1e-6
    hull = solve(problem, "hull")
    assert hull.cost <= exact.cost * 1.01
    assert hull.lower_bound is not None
    assert hull.lower_bound <= exact.cost + 1e-6


def test_the_lower_bound_is_true_where_hull_points_were_left_out() -> None:
    problem = random_problem(60, 4, kinds=("exponential", "mm1"), bound_factor=5)
    hull, exact = solve(problem, "hull"), solve(problem, "exact")
    assert hull.lower_bound is not None
    assert exact.cost * 0.99 <= hull.lower_bound <= exact.cost + 1e-6


@pytest.mark.parametrize("kind", ["mm1", "kingman"])
@pytest.mark.parametrize("seed", range(3))
def test_lohrmann_is_feasible_and_close_to_exact_on_homogeneous_units(kind: str, seed: int) -> None:
    problem = random_problem(30, seed, kinds=(kind,))
    exact, lohrmann = solve(problem, "exact"), solve(problem, "lohrmann")
    assert not broken_paths(problem, lohrmann)
    assert exact.cost <= lohrmann.cost <= exact.cost * 1.1


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_asks_for_less_than_the_full_table_and_for_less_still_with_its_cache(kind: str) -> None:
    problem = random_problem(30, 5, kinds=(kind,))
    cached, plain = solve_greedy(problem), solve_greedy(problem, cached=False)
    assert cached.budgets_s == plain.budgets_s
    assert cached.calls < plain.calls
    assert plain.calls < 30 * (60 + 1)


def test_greedy_follows_the_papers_table_1() -> None:
    # Three units at 5 s each; savings of a step more and losses of a step less as in Table 1.
    tables = {
        "cu1": {2: 28.0, 3: 16.0, 4: 13.0, 5: 11.0, 6: 10.0, 7: 9.9},
        "cu2": {3: 24.0, 4: 20.0, 5: 15.0, 6: 11.0, 7: 10.0},
        "cu3": {4: 31.0, 5: 25.0, 6: 20.0, 7: 19.0, 8: 18.9},
    }

    def cost_of(name: str) -> Custom:
        table = tables[name]
        return Custom(
            lambda latency_s: table.get(round(latency_s), max(table.values()) if latency_s < 4 else 9.0)
        )

    units = tuple(BudgetUnit(name, cost_of(name)) for name in tables)
    problem = BudgetProblem(units, (("cu1", "cu2"), ("cu2", "cu3")), (PathBound(15.0),))
    budgets = solve_greedy(problem).budgets_s
    # Iteration 1 moves a second from CU1 to CU3, iteration 2 one from CU1 to CU2 (which then has 6 s).
    assert dict(budgets) == {"cu1": 3.0, "cu2": 6.0, "cu3": 6.0}


def test_answers_are_the_same_every_time() -> None:
    problem = random_problem(40, 3)
    for name in ("hull", "exact", "greedy"):
        assert solve(problem, name).budgets_s == solve(problem, name).budgets_s


def test_a_tree_and_its_reverse_cost_the_same() -> None:
    tree = random_problem(40, 1, shared=0.0)
    reverse = BudgetProblem(tree.units, tuple((v, u) for u, v in tree.edges), tree.bounds, tree.step_s)
    assert solve(tree, "exact").cost == pytest.approx(solve(reverse, "exact").cost)


def test_the_dynamic_programme_and_the_mixed_integer_programme_agree() -> None:
    for seed in range(3):
        tree = random_problem(25, seed, shared=0.0)
        # A second bound that never binds forces a second layer, and so the other method.
        doubled = BudgetProblem(
            tree.units,
            tree.edges,
            (*tree.bounds, PathBound(1000.0, (tree.units[-1].name,), ("u0",))),
            tree.step_s,
        )
        one, other = solve_exact(tree), solve_exact(doubled)
        assert one.cost == pytest.approx(other.cost)
        assert other.optimal


def test_the_hull_uses_few_calls_of_a_remote_function() -> None:
    class Counted(Custom):
        local = False

    calls: list[float] = []

    def cost(latency_s: float) -> float:
        calls.append(latency_s)
        return 100.0 / (1.0 + latency_s)

    units = (BudgetUnit("remote", Counted(cost)), *random_problem(10, 1).units)
    problem = BudgetProblem(units, tuple(("remote", u.name) for u in units[1:]), (PathBound(900.0),))
    solution = solve_hull(problem)
    assert len(calls) <= 60
    assert not broken_paths(problem, solution)


def test_a_bound_of_many_steps_is_sampled_not_tabulated() -> None:
    problem = random_problem(30, 2, bound_s=50_000.0)
    solution = solve_hull(problem)
    assert solution.calls < 30 * 2_000
    assert not broken_paths(problem, solution)


def test_random_graphs_share_units_between_paths_as_asked() -> None:
    tree, dag = random_problem(60, 0, shared=0.0), random_problem(60, 0, shared=0.3)
    assert len(tree.edges) == 59
    assert len(dag.edges) > 59
    assert len(enumerate_paths(Prepared(dag))) == len(paths_of(dag))
