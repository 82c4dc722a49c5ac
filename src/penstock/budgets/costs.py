"""Cost functions: what a unit costs at a latency budget (paper 004, Equation 4).

A cost function is all the optimiser ever learns about a unit, so units under any policy, at any
provider, can share one end-to-end bound. It falls or stays level as the budget grows, is never
negative, and is infinite where the unit cannot keep the budget at all. `SharedQueue` is the model
of Penstock's own units (one queue, many servers); the others are those of the paper's evaluation.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigurationError, PenstockError

FloatArray = NDArray[np.float64]

_LARGEST_SEARCH = 1_000_000
"""Instances beyond which a queue is taken as unable to keep a budget."""


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


def _fields(functions: Sequence[Any], *names: str) -> list[FloatArray]:
    """Fields of many functions as columns, ready to be combined with a row of budgets."""
    return [np.array([[float(getattr(function, name))] for function in functions]) for name in names]


def _require(holds: bool, what: str, expected: str, came: object) -> None:
    if not holds:
        raise ConfigurationError(f"{what} must be {expected}, got {came!r}")


class QueueCost(CostFunction):
    """A cost function that knows how many instances a budget needs: the base of the queueing models.

    Subclasses are frozen dataclasses with these fields.
    """

    stepped: ClassVar[bool] = True
    arrival_rate_per_s: float
    service_s: float
    price: float
    max_instances: int | None

    def _check(self) -> None:
        name = type(self).__name__
        rate, service_s = self.arrival_rate_per_s, self.service_s
        _require(math.isfinite(rate) and rate >= 0, f"{name}: arrival_rate_per_s", "a number ≥ 0", rate)
        _require(math.isfinite(service_s) and service_s > 0, f"{name}: service_s", "above 0", service_s)
        _require(math.isfinite(self.price) and self.price >= 0, f"{name}: price", "a number ≥ 0", self.price)
        most = self.max_instances
        _require(most is None or most >= 1, f"{name}: max_instances", "at least 1", most)

    @property
    def least_s(self) -> float:
        """What the most instances keep, or the fewest where those wait less (very regular arrivals)."""
        most = self.max_instances if self.max_instances is not None else _LARGEST_SEARCH
        fewest = self.least_instances()
        return min(self.latency_s(fewest), self.latency_s(most)) if fewest <= most else math.inf

    def why_not(self) -> str:
        """Why it can keep no budget at all, in words."""
        return (
            f"{self.arrival_rate_per_s:.4g} records/s of {self.service_s:.4g} s each need at least "
            f"{self.least_instances()} instances, but it may have {self.max_instances}"
        )

    @property
    def load(self) -> float:
        """Work that arrives in a second, in seconds of one server: λ/μ."""
        return self.arrival_rate_per_s * self.service_s

    @abstractmethod
    def latency_s(self, instances: int) -> float:
        """The latency so many instances keep; infinite where they cannot follow the arrivals."""

    @abstractmethod
    def needed(self, latencies_s: FloatArray) -> FloatArray:
        """Least instances for each budget, without the limit; infinite where none suffice."""

    def instances(self, latencies_s: FloatArray) -> FloatArray:
        """Least instances for each budget; infinite where more than `max_instances` would be needed."""
        found = self.needed(latencies_s)
        if self.max_instances is not None:
            found = np.where(found > self.max_instances, np.inf, found)
        return found

    def costs(self, latencies_s: FloatArray) -> FloatArray:
        """Instances times their price."""
        return _priced(self.instances(latencies_s), self.price)

    @classmethod
    def needed_together(cls, functions: Sequence[QueueCost], latencies_s: FloatArray) -> FloatArray:
        """Least instances of many units at the same budgets, a row each, without the limit."""
        return np.array([function.needed(latencies_s) for function in functions])

    @classmethod
    def together(cls, functions: Sequence[QueueCost], latencies_s: FloatArray) -> FloatArray:
        """Instances times price for many units at once."""
        most = np.array(
            [[math.inf if f.max_instances is None else float(f.max_instances)] for f in functions]
        )
        found = cls.needed_together(functions, latencies_s)
        return _priced(np.where(found > most, np.inf, found), _fields(functions, "price")[0])

    def parallelism(self, latency_s: float) -> int | None:
        """Least instances for a budget; None where no number suffices."""
        found = float(self.instances(np.array([latency_s], dtype=np.float64))[0])
        return int(found) if math.isfinite(found) else None

    def least_instances(self) -> int:
        """The fewest instances that can follow the arrivals."""
        return max(1, math.floor(self.load + 1e-9) + 1) if self.load > 0 else 1


def _priced(instances: FloatArray, price: FloatArray | float) -> FloatArray:
    """Instances times price; a budget that cannot be kept stays infinite even where instances are free."""
    impossible = np.isinf(instances)
    return np.where(impossible, np.inf, np.where(impossible, 0.0, instances) * price)


@dataclass(frozen=True, slots=True)
class MM1(QueueCost):
    """Arrivals split evenly over instances, each an M/M/1 queue (paper 004, Equation 1)."""

    arrival_rate_per_s: float
    service_s: float = 1.0
    price: float = 1.0
    max_instances: int | None = None

    def __post_init__(self) -> None:
        self._check()

    def latency_s(self, instances: int) -> float:
        """Time in an M/M/1 system: 1 / (μ − λ/c)."""
        spare = 1.0 / self.service_s - self.arrival_rate_per_s / instances
        return 1.0 / spare if spare > 0 else math.inf

    def needed(self, latencies_s: FloatArray) -> FloatArray:
        """c = ⌈λ / λ_required⌉ with λ_required = μ − 1/latency (paper 004, Equation 1)."""
        return self._formula(self.arrival_rate_per_s, self.service_s, latencies_s)

    @staticmethod
    def _formula(
        rate: FloatArray | float, service_s: FloatArray | float, latencies_s: FloatArray
    ) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            required = 1.0 / service_s - 1.0 / latencies_s
            # The tolerance keeps a quotient such as 3.0000000000000004 from costing a fourth instance.
            found = np.maximum(1.0, np.ceil(rate / required - 1e-9))
        return np.where((latencies_s > 0) & (required > 1e-12), found, np.inf)

    @classmethod
    def needed_together(cls, functions: Sequence[QueueCost], latencies_s: FloatArray) -> FloatArray:
        """The formula for many units at once."""
        rate, service_s = _fields(functions, "arrival_rate_per_s", "service_s")
        return cls._formula(rate, service_s, latencies_s)


@dataclass(frozen=True, slots=True)
class Kingman(QueueCost):
    """Each instance a G/G/1 queue by Kingman's formula (paper 004, Equation 9, corrected).

    Records are split over p instances at random, which changes how bursty one instance sees them:
    c_A(p)² = 1 + (c_A² − 1)/p. The paper leaves c_A(p) open; this is the exact result for
    independent splitting of a renewal stream.
    """

    arrival_rate_per_s: float
    service_s: float = 1.0
    arrival_cv: float = 1.0
    """Coefficient of variation of the times between arrivals at the unit, before splitting."""
    service_cv: float = 1.0
    price: float = 1.0
    max_instances: int | None = None
    waiting_only: bool = False
    """True: the latency is the time in the queue alone, as in the paper; else service counts too."""

    def __post_init__(self) -> None:
        self._check()
        for name in ("arrival_cv", "service_cv"):
            value = getattr(self, name)
            _require(math.isfinite(value) and value >= 0, f"Kingman: {name}", "a number ≥ 0", value)

    def latency_s(self, instances: int) -> float:
        """(λ/μ²)/(p − λ/μ) · (c_A(p)² + c_S²)/2: the printed denominator p − λ·μ is a misprint."""
        spare = instances - self.load
        if spare <= 0:
            return math.inf
        arrival_cv2 = 1.0 + (self.arrival_cv**2 - 1.0) / instances
        spread = (arrival_cv2 + self.service_cv**2) / 2.0
        waiting_s = self.load * self.service_s / spare * spread
        return waiting_s if self.waiting_only else waiting_s + self.service_s

    def needed(self, latencies_s: FloatArray) -> FloatArray:
        """The least p whose latency is within the budget; with c_A(p) a quadratic inequality in p.

        With ρ = λ/μ, g = ρ/(2μ), K = 1 + c_S², m = 1 − c_A² and the waiting time W, the formula is
        W·p² − (W·ρ + g·K)·p + g·m ≥ 0 for p > ρ.
        """
        return self._formula(
            self.arrival_rate_per_s,
            self.service_s,
            self.arrival_cv,
            self.service_cv,
            0.0 if self.waiting_only else 1.0,
            latencies_s,
        )

    @staticmethod
    def _formula(
        rate: FloatArray | float,
        service_s: FloatArray | float,
        arrival_cv: FloatArray | float,
        service_cv: FloatArray | float,
        counted: FloatArray | float,
        latencies_s: FloatArray,
    ) -> FloatArray:
        waiting_s = latencies_s - counted * service_s
        rho = rate * service_s
        g, k, m = rho * service_s / 2.0, 1.0 + np.square(service_cv), 1.0 - np.square(arrival_cv)
        least = np.floor(rho + 1e-9) + 1.0
        b = waiting_s * rho + g * k
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            root = np.sqrt(np.maximum(0.0, b * b - 4.0 * waiting_s * g * m))
            found = np.maximum(least, np.ceil((b + root) / (2.0 * waiting_s) - 1e-9))
        found = np.where(waiting_s > 0, found, np.inf)
        # Where arrivals are very regular, few instances can wait less than many: try the fewest too.
        fewest_s = g / (least - rho) * (k - m / least)
        return np.where((fewest_s <= waiting_s) & (waiting_s >= 0), least, found)

    @classmethod
    def needed_together(cls, functions: Sequence[QueueCost], latencies_s: FloatArray) -> FloatArray:
        """The formula for many units at once."""
        names = ("arrival_rate_per_s", "service_s", "arrival_cv", "service_cv")
        counted = np.array([[0.0 if getattr(f, "waiting_only", False) else 1.0] for f in functions])
        rate, service_s, arrival_cv, service_cv = _fields(functions, *names)
        return cls._formula(rate, service_s, arrival_cv, service_cv, counted, latencies_s)


@dataclass(frozen=True, slots=True)
class SharedQueue(QueueCost):
    """One queue served by every slot of every instance: M/M/c, with Allen and Cunneen's G/G/c factor.

    This is how a Penstock unit works (a channel read by all its executors); it needs fewer instances
    than Kingman's split queues. With a `quantile` the budget holds for that share of the records.
    """

    arrival_rate_per_s: float
    service_s: float
    arrival_cv: float = 1.0
    service_cv: float = 1.0
    price: float = 1.0
    max_instances: int | None = None
    slots: int = 1
    """Parallel places inside one instance."""
    min_instances: int = 1
    quantile: float | None = None
    """The share of records within the budget, such as 0.95; None means the mean."""
    overhead_s: float = 0.0
    """Time every record spends beside waiting and service, for example in a micro-batch."""

    def __post_init__(self) -> None:
        self._check()
        for name in ("arrival_cv", "service_cv", "overhead_s"):
            value = getattr(self, name)
            _require(math.isfinite(value) and value >= 0, f"SharedQueue: {name}", "a number ≥ 0", value)
        _require(self.slots >= 1, "SharedQueue: slots", "at least 1", self.slots)
        _require(self.min_instances >= 1, "SharedQueue: min_instances", "at least 1", self.min_instances)
        if self.quantile is not None:
            _require(0 < self.quantile < 1, "SharedQueue: quantile", "between 0 and 1", self.quantile)

    @property
    def least_s(self) -> float:
        """What the most instances keep; without a limit, what a record takes that never waits."""
        if self.max_instances is None:
            return self.service_part_s + self.overhead_s
        return (
            self.latency_s(self.max_instances) if self.max_instances >= self.least_instances() else math.inf
        )

    def least_instances(self) -> int:
        """The fewest instances that can follow the arrivals, and no fewer than `min_instances`."""
        servers = math.floor(self.load + 1e-9) + 1 if self.load > 0 else 1
        return max(self.min_instances, math.ceil(servers / self.slots))

    def latency_s(self, instances: int) -> float:
        """Waiting plus service with so many instances, as the mean or at the quantile."""
        servers = instances * self.slots
        if servers <= self.load:
            return math.inf
        return self._latency_s(servers, _erlang_c(servers, self.load))

    def needed(self, latencies_s: FloatArray) -> FloatArray:
        """The least instances for each budget, by walking up until the tightest budget is met."""
        found = np.full(latencies_s.shape, np.inf)
        reachable = latencies_s[np.isfinite(latencies_s) & (latencies_s >= self.least_s - 1e-12)]
        if reachable.size == 0:
            return np.where(np.isposinf(latencies_s), float(self.least_instances()), found)
        tightest_s = float(reachable.min())
        most = self.max_instances if self.max_instances is not None else _LARGEST_SEARCH
        kept_s: list[float] = []
        counts = range(self.least_instances(), most + 1)
        blocking, servers = 1.0, 0
        for count in counts:
            # Erlang B: B(0) = 1, B(c) = a·B(c−1) / (c + a·B(c−1)), carried on from count to count.
            while servers < count * self.slots:
                servers += 1
                blocking = self.load * blocking / (servers + self.load * blocking)
            waits = _erlang_c_of(blocking, servers, self.load)
            kept_s.append(min(self._latency_s(servers, waits), kept_s[-1] if kept_s else math.inf))
            if kept_s[-1] <= tightest_s or waits < 1e-15:
                break
        if not kept_s:
            return found
        # kept_s falls: the first index whose latency is within the budget, by search on its reverse.
        reverse = np.array(kept_s[::-1])
        within = np.searchsorted(reverse, latencies_s + 1e-12, side="right")
        return np.where(within > 0, counts.start + len(kept_s) - within.astype(np.float64), np.inf)

    @property
    def service_part_s(self) -> float:
        """What a record takes that never waits, as the mean or at the quantile."""
        if self.quantile is None:
            return self.service_s
        return self.service_s * max(1.0, 1.0 + NormalDist().inv_cdf(self.quantile) * self.service_cv)

    def _latency_s(self, servers: int, waits: float) -> float:
        """Latency where a record waits with probability C, after Allen and Cunneen.

        The mean is Wq = C/(cμ − λ) · φ with φ = (c_A² + c_S²)/2; a quantile q follows from
        P(W > t) = C·exp(−(cμ − λ)·t/φ).
        """
        spread = (self.arrival_cv**2 + self.service_cv**2) / 2.0
        spare = servers / self.service_s - self.arrival_rate_per_s
        if self.quantile is None:
            waiting_s = waits / spare * spread
        else:
            beyond = waits / (1.0 - self.quantile)
            waiting_s = spread * math.log(beyond) / spare if beyond > 1.0 else 0.0
        return waiting_s + self.service_part_s + self.overhead_s


def _erlang_c(servers: int, load: float) -> float:
    blocking = 1.0
    for count in range(1, servers + 1):
        blocking = load * blocking / (count + load * blocking)
    return _erlang_c_of(blocking, servers, load)


def _erlang_c_of(blocking: float, servers: int, load: float) -> float:
    """The chance to wait, C = B / (1 − (a/c)(1 − B)), from the chance B to find all servers busy."""
    return blocking / (1.0 - load / servers * (1.0 - blocking)) if load > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Linear(CostFunction):
    """A cost that falls evenly with the budget, never below 0 (paper 004, Section 6.1.2, clamped)."""

    at_zero: float = 100.0
    fall_per_s: float = 1.0

    def __post_init__(self) -> None:
        _require(math.isfinite(self.at_zero) and self.at_zero >= 0, "Linear: at_zero", "≥ 0", self.at_zero)
        fall = self.fall_per_s
        _require(math.isfinite(fall) and fall >= 0, "Linear: fall_per_s", "≥ 0 (costs fall)", fall)

    def costs(self, latencies_s: FloatArray) -> FloatArray:
        """100 − degree · latency, not below 0."""
        return np.maximum(0.0, self.at_zero - self.fall_per_s * latencies_s)

    @classmethod
    def together(cls, functions: Sequence[Any], latencies_s: FloatArray) -> FloatArray:
        """The formula for many units at once."""
        at_zero, fall_per_s = _fields(functions, "at_zero", "fall_per_s")
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
            _require(math.isfinite(value) and value >= 0, f"Exponential: {name}", "a number ≥ 0", value)

    def costs(self, latencies_s: FloatArray) -> FloatArray:
        """10 · e^(−degree · latency / 100) + 1."""
        return self.scale * np.exp(-self.decay_per_s * latencies_s) + self.floor

    @classmethod
    def together(cls, functions: Sequence[Any], latencies_s: FloatArray) -> FloatArray:
        """The formula for many units at once."""
        scale, decay_per_s, floor = _fields(functions, "scale", "decay_per_s", "floor")
        return scale * np.exp(-decay_per_s * latencies_s) + floor


@dataclass(frozen=True, slots=True)
class Table(CostFunction):
    """A provider's price list: each latency it offers and what that costs."""

    stepped: ClassVar[bool] = True
    offers: tuple[tuple[float, float], ...]
    """(latency in seconds, cost), in any order."""

    def __post_init__(self) -> None:
        offers = tuple(sorted((float(latency_s), float(cost)) for latency_s, cost in self.offers))
        _require(len(offers) > 0, "Table: offers", "at least one (latency, cost)", self.offers)
        for latency_s, cost in offers:
            _require(math.isfinite(latency_s) and latency_s >= 0, "Table: a latency", "≥ 0", latency_s)
            _require(math.isfinite(cost) and cost >= 0, "Table: a cost", "a number ≥ 0", cost)
        for (_, dearer), (latency_s, cost) in pairwise(offers):
            _require(
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
