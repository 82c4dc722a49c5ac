"""What a load may do next: ways it may go, taken from how it went before.

Several simple forecasters each draw a line into the future; how wrong each of them was before, at every
distance, is known from the record. The ways the load may go are the line of one forecaster, times quantiles
of what it was wrong by. The simplest one (the load stays as it is) is used until another one has
beaten it on the record, by the pinball loss of the quantiles that a decision depends on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.forecasts.comparison import (
    CAREFUL_STEP,
    EPISODE,
    QUANTILES,
    best_of,
    moves_as_never_before,
    moves_by_amounts,
)
from penstock.forecasts.forecasters import AHEAD, DISTANCES, ENOUGH, NEAR, Floats, Ints, Line, Usual, lines_of
from penstock.forecasts.record import Load
from penstock.forecasts.season import Season, usual_over

Singles = NDArray[np.float32]

MEMORY = 720
"""Bins looked back on: half a day where a decision is made every minute."""
RECENT = 240
"""So many of them count twice."""
_EDGES = np.array(
    [0, .1, .2, .3, .4, .5, .6, .7, .8, .85, .9, .93, .95, .97, .98, .99, .995, 1.0]
)  # fmt: skip
WEIGHTS: Floats = np.diff(_EDGES)
"""How likely each way is that the load may go; close to the highest they are many and unlikely."""
LEVELS: Floats = (_EDGES[1:] + _EDGES[:-1]) / 2
"""The quantile each way keeps, at every distance."""
_LEVELS: tuple[float, ...] = tuple(LEVELS.tolist())
NORMAL: Floats = np.array([NormalDist().inv_cdf(float(level)) for level in LEVELS])
BEYOND = 1.25
"""No way is higher than so many times the highest load of the record."""
BROKEN = 1.02
"""A bound is broken by a load of more than so many times it."""
NEAR_HIGHEST = 0.85
"""A load of at least this share of its highest so far is near it."""
RECENT_EPISODE = 30
"""An episode that is over for so many bins may be forgiven."""
LONG = 60
"""Bins that must be known before an episode is called the only one, or the highest load high."""
FAR = AHEAD.index(30)
"""The distance by which the forecaster for what is not near is chosen."""
TOGETHER = 128
"""So many loads are told at once: each takes 120 KiB while it is worked on."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Ways a load may go."""

    bin_s: float
    ways_per_s: Floats
    """Records a second: a row for each of `LEVELS`, a column for each distance in `AHEAD`."""
    peaks_per_s: Floats
    """The same for the highest load up to each distance."""
    forecaster: str
    known: int
    """Past movements it is based on."""
    unheard: bool = False
    """Whether the load rises as it never did before."""

    def scaled(self, factor: float) -> Outlook:
        """The same ways for a load that is so many times higher."""
        if factor == 1.0:
            return self
        return replace(self, ways_per_s=self.ways_per_s * factor, peaks_per_s=self.peaks_per_s * factor)

    def next_bins(self, length: float) -> Floats:
        """The ways over the next `NEAR` bins, each as long as so many of these."""
        if length == 1:
            return self.ways_per_s[:, :NEAR]
        middles = length * np.arange(1.0, NEAR + 1.0) - (length - 1) / 2
        return np.array([np.interp(middles, DISTANCES, way) for way in self.ways_per_s])

    def quantile(self, share: float, column: int) -> float:
        """The load that is not exceeded in this share of the ways, at a distance."""
        ways, at = self.ways_per_s[:, column], bisect_right(_LEVELS, share)
        if not 0 < at < len(_LEVELS):
            return float(ways[min(at, len(_LEVELS) - 1)])
        part = (share - _LEVELS[at - 1]) / (_LEVELS[at] - _LEVELS[at - 1])
        return float(ways[at - 1] + part * (ways[at] - ways[at - 1]))


