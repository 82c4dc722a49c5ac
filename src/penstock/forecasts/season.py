"""A season: what a load usually does at this time of the day or of the week."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DAY_S = 86400.0
CALM_S = 2100.0
"""The span over which a season's noise is averaged out, where one day or week alone told it."""


@dataclass(frozen=True, slots=True)
class Season:
    """The usual logarithm of a load over one period, as a ring of equal steps."""

    period_s: float
    level: Floats
    calm: Floats = field(init=False, repr=False, compare=False)
    """The same without what comes and goes within `CALM_S`."""

    def __post_init__(self) -> None:
        width = min(len(self.level), 2 * round(CALM_S / self.step_s / 2) + 1)
        around = np.concatenate([self.level[-width:], self.level, self.level[:width]])
        calm = np.convolve(around, np.full(width, 1.0 / width), "same")[width:-width]
        object.__setattr__(self, "calm", calm)

    @property
    def step_s(self) -> float:
        """The length of one step."""
        return self.period_s / len(self.level)


def usual_over(
    seasons: Sequence[Season], end_s: float, bin_s: float, before: int, after: int
) -> tuple[Floats, Floats]:
    """The usual logarithms in so many bins before an instant and after it, by season; then the calm ones.

    All have one period and as many steps.
    """
    first = seasons[0]
    steps = len(first.level)
    places = (end_s + bin_s * (np.arange(-before, after) + 0.5)) / first.step_s - 0.5
    floors = np.floor(places)
    share, here = places - floors, floors.astype(np.int64) % steps
    levels = np.array([[season.level for season in seasons], [season.calm for season in seasons]])
    now = levels[:, :, here]
    found = now + share * (levels[:, :, (here + 1) % steps] - now)
    return found[0], found[1]


def season_of(times_s: Floats, rates_per_s: Floats, *, step_s: float = 300.0) -> Season | None:
    """The season in an earlier load: of a week where two are known, else of a day; None below one day."""
    if len(times_s) < 2 or times_s[-1] - times_s[0] < DAY_S - step_s:
        return None
    period_s = 7 * DAY_S if times_s[-1] - times_s[0] >= 7 * DAY_S - step_s else DAY_S
    steps = round(period_s / step_s)
    floor = max(1e-9, 0.01 * float(rates_per_s.mean()))
    place = ((times_s % period_s) / step_s).astype(int) % steps
    total = np.bincount(place, weights=np.log(np.maximum(rates_per_s, floor)), minlength=steps)
    count = np.bincount(place, minlength=steps)
    if np.count_nonzero(count) < 0.9 * steps:
        return None
    known = np.flatnonzero(count)
    level = np.interp(np.arange(steps), known, total[known] / count[known], period=steps)
    return Season(period_s, level)
