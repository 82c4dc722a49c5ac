"""What a load may do next: ways it may go, taken from how it went before.

Several simple forecasters each draw a line into the future; how wrong each of them was before, at every
distance, is known from the record. The ways the load may go are the line of one forecaster, times quantiles
of what it was wrong by. The simplest one (the load stays as it is) is used until another one has
beaten it on the record, by the pinball loss of the quantiles that a decision depends on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from penstock.forecasts.record import Load
from penstock.forecasts.season import Season

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

AHEAD = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30, 40, 50, 60)
"""Bins ahead that are looked at: every one of the next few, then fewer and fewer."""
DISTANCES: Ints = np.array(AHEAD)
NEAR = 6
"""So many of them are the next bins without a gap."""
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
NORMAL: Floats = np.array([NormalDist().inv_cdf(float(level)) for level in LEVELS])
QUANTILES = (0.5, 0.9, 0.98)
"""The quantiles forecasters are compared by."""
BETTER = 0.97
"""Another forecaster is used only where its loss is below this share of the simplest one's."""
CAREFUL_STEP = 0.04
"""How far the logarithm of a load is taken to move in one bin before anything is known of it."""
BEYOND = 1.25
"""No way is higher than so many times the highest load of the record."""
BROKEN = 1.02
"""A bound is broken by a load of more than so many times it."""
NEAR_HIGHEST = 0.85
"""A load of at least this share of its highest so far is near it."""
EPISODE = 15
"""Errors within so many bins of the worst one belong to the same episode."""
RECENT_EPISODE = 30
"""An episode that is over for so many bins may be forgiven."""
LONG = 240
"""Bins that must be known before an episode is called the only one."""
ENOUGH = 30
"""Movements that must be known before the careful guess is given up."""


class Line(NamedTuple):
    """A forecaster: from every bin of the record, the load (or its logarithm) at every distance."""

    name: str
    level: Floats
    slope: Floats | None = None
    """Change a bin, at every bin; none where the level stays."""
    damping: float = 1.0
    season: Floats | None = None
    """Expected change, by bin and distance."""

    def at(self, bins: Ints, columns: Ints) -> Floats:
        """The forecasts from these bins of the record at these distances (columns of `AHEAD`)."""
        found = self.level[bins]
        if self.slope is not None:
            # The middle of a bin `ahead` is half a bin nearer than its end.
            reach = (1.0 - self.damping ** (DISTANCES[columns] - 0.5)) / (1.0 - self.damping)
            found = found + self.slope[bins] * reach
        if self.season is not None:
            found = found + self.season[bins, columns]
        return found


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

    def scaled(self, factor: float) -> Outlook:
        """The same ways for a load that is so many times higher."""
        if factor == 1.0:
            return self
        return replace(self, ways_per_s=self.ways_per_s * factor, peaks_per_s=self.peaks_per_s * factor)

    def quantile(self, share: float, column: int) -> float:
        """The load that is not exceeded in this share of the ways, at a distance."""
        return float(np.interp(share, LEVELS, self.ways_per_s[:, column]))


def outlook_of(load: Load, lead_bins: int, season: Season | None = None) -> Outlook:
    """The ways a load may go from its newest bin on; needs at least one bin."""
    rate, newest = load.rate_per_s[-MEMORY:], load.newest_per_s[-MEMORY:]
    floor = max(1e-9, 0.01 * float(rate.mean()))
    control = min(max(1, lead_bins), NEAR) - 1
    by_share = not _moves_by_amounts(rate, newest, AHEAD[control], floor)
    actual, last = np.maximum(rate, floor), np.maximum(newest, floor)
    if by_share:
        actual, last = np.log(actual), np.log(last)
    change = None
    if season is not None:
        ends_s: Floats = load.end_s - load.bin_s * np.arange(len(actual) - 1.0, -1.0, -1.0)
        change = season.changes(ends_s, load.bin_s, AHEAD)
        if not by_share:
            change = last[:, None] * np.expm1(change)
    lines = _lines(actual, last, change)
    best = _best(lines, actual, control)
    usual = CAREFUL_STEP if by_share else CAREFUL_STEP * float(last[-1])
    ways, peaks = _ways(best, actual, usual)
    if by_share:
        ways, peaks = np.exp(ways), np.exp(peaks)
    # Shares seen at a low load would make a high one grow without end.
    highest = _beyond(rate, float(newest[-1]), floor) * max(float(load.rate_per_s.max()), float(newest[-1]))
    ways, peaks = (np.clip(found, floor, highest) for found in (ways, peaks))
    return Outlook(load.bin_s, ways, peaks, best.name, max(0, len(actual) - 1))


