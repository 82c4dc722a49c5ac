"""A season: what a load usually does at this time of the day or of the week."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Season:
    """The usual logarithm of a load over one period, as a ring of equal steps."""

    period_s: float
    level: Floats

    @property
    def step_s(self) -> float:
        """The length of one step."""
        return self.period_s / len(self.level)

    def changes(self, ends_s: Floats, bin_s: float, ahead: Sequence[int]) -> Floats:
        """From bins that end at these instants, the usual change to so many bins ahead, a column each."""
        here = self._at(ends_s - bin_s / 2)
        return np.stack([self._at(ends_s + (bins - 0.5) * bin_s) - here for bins in ahead], axis=1)

    def _at(self, instants_s: Floats) -> Floats:
        return np.interp(
            instants_s / self.step_s, np.arange(len(self.level)) + 0.5, self.level, period=len(self.level)
        )


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