class Asked(NamedTuple):
    """A load of which an outlook is wanted."""

    load: Load
    """With at least one bin."""
    lead_bins: int
    """Bins until a decision works."""
    season: Season | None = None

    @property
    def kind(self) -> tuple[object, ...]:
        """Loads that are alike in this are told together."""
        length, season = min(len(self.load), MEMORY), self.season
        if season is None:
            return length, self.control
        return length, self.control, self.load.end_s, self.load.bin_s, season.period_s, len(season.level)

    @property
    def control(self) -> int:
        """The place of the lead time in `AHEAD`."""
        return min(max(1, self.lead_bins), NEAR) - 1


def outlook_of(load: Load, lead_bins: int, season: Season | None = None) -> Outlook:
    """The ways a load may go from its newest bin on; needs at least one bin."""
    return outlooks_of([Asked(load, lead_bins, season)])[0]


def outlooks_of(asked: Sequence[Asked]) -> list[Outlook]:
    """The ways each of some loads may go; those that are alike are told at once: in less time."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, one in enumerate(asked):
        alike.setdefault(one.kind, []).append(place)
    found: dict[int, Outlook] = {}
    for places in alike.values():
        for first in range(0, len(places), TOGETHER):
            some = places[first : first + TOGETHER]
            found.update(zip(some, _told([asked[place] for place in some]), strict=True))
    return [found[place] for place in range(len(asked))]


def _told(asked: Sequence[Asked]) -> list[Outlook]:
    """The outlooks of loads of one kind."""
    rate = np.array([one.load.rate_per_s[-MEMORY:] for one in asked])
    newest = np.array([one.load.newest_per_s[-MEMORY:] for one in asked])
    floor = np.maximum(1e-9, 0.01 * rate.mean(axis=1, keepdims=True))
    by_amounts = moves_by_amounts(rate, newest, AHEAD[asked[0].control], floor)
    if by_amounts.all() or not by_amounts.any():
        return _moving(asked, rate, newest, floor, by_share=not by_amounts[0])
    found: dict[int, Outlook] = {}
    for by_share in (True, False):
        rows = np.flatnonzero(by_amounts != by_share)
        some = [asked[row] for row in rows.tolist()]
        told = _moving(some, rate[rows], newest[rows], floor[rows], by_share=by_share)
        found.update(zip(rows.tolist(), told, strict=True))
    return [found[row] for row in range(len(asked))]


def _moving(
    asked: Sequence[Asked], rate: Floats, newest: Floats, floor: Floats, *, by_share: bool
) -> list[Outlook]:
    """The outlooks of loads that all move by shares of themselves, or all by amounts."""
    control = asked[0].control
    actual, last = np.maximum(rate, floor), np.maximum(newest, floor)
    if by_share:
        actual, last = np.log(actual), np.log(last)
    seasons = [one.season for one in asked if one.season is not None]
    usually: list[Usual] = []
    if seasons:
        levels = usual_over(seasons, asked[0].load.end_s, asked[0].load.bin_s, actual.shape[1], AHEAD[-1])
        usually = [Usual(level, None if by_share else last) for level in levels]
    lines = lines_of(actual, last, usually)
    rises, settles = moves_as_never_before(last)
    best = best_of(lines, actual, control, stride=2)
    if len(lines) > 1:
        best[settles] = 0
        best[rises] = next(number for number, line in enumerate(lines) if line.slope is not None)
    # What is best for the next minutes need not be so for the next hour: a day is seen from afar.
    later = best_of(lines, actual, FAR, stride=3) if actual.shape[1] > 2 * AHEAD[FAR] else best
    step = np.full(len(asked), CAREFUL_STEP) if by_share else CAREFUL_STEP * last[:, -1]
    found = _ways(lines, best, later, actual, step)
    if by_share:
        np.exp(found, out=found)
    # Shares seen at a low load would make a high one grow without end.
    ever = np.array([one.load.rate_per_s.max() for one in asked])
    highest = np.maximum(ever, newest[:, -1]) * _beyond(rate, newest[:, -1], floor, AHEAD[control])
    np.minimum(found, highest[:, None, None, None], out=found)
    np.maximum(found, floor[:, :, None, None], out=found)
    known = max(0, actual.shape[1] - 1)
    return [
        Outlook(one.load.bin_s, ways[0], ways[1], lines[number].name, known, unheard)
        for one, ways, number, unheard in zip(asked, found, best.tolist(), rises.tolist(), strict=True)
    ]


def _beyond(rate: Floats, newest: Floats, floor: Floats, lead: int) -> Floats:
    """How far each load that is near its highest goes beyond it: not at all where something bounds it.

    A bound that was broken of late is none, nor is the highest of a short record: a load may rise from there
    as far as it ever did within a lead time.
    """
    units, length = rate.shape
    if length < LONG:
        risen = np.zeros(units)
        for bins in range(1, min(lead + 1, length)):
            np.maximum(risen, (rate[:, bins:] - rate[:, :-bins]).max(axis=1), out=risen)
        highest = np.maximum(np.maximum(rate.max(axis=1), newest), floor[:, 0])
        return np.asarray(np.maximum(BEYOND, 1.0 + risen / highest))
    soon, last = NEAR // 2, length - NEAR // 2
    free = np.full(units, BEYOND)
    if last - 2 * ENOUGH < ENOUGH:
        return free
    looked_at = slice(2 * ENOUGH, last)
    highest = np.maximum(np.maximum.accumulate(rate, axis=1), floor)[:, looked_at]
    near = rate[:, looked_at] >= NEAR_HIGHEST * highest
    times = np.count_nonzero(near, axis=1)
    if (times < ENOUGH).all():
        return free
    followed = rate[:, 2 * ENOUGH + 1 : last + 1]
    for ahead in range(2, soon + 1):
        followed = np.maximum(followed, rate[:, 2 * ENOUGH + ahead : last + ahead])
    shares = np.where(near, followed / highest, np.inf).astype(np.float32)
    shares.sort(axis=1)
    place = (QUANTILES[-1] * np.maximum(times - 1, 0)).astype(np.int64)
    beyond = shares[np.arange(units), place].astype(np.float64)
    found = np.minimum(BEYOND, np.maximum(1.0, beyond))
    before = rate[:, :-RECENT_EPISODE].max(axis=1)
    lately = np.maximum(newest, rate[:, -RECENT_EPISODE:].max(axis=1))
    return np.where((times < ENOUGH) | (lately > BROKEN * found * before), free, found)


def _ways(lines: Sequence[Line], near: Ints, far: Ints, actual: Floats, careful_step: Floats) -> Floats:
    """The forecasts from now on plus quantiles of past errors, a row for each of `LEVELS`; then for peaks.

    A peak is the highest load up to a distance: over noise it is exceeded sooner than the load at any one.
    """
    units, count = actual.shape
    trust = min(1.0, count / ENOUGH)
    known = _known_columns(count)
    found = np.zeros((units, 2, len(LEVELS), len(AHEAD)))
    if trust < 1.0:
        # Careful where few movements are known: a load of which nothing is known may well jump.
        found[:, 0] = careful_step[:, None, None] * np.sqrt(DISTANCES) * NORMAL[:, None]
        found[:, 1] = np.abs(found[:, 0])
    # The next bins from every one of the past, what is farther from every third: it is smoother.
    for chosen, columns, stride in (
        (near, np.arange(min(NEAR, known)), 1),
        (far, np.arange(NEAR, max(NEAR, known)), 3),
    ):
        if columns.size:
            part = found[:, :, :, columns[0] : columns[-1] + 1]
            errors = _errors(lines, chosen, actual, columns, stride)
            part[...] = errors if trust == 1.0 else (1.0 - trust) * part + trust * errors
    for column in range(known, len(AHEAD)):
        if column > 0:
            # Not seen so far ahead yet: what was seen at the distance before, spread as a random walk is.
            farther = np.sqrt(AHEAD[column] / AHEAD[column - 1])
            found[:, :, :, column] *= 1.0 - trust
            found[:, :, :, column] += trust * farther * found[:, :, :, column - 1]
    newest = np.array([count - 1])
    for chosen, columns in ((near, np.arange(NEAR)), (far, np.arange(NEAR, len(AHEAD)))):
        found[:, :, :, columns] += _by_chosen(lines, chosen, newest, columns).swapaxes(1, 2)[:, None]
    # A peak so far is one later on, whoever told it.
    np.maximum.accumulate(found[:, 1], axis=2, out=found[:, 1])
    return found


def _by_chosen(lines: Sequence[Line], chosen: Ints, bins: Ints, columns: Ints) -> Floats:
    """What the forecaster that was chosen for each load tells from some bins at some distances."""
    if (chosen == chosen[0]).all():
        return np.asarray(lines[chosen[0]].at(bins, columns))
    told = np.empty((len(chosen), len(columns), len(bins)))
    for number in sorted(set(chosen.tolist())):
        rows = np.flatnonzero(chosen == number)
        told[rows] = lines[number].of(rows).at(bins, columns)
    return told


def _forgiven(errors: Singles, bins: Ints, distances: Ints, count: int) -> Singles | None:
    """The most that errors count as at each distance: no more than outside the worst episode, once over.

    What happened once in so long a time may have been chance: a flash crowd is no reason to be ready for
    another one ever after. What happened twice is how this load moves.
    """
    if count < LONG:
        return None
    worst = bins[errors.argmax(axis=-1)]
    over = worst + distances < count - RECENT_EPISODE
    if not over.any():
        return None
    begins = bins.searchsorted(worst - distances - EPISODE).ravel().tolist()
    ends = bins.searchsorted(worst + distances + EPISODE, "right").ravel().tolist()
    others = errors.reshape(len(begins), -1).copy()
    for row, begin, end in zip(others, begins, ends, strict=True):
        row[begin:end] = -np.inf
    highest = others.max(axis=1).reshape(over.shape)
    return np.where(over & np.isfinite(highest), highest, np.float32(np.inf))[..., None]


@lru_cache(maxsize=64)
def _known_columns(count: int) -> int:
    """Distances of which a record of so many bins tells enough."""
    return sum(1 for ahead in AHEAD if count - ahead >= max(2, min(ahead, ENOUGH)))


@lru_cache(maxsize=64)
def _past(count: int, farthest: int, stride: int) -> tuple[Ints, Ints]:
    """Bins of a record from which errors are known so far ahead, and for each distance the bins there."""
    bins = np.arange(0, count - farthest, stride)
    if len(bins) > RECENT:
        # Every one of late, every other one before: how it moves lately counts more.
        bins = np.concatenate([bins[:-RECENT:2], bins[-RECENT:]])
    # Past bins are the last axis throughout: they are many, and what is sorted lies together.
    return bins, bins + np.arange(1, farthest + 1)[:, None]


def _errors(lines: Sequence[Line], chosen: Ints, actual: Floats, columns: Ints, stride: int) -> Floats:
    """Quantiles of past errors at some distances: of each load there, and of its peak on the way."""
    distances = DISTANCES[columns]
    bins, there = _past(actual.shape[1], int(distances[-1]), stride)
    # Numbers of 32 bits are exact enough, and are sorted in an eighth of the time.
    followed = actual.astype(np.float32).take(there, axis=1)
    errors = np.empty((len(actual), 2, len(columns), len(bins)), dtype=np.float32)
    errors[:, 0] = followed[:, distances - 1]
    seen = 0
    for column, distance in enumerate(distances.tolist()):
        peak = errors[:, 1, column]
        np.maximum.reduce(followed[:, seen:distance], axis=1, out=peak)
        if column:
            np.maximum(peak, errors[:, 1, column - 1], out=peak)
        seen = distance
    errors -= _by_chosen(lines, chosen, bins, columns)[:, None]
    highest = _forgiven(errors, bins, distances, actual.shape[1])
    errors.sort(axis=-1)
    place = LEVELS * (len(bins) - 1)
    low = place.astype(np.int64)
    below = errors.take(low, axis=-1)
    above = errors.take(np.minimum(low + 1, len(bins) - 1), axis=-1)
    if highest is not None:
        np.minimum(below, highest, out=below)
        np.minimum(above, highest, out=above)
    return np.asarray((below + (above - below) * (place - low)).swapaxes(2, 3))
