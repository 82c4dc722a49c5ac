"""Problems: mistakes are named, bounds without a solution are explained, answers carry their facts."""

from __future__ import annotations

import itertools
import math

import pytest

from penstock.budgets import (
    MM1,
    SOLVERS,
    BudgetProblem,
    BudgetUnit,
    CostFunctionError,
    InfeasibleBoundError,
    Linear,
    PathBound,
    Table,
    solve,
)
from penstock.errors import ConfigurationError, PenstockError


def a_chain(*units: BudgetUnit, bound_s: float = 10.0, step_s: float = 1.0) -> BudgetProblem:
    names = [unit.name for unit in units]
    return BudgetProblem(units, tuple(itertools.pairwise(names)), (PathBound(bound_s),), step_s)


GENERIC = [name for name in SOLVERS if name != "lohrmann"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PathBound(0.0), "above 0 s, got 0.0"),
        (lambda: PathBound(math.nan), "above 0 s"),
        (lambda: BudgetProblem((), (), (PathBound(1.0),)), "at least one unit"),
        (lambda: BudgetProblem((BudgetUnit("a", Linear()),), (), ()), "at least one latency bound"),
        (lambda: a_chain(BudgetUnit("a", Linear()), BudgetUnit("a", Linear())), "a more than once"),
        (lambda: a_chain(BudgetUnit("a", Linear()), step_s=0.0), "step_s must be above 0"),
        (lambda: BudgetUnit("a", Linear(), min_latency_s=-1.0), "unit 'a': min_latency_s"),
        (
            lambda: BudgetProblem((BudgetUnit("a", Linear()),), (("a", "b"),), (PathBound(1.0),)),
            "a → b names 'b', which is no unit",
        ),
        (
            lambda: BudgetProblem((BudgetUnit("a", Linear()),), (), (PathBound(1.0, ("x",)),)),
            "names 'x', which is no unit",
        ),
    ],
)
def test_a_wrong_problem_is_refused_with_a_reason(make: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("solver", GENERIC)
def test_a_cycle_is_named(solver: str) -> None:
    units = tuple(BudgetUnit(name, Linear()) for name in "abc")
    problem = BudgetProblem(units, (("a", "b"), ("b", "c"), ("c", "b")), (PathBound(10.0),))
    with pytest.raises(ConfigurationError, match=r"cycle (b → c → b|c → b → c)"):
        solve(problem, solver)


def _fails(latency_s: float) -> float:
    raise RuntimeError("the provider's library broke")


@pytest.mark.parametrize("solver", GENERIC)
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda latency_s: -1.0, "unit 'bad' at .* is negative"),
        (lambda latency_s: math.nan, "unit 'bad' at .* is not a number"),
        (lambda latency_s: latency_s, "unit 'bad' rises"),
        (lambda latency_s: "dear", "unit 'bad' failed: expected a number"),
        (_fails, "unit 'bad' failed .* RuntimeError: the provider's library broke"),
        (lambda latency_s: math.inf, "infinite at every budget"),
    ],
)
def test_a_bad_callable_is_named_with_its_unit(solver: str, function: object, words: str) -> None:
    problem = a_chain(BudgetUnit("good", Linear()), BudgetUnit("bad", function))  # type: ignore[arg-type]
    with pytest.raises(CostFunctionError, match=words):
        solve(problem, solver)


def test_a_unit_that_cannot_follow_its_load_is_named() -> None:
    problem = a_chain(BudgetUnit("slow", MM1(100.0, 1.0, max_instances=50)))
    with pytest.raises(
        CostFunctionError,
        match="unit 'slow' can keep no budget: 100 records/s of 1 s each need at least 101 instances",
    ):
        solve(problem)


def test_an_unknown_solver_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="out of hull, exact, greedy, lohrmann, got 'magic'"):
        solve(a_chain(BudgetUnit("a", Linear())), "magic")


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_bound_too_small_names_its_path_its_minimum_and_the_bound_that_would_work(solver: str) -> None:
    units = tuple(
        BudgetUnit(name, MM1(2.0), min_latency_s=least)
        for name, least in (("a", 4.0), ("b", 5.0), ("c", 2.0))
    )
    edges = (("a", "c"), ("b", "c"))
    with pytest.raises(InfeasibleBoundError) as caught:
        solve(BudgetProblem(units, edges, (PathBound(6.5),)), solver)
    error = caught.value
    assert error.path == ("b", "c")
    assert (error.minimum_s, error.bound_s, error.smallest_bound_s) == (7.0, 6.5, 7.0)
    assert "b (5 s) → c (2 s) needs at least 7 s" in str(error)
    assert "smallest bound that would work is 7 s" in str(error)
    # And it does work.
    assert (
        solve(BudgetProblem(units, edges, (PathBound(error.smallest_bound_s),)), solver).budgets_s["b"] == 5.0
    )


