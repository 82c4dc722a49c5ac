"""The two types at a filter's boundary: readings in, estimates out.

A filter sees every instance of every unit that chose it in one call, so one tick is a few array
operations however many instances there are. Rows are instances, columns are metrics.
NaN means "no reading"; nothing else stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Readings:
    """What was measured of all instances at one tick."""

    at_s: float
    keys: tuple[str, ...]
    """Instance ids, one a row."""
    values: Array
    """(n, m): the metrics (CPU, memory, …) as ratios, clamped at 1 by the sensor; NaN where missing."""
    inputs: Array
    """(n, 2): arrival rate per instance D, and its change since the last tick ΔD."""
    units: tuple[str, ...] = ()
    """The unit of each row; left empty, it is what stands before the last dash of the instance's name,
    as the planner names instances. Instances of one unit share sensitivities and help newcomers start."""

    def __post_init__(self) -> None:
        rows = len(self.keys)
        if self.values.ndim != 2 or len(self.values) != rows:
            raise ValueError(
                f"expected values of shape ({rows}, metrics) for {rows} keys, got {self.values.shape}"
            )
        if self.inputs.shape != (rows, 2):
            raise ValueError(f"expected inputs of shape ({rows}, 2) for {rows} keys, got {self.inputs.shape}")
        if self.units and len(self.units) != rows:
            raise ValueError(f"expected one unit for each of {rows} keys, got {len(self.units)}")

    @property
    def unit_names(self) -> tuple[str, ...]:
        """The unit of each row."""
        return self.units or tuple(key.rpartition("-")[0] or key for key in self.keys)


@dataclass(frozen=True, slots=True)
class Estimates:
    """What a filter makes of one tick's readings; rows and columns as in the readings."""

    keys: tuple[str, ...]
    values: Array
    """(n, m): the estimated ratios; above 1 is demand beyond capacity. NaN while nothing is known."""
    variances: Array
    """(n, m): the variance of each estimate; NaN where the filter does not know it."""
    trusted: NDArray[np.bool_]
    """(n,): False while an instance's filter is starting up or was just reset."""
    notices: tuple[str, ...] = ()
    """Resets and other events for the journal, in words with numbers."""


@runtime_checkable
class Filter(Protocol):
    """Turns readings into estimates, tick by tick. One object a run; it remembers what it needs.

    `step` never blocks. Instances may appear and vanish between two calls.
    """

    name: ClassVar[str]

    def step(self, readings: Readings) -> Estimates:
        """Take in one tick's readings and say what they mean."""
        ...
