"""Latency budgets: an end-to-end bound becomes a budget for every unit at least total cost (paper 004).

`costs` are the functions from budget to cost, `problem` the graph and its answer, `solve` the one call over
the solvers (`hull` by default, `exact`, `greedy`, `lohrmann`), `distribution` the way from a topology and
measurements to budgets, as the control loop uses it.
"""

from penstock.budgets.costs import (
    CostFunction,
    CostFunctionError,
    Custom,
    Exponential,
    Linear,
    Table,
    UnansweredError,
    cost_function,
)
from penstock.budgets.distribution import (
    Distribution,
    Load,
    at_places,
    distribute,
    granted,
    loads_from_measurements,
    loads_from_sources,
    needs_redistribution,
    problem_of,
)
from penstock.budgets.problem import BudgetProblem, BudgetUnit, InfeasibleBoundError, PathBound, Solution
from penstock.budgets.queues import MM1, Kingman, QueueCost, SharedQueue
from penstock.budgets.remote import RemoteCost
from penstock.budgets.solve import SOLVERS, solve

__all__ = [
    "MM1",
    "SOLVERS",
    "BudgetProblem",
    "BudgetUnit",
    "CostFunction",
    "CostFunctionError",
    "Custom",
    "Distribution",
    "Exponential",
    "InfeasibleBoundError",
    "Kingman",
    "Linear",
    "Load",
    "PathBound",
    "QueueCost",
    "RemoteCost",
    "SharedQueue",
    "Solution",
    "Table",
    "UnansweredError",
    "at_places",
    "cost_function",
    "distribute",
    "granted",
    "loads_from_measurements",
    "loads_from_sources",
    "needs_redistribution",
    "problem_of",
    "solve",
]