def _beyond(rate: Floats, newest: float, floor: float) -> float:
    """How far a load that is near its highest goes beyond it: not at all where something bounds it.

    A bound that was broken of late is none.
    """
    highest = np.maximum(np.maximum.accumulate(rate), floor)
    bins = np.arange(2 * ENOUGH, len(rate) - NEAR // 2)
    bins = bins[rate[bins] >= NEAR_HIGHEST * highest[bins]]
    if len(bins) < ENOUGH:
        return BEYOND
    followed = rate[bins[:, None] + np.arange(1, NEAR // 2 + 1)].max(axis=1)
    beyond = np.sort(followed / highest[bins])[int(QUANTILES[-1] * (len(bins) - 1))]
    found = min(BEYOND, max(1.0, float(beyond)))
    before, lately = float(rate[:-RECENT_EPISODE].max()), max(newest, float(rate[-RECENT_EPISODE:].max()))
    return BEYOND if lately > BROKEN * found * before else found


def _moves_by_amounts(rate: Floats, newest: Floats, ahead: int, floor: float) -> bool:
    """Whether a load moves by amounts rather than by shares of itself: what told its quantiles better."""
    if len(rate) < 2 * ENOUGH:
        return False
    before, after = np.maximum(newest[:-ahead], floor), np.maximum(rate[ahead:], floor)
    shares, amounts = np.sort(after / before), np.sort(after - before)
    losses = [0.0, 0.0]
    for level in QUANTILES[1:]:
        place = int(level * (len(after) - 1))
        for number, told in enumerate((before * shares[place], before + amounts[place])):
            losses[number] += _pinball(after - told, level)
    return losses[1] < BETTER * losses[0]


def _pinball(above: Floats, level: float) -> float:
    """The mean pinball loss of a quantile, from how far what came was above it, for each level alike."""
    # max(level · a, (level − 1) · a) = level · a + max(−a, 0)
    short = float(np.minimum(above, 0.0).sum())
    return (level * float(above.sum()) - short) / len(above) / (1.0 - level)


def _lines(actual: Floats, last: Floats, season: Floats | None) -> list[Line]:
    """Every forecaster, the simplest first."""
    lines = [Line("the load stays", last)]
    if len(actual) < ENOUGH:
        return lines
    for share in (0.5, 0.2):
        start = np.array([actual[0] * (1.0 - share)])
        level, _ = lfilter([share], [1.0, share - 1.0], actual, zi=start)
        lines.append(Line(f"mean of the last {round(2 / share) - 1} bins", level))
    for bins, damping in ((1, 0.7), (2, 0.8), (4, 0.9)):
        slope = np.zeros_like(last)
        slope[bins:] = (last[bins:] - last[:-bins]) / bins
        lines.append(Line(f"goes on as over the last {bins} bins", last, slope, damping))
    if season is not None:
        lines.append(Line("as at this time of earlier days", last, season=season))
        lines.append(Line(f"{lines[1].name}, as at this time of earlier days", lines[1].level, season=season))
    return lines


def _best(lines: Sequence[Line], actual: Floats, control: int) -> Line:
    """The forecaster of the least loss at the distance that a decision works at."""
    if len(lines) == 1:
        return lines[0]
    bins = np.arange(len(actual) - AHEAD[control])
    column = np.array([control])
    ends = actual[AHEAD[control] :]
    losses = _losses(np.stack([ends - line.at(bins, column) for line in lines]))
    best = int(np.argmin(losses))
    return lines[best] if losses[best] < BETTER * losses[0] else lines[0]


def _losses(errors: Floats) -> Floats:
    """The pinball losses of the quantiles of forecasters' errors, which are rows."""
    ordered = np.sort(errors, axis=1)
    total: Floats = np.zeros(len(errors))
    count = ordered.shape[1]
    sums, running = ordered.sum(axis=1), np.cumsum(ordered, axis=1)
    for share in QUANTILES:
        place = int(share * (count - 1))
        told = ordered[:, place]
        # What is below the quantile, of errors in their order, is a sum up to its place.
        short = running[:, place] - (place + 1) * told
        total += (share * (sums - count * told) - short) / count / (1.0 - share)
    return total


def _ways(line: Line, actual: Floats, careful_step: float) -> tuple[Floats, Floats]:
    """The forecast from now on plus quantiles of past errors, a row for each of `LEVELS`; then for peaks.

    A peak is the highest load up to a distance: over noise it is exceeded sooner than the load at any one.
    """
    count = len(actual)
    # Careful where few movements are known: a load of which nothing is known may well jump.
    careful = careful_step * np.sqrt(DISTANCES) * NORMAL[:, None]
    found = np.stack([careful, np.abs(careful)])
    trust = min(1.0, count / ENOUGH)
    known = _known_columns(count)
    # The next bins from every one of the past, what is farther from every third: it is smoother.
    for columns, stride in ((np.arange(min(NEAR, known)), 1), (np.arange(NEAR, max(NEAR, known)), 3)):
        if columns.size:
            found[:, :, columns] *= 1.0 - trust
            found[:, :, columns] += trust * _errors(line, actual, columns, stride)
    for column in range(known, len(AHEAD)):
        if column > 0:
            # Not seen so far ahead yet: what was seen at the distance before, spread as a random walk is.
            farther = np.sqrt(AHEAD[column] / AHEAD[column - 1])
            found[:, :, column] *= 1.0 - trust
            found[:, :, column] += trust * farther * found[:, :, column - 1]
    found += line.at(np.array([count - 1]), np.arange(len(AHEAD)))
    return found[0], found[1]


def _forgive(errors: Floats, bins: Ints, distances: Ints, count: int) -> None:
    """Leave out how far the worst episode stands above all others, once it is over, in place.

    What happened once in so long a time may have been chance: a flash crowd is no reason to be ready for
    another one ever after. What happened twice is how this load moves.
    """
    if count < LONG:
        return
    worst = bins[errors.argmax(axis=2)]
    over = worst + distances < count - RECENT_EPISODE
    if not over.any():
        return
    inside = np.abs(bins - worst[:, :, None]) <= (distances + EPISODE)[:, None]
    others = np.where(inside, -np.inf, errors).max(axis=2)
    highest = np.where(over & np.isfinite(others), others, np.inf)
    np.minimum(errors, highest[:, :, None], out=errors)


def _known_columns(count: int) -> int:
    """Distances of which a record of so many bins tells enough."""
    return sum(1 for ahead in AHEAD if count - ahead >= max(2, min(ahead, ENOUGH)))


def _errors(line: Line, actual: Floats, columns: Ints, stride: int) -> Floats:
    """Quantiles of past errors at some distances: of the load there, and of its peak on the way."""
    farthest = AHEAD[int(columns[-1])]
    bins = np.arange(0, len(actual) - farthest, stride)
    if len(bins) > RECENT:
        # Every one of late, every other one before: how it moves lately counts more.
        bins = np.concatenate([bins[:-RECENT:2], bins[-RECENT:]])
    # Past bins are the last axis throughout: they are many, and what is sorted lies together.
    followed = actual[bins + np.arange(1, farthest + 1)[:, None]]
    at = DISTANCES[columns] - 1
    errors = np.stack([followed[at], np.maximum.accumulate(followed)[at]])
    errors -= line.at(bins[:, None], columns).T
    _forgive(errors, bins, DISTANCES[columns], len(actual))
    errors.sort(axis=2)
    place = LEVELS * (len(bins) - 1)
    low = place.astype(np.int64)
    below = errors[:, :, low]
    above = errors[:, :, np.minimum(low + 1, len(bins) - 1)]
    return np.asarray((below + (above - below) * (place - low)).swapaxes(1, 2))
