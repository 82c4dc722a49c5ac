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

import numpy as np
from numpy.typing import NDArray

from penstock.forecasts.forecasters import AHEAD, DISTANCES, ENOUGH, NEAR, Line, Usual, lines_of
from penstock.forecasts.record import Load
from penstock.forecasts.season import Season

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
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
QUANTILES = (0.5, 0.9, 0.98)
"""The quantiles forecasters are compared by."""
SHARES: Floats = np.array(QUANTILES)
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
LONG = 60
"""Bins that must be known before an episode is called the only one, or the highest load high."""


FAR = AHEAD.index(30)
"""The distance by which the forecaster for what is not near is chosen."""
UNHEARD = 2.0
"""A load that rises by more than so many times its usual largest step does what it never did before."""
UNHEARD_TIMES = 4
"""Its usual largest step is the one that only so many episodes reached."""
LAGS = 9
"""Bins over which the longest mean lags behind a load."""
UNHEARD_BINS = 5
"""Bins that are not looked at for it: they may be the beginning of what never was before."""


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


def outlook_of(load: Load, lead_bins: int, season: Season | None = None) -> Outlook:
    """The ways a load may go from its newest bin on; needs at least one bin."""
    rate, newest = load.rate_per_s[-MEMORY:], load.newest_per_s[-MEMORY:]
    floor = max(1e-9, 0.01 * float(rate.mean()))
    control = min(max(1, lead_bins), NEAR) - 1
    by_share = not _moves_by_amounts(rate, newest, AHEAD[control], floor)
    actual, last = np.maximum(rate, floor), np.maximum(newest, floor)
    if by_share:
        actual, last = np.log(actual), np.log(last)
    usually: list[Usual] = []
    if season is not None:
        levels = season.over(load.end_s, load.bin_s, len(actual), AHEAD[-1])
        usually = [Usual(level, None if by_share else last) for level in levels]
    lines = lines_of(actual, last, usually)
    lately, unheard = _lately(lines, last)
    best = lately or _best(lines, actual, control, stride=2)
    # What is best for the next minutes need not be so for the next hour: a day is seen from afar.
    later = _best(lines, actual, FAR, stride=3) if len(actual) > 2 * AHEAD[FAR] else best
    step = CAREFUL_STEP if by_share else CAREFUL_STEP * float(last[-1])
    found = _ways(best, later, actual, step)
    if by_share:
        np.exp(found, out=found)
    # Shares seen at a low load would make a high one grow without end.
    highest = max(float(load.rate_per_s.max()), float(newest[-1]))
    highest *= _beyond(rate, float(newest[-1]), floor, AHEAD[control])
    np.maximum(np.minimum(found, highest, out=found), floor, out=found)
    return Outlook(load.bin_s, found[0], found[1], best.name, max(0, len(actual) - 1), unheard)


def _beyond(rate: Floats, newest: float, floor: float, lead: int) -> float:
    """How far a load that is near its highest goes beyond it: not at all where something bounds it.

    A bound that was broken of late is none, nor is the highest of a short record: a load may rise from there
    as far as it ever did within a lead time.
    """
    if len(rate) < LONG:
        risen = max(
            (float((rate[n:] - rate[:-n]).max()) for n in range(1, min(lead + 1, len(rate)))), default=0.0
        )
        return max(BEYOND, 1.0 + risen / max(float(rate.max()), newest, floor))
    soon, last = NEAR // 2, len(rate) - NEAR // 2
    if last - 2 * ENOUGH < ENOUGH:
        return BEYOND
    highest = np.maximum(np.maximum.accumulate(rate), floor)[2 * ENOUGH : last]
    near = rate[2 * ENOUGH : last] >= NEAR_HIGHEST * highest
    if np.count_nonzero(near) < ENOUGH:
        return BEYOND
    followed = rate[2 * ENOUGH + 1 : last + 1]
    for ahead in range(2, soon + 1):
        followed = np.maximum(followed, rate[2 * ENOUGH + ahead : last + ahead])
    shares = (followed / highest)[near].astype(np.float32)
    shares.sort()
    beyond = shares[int(QUANTILES[-1] * (len(shares) - 1))]
    found = min(BEYOND, max(1.0, float(beyond)))
    before, lately = float(rate[:-RECENT_EPISODE].max()), max(newest, float(rate[-RECENT_EPISODE:].max()))
    return BEYOND if lately > BROKEN * found * before else found


