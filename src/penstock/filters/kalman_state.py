"""What the Kalman filter remembers of every instance between two readings, a row each."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from penstock.filters.readings import Array


@dataclass(slots=True)
class KalmanState:
    """What is remembered of each instance; rows follow the keys of the last tick."""

    x: Array
    P: Array
    Q: Array
    z: Array
    """The last reading, NaN where it was missing or clamped."""
    seen: NDArray[np.bool_]
    """Which metrics were ever read."""
    started: NDArray[np.bool_]
    """The dead time is over: x, P and Q hold."""
    trusted_s: Array
    """From when on the estimates are trusted."""
    born_s: Array
    count: Array
    """Readings in the dead time, and their sums weighted by recency."""
    weights: Array
    sums: Array
    squares: Array
    surprise: Array
    """Running mean of the normalised innovations squared, 1 where the model holds."""
    clamped_s: Array
    """Since when a metric reads clamped although the input explains less; NaN where it does not."""
    excess: Array
    """Running mean of the innovation variance that P + R does not explain."""

    @staticmethod
    def blank(rows: int, R: Array, floor: float) -> KalmanState:
        """Instances nothing is known of."""
        m = len(R)
        return KalmanState(
            x=np.zeros((rows, m)),
            P=np.broadcast_to(R, (rows, m, m)).copy(),
            Q=np.broadcast_to(np.eye(m) * floor, (rows, m, m)).copy(),
            z=np.full((rows, m), np.nan),
            seen=np.zeros((rows, m), dtype=np.bool_),
            started=np.zeros(rows, dtype=np.bool_),
            trusted_s=np.full(rows, np.inf),
            born_s=np.full(rows, np.nan),
            count=np.zeros(rows),
            weights=np.zeros((rows, m)),
            sums=np.zeros((rows, m)),
            squares=np.zeros((rows, m)),
            surprise=np.ones((rows, m)),
            clamped_s=np.full((rows, m), np.nan),
            excess=np.zeros((rows, m)),
        )

    def take_over(self, old: KalmanState, origin: NDArray[np.intp]) -> None:
        """Copy the rows of instances that stay; `origin` is each row's old place, -1 for a newcomer."""
        stays = origin >= 0
        for item in fields(self):
            getattr(self, item.name)[stays] = getattr(old, item.name)[origin[stays]]
