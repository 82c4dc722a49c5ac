"""The record of a unit's load: what came, what was finished and what was late, in bins of equal length.

A bin is as long as the time between two decisions, which is the finest step a decision can be made for.
What was recorded is never changed, so a snapshot shares the memory of the record. Beside it goes a coarse one
of two weeks, from which the season is read: decisions every few seconds would fill two days of bins in hours.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.forecasts.season import DAY_S, Season, season_of
from penstock.monitoring.measurements import Measurement

Floats = NDArray[np.float64]

DEPTH = 2880
"""Bins kept: two days where a decision is made every minute."""
COARSE_S = 300.0
"""The least length of a step of the coarse record."""
COARSE_DAYS = 15
"""How long the coarse record is: a week can be told from two."""
SHORT_GAP = 10
"""Bins without a measurement after which the load is taken to have stayed; after more it begins anew."""
SEASON_EVERY_S = 1800.0
"""The time after which the season is looked for again."""
_RATE, _NEWEST, _DONE, _LATE = range(4)


@dataclass(frozen=True, slots=True)
class Load:
    """A unit's load so far, oldest bin first."""

    bin_s: float
    end_s: float
    """The end of the newest bin."""
    rate_per_s: Floats
    """Records that came in, a second, over each bin."""
    newest_per_s: Floats
    """The same over the last measurement of each bin alone: less smooth, but newer."""
    done: Floats
    """Records finished in each bin."""
    late: Floats
    """Those of them that took longer than they may."""

    def __len__(self) -> int:
        return len(self.rate_per_s)


