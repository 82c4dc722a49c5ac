"""Forecasters: simple rules that each draw a line from every bin of a record into the future.

Records of several units that are equally long are told at once: a row each, in every array here. Hundreds of
calls on small arrays would else be made for each unit, and take longer than the numbers in them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

AHEAD = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30, 40, 50, 60)
"""Bins ahead that are looked at: every one of the next few, then fewer and fewer."""
DISTANCES: Ints = np.array(AHEAD)
NEAR = 6
"""So many of them are the next bins without a gap."""
ENOUGH = 30
"""Movements that must be known before the careful guess is given up."""


class Usual(NamedTuple):
    """What loads usually do at the time of every bin of their records, and of those to come."""

    level: Floats
    """The usual logarithm."""
    last: Floats | None = None
    """The loads at every bin of their records, where changes are amounts and not logarithms."""

    def change(self, bins: Ints | slice, there: Ints | slice) -> Floats:
        """The usual change from bins to others."""
        found = self.level[:, there] - self.level[:, bins]
        return found if self.last is None else np.asarray(self.last[:, bins] * np.expm1(found))

    def put_on(self, off: Floats, there: Ints | slice) -> Floats:
        """What is so far off its usual level, at some bins."""
        usual = self.level[:, there]
        return np.asarray(off + usual if self.last is None else off * np.exp(usual))

    def of(self, rows: Ints) -> Usual:
        """The same of some of the loads."""
        return Usual(self.level[rows], None if self.last is None else self.last[rows])


class Line(NamedTuple):
    """A forecaster: from every bin of the records, the load (or its logarithm) at every distance."""

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

    def of(self, rows: Ints) -> Line:
        """The same of some of the loads."""
        slope, usual, most = self.slope, self.usual, self.most
        return self._replace(
            level=self.level[rows],
            slope=None if slope is None else slope[rows],
            usual=None if usual is None else usual.of(rows),
            most=None if most is None else most[rows],
        )

    def _with_usual(self, found: Floats, bins: Ints | slice, there: Ints | slice) -> Floats:
        if self.usual is None:
            return found
        if self.over_usual:
            return self.usual.put_on(found, there)
        return found + self.usual.change(bins, there)

    def _going_on(self, bins: Ints | slice, columns: Ints | int) -> Floats:
        if self.slope is None:
            return self.level[:, bins]
        adds = self.slope[:, bins] * _reach(self.damping)[columns]
        return self.level[:, bins] + (adds if self.most is None else np.minimum(adds, self.most[:, bins]))

    def at(self, bins: Ints, columns: Ints) -> Floats:
        """The forecasts from these bins of the records at these distances (columns of `AHEAD`).

        Distances are rows and bins columns, of each load.
        """
        found = self._going_on(bins[None, :], columns[:, None])
        return self._with_usual(found, bins[None, :], bins + DISTANCES[columns][:, None])

    def before_the_last(self, count: int, column: int, stride: int) -> Floats:
        """The forecasts at one distance from all bins but the last ones, or from every so many of them."""
        known, ahead = self.level.shape[1] - count, AHEAD[column]
        bins = slice(0, known, stride)
        return self._with_usual(self._going_on(bins, column), bins, slice(ahead, known + ahead, stride))


@lru_cache
def _reach(damping: float) -> Floats:
    """How many times its slope a line adds at each distance: a bin's middle is half a bin before its end."""
    return np.asarray((1.0 - damping ** (DISTANCES - 0.5)) / (1.0 - damping))


def lines_of(actual: Floats, last: Floats, usually: Sequence[Usual] = ()) -> list[Line]:
    """Every forecaster, the simplest first."""
    lines = [Line("the load stays", last)]
    if actual.shape[1] < ENOUGH:
        return lines
    for share in (0.5, 0.2):
        lines.append(Line(_mean_of(share), _smoothed(actual, share)))
    for bins, damping in ((1, 0.7), (2, 0.8), (4, 0.9)):
        slope = np.zeros_like(last)
        slope[:, bins:] = (last[:, bins:] - last[:, :-bins]) / bins
        most = _risen(last) if bins == 1 else None
        span = "bin" if bins == 1 else f"{bins} bins"
        lines.append(Line(f"goes on as over the last {span}", last, slope, damping, most=most))
    for usual in usually:
        lines.append(Line("as at this time of earlier days", last, usual=usual))
    if usually:
        # What is smoothed is how far the load is off its season: a mean of the load would lag behind it.
        calm = usually[-1]
        level = calm.level[:, : actual.shape[1]]
        off = actual - level if calm.last is None else actual / np.exp(level)
        for share in (0.5, 0.1):
            name = f"{_mean_of(share)} over that of earlier days"
            lines.append(Line(name, _smoothed(off, share), usual=calm, over_usual=True))
    return lines


def _risen(last: Floats) -> Floats:
    """At every bin, by how much the load has risen without a fall; 0 where it fell."""
    began = np.tile(np.arange(last.shape[1]), (len(last), 1))
    began[:, 1:][last[:, 1:] > last[:, :-1]] = 0
    np.maximum.accumulate(began, axis=1, out=began)
    return np.asarray(last - np.take_along_axis(last, began, axis=1))


def _mean_of(share: float) -> str:
    return f"mean of the last {round(2 / share) - 1} bins"


def _smoothed(values: Floats, share: float) -> Floats:
    """The mean of all values so far, in which each new one has this share, but for the last thousandth.

    A sum of twice as many values is one of half of them and the one so far before it; so each takes as many
    steps as its number of values has binary digits.
    """
    fades = 1.0 - share
    width = math.ceil(math.log(0.001) / math.log(fades))
    before = np.repeat(values[:, :1], width - 1, axis=1)
    every = np.concatenate([before, values], axis=1)
    found, summed = every, 1
    for digit in f"{width:b}"[1:]:
        found = found[:, summed:] + fades**summed * found[:, :-summed]
        summed *= 2
        if digit == "1":
            found = every[:, summed:] + fades * found[:, :-1]
            summed += 1
    return np.asarray(found * (share / (1.0 - fades**width)))
