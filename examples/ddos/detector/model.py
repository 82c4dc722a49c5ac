"""A model of normal traffic: its principal components, and how far from them normal rows are.

A row is standardised and split into the part the first components explain and the rest. Two scores follow:
Hotelling's T² of the first part (usual relations, unusual size) and the squared prediction error Q of the
rest (unusual relations). Each has a limit that most of the normal rows are below. A row above either is an
attack.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

EXPLAINED = 0.9
"""The components kept explain so much of the variance."""
QUIET = 0.999
"""Share of normal rows that stay below each limit."""

Rows = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Model:
    """What the batch layer knows, as the stream reads it."""

    names: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    components: tuple[tuple[float, ...], ...]
    """One row a component that is kept."""
    variances: tuple[float, ...]
    """Of each component that is kept."""
    q_limit: float = 1.0
    t2_limit: float = 1.0
    rows: int = 0
    """Normal rows it was made of."""

    def scores(self, rows: Rows) -> tuple[Rows, Rows, NDArray[np.int64]]:
        """Q and T² of each row, and the feature that has most to do with it.

        Sums run along each row by itself: a row's scores do not depend on those beside it.
        """
        z = (rows - np.array(self.means)) / np.array(self.scales)
        rest, t2 = z.copy(), np.zeros(len(z))
        for component, variance in zip(self.components, self.variances, strict=True):
            w = np.array(component)
            along = (z * w).sum(axis=1)
            rest -= along[:, None] * w
            t2 += along * along / variance
        q = (rest * rest).sum(axis=1)
        by_rest = q / self.q_limit >= t2 / self.t2_limit
        blame = np.where(by_rest[:, None], np.abs(rest), np.abs(z)).argmax(axis=1)
        return q, t2, blame

    def worst(self, q: Rows, t2: Rows) -> Rows:
        """The higher of both scores, each in its limit; above 1 is an attack."""
        return np.maximum(q / self.q_limit, t2 / self.t2_limit)

    def write(self, file: Path) -> Path:
        """Write the model to a file."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return file

    @staticmethod
    def read(file: Path) -> Model:
        """The model in a file."""
        given = json.loads(file.read_text())
        return Model(
            tuple(given["names"]),
            tuple(given["means"]),
            tuple(given["scales"]),
            tuple(tuple(row) for row in given["components"]),
            tuple(given["variances"]),
            given["q_limit"],
            given["t2_limit"],
            given["rows"],
        )


@dataclass(frozen=True, slots=True)
class Judged:
    """How good alerts are, against labels."""

    right: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float:
        """Attacks among alerts."""
        return self.right / max(self.right + self.wrong, 1)

    @property
    def recall(self) -> float:
        """Alerts among attacks."""
        return self.right / max(self.right + self.missed, 1)

    def __str__(self) -> str:
        return (
            f"precision {self.precision:.1%}, recall {self.recall:.1%} "
            f"({self.right:,} right, {self.wrong:,} false, {self.missed:,} missed)"
        )


def judged(alerts: Sequence[bool] | NDArray[np.bool_], attacks: Sequence[bool] | NDArray[np.bool_]) -> Judged:
    """Alerts beside the truth, row by row."""
    told, true = np.asarray(alerts, dtype=bool), np.asarray(attacks, dtype=bool)
    return Judged(int((told & true).sum()), int((told & ~true).sum()), int((~told & true).sum()))
