"""The one shape behind every workload: a rate over time, piecewise linear, perhaps repeating.

Because its integral has a closed form, the number of records up to an instant and the instant of the
k-th record are both exact functions. That is why arrivals made in chunks equal arrivals made at once:
nothing is accumulated from call to call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.errors import ConfigurationError
from penstock.quantities import LONGEST_S, MOST_PER_S

LEAST_WIDTH_S = 1e-9
"""The shortest time between two changes of a rate; slopes over less would not be finite."""

Floats: TypeAlias = NDArray[np.float64]


class RateCurve:
    """Records a second over time: linear between edges, free to jump at them; never changed once made."""

    __slots__ = ("_before", "_edges_s", "_first_per_s", "_slope_per_s2", "_steps", "repeats")

    def __init__(
        self, edges_s: ArrayLike, first_per_s: ArrayLike, last_per_s: ArrayLike, *, repeats: bool = False
    ) -> None:
        """Make a curve of n segments from n + 1 edges and each segment's rate at its start and its end.

        The last edge may be infinite; that segment is then constant. With `repeats`, the curve starts
        again after its last edge; otherwise nothing arrives after it.
        """
        edges = np.asarray(edges_s, dtype=np.float64)
        first = np.asarray(first_per_s, dtype=np.float64)
        last = np.asarray(last_per_s, dtype=np.float64)
        if not np.all(edges[:-1] <= LONGEST_S):
            raise ConfigurationError(f"expected the changes of a rate within {LONGEST_S:g} s")
        if edges.size < 2 or edges[0] != 0 or np.any(np.diff(edges) <= 0):
            raise ConfigurationError(f"a rate curve needs edges that grow from 0, got {edges.tolist()[:5]}")
        if np.any(np.diff(edges) < LEAST_WIDTH_S):
            raise ConfigurationError(f"expected changes of a rate at least {LEAST_WIDTH_S:g} s apart")
        if not (np.all(first <= MOST_PER_S) and np.all(last <= MOST_PER_S)):  # NaN is not, either
            raise ConfigurationError(f"a rate must be finite, at most {MOST_PER_S:g} records a second")
        if np.any(first < 0) or np.any(last < 0):
            raise ConfigurationError(
                f"a rate cannot be negative, got {min(first.min(), last.min()):g} records a second"
            )
        widths = np.diff(edges)
        if np.isinf(widths[-1]) and (repeats or first[-1] != last[-1]):
            raise ConfigurationError("an endless segment must be constant and cannot repeat")
        mean = (first + last) / 2
        records = np.multiply(mean, widths, out=np.zeros_like(mean), where=mean > 0)
        self._edges_s = edges
        self._first_per_s = first
        self._slope_per_s2 = (last - first) / widths
        self._before = np.concatenate(([0.0], np.cumsum(records)))
        self._steps = bool(np.isfinite(edges[-1]) and np.all(first == last) and np.all(first > 0))
        self.repeats = repeats

    @classmethod
    def steps(cls, levels_per_s: Sequence[float], hold_s: float, *, repeats: bool = True) -> RateCurve:
        """Levels one after the other, each held for the same time."""
        if not levels_per_s:
            raise ConfigurationError("expected at least one level, got none")
        if not hold_s > 0:
            raise ConfigurationError(f"expected a level to be held longer than 0 s, got {hold_s:g} s")
        return cls(np.arange(len(levels_per_s) + 1) * hold_s, levels_per_s, levels_per_s, repeats=repeats)

    @property
    def length_s(self) -> float:
        """The last edge: where the curve ends or starts again; infinite where it does neither."""
        return float(self._edges_s[-1])

    @property
    def peak_per_s(self) -> float:
        """The highest rate anywhere."""
        widths = np.where(np.isinf(np.diff(self._edges_s)), 0.0, np.diff(self._edges_s))
        return float(np.max(np.maximum(self._first_per_s, self._first_per_s + self._slope_per_s2 * widths)))

    def scaled(self, rate: float, time: float) -> RateCurve:
        """The same curve, `rate` times as high and `time` times as long."""
        if not (rate >= 0 and np.isfinite(rate)):
            raise ConfigurationError(f"expected a rate_scale of 0 or more, got {rate!r}")
        if not (time > 0 and np.isfinite(time)):
            raise ConfigurationError(f"expected a time_scale above 0, got {time!r}")
        if rate == 1 and time == 1:
            return self
        widths = np.where(np.isinf(np.diff(self._edges_s)), 0.0, np.diff(self._edges_s))
        last = np.maximum(self._first_per_s + self._slope_per_s2 * widths, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
            edges_s, first, last = self._edges_s * time, self._first_per_s * rate, last * rate
        return RateCurve(edges_s, first, last, repeats=self.repeats)

    def _lap(self, t_s: Floats) -> tuple[Floats, Floats]:
        """The whole repetitions before each instant, and the time since the last of them."""
        if not self.repeats:
            return np.zeros_like(t_s), t_s
        laps = np.floor(t_s / self.length_s)
        return laps, np.clip(t_s - laps * self.length_s, 0.0, self.length_s)

    def rate_per_s(self, t_s: ArrayLike) -> Floats:
        """Records a second at each instant; 0 before 0 s and after the end."""
        t = np.asarray(t_s, dtype=np.float64)
        _, phase = self._lap(t)
        segment = np.searchsorted(self._edges_s, phase, side="right") - 1
        if self.repeats:  # rounding may put an instant on the last edge, which is the first of the next lap
            segment = np.where(segment >= self._first_per_s.size, 0, segment)
            phase = np.where(phase >= self.length_s, 0.0, phase)
        inside = (segment >= 0) & (segment < self._first_per_s.size) & (t >= 0)
        segment = np.where(inside, segment, 0)
        rate = self._first_per_s[segment] + self._slope_per_s2[segment] * (phase - self._edges_s[segment])
        return np.where(inside, np.maximum(rate, 0.0), 0.0)

    def records(self, t_s: ArrayLike) -> Floats:
        """How many records arrive from 0 s up to each instant: the integral of the rate."""
        t = np.maximum(np.asarray(t_s, dtype=np.float64), 0.0)
        laps, phase = self._lap(t)
        segment = np.clip(
            np.searchsorted(self._edges_s, phase, side="right") - 1, 0, self._slope_per_s2.size - 1
        )
        x = np.minimum(phase, self._edges_s[segment + 1]) - self._edges_s[segment]
        inside = self._first_per_s[segment] * x + self._slope_per_s2[segment] * x * x / 2
        return (
            laps * self._before[-1] + self._before[segment] + inside
            if self.repeats
            else (self._before[segment] + inside)
        )

    def instants_s(self, records: ArrayLike) -> Floats:
        """When each number of records has arrived: the inverse of `records`, infinite where never."""
        y = np.asarray(records, dtype=np.float64)
        total = float(self._before[-1])
        laps = np.zeros_like(y)
        if self.repeats:
            if total == 0:
                return np.full_like(y, np.inf)
            laps = np.floor(y / total)
            y = np.clip(y - laps * total, 0.0, total)
        if self._steps:
            # Steps without a pause: the records add up along straight lines, and nothing is ambiguous.
            found = np.interp(y, self._before, self._edges_s, right=np.inf)
            return laps * self.length_s + found if self.repeats else found
        segments = self._first_per_s.size
        if segments == 1:
            segment = np.where(y <= total, 0, 1)
        else:
            segment = np.searchsorted(self._before[1:], y, side="left")
        reached = segment < segments
        segment = np.where(reached, segment, 0)
        first, slope = self._first_per_s[segment], self._slope_per_s2[segment]
        missing = np.maximum(y - self._before[segment], 0.0)
        # first·x + slope·x²/2 = missing, solved in the form that is stable for slope → 0.
        speed = first + np.sqrt(np.maximum(first * first + 2 * slope * missing, 0.0))
        x = np.divide(2 * missing, speed, out=np.zeros_like(missing), where=speed > 0)
        start, end = self._edges_s[segment], self._edges_s[segment + 1]
        found = (
            laps * self.length_s + np.minimum(start + x, end) if self.repeats else np.minimum(start + x, end)
        )
        return np.where(reached, found, np.inf)
