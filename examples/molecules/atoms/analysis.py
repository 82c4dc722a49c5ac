"""The two analyses in NumPy, on any number of atoms: what the operators use, and what checks them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

CELLS = 10
"""Cells of the histogram's grid along each side of the box."""

Frame = NDArray[np.floating[Any]]


def counts(positions: Frame, box: float) -> NDArray[np.int64]:
    """Atoms in each cell of the grid, as one row of CELLS³ numbers."""
    cell = np.minimum((positions.astype(np.float64) * (CELLS / box)).astype(np.int64), CELLS - 1)
    flat = (cell[:, 0] * CELLS + cell[:, 1]) * CELLS + cell[:, 2]
    return np.bincount(flat, minlength=CELLS**3)


def travelled(before: Frame, now: Frame, box: float) -> NDArray[np.float64]:
    """How far each atom went between two frames; one that left on one side came in on the other."""
    away = now.astype(np.float64) - before.astype(np.float64)
    away -= box * np.round(away / box)
    squares = away * away
    return np.sqrt(squares[:, 0] + squares[:, 1] + squares[:, 2])
