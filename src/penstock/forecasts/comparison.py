"""Which forecaster to believe: the one that was least wrong, unless the load moves as it never did before.

As in `forecasters`, loads are rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.forecasts.forecasters import AHEAD, ENOUGH, Bools, Floats, Ints, Line

Singles = NDArray[np.float32]

QUANTILES = (0.5, 0.9, 0.98)
"""The quantiles forecasters are compared by."""
SHARES: Floats = np.array(QUANTILES)
BETTER = 0.97
"""Another forecaster is used only where its loss is below this share of the simplest one's."""
CAREFUL_STEP = 0.04
"""How far the logarithm of a load is taken to move in one bin before anything is known of it."""
EPISODE = 15
"""Errors within so many bins of the worst one belong to the same episode."""
UNHEARD = 2.0
"""A load that rises by more than so many times its usual largest step does what it never did before."""
UNHEARD_TIMES = 4
"""Its usual largest step is the one that only so many episodes reached."""
LAGS = 9
"""Bins over which the longest mean lags behind a load."""
UNHEARD_BINS = 5
"""Bins that are not looked at for it: they may be the beginning of what never was before."""


def moves_by_amounts(rate: Floats, newest: Floats, ahead: int, floor: Floats) -> Bools:
    """Whether each load moves by amounts rather than by shares of itself: what told its quantiles better."""
    units, length = rate.shape
    if length < 2 * ENOUGH:
        return np.zeros(units, dtype=np.bool_)
    # Every other bin tells it as well, in half the time.
    before, after = np.maximum(newest[:, :-ahead:2], floor), np.maximum(rate[:, ahead::2], floor)
    shares, amounts = (after / before).astype(np.float32), (after - before).astype(np.float32)
    shares.sort(axis=1)
    amounts.sort(axis=1)
    losses = np.zeros((2, units))
    for level in QUANTILES[1:]:
        place = int(level * (after.shape[1] - 1))
        for number, told in enumerate((before * shares[:, place, None], before + amounts[:, place, None])):
            losses[number] += _pinball(after - told, level)
    return np.asarray(losses[1] < BETTER * losses[0])


def _pinball(above: Floats, level: float) -> Floats:
    """The mean pinball loss of a quantile, from how far what came was above it, for each level alike."""
    # max(level · a, (level − 1) · a) = level · a + max(−a, 0)
    short = np.minimum(above, 0.0).sum(axis=1)
    return np.asarray((level * above.sum(axis=1) - short) / above.shape[1] / (1.0 - level))


def moves_as_never_before(last: Floats) -> tuple[Bools, Bools]:
    """Whether each load rises as it never did before, and whether it moved so soon before and does not now.

    Which forecaster was best before says nothing then. Crowds do not stop at once; what was a crowd or a fall
    stays where it is, and a mean lags behind it.
    """
    if last.shape[1] < 2 * ENOUGH:
        nothing = np.zeros(len(last), dtype=np.bool_)
        return nothing, nothing
    steps = last[:, 1:] - last[:, :-1]
    rises = steps[:, -1] > _unheard(steps[:, :-UNHEARD_BINS])
    sizes = np.abs(steps)
    return rises, ~rises & (sizes[:, -LAGS:].max(axis=1) > _unheard(sizes[:, :-LAGS]))


def _unheard(steps: Floats) -> Floats:
    """The step that is more than each load ever took, by those it took before.

    Steps of one episode are one: a crowd that came once took more than one bin to rise.
    """
    units, length = steps.shape
    whole = length // EPISODE * EPISODE
    largest = steps[:, length - whole :].reshape(units, -1, EPISODE).max(axis=2)
    times = min(UNHEARD_TIMES, largest.shape[1])
    return UNHEARD * np.maximum(np.partition(largest, -times, axis=1)[:, -times], CAREFUL_STEP / 2)


def best_of(lines: Sequence[Line], actual: Floats, control: int, stride: int) -> Ints:
    """For each load, which forecaster has the least loss at a distance, from every so many bins."""
    units = np.arange(len(actual))
    if len(lines) == 1:
        return np.zeros(len(actual), dtype=np.int64)
    ahead = AHEAD[control]
    ends = actual[:, ahead::stride]
    errors = np.empty((len(lines), *ends.shape), dtype=np.float32)
    for number, line in enumerate(lines):
        told = line.before_the_last(ahead, control, stride)
        np.subtract(ends, told, out=errors[number], casting="same_kind")
    losses = _losses(errors)
    best = losses.argmin(axis=0)
    return np.where(losses[best, units] < BETTER * losses[0], best, 0)


def _losses(errors: Singles) -> Floats:
    """The pinball losses of the quantiles of errors: by forecaster, the simplest first, and by load.

    What hardly ever came does not tell who is right as a rule; while it comes, the load is taken to go on.
    """
    errors.sort(axis=2)
    count = errors.shape[2]
    places = (SHARES * (count - 1)).astype(np.int64)
    np.minimum(errors, errors[0, :, places[-1], None].copy(), out=errors)
    begins = np.minimum(places + 1, count - 1)
    running = np.add.reduceat(errors, [0, *begins.tolist()], axis=2).cumsum(axis=2, dtype=np.float64)
    told = errors.take(places, axis=2).astype(np.float64)
    # What is below a quantile, of errors in their order, is a sum up to its place.
    short = running[:, :, :-1] - (places + 1) * told
    losses = (SHARES * (running[:, :, -1:] - count * told) - short) / count
    return np.asarray(losses @ (1.0 / (1.0 - SHARES)))