def test_a_bound_no_path_runs_through_is_refused() -> None:
    units = tuple(BudgetUnit(name, Linear()) for name in "ab")
    with pytest.raises(ConfigurationError, match="from b to a, but no path leads there"):
        solve(BudgetProblem(units, (("a", "b"),), (PathBound(3.0, ("b",), ("a",)),)))


@pytest.mark.parametrize("solver", GENERIC)
def test_a_fixed_sla_takes_its_time_and_its_price(solver: str) -> None:
    problem = a_chain(
        BudgetUnit("bought", Table(((2.5, 7.0),)), fixed_s=2.5),
        BudgetUnit("own", Linear(10.0, 1.0)),
        bound_s=6.0,
    )
    solution = solve(problem, solver)
    assert dict(solution.budgets_s) == {"bought": 2.5, "own": 3.0}
    assert dict(solution.costs) == {"bought": 7.0, "own": 7.0}
    assert solution.cost == 14.0
    assert solution.slack_s["own"] == pytest.approx(0.5)


@pytest.mark.parametrize("solver", GENERIC)
def test_delays_between_sites_count_against_the_bound(solver: str) -> None:
    units = (BudgetUnit("edge", Linear(10.0, 1.0)), BudgetUnit("cloud", Linear(10.0, 2.0)))
    edges = (("edge", "cloud"),)
    problem = BudgetProblem(units, edges, (PathBound(4.0),), 1.0, {("edge", "cloud"): 0.7})
    solution = solve(problem, solver)
    assert dict(solution.budgets_s) == {"edge": 0.0, "cloud": 3.0}


@pytest.mark.parametrize("solver", GENERIC)
def test_each_path_keeps_its_own_bound(solver: str) -> None:
    # Two sources share a unit: the tight path leaves it little, whatever the loose one could give.
    units = tuple(BudgetUnit(name, Linear(100.0, 1.0)) for name in ("tight", "loose", "shared"))
    edges = (("tight", "shared"), ("loose", "shared"))
    bounds = (PathBound(4.0, ("tight",)), PathBound(20.0, ("loose",)))
    budgets = solve(BudgetProblem(units, edges, bounds), solver).budgets_s
    assert budgets["tight"] + budgets["shared"] <= 4.0
    assert budgets["loose"] + budgets["shared"] == 20.0


@pytest.mark.parametrize("solver", GENERIC)
def test_a_bound_may_end_at_an_inner_unit(solver: str) -> None:
    units = tuple(
        BudgetUnit(name, Linear(100.0, fall)) for name, fall in (("a", 2.0), ("b", 3.0), ("c", 1.0))
    )
    bounds = (PathBound(3.0, (), ("b",)), PathBound(12.0))
    budgets = solve(BudgetProblem(units, (("a", "b"), ("b", "c")), bounds), solver).budgets_s
    assert budgets["a"] + budgets["b"] == 3.0
    assert budgets["c"] == 9.0


def test_a_unit_on_no_bounded_path_gets_no_budget() -> None:
    units = tuple(BudgetUnit(name, Linear()) for name in ("a", "b", "aside"))
    solution = solve(BudgetProblem(units, (("a", "b"), ("a", "aside")), (PathBound(4.0, (), ("b",)),)))
    assert set(solution.budgets_s) == {"a", "b"}


def test_an_answer_says_instances_slack_and_calls() -> None:
    solution = solve(
        a_chain(BudgetUnit("a", MM1(10.0)), BudgetUnit("b", Linear(5.0, 5.0)), bound_s=12.0), "exact"
    )
    assert solution.optimal
    assert solution.lower_bound == pytest.approx(solution.cost)
    assert dict(solution.budgets_s) == {"a": 11.0, "b": 1.0}
    assert dict(solution.parallelism) == {"a": 11, "b": None}
    assert solution.calls > 0
    assert solution.fee == 0.0


def test_lohrmann_refuses_units_it_cannot_model() -> None:
    with pytest.raises(ConfigurationError, match="unit 'b' has Linear; use hull or exact"):
        solve(a_chain(BudgetUnit("a", MM1(1.0)), BudgetUnit("b", Linear())), "lohrmann")
    with pytest.raises(ConfigurationError, match="one price for all units"):
        solve(a_chain(BudgetUnit("a", MM1(1.0)), BudgetUnit("b", MM1(1.0, price=2.0))), "lohrmann")


def test_all_its_errors_are_penstock_errors() -> None:
    assert issubclass(CostFunctionError, PenstockError)
    assert issubclass(InfeasibleBoundError, PenstockError)