def _moves_by_amounts(rate: Floats, newest: Floats, ahead: int, floor: float) -> bool:
    """Whether a load moves by amounts rather than by shares of itself: what told its quantiles better."""
    if len(rate) < 2 * ENOUGH:
        return False
    # Every other bin tells it as well, in half the time.
    before, after = np.maximum(newest[:-ahead:2], floor), np.maximum(rate[ahead::2], floor)
    shares, amounts = (after / before).astype(np.float32), (after - before).astype(np.float32)
    shares.sort()
    amounts.sort()
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


def _lately(lines: Sequence[Line], last: Floats) -> tuple[Line | None, bool]:
    """The line to use while or soon after a load moves as it never did before, and whether it rises so.

    Which forecaster was best before says nothing then. Crowds do not stop at once; what was a crowd or a fall
    stays where it is, and a mean lags behind it.
    """
    if len(last) < 2 * ENOUGH:
        return None, False
    steps = last[1:] - last[:-1]
    if steps[-1] > _unheard(steps[:-UNHEARD_BINS]):
        return next(line for line in lines if line.slope is not None), True
    sizes = np.abs(steps)
    return (lines[0] if sizes[-LAGS:].max() > _unheard(sizes[:-LAGS]) else None), False


def _unheard(steps: Floats) -> float:
    """The step that is more than a load ever took, by those it took before.

    Steps of one episode are one: a crowd that came once took more than one bin to rise.
    """
    whole = len(steps) // EPISODE * EPISODE
    largest = steps[len(steps) - whole :].reshape(-1, EPISODE).max(axis=1)
    times = min(UNHEARD_TIMES, len(largest))
    return UNHEARD * max(float(np.partition(largest, -times)[-times]), CAREFUL_STEP / 2)


def _best(lines: Sequence[Line], actual: Floats, control: int, stride: int) -> Line:
    """The forecaster of the least loss at a distance, from every so many bins."""
    if len(lines) == 1:
        return lines[0]
    ahead = AHEAD[control]
    ends = actual[ahead::stride]
    errors = np.empty((len(lines), len(ends)), dtype=np.float32)
    for number, line in enumerate(lines):
        told = line.before_the_last(ahead, control, stride)
        np.subtract(ends, told, out=errors[number], casting="same_kind")
    losses = _losses(errors)
    best = int(np.argmin(losses))
    return lines[best] if losses[best] < BETTER * losses[0] else lines[0]


def _losses(errors: Singles) -> Floats:
    """The pinball losses of the quantiles of forecasters' errors, which are rows, the simplest one's first.

    What hardly ever came does not tell who is right as a rule; while it comes, the load is taken to go on.
    """
    errors.sort(axis=1)
    count = errors.shape[1]
    places = (SHARES * (count - 1)).astype(np.int64)
    np.minimum(errors, errors[0, places[-1]], out=errors)
    begins = np.minimum(places + 1, count - 1)
    running = np.add.reduceat(errors, [0, *begins.tolist()], axis=1).cumsum(axis=1, dtype=np.float64)
    told = errors.take(places, axis=1).astype(np.float64)
    # What is below a quantile, of errors in their order, is a sum up to its place.
    short = running[:, :-1] - (places + 1) * told
    return np.asarray((SHARES * (running[:, -1:] - count * told) - short) / count @ (1.0 / (1.0 - SHARES)))


