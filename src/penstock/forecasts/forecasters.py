"""Forecasters: simple rules that each draw a line from every bin of a record into the future."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

AHEAD = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30, 40, 50, 60)
"""Bins ahead that are looked at: every one of the next few, then fewer and fewer."""
DISTANCES: Ints = np.array(AHEAD)
NEAR = 6
"""So many of them are the next bins without a gap."""
ENOUGH = 30
"""Movements that must be known before the careful guess is given up."""


class Usual(NamedTuple):
    """What a load usually does at the time of every bin of a record, and of those to come."""

    level: Floats
    """The usual logarithm."""
    last: Floats | None = None
    """The load at every bin of the record, where changes are amounts and not logarithms."""

    def change(self, bins: Ints | slice, there: Ints | slice) -> Floats:
        """The usual change from bins to others."""
        found = self.level[there] - self.level[bins]
        return found if self.last is None else np.asarray(self.last[bins] * np.expm1(found))


class Line(NamedTuple):
    """A forecaster: from every bin of the record, the load (or its logarithm) at every distance."""

    name: str
    level: Floats
    slope: Floats | None = None
    """Change a bin, at every bin; none where the level stays."""
    damping: float = 1.0
    usual: Usual | None = None
    """What is usually added at this time."""
    most: Floats | None = None
    """At every bin, the most that the slope adds."""
    over_usual: bool = False
    """Whether the level is how far the load is off its usual one, rather than the load."""

    def _with_usual(self, found: Floats, bins: Ints | slice, there: Ints | slice) -> Floats:
        if self.usual is None:
            return found
        if not self.over_usual:
            return found + self.usual.change(bins, there)
        usual = self.usual.level[there]
        return found + usual if self.usual.last is None else np.asarray(found * np.exp(usual))

    def _going_on(self, bins: Ints | slice, columns: Ints | int) -> Floats:
        if self.slope is None:
            return self.level[bins]
        adds = self.slope[bins] * _reach(self.damping)[columns]
        return self.level[bins] + (adds if self.most is None else np.minimum(adds, self.most[bins]))

    def at(self, bins: Ints, columns: Ints) -> Floats:
        """The forecasts from these bins of the record at these distances (columns of `AHEAD`)."""
        found = self._going_on(bins, columns)
        return self._with_usual(found, bins, bins + DISTANCES[columns])

    def before_the_last(self, count: int, column: int, stride: int) -> Floats:
        """The forecasts at one distance from all bins but the last ones, or from every so many of them."""
        known, ahead = len(self.level) - count, AHEAD[column]
        bins = slice(0, known, stride)
        return self._with_usual(self._going_on(bins, column), bins, slice(ahead, known + ahead, stride))


@lru_cache
def _reach(damping: float) -> Floats:
    """How many times its slope a line adds at each distance: a bin's middle is half a bin before its end."""
    return np.asarray((1.0 - damping ** (DISTANCES - 0.5)) / (1.0 - damping))


def lines_of(actual: Floats, last: Floats, usually: Sequence[Usual] = ()) -> list[Line]:
    """Every forecaster, the simplest first."""
    lines = [Line("the load stays", last)]
    if len(actual) < ENOUGH:
        return lines
    for share in (0.5, 0.2):
        lines.append(Line(_mean_of(share), _smoothed(actual, share)))
    for bins, damping in ((1, 0.7), (2, 0.8), (4, 0.9)):
        slope = np.zeros_like(last)
        slope[bins:] = (last[bins:] - last[:-bins]) / bins
        most = _risen(last) if bins == 1 else None
        lines.append(Line(f"goes on as over the last {bins} bins", last, slope, damping, most=most))
    for usual in usually:
        lines.append(Line("as at this time of earlier days", last, usual=usual))
    if usually:
        # What is smoothed is how far the load is off its season: a mean of the load would lag behind it.
        calm = usually[-1]
        level = calm.level[: len(actual)]
        off = actual - level if calm.last is None else actual / np.exp(level)
        for share in (0.5, 0.1):
            name = f"{_mean_of(share)} over that of earlier days"
            lines.append(Line(name, _smoothed(off, share), usual=calm, over_usual=True))
    return lines


def _risen(last: Floats) -> Floats:
    """At every bin, by how much the load has risen without a fall; 0 where it fell."""
    began = np.arange(len(last))
    began[1:][last[1:] > last[:-1]] = 0
    np.maximum.accumulate(began, out=began)
    return np.asarray(last - last[began])


def _mean_of(share: float) -> str:
    return f"mean of the last {round(2 / share) - 1} bins"


def _smoothed(values: Floats, share: float) -> Floats:
    """The mean of all values so far, in which each new one has this share, but for the last thousandth."""
    weights = _fading(share)
    before = np.full(len(weights) - 1, values[0])
    return np.convolve(np.concatenate([before, values]), weights, "valid")


@lru_cache
def _fading(share: float) -> Floats:
    """The weights of the newest value and of those before it, which sum up to 1."""
    weights = share * (1.0 - share) ** np.arange(math.ceil(math.log(0.001) / math.log(1.0 - share)))
    return np.asarray(weights / weights.sum())
