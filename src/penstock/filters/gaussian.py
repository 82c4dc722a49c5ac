"""The causal Gaussian filter: GW in paper 001.

A weighted mean of past readings whose weights fall with the square of their age, Equation (19).
Only the past half of the kernel exists live, so the weights are renormalised over the readings there
are; otherwise every estimate would be half the truth. Missing readings simply carry no weight.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigurationError
from penstock.filters.readings import Array, Estimates, Readings
from penstock.filters.rows import Rows
from penstock.filters.tracking import GaussianTracker

NEGLIGIBLE_WEIGHT = 1e-12
"""Readings older than where the kernel falls below this are left out: they change no digit that counts."""

MEMORIES = ("_past", "_squares", "_known")


@dataclass(frozen=True, slots=True)
class GaussianParameters:
    """Smooth readings over the recent past with a causal, renormalised Gaussian kernel."""

    name: ClassVar[str] = "gaussian"

    t: float = field(default=9.0, metadata={"doc": "variance of the kernel in s²; its root is the radius"})
    window_s: float = field(default=60.0, metadata={"doc": "readings older than this are forgotten"})

    def __post_init__(self) -> None:
        if self.t <= 0 or self.window_s <= 0:
            raise ConfigurationError(
                f"filter gaussian: expected t and window_s above 0, got t={self.t}, window_s={self.window_s}"
            )

    def make(self) -> GaussianFilter:
        """A filter for one run."""
        return GaussianFilter(self)

    def track(self) -> GaussianTracker:
        """A filter for a single number."""
        return GaussianTracker(self.t, self.window_s)


class GaussianFilter:
    """Keeps the last readings of every instance and weighs them by age."""

    name: ClassVar[str] = "gaussian"

    def __init__(self, parameters: GaussianParameters) -> None:
        self._t = parameters.t
        # exp(-x²/2t) = negligible  ⇔  x = √(-2t ln negligible)
        self._reach_s = min(
            parameters.window_s, float(np.sqrt(-2.0 * parameters.t * np.log(NEGLIGIBLE_WEIGHT)))
        )
        self._rows = Rows()
        self._times: deque[float] = deque()
        self._length = 0
        self._start = 0
        # Past ticks, oldest first, in `_start:_start + _length`: readings with 0 for NaN, their squares, and
        # 1 where known.
        self._past: Array = np.zeros((8, 0, 0))
        self._squares: Array = np.zeros((8, 0, 0))
        self._known: Array = np.zeros((8, 0, 0))

    def step(self, readings: Readings) -> Estimates:
        """The weighted mean of each instance's recent readings and its variance."""
        values = np.asarray(readings.values, dtype=np.float64)
        origin = self._rows.align(readings.keys)
        if not readings.keys:
            self._forget()
            return Estimates((), values, values, np.zeros(0, dtype=np.bool_))
        self._realign(origin, values.shape)
        while self._times and readings.at_s - self._times[0] > self._reach_s:
            self._times.popleft()
            self._start += 1
            self._length -= 1
        known = ~np.isnan(values)
        self._append(np.where(known, values, 0.0), known)
        self._times.append(readings.at_s)

        # Paper 001, Equation (19), left half: w(x) = exp(-x²/2t) with x the age, then renormalised.
        age_s = readings.at_s - np.fromiter(self._times, dtype=np.float64, count=len(self._times))
        weight = np.exp(-(age_s**2) / (2.0 * self._t))
        shape = values.shape
        past, squares, seen = (
            memory[self._start : self._start + self._length].reshape(self._length, -1)
            for memory in (self._past, self._squares, self._known)
        )
        total, total_squares = _summed(weight, seen), _summed(weight**2, seen)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = _summed(weight, past) / total
            spread = np.maximum(_summed(weight, squares) / total - mean * mean, 0.0)
            # Variance of a weighted mean of independent readings: σ² Σw² / (Σw)².
            variance = spread * total_squares / total**2
        mean[total == 0.0] = np.nan
        variance[total == 0.0] = np.nan
        estimate = mean.reshape(shape)
        seen_any: NDArray[np.bool_] = np.logical_not(np.isnan(estimate).all(axis=1))
        return Estimates(readings.keys, estimate, variance.reshape(shape), seen_any)

    def _forget(self) -> None:
        """Nobody is left whose past would matter."""
        self._times.clear()
        self._length = self._start = 0
        for name in MEMORIES:
            setattr(self, name, np.zeros((8, 0, 0)))

    def _realign(self, origin: NDArray[np.intp] | None, shape: tuple[int, ...]) -> None:
        if origin is None:
            return
        for name in MEMORIES:
            old: Array = getattr(self, name)
            moved = np.zeros((len(old), *shape))
            if old.shape[1] and old.shape[2] == shape[1]:
                moved[:, origin >= 0] = old[:, origin[origin >= 0]]
            setattr(self, name, moved)

    def _append(self, values: Array, known: NDArray[np.bool_]) -> None:
        end = self._start + self._length
        if end == len(self._past):
            # Slide the living part to the front, into twice the room it needs.
            room = max(8, 2 * (self._length + 1))
            for name in MEMORIES:
                old: Array = getattr(self, name)
                moved = np.zeros((room, *old.shape[1:]))
                moved[: self._length] = old[self._start : end]
                setattr(self, name, moved)
            self._start, end = 0, self._length
        self._past[end] = values
        self._squares[end] = values * values
        self._known[end] = known
        self._length += 1


def _summed(weight: Array, rows: Array) -> Array:
    """The weighted sum of rows. Not `weight @ rows`: its threads wait for each other on a busy machine,
    forty times as long as the sum takes."""
    total: Array = np.einsum("t,tc->c", weight, rows)
    return total