class LoadRecord:
    """A load that grows, bin by bin."""

    def __init__(self, bin_s: float, depth: int = DEPTH) -> None:
        self._bin_s = bin_s
        self._depth = depth
        self._rows: Floats = np.zeros((4, 2 * depth))
        self._begin = self._end = 0
        self._end_s = 0.0
        self._appended = 0
        self._coarse_s = max(COARSE_S, bin_s)
        self._coarse: deque[tuple[float, float]] = deque(maxlen=round(COARSE_DAYS * DAY_S / self._coarse_s))
        """The middle of each coarse step and its rate."""
        self._coarse_span_s = self._coarse_arrived = 0.0
        self._season: Season | None = None
        self._season_due_s = -math.inf
        self._span_s = self._arrived = self._done = self._late = 0.0
        self._begun = False
        """Whether a record ever came."""

    def add(self, measurement: Measurement, limit_s: float, slo_s: float | None = None) -> None:
        """Take in one measurement; a bin is closed once measurements fill it.

        `limit_s` is what a record may take, a unit's budget where it has one; `slo_s` is its SLO where
        that is another.
        """
        self._bridge(measurement.at_s - measurement.interval_s)
        if measurement.arrived and not self._begun:
            # That nothing came before the first record is not how this load moves.
            self._begun, self._begin = True, self._end
            self._span_s = 0.0
        self._add_coarse(measurement)
        self._span_s += measurement.interval_s
        self._arrived += measurement.arrived
        self._done += measurement.processed
        self._late += late_records(measurement, limit_s, slo_s)
        self._end_s = measurement.at_s
        # An observation that was missed makes a longer one, which fills several bins.
        bins = int(self._span_s / self._bin_s + 1e-6)
        if bins < 1:
            return
        row = (
            self._arrived / self._span_s,
            measurement.arrival_rate_per_s,
            self._done / bins,
            self._late / bins,
        )
        for _ in range(min(bins, self._depth)):
            self._append(row)
        self._span_s = self._arrived = self._done = self._late = 0.0

    def load(self) -> Load:
        """The load so far."""
        rows = self._rows[:, self._begin : self._end]
        return Load(self._bin_s, self._end_s, rows[_RATE], rows[_NEWEST], rows[_DONE], rows[_LATE])

    def season(self) -> Season | None:
        """What the load usually does over a day or a week, once one is known; looked at anew now and then."""
        if self._end_s >= self._season_due_s and self._coarse:
            self._season_due_s = self._end_s + SEASON_EVERY_S
            times_s, rates_per_s = np.array(self._coarse).T
            self._season = season_of(times_s, rates_per_s, step_s=self._coarse_s)
        return self._season

    def recall(self, times_s: Sequence[float], rates_per_s: Sequence[float]) -> None:
        """Take in what came before all that is known: coarse steps, oldest first."""
        first_s = self._coarse[0][0] if self._coarse else math.inf
        older = [step for step in zip(times_s, rates_per_s, strict=True) if step[0] < first_s]
        room = (self._coarse.maxlen or 0) - len(self._coarse)
        self._coarse.extendleft(reversed(older[len(older) - min(room, len(older)) :]))
        self._season_due_s = -math.inf

    def _bridge(self, start_s: float) -> None:
        """Fill a short gap before a measurement with what came last; after a long one, begin anew."""
        missed = int((start_s - self._end_s) / self._bin_s + 1e-6)
        if missed < 1 or self._begin == self._end:
            return
        self._span_s = self._arrived = self._done = self._late = 0.0
        self._coarse_span_s = self._coarse_arrived = 0.0
        if missed > SHORT_GAP:
            self._begin, self._begun = self._end, False
            return
        rate, newest = self._rows[:2, self._end - 1]
        for _ in range(missed):
            self._append((rate, newest, 0.0, 0.0))

    def _add_coarse(self, measurement: Measurement) -> None:
        self._coarse_span_s += measurement.interval_s
        self._coarse_arrived += measurement.arrived
        if self._coarse_span_s < self._coarse_s - 1e-6:
            return
        middle_s = measurement.at_s - self._coarse_span_s / 2
        self._coarse.append((middle_s, self._coarse_arrived / self._coarse_span_s))
        self._coarse_span_s = self._coarse_arrived = 0.0

    def _append(self, row: tuple[float, float, float, float]) -> None:
        if self._end == self._rows.shape[1]:
            kept = self._rows[:, self._begin : self._end]
            # A new array: snapshots still show the old one.
            self._rows = np.zeros((4, 2 * self._depth))
            self._rows[:, : kept.shape[1]] = kept
            self._begin, self._end = 0, kept.shape[1]
        self._rows[:, self._end] = row
        self._appended += 1
        self._end += 1
        self._begin = max(self._begin, self._end - self._depth)


def late_records(measurement: Measurement, limit_s: float, slo_s: float | None = None) -> float:
    """Records of a measurement that took longer than a limit.

    They were counted, if at all, by the unit's SLO (`slo_s`, where it is not the limit). By another limit,
    or where they were not counted, the share is read off the durations that are known: the mean, the 95th
    and the 99th percentile, with straight lines between them; no fewer are late by a stricter limit.
    """
    counted = None if measurement.on_time is None else float(measurement.processed - measurement.on_time)
    if counted is not None and (slo_s is None or limit_s == slo_s):
        return counted
    if measurement.duration_s is None or not measurement.processed:
        return 0.0
    late = _read_off(measurement, measurement.duration_s, limit_s)
    if counted is None or slo_s is None:
        return late
    return max(late, counted) if limit_s < slo_s else min(late, counted)


def _read_off(measurement: Measurement, mean_s: float, limit_s: float) -> float:
    known = [(0.0, 0.0), (mean_s, 0.5)]
    for value_s, share in ((measurement.duration_p95_s, 0.95), (measurement.duration_p99_s, 0.99)):
        if value_s is not None and value_s > known[-1][0]:
            known.append((value_s, share))
    known.append((2.0 * known[-1][0] + 1e-9, 1.0))
    values, shares = zip(*known, strict=True)
    return float(measurement.processed * (1.0 - np.interp(limit_s, values, shares)))
