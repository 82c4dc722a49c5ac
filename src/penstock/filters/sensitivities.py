"""How strongly utilisation follows the input: the sensitivities a and b, fitted by least squares.

Paper 001 uses f(x, u) = x + a·D + b·ΔD. Fitted on x itself, any a > 0 would accumulate without end;
fitted on Δx = a·D + b·ΔD, as here, a comes out near 0 and b near the work one record brings.
The sums are kept per unit, so a fit costs the same after an hour as after a minute.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.filters.readings import Array

SIGNIFICANT = 3.0
"""A coefficient counts once it is this many standard errors away from 0: noise has no say in predictions."""
LEAST_OBSERVATIONS = 8
"""Fewer changes than this say nothing about a standard error."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """a and b of one metric: what D and ΔD (per instance, records a second) add to its ratio."""

    a: float
    b: float


class Fit:
    """Least squares of Δz on (D, ΔD) for many units at once."""

    def __init__(self, metrics: int) -> None:
        self._metrics = metrics
        self._moments: Array = np.zeros((0, 2, 2))
        self._products: Array = np.zeros((0, 2, metrics))
        self._squares: Array = np.zeros((0, metrics))
        self._counts: Array = np.zeros((0, metrics))

    def grow(self, units: int) -> None:
        """Make room for so many units; what is known of the first ones stays."""
        more = units - len(self._moments)
        if more > 0:
            self._moments = np.concatenate([self._moments, np.zeros((more, 2, 2))])
            self._products = np.concatenate([self._products, np.zeros((more, 2, self._metrics))])
            self._squares = np.concatenate([self._squares, np.zeros((more, self._metrics))])
            self._counts = np.concatenate([self._counts, np.zeros((more, self._metrics))])

    def add(self, unit: NDArray[np.intp], inputs: Array, changes: Array) -> None:
        """Take in rows of (D, ΔD) and Δz with the unit each belongs to; rows with a NaN are left out."""
        whole = ~np.isnan(changes).any(axis=1)
        if not whole.any():
            return
        unit, inputs, changes = unit[whole], inputs[whole], changes[whole]
        units = len(self._moments)

        def summed(column: Array) -> Array:
            return np.bincount(unit, column, minlength=units).astype(np.float64)

        for i in range(2):
            for k in range(2):
                self._moments[:, i, k] += summed(inputs[:, i] * inputs[:, k])
            for j in range(self._metrics):
                self._products[:, i, j] += summed(inputs[:, i] * changes[:, j])
        for j in range(self._metrics):
            self._squares[:, j] += summed(changes[:, j] ** 2)
        self._counts += np.bincount(unit, minlength=units)[:, None]

    def coefficients(self) -> tuple[Array, Array]:
        """a and b of every unit and metric (units, metrics); 0 where not significantly different from 0."""
        moments = self._moments
        determinant = moments[:, 0, 0] * moments[:, 1, 1] - moments[:, 0, 1] ** 2
        solvable = determinant > 1e-12 * np.maximum(moments[:, 0, 0] * moments[:, 1, 1], 1e-300)
        safe = np.where(solvable, determinant, 1.0)
        inverse = np.empty_like(moments)
        inverse[:, 0, 0], inverse[:, 1, 1] = moments[:, 1, 1] / safe, moments[:, 0, 0] / safe
        inverse[:, 0, 1] = inverse[:, 1, 0] = -moments[:, 0, 1] / safe
        beta = inverse @ self._products
        residual = np.maximum(self._squares - np.sum(beta * self._products, axis=1), 0.0)
        freedom = np.maximum(self._counts - 2.0, 1.0)
        variance = (residual / freedom)[:, None, :] * np.einsum("ujj->uj", inverse)[:, :, None]
        significant = (
            (beta**2 > SIGNIFICANT**2 * np.maximum(variance, 0.0))
            & solvable[:, None, None]
            & (self._counts >= LEAST_OBSERVATIONS)[:, None, :]
        )
        beta = np.where(significant, beta, 0.0)
        return beta[:, 0, :], beta[:, 1, :]


def fit_sensitivities(inputs: Array, values: Array) -> tuple[Sensitivity, ...]:
    """a and b of each metric from an instance's history: inputs (t, 2), values (t, m), NaN where clamped."""
    fit = Fit(values.shape[1])
    fit.grow(1)
    fit.add(np.zeros(len(values) - 1, dtype=np.intp), inputs[1:], np.diff(values, axis=0))
    a, b = fit.coefficients()
    return tuple(Sensitivity(float(a[0, j]), float(b[0, j])) for j in range(values.shape[1]))
