"""Cost functions: what a unit costs at a latency budget (paper 004, Equation 4).

A cost function is all the optimiser ever learns about a unit, so units under any policy, at any
provider, can share one end-to-end bound. It falls or stays level as the budget grows, is never
negative, and is infinite where the unit cannot keep the budget at all. Queueing models are in `queues`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigurationError, PenstockError

FloatArray = NDArray[np.float64]


class CostFunctionError(PenstockError):
    """A cost function answered with something that cannot be a cost, or failed."""


class UnansweredError(PenstockError):
    """A unit's cost function did not answer; `unit` names it and `reason` says why."""

    def __init__(self, unit: str, reason: str) -> None:
        self.unit = unit
        self.reason = reason
        super().__init__(f"the cost function of unit {unit!r} did not answer: {reason}")


class CostFunction(ABC):
    """What a unit costs at a latency budget; deterministic during one optimisation."""

    local: ClassVar[bool] = True
    """Whether calls are free and quick, so that a whole table may be asked for at once."""
    known: ClassVar[bool] = True
    """Whether `least_s` is certain and smaller budgets are answered with infinity; else it is tried out."""
    stepped: ClassVar[bool] = False
    """Whether several budgets share one cost (whole instances), which multi-step swaps exploit."""
    fee_per_call: float = 0.0
    """What one call costs, in the unit of the costs."""

    @property
    def requests(self) -> int | None:
        """Requests sent so far where the function remembers its answers; None where every call counts."""
        return None

    @property
    def least_s(self) -> float:
        """The least latency it can keep; infinite where it can keep none."""
        return 0.0

    def why_not(self) -> str:
        """Why it can keep no budget at all, in words."""
        return "its cost function is infinite everywhere"

    @abstractmethod
    def costs(self, latencies_s: FloatArray) -> FloatArray:
        """The cost at each budget; infinite where the budget cannot be kept."""

    def cost(self, latency_s: float) -> float:
        """The cost at one budget."""
        return float(self.costs(np.array([latency_s], dtype=np.float64))[0])

    def parallelism(self, latency_s: float) -> int | None:
        """Instances needed at a budget; None where the function does not think in instances."""
        return None

    @classmethod
    def together(cls, functions: Sequence[Any], latencies_s: FloatArray) -> FloatArray:
        """The costs of many functions of this class at the same budgets, a row each."""
        return np.array([function.costs(latencies_s) for function in functions])


def fields_of(functions: Sequence[Any], *names: str) -> list[FloatArray]:
    """Fields of many functions as columns, ready to be combined with a row of budgets."""
    return [np.array([[float(getattr(function, name))] for function in functions]) for name in names]


def require(holds: bool, what: str, expected: str, came: object) -> None:
    """ConfigurationError where a field of a cost function is not what it must be."""
    if not holds:
        raise ConfigurationError(f"{what} must be {expected}, got {came!r}")


@dataclass(frozen=True, slots=True)
class Linear(CostFunction):
    """A cost that falls evenly with the budget, never below 0 (paper 004, Section 6.1.2, clamped)."""

    at_zero: float = 100.0
    fall_per_s: float = 1.0

    def __post_init__(self) -> None:
        require(math.isfinite(self.at_zero) and self.at_zero >= 0, "Linear: at_zero", "≥ 0", self.at_zero)
        fall = self.fall_per_s
        require(math.isfinite(fall) and fall >= 0, "Linear: fall_per_s", "≥ 0 (costs fall)", fall)

    def costs(self, latencies_s: FloatArray) -> FloatArray:
        """100 − degree · latency, not below 0."""
        return np.maximum(0.0, self.at_zero - self.fall_per_s * latencies_s)

    @classmethod
    def together(cls, functions: Sequence[Any], latencies_s: FloatArray) -> FloatArray:
        """The formula for many units at once."""
        at_zero, fall_per_s = fields_of(functions, "at_zero", "fall_per_s")
        return np.maximum(0.0, at_zero - fall_per_s * latencies_s)


@dataclass(frozen=True, slots=True)
class Exponential(CostFunction):
    """A cost that falls ever more slowly (paper 004, Equation 10)."""

    scale: float = 10.0
    decay_per_s: float = 0.01
    floor: float = 1.0

    def __post_init__(self) -> None:
        for name in ("scale", "decay_per_s", "floor"):
            value = getattr(self, name)
            require(math.isfinite(value) and value >= 0, f"Exponential: {name}", "a number ≥ 0", value)

    def costs(self, latencies_s: FloatArray) -> FloatArray:
        """10 · e^(−degree · latency / 100) + 1."""
        return self.scale * np.exp(-self.decay_per_s * latencies_s) + self.floor

    @classmethod
    def together(cls, functions: Sequence[Any], latencies_s: FloatArray) -> FloatArray:
        """The formula for many units at once."""
        scale, decay_per_s, floor = fields_of(functions, "scale", "decay_per_s", "floor")
        return scale * np.exp(-decay_per_s * latencies_s) + floor


@dataclass(frozen=True, slots=True)
class Table(CostFunction):
    """A provider's price list: each latency it offers and what that costs."""

    stepped: ClassVar[bool] = True
    offers: tuple[tuple[float, float], ...]
    """(latency in seconds, cost), in any order."""

    def __post_init__(self) -> None:
        offers = tuple(sorted((float(latency_s), float(cost)) for latency_s, cost in self.offers))
        require(len(offers) > 0, "Table: offers", "at least one (latency, cost)", self.offers)
        for latency_s, cost in offers:
            require(math.isfinite(latency_s) and latency_s >= 0, "Table: a latency", "≥ 0", latency_s)
            require(math.isfinite(cost) and cost >= 0, "Table: a cost", "a number ≥ 0", cost)
        for (_, dearer), (latency_s, cost) in pairwise(offers):
            require(
                cost <= dearer,
                f"Table: the cost at {latency_s:g} s",
                f"at most {dearer:g}, as before it",
                cost,
            )
        object.__setattr__(self, "offers", offers)

    @property
    def least_s(self) -> float:
        """The quickest offer."""
        return self.offers[0][0]

    def costs(self, latencies_s: FloatArray) -> FloatArray:
        """The cost of the slowest offer within each budget."""
        offered_s = np.array([latency_s for latency_s, _ in self.offers])
        prices = np.array([math.inf] + [cost for _, cost in self.offers])
        return prices[np.searchsorted(offered_s, latencies_s + 1e-12, side="right")]


@dataclass(frozen=True, slots=True)
class Custom(CostFunction):
    """Any Python callable from a latency in seconds to a cost."""

    known: ClassVar[bool] = False

    function: Callable[[float], float]

    def costs(self, latencies_s: FloatArray) -> FloatArray:
        """The callable's answers, one call for each budget."""
        found = np.empty(latencies_s.shape)
        for index, latency_s in enumerate(latencies_s):
            answer = self.function(float(latency_s))
            if isinstance(answer, bool) or not isinstance(answer, (int, float, np.number)):
                raise CostFunctionError(f"expected a number as the cost at {latency_s:g} s, got {answer!r}")
            found[index] = float(answer)
        return found


def cost_function(
    given: CostFunction | Callable[[float], float] | Sequence[tuple[float, float]],
) -> CostFunction:
    """A cost function out of one, a callable, or a list of (latency, cost) offers."""
    if isinstance(given, CostFunction):
        return given
    if callable(given):
        return Custom(given)
    if isinstance(given, Sequence) and not isinstance(given, str):
        return Table(tuple(given))
    raise ConfigurationError(
        f"expected a cost function, a callable or a list of (latency, cost), got {type(given).__name__}"
    )