def _ways(near: Line, far: Line, actual: Floats, careful_step: float) -> Floats:
    """The forecast from now on plus quantiles of past errors, a row for each of `LEVELS`; then for peaks.

    A peak is the highest load up to a distance: over noise it is exceeded sooner than the load at any one.
    """
    count = len(actual)
    trust = min(1.0, count / ENOUGH)
    known = _known_columns(count)
    found = np.zeros((2, len(LEVELS), len(AHEAD)))
    if trust < 1.0:
        # Careful where few movements are known: a load of which nothing is known may well jump.
        found[0] = careful_step * np.sqrt(DISTANCES) * NORMAL[:, None]
        found[1] = np.abs(found[0])
    # The next bins from every one of the past, what is farther from every third: it is smoother.
    for line, columns, stride in (
        (near, np.arange(min(NEAR, known)), 1),
        (far, np.arange(NEAR, max(NEAR, known)), 3),
    ):
        if columns.size:
            part = found[:, :, columns[0] : columns[-1] + 1]
            errors = _errors(line, actual, columns, stride)
            part[...] = errors if trust == 1.0 else (1.0 - trust) * part + trust * errors
    for column in range(known, len(AHEAD)):
        if column > 0:
            # Not seen so far ahead yet: what was seen at the distance before, spread as a random walk is.
            farther = np.sqrt(AHEAD[column] / AHEAD[column - 1])
            found[:, :, column] *= 1.0 - trust
            found[:, :, column] += trust * farther * found[:, :, column - 1]
    newest = np.array([count - 1])
    found[:, :, :NEAR] += near.at(newest, np.arange(NEAR))
    found[:, :, NEAR:] += far.at(newest, np.arange(NEAR, len(AHEAD)))
    # A peak so far is one later on, whoever told it.
    np.maximum.accumulate(found[1], axis=1, out=found[1])
    return found


def _forgiven(errors: Singles, bins: Ints, distances: Ints, count: int) -> Singles | None:
    """The most that errors count as at each distance: no more than outside the worst episode, once over.

    What happened once in so long a time may have been chance: a flash crowd is no reason to be ready for
    another one ever after. What happened twice is how this load moves.
    """
    if count < LONG:
        return None
    worst = bins[errors.argmax(axis=2)]
    over = worst + distances < count - RECENT_EPISODE
    if not over.any():
        return None
    begins = bins.searchsorted(worst - distances - EPISODE).ravel().tolist()
    ends = bins.searchsorted(worst + distances + EPISODE, "right").ravel().tolist()
    others = errors.reshape(len(begins), -1).copy()
    for row, begin, end in zip(others, begins, ends, strict=True):
        row[begin:end] = -np.inf
    highest = others.max(axis=1).reshape(over.shape)
    return np.where(over & np.isfinite(highest), highest, np.float32(np.inf))[:, :, None]


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


def _errors(line: Line, actual: Floats, columns: Ints, stride: int) -> Floats:
    """Quantiles of past errors at some distances: of the load there, and of its peak on the way."""
    distances = DISTANCES[columns]
    bins, there = _past(len(actual), int(distances[-1]), stride)
    # Numbers of 32 bits are exact enough, and are sorted in an eighth of the time.
    followed = actual.astype(np.float32).take(there)
    errors = np.empty((2, len(columns), len(bins)), dtype=np.float32)
    errors[0] = followed[distances - 1]
    seen = 0
    for column, distance in enumerate(distances.tolist()):
        peak = errors[1, column]
        np.maximum.reduce(followed[seen:distance], axis=0, out=peak)
        if column:
            np.maximum(peak, errors[1, column - 1], out=peak)
        seen = distance
    errors -= line.at(bins, columns[:, None])
    highest = _forgiven(errors, bins, distances, len(actual))
    errors.sort(axis=2)
    place = LEVELS * (len(bins) - 1)
    low = place.astype(np.int64)
    below = errors.take(low, axis=2)
    above = errors.take(np.minimum(low + 1, len(bins) - 1), axis=2)
    if highest is not None:
        np.minimum(below, highest, out=below)
        np.minimum(above, highest, out=above)
    return np.asarray((below + (above - below) * (place - low)).swapaxes(1, 2))
