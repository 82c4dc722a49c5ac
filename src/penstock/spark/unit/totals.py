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
_LEAST_S, _WIDTH, _BINS = 1e-3, 0.01, 2000
"""Bins a hundredth wide from a millisecond on reach to days."""
_LIMITS = np.array(list(LEVELS.values()))


class _Spread:
    """Ages of any number of records in bins: as large after a month as after a minute."""

    def __init__(self, slo_s: float) -> None:
        self._limits_s = slo_s * _LIMITS
        self._records = np.zeros(_BINS)
        self._age_s = np.zeros(_BINS)
        """Added up over the records of each bin."""
        self.within = np.zeros(len(_LIMITS))
        """Records that kept each level, counted one by one and not by bins."""

    def add(self, mean_s: float | None, p95_s: float | None, p99_s: float | None, records: int) -> None:
        """Add the records of a heartbeat; nothing where their age is not known."""
        if mean_s is None or not records:
            return
        high_s = max(mean_s, p95_s if p95_s is not None else mean_s)
        top_s = max(high_s, p99_s if p99_s is not None else high_s)
        low_s = max(0.0, 2 * mean_s - high_s)
        ages_s, weights = np.interp(_SHARES, [0.0, 0.95, 0.99], [low_s, high_s, top_s]), _WEIGHTS * records
        bins = np.log(np.maximum(ages_s, _LEAST_S) / _LEAST_S) / _WIDTH
        places = np.minimum(bins.astype(int), _BINS - 1)
        np.add.at(self._records, places, weights)
        np.add.at(self._age_s, places, weights * ages_s)
        self.within += weights @ (ages_s[:, None] <= self._limits_s)

    @property
    def records(self) -> float:
        """Records whose age is known."""
        return float(self._records.sum())

    def statistics(self) -> DurationStatistics:
        """Mean and percentiles: each bin stands for the mean of what is in it."""
        (filled,) = self._records.nonzero()
        records = self._records[filled]
        ages_s = self._age_s[filled] / records
        return DurationStatistics.weighted(list(zip(ages_s.tolist(), records.tolist(), strict=True)))


class UnitTotals:
    """Sums of one unit's measurements."""

    def __init__(self, slo_s: float) -> None:
        self.arrived = 0
        self.processed = 0
        self.emitted = 0
        self.waiting = 0
        self._durations = _Spread(slo_s)
        self._latencies = _Spread(slo_s)

    def add(self, measurement: Measurement) -> None:
        """Add one heartbeat's measurement."""
        m = measurement
        self.arrived += m.arrived
        self.processed += m.processed
        self.emitted += m.emitted
        self.waiting = m.waiting
        self._durations.add(m.duration_s, m.duration_p95_s, m.duration_p99_s, m.processed)
        self._latencies.add(m.latency_s, m.latency_p95_s, None, m.processed)

    def durations(self) -> DurationStatistics:
        """Processing durations over the run."""
        return self._durations.statistics()

    def latencies(self) -> DurationStatistics:
        """Ages since the source over the run."""
        return self._latencies.statistics()

    def count(self, processed: int | None = None) -> UnitCount:
        """The totals as the result of a run has them.

        `processed` is what the unit's own books say, where they can tell: a driver that was killed may have
        told less than it did, and its successor some of it again.
        """
        total = self.processed if processed is None else processed
        arrived = self.arrived if processed is None else total + self.waiting
        known = self._durations.records
        shares = self._durations.within / known if known else np.ones(len(_LIMITS))
        # A record without a known age counts as kept: nothing is known against it.
        unknown = max(0.0, total - known)
        kept = [min(total, round(float(share) * (total - unknown) + unknown)) for share in shares]
        return UnitCount(arrived, total, self.waiting, Compliance(total, *kept), self.durations())
