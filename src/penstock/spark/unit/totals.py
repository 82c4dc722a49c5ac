"""What a unit did over a whole run, summed from its heartbeats.

Compliance and percentiles are estimated from each heartbeat's mean, p95 and p99: records of a micro-batch
arrived evenly, so their ages spread evenly between twice the mean minus p95, p95, and p99.
"""

from __future__ import annotations

import numpy as np

from penstock.controller.result import UnitCount
from penstock.monitoring import Compliance, DurationStatistics, Measurement
from penstock.monitoring.sla import LEVELS

_SHARES = np.array([0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.925, 0.97, 0.99])
_WEIGHTS = np.array([0.10] * 9 + [0.05, 0.03, 0.02])
_MOST_POINTS = 120_000


class UnitTotals:
    """Sums of one unit's measurements."""

    def __init__(self, slo_s: float) -> None:
        self._slo_s = slo_s
        self.arrived = 0
        self.processed = 0
        self.emitted = 0
        self.waiting = 0
        self._durations: list[tuple[float, float]] = []
        self._latencies: list[tuple[float, float]] = []

    def add(self, measurement: Measurement) -> None:
        """Add one heartbeat's measurement."""
        self.arrived += measurement.arrived
        self.processed += measurement.processed
        self.emitted += measurement.emitted
        self.waiting = measurement.waiting
        m = measurement
        self._durations += _points(m.duration_s, m.duration_p95_s, m.duration_p99_s, m.processed)
        self._latencies += _points(m.latency_s, m.latency_p95_s, None, m.processed)
        for points in (self._durations, self._latencies):
            if len(points) > _MOST_POINTS:
                # A run of days keeps every other point: percentiles need no more.
                points[:] = [(value, 2 * weight) for value, weight in points[::2]]

    def durations(self) -> DurationStatistics:
        """Processing durations over the run."""
        return DurationStatistics.weighted(self._durations)

    def latencies(self) -> DurationStatistics:
        """Ages since the source over the run."""
        return DurationStatistics.weighted(self._latencies)

    def count(self, processed: int | None = None) -> UnitCount:
        """The totals as the result of a run has them.

        `processed` is what the unit's own books say, where they can tell: a driver that was killed may have
        told less than it did, and its successor some of it again.
        """
        total = self.processed if processed is None else processed
        arrived = self.arrived if processed is None else total + self.waiting
        values = np.array([value for value, _ in self._durations])
        weights = np.array([weight for _, weight in self._durations])
        known = float(weights.sum())
        shares = [
            float(weights[values <= self._slo_s * factor].sum()) / known if known else 1.0
            for factor in LEVELS.values()
        ]
        # A record without a known age counts as kept: nothing is known against it.
        unknown = max(0.0, total - known)
        kept = [min(total, round(share * (total - unknown) + unknown)) for share in shares]
        return UnitCount(arrived, total, self.waiting, Compliance(total, *kept), self.durations())


def _points(
    mean_s: float | None, p95_s: float | None, p99_s: float | None, records: int
) -> list[tuple[float, float]]:
    if mean_s is None or not records:
        return []
    high_s = max(mean_s, p95_s if p95_s is not None else mean_s)
    top_s = max(high_s, p99_s if p99_s is not None else high_s)
    low_s = max(0.0, 2 * mean_s - high_s)
    ages_s = np.interp(_SHARES, [0.0, 0.95, 0.99], [low_s, high_s, top_s])
    return [(float(age_s), float(weight * records)) for age_s, weight in zip(ages_s, _WEIGHTS, strict=True)]
