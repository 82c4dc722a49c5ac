"""Cost functions of units as queues: how many instances a latency budget needs, times their price.

`SharedQueue` is the model of Penstock's own units (one queue, many servers); `MM1` and `Kingman` are those of
paper 004's evaluation.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from penstock.budgets.costs import CostFunction, FloatArray, fields_of, require

_LARGEST_SEARCH = 1_000_000
"""Instances beyond which a queue is taken as unable to keep a budget."""


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
        require(math.isfinite(rate) and rate >= 0, f"{name}: arrival_rate_per_s", "a number ≥ 0", rate)
        require(math.isfinite(service_s) and service_s > 0, f"{name}: service_s", "above 0", service_s)
        require(math.isfinite(self.price) and self.price >= 0, f"{name}: price", "a number ≥ 0", self.price)
        most = self.max_instances
        require(most is None or most >= 1, f"{name}: max_instances", "at least 1", most)

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
        return _priced(np.where(found > most, np.inf, found), fields_of(functions, "price")[0])

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
        rate, service_s = fields_of(functions, "arrival_rate_per_s", "service_s")
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
            require(math.isfinite(value) and value >= 0, f"Kingman: {name}", "a number ≥ 0", value)

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
        rate, service_s, arrival_cv, service_cv = fields_of(functions, *names)
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
            require(math.isfinite(value) and value >= 0, f"SharedQueue: {name}", "a number ≥ 0", value)
        require(self.slots >= 1, "SharedQueue: slots", "at least 1", self.slots)
        require(self.min_instances >= 1, "SharedQueue: min_instances", "at least 1", self.min_instances)
        if self.quantile is not None:
            require(0 < self.quantile < 1, "SharedQueue: quantile", "between 0 and 1", self.quantile)

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
