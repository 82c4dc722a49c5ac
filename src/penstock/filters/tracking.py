"""Filters for a single number of a unit: its arrivals, its queue, its durations.

Readings of utilisation are many and come from instances; a policy that decides on a queue or on arrivals
looks at one noisy number a unit. A tracker smooths that number, and learns from it how noisy it is.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from typing import Protocol

LEARNED_FROM = 8
"""Steps after which a tracker trusts what it has learned of the noise; until then it passes values on."""
REMEMBERED = 120
"""Steps from which the noise is learned."""
JUMP_SIGMA = 4.0
"""A value further off than this counts for nothing; a second one after it says that the level has moved."""


class Tracker(Protocol):
    """Smooths one number over time."""

    def step(self, at_s: float, value: float) -> float:
        """Take in the next value; the estimate of what lies behind it."""
        ...


class GaussianTracker:
    """The weighted mean of recent values, weights falling with the square of their age."""

    def __init__(self, t: float, window_s: float) -> None:
        self._t = t
        self._window_s = window_s
        self._past: deque[tuple[float, float]] = deque()

    def step(self, at_s: float, value: float) -> float:
        """Take in the next value; the weighted mean."""
        self._past.append((at_s, value))
        while at_s - self._past[0][0] > self._window_s:
            self._past.popleft()
        weights = [math.exp(-((at_s - then_s) ** 2) / (2.0 * self._t)) for then_s, _ in self._past]
        return sum(w * known for w, (_, known) in zip(weights, self._past, strict=True)) / sum(weights)


class LevelTracker:
    """A Kalman filter of a level that wanders: x(k) = x(k-1) + w, z(k) = x(k) + v.

    Both variances are learned from the values. Differences d of consecutive values have the variance
    Q + 2R and, from one to the next, the covariance -R; so R = -cov(d(k), d(k+1)) and Q = var(d) - 2R.
    """

    def __init__(self) -> None:
        self._last: float | None = None
        self._differences: deque[float] = deque(maxlen=REMEMBERED)
        self._level = 0.0
        self._variance = 0.0
        self._off = 0

    def step(self, at_s: float, value: float) -> float:
        """Take in the next value; the estimated level."""
        before, self._last = self._last, value
        if before is None or len(self._differences) < LEARNED_FROM:
            if before is not None:
                self._differences.append(value - before)
            self._level, self._variance = value, 0.0
            return value
        wander, noise = self._learned()
        predicted, innovation = self._variance + wander, value - self._level
        total = predicted + noise
        if total > 0 and innovation * innovation > JUMP_SIGMA**2 * total:
            self._off += 1
            if self._off > 1:
                self._level, self._variance, self._off = value, noise, 0
            return self._level
        self._off = 0
        self._differences.append(value - before)
        gain = predicted / total if total > 0 else 1.0
        self._level += gain * innovation
        self._variance = (1.0 - gain) * predicted
        return self._level

    def _learned(self) -> tuple[float, float]:
        """The variances of the wandering and of the noise."""
        d = self._differences
        variance = sum(value * value for value in d) / len(d)
        covariance = sum(a * b for a, b in itertools.pairwise(d)) / (len(d) - 1)
        noise = min(max(0.0, -covariance), variance / 2)
        return max(variance - 2 * noise, 1e-3 * variance), noise
