"""SLA accounting: which share of records kept the SLO, and how durations are spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVELS = {"real_time": 1.0, "near_real_time": 2.0, "relaxed": 5.0}
"""The compliance levels of paper 000: how many times its SLO a record may take."""


@dataclass(frozen=True, slots=True)
class Compliance:
    """How many records were finished, and how many within 1, 2 and 5 times the SLO."""

    records: int = 0
    real_time: int = 0
    near_real_time: int = 0
    relaxed: int = 0

    def __add__(self, other: Compliance) -> Compliance:
        return Compliance(
            self.records + other.records,
            self.real_time + other.real_time,
            self.near_real_time + other.near_real_time,
            self.relaxed + other.relaxed,
        )

    def ratio(self, level: str) -> float:
        """The share of records within the level; 1 where there were none."""
        return float(getattr(self, level)) / self.records if self.records else 1.0

    def shown(self, level: str) -> str:
        """The share in per cent, for people; a dash where there were no records to keep it or not."""
        return f"{self.ratio(level):.1%}" if self.records else "–"

    def delayed(self, level: str) -> int:
        """Records that missed the level."""
        return self.records - int(getattr(self, level))

    @staticmethod
    def of(durations_s: NDArray[np.float64], slo_s: float) -> Compliance:
        """Count durations against an SLO."""
        return Compliance(
            len(durations_s),
            *(int(np.count_nonzero(durations_s <= slo_s * factor)) for factor in LEVELS.values()),
        )


@dataclass(frozen=True, slots=True)
class DurationStatistics:
    """Mean and percentiles of a set of durations; all zero where there were none."""

    count: int = 0
    mean_s: float = 0.0
    p50_s: float = 0.0
    p95_s: float = 0.0
    p99_s: float = 0.0

    @staticmethod
    def of(durations_s: NDArray[np.float64] | Sequence[float]) -> DurationStatistics:
        """Summarise durations."""
        values = np.asarray(durations_s, dtype=np.float64)
        if values.size == 0:
            return DurationStatistics()
        p50, p95, p99 = np.percentile(values, [50, 95, 99])
        return DurationStatistics(int(values.size), float(values.mean()), float(p50), float(p95), float(p99))

    @staticmethod
    def weighted(points: Sequence[tuple[float, float]]) -> DurationStatistics:
        """Summarise durations that stand for several records each, as (seconds, records)."""
        if not points:
            return DurationStatistics()
        values, weights = np.array(points, dtype=np.float64).T
        order = np.argsort(values)
        share = np.cumsum(weights[order]) / weights.sum()
        p50, p95, p99 = (
            float(values[order][min(int(np.searchsorted(share, level)), len(values) - 1)])
            for level in (0.50, 0.95, 0.99)
        )
        mean_s = float(np.average(values, weights=weights))
        return DurationStatistics(round(float(weights.sum())), mean_s, p50, p95, p99)
