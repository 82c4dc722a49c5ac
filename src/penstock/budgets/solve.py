"""One call for every solver, and what happens when a unit's cost function does not answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from penstock.budgets.costs import UnansweredError
from penstock.budgets.exact import solve_exact
from penstock.budgets.greedy import solve_greedy
from penstock.budgets.hull import solve_hull
from penstock.budgets.lohrmann import solve_lohrmann
from penstock.budgets.problem import BudgetProblem, Solution
from penstock.errors import ConfigurationError

SOLVERS: Mapping[str, Callable[[BudgetProblem], Solution]] = MappingProxyType(
    {"hull": solve_hull, "exact": solve_exact, "greedy": solve_greedy, "lohrmann": solve_lohrmann}
)
"""The solvers by name; the first is the default."""


def solve(
    problem: BudgetProblem,
    solver: str = "hull",
    *,
    last_budgets_s: Mapping[str, float] | None = None,
    last_costs: Mapping[str, float] | None = None,
) -> Solution:
    """Distribute the bounds over the units by a named solver.

    A unit whose cost function does not answer keeps its last budget, at its last cost where that is known;
    the solution's `kept` says so. Without a last budget the UnansweredError goes on to the caller.
    """
    if solver not in SOLVERS:
        raise ConfigurationError(f"expected a solver out of {', '.join(SOLVERS)}, got {solver!r}")
    kept: dict[str, str] = {}
    while True:
        try:
            solution = SOLVERS[solver](problem)
        except UnansweredError as error:
            budget_s = (last_budgets_s or {}).get(error.unit)
            if budget_s is None or error.unit in kept:
                raise
            kept[error.unit] = error.reason
            cost = (last_costs or {}).get(error.unit, 0.0)
            problem = replace(
                problem,
                units=tuple(
                    replace(unit, fixed_s=budget_s, fixed_cost=cost) if unit.name == error.unit else unit
                    for unit in problem.units
                ),
            )
            continue
        return replace(solution, kept=MappingProxyType(kept)) if kept else solution
