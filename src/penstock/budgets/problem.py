"""The latency-distribution problem of paper 004 and its answer.

A problem is a graph of units, each with a cost function, and bounds on paths through it; an answer
gives every unit a budget so that the sum along each path keeps the path's bound. `network` makes a problem
ready for solving, `pricing` asks the cost functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from penstock.budgets.costs import CostFunction, cost_function
from penstock.errors import ConfigurationError, InfeasibleError

MOST_STEPS = 10_000_000
"""Steps the longest bound may have: more would only take longer."""


class InfeasibleBoundError(InfeasibleError):
    """No distribution keeps a bound: its path's least latencies already exceed it."""

    def __init__(
        self, path: Sequence[str], minimums_s: Sequence[float], minimum_s: float, bound: PathBound
    ) -> None:
        bound_s = bound.bound_s
        self.path = tuple(path)
        self.minimum_s = minimum_s
        self.bound = bound
        self.bound_s = bound_s
        self.smallest_bound_s = minimum_s
        parts = " → ".join(f"{name} ({least:g} s)" for name, least in zip(path, minimums_s, strict=True))
        super().__init__(
            f"no distribution keeps the bound of {bound_s:g} s: the path {parts} needs at least "
            f"{minimum_s:g} s; the smallest bound that would work is {minimum_s:g} s"
        )


@dataclass(frozen=True, slots=True)
class BudgetUnit:
    """A unit as the optimiser sees it."""

    name: str
    cost: CostFunction | Callable[[float], float] | Sequence[tuple[float, float]]
    min_latency_s: float = 0.0
    """The least budget it may get, beside what its cost function says."""
    fixed_s: float | None = None
    """A fixed SLA: the unit takes exactly this much and is not optimised."""
    fixed_cost: float | None = None
    """What the fixed SLA costs; None asks the cost function."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", cost_function(self.cost))
        for what in ("min_latency_s", "fixed_s", "fixed_cost"):
            value = getattr(self, what)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ConfigurationError(f"unit {self.name!r}: {what} must be a number ≥ 0, got {value!r}")

    @property
    def function(self) -> CostFunction:
        """Its cost function."""
        assert isinstance(self.cost, CostFunction)
        return self.cost


@dataclass(frozen=True, slots=True)
class PathBound:
    """The longest latency of every path from one of the units `first` to one of the units `last`."""

    bound_s: float
    first: tuple[str, ...] = ()
    """Empty means every unit without predecessors."""
    last: tuple[str, ...] = ()
    """Empty means every unit without successors."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bound_s) and self.bound_s > 0):
            raise ConfigurationError(f"a latency bound must be above 0 s, got {self.bound_s!r}")


@dataclass(frozen=True)
class BudgetProblem:
    """Units, edges and bounds; budgets are multiples of the step."""

    units: tuple[BudgetUnit, ...]
    edges: tuple[tuple[str, str], ...]
    bounds: tuple[PathBound, ...]
    step_s: float = 1.0
    delays_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Time a record spends on an edge (between sites), by edge."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", tuple(self.units))
        object.__setattr__(self, "edges", tuple(dict.fromkeys((u, v) for u, v in self.edges)))
        object.__setattr__(self, "bounds", tuple(self.bounds))
        object.__setattr__(self, "delays_s", MappingProxyType(dict(self.delays_s)))
        if not self.units:
            raise ConfigurationError("a budget problem needs at least one unit, got none")
        if not self.bounds:
            raise ConfigurationError("a budget problem needs at least one latency bound, got none")
        if not (math.isfinite(self.step_s) and self.step_s > 0):
            raise ConfigurationError(f"step_s must be above 0, got {self.step_s!r}")
        longest_s = max(bound.bound_s for bound in self.bounds)
        if longest_s / self.step_s > MOST_STEPS:
            raise ConfigurationError(
                f"a bound of {longest_s:g} s has {longest_s / self.step_s:.3g} steps of {self.step_s:g} s, "
                f"more than {MOST_STEPS:,}; give a larger step"
            )
        names = [unit.name for unit in self.units]
        twice = (
            sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        )
        if twice:
            raise ConfigurationError(f"unit names must differ, got {', '.join(twice)} more than once")
        known = set(names)
        for u, v in (*self.edges, *self.delays_s):
            for name in (u, v):
                if name not in known:
                    raise ConfigurationError(f"the edge {u} → {v} names {name!r}, which is no unit")
        for (u, v), delay_s in self.delays_s.items():
            if not (math.isfinite(delay_s) and delay_s >= 0):
                raise ConfigurationError(f"the delay of {u} → {v} must be a number ≥ 0, got {delay_s!r}")
        for bound in self.bounds:
            for name in (*bound.first, *bound.last):
                if name not in known:
                    raise ConfigurationError(f"a latency bound names {name!r}, which is no unit")


@dataclass(frozen=True)
class Solution:
    """A feasible distribution of budgets, with what it costs and how it was found."""

    problem: BudgetProblem
    solver: str
    budgets_s: Mapping[str, float]
    """By unit; units on no bounded path have none."""
    costs: Mapping[str, float]
    cost: float
    slack_s: Mapping[str, float]
    """How much more each unit alone could get before a bound breaks."""
    calls: int
    """Cost-function calls made to find it."""
    fee: float
    """What those calls cost; not part of `cost`."""
    optimal: bool = False
    """Whether it is proved to be the cheapest on this grid of budgets."""
    lower_bound: float | None = None
    """No distribution costs less than this, where the solver knows."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Units whose cost function did not answer and which keep their last budget, with the reason."""

    @cached_property
    def parallelism(self) -> Mapping[str, int | None]:
        """Instances each unit needs for its budget; None where its cost function does not say."""
        return {
            unit.name: None
            if unit.fixed_cost is not None
            else unit.function.parallelism(self.budgets_s[unit.name])
            for unit in self.problem.units
            if unit.name in self.budgets_s
        }
