"""No filtering: the estimate is the reading (PURE in paper 001)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.filters.readings import Estimates, Readings


@dataclass(frozen=True, slots=True)
class NoneParameters:
    """Decide on raw readings."""

    name: ClassVar[str] = "none"

    def make(self) -> NoneFilter:
        """A filter for one run."""
        return NoneFilter()

    def track(self) -> None:
        """Nothing smooths a single number either."""


class NoneFilter:
    """Hands readings on unchanged; an instance without any reading is not trusted."""

    name: ClassVar[str] = "none"

    def step(self, readings: Readings) -> Estimates:
        """The readings themselves, of unknown variance."""
        values = np.array(readings.values, dtype=np.float64)
        known: NDArray[np.bool_] = np.logical_not(np.isnan(values).all(axis=1))
        return Estimates(readings.keys, values, np.full_like(values, np.nan), known)
