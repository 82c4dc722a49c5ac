"""The equations of the extended Kalman filter, for many instances at once.

Every function takes stacks: states (n, m), covariances (n, m, m). They hold no state and know nothing
of streams, so they can be held against an independent implementation number by number.
Symbols as in paper 001, Table 1: x state, P its error covariance, F Jacobian of the transition,
Q system noise, R measurement noise, G gain, z measurement. The measurement function is h(x) = x.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.filters.readings import Array

SMALL = 3
"""Up to so many metrics, stacks are multiplied entry by entry."""


class Transition(Protocol):
    """A user's own state transition f(x, u), for stacks of states (n, m) and inputs (n, 2)."""

    def __call__(self, states: Array, inputs: Array) -> tuple[Array, Array]:
        """The next states (n, m) and the Jacobians ∂f/∂x there (n, m, m)."""
        ...


def predict_covariance(P: Array, F: Array | None, Q: Array) -> Array:
    """The error covariance before the measurement; F None stands for the identity."""
    # Paper 001, Equation (12): P_t = F P_{t-1} Fᵀ + Q
    if F is None:
        return P + Q
    return _product(_product(F, P), np.swapaxes(F, -1, -2)) + Q


def update(
    x: Array, P: Array, z: Array, R: Array, observed: NDArray[np.bool_], expected: Array | None = None
) -> tuple[Array, Array, Array, Array]:
    """Take in measurements where `observed`; the rest of a row is corrected through its covariance.

    `expected` is the measurement the sensor would show for x, where that is not x itself (saturation).

    Returns the state, its covariance, the innovation (0 where not observed) and the normalised
    innovation squared of each row, which is χ² distributed with as many degrees of freedom as the
    row has observations while the filter's model holds.
    """
    mask = observed.astype(np.float64)
    innovation: Array = np.where(observed, np.nan_to_num(z) - (x if expected is None else expected), 0.0)
    # A metric that was not observed gets a zero row in H and a unit variance: its gain comes out as 0.
    S = (P + R) * mask[:, :, None] * mask[:, None, :]
    diagonal = np.arange(x.shape[1])
    S[:, diagonal, diagonal] += 1.0 - mask
    inverse = _inverse(S)
    # Paper 001, Equation (13): G = P Hᵀ (H P Hᵀ + R)⁻¹ with H = I
    G = _product(P * mask[:, None, :], inverse)
    # Paper 001, Equation (14): x = x* + G (z − ẑ)
    x = x + _product(G, innovation[:, :, None])[:, :, 0]
    # The step the paper leaves out, P ← (I − G H) P, in Joseph's form, which stays symmetric and
    # positive whatever the rounding: (I − GH) P (I − GH)ᵀ + G R Gᵀ
    A = np.eye(x.shape[1]) - G * mask[:, None, :]
    P = _product(_product(A, P), np.swapaxes(A, -1, -2))
    P = P + _product(_product(G, R[None]), np.swapaxes(G, -1, -2))
    squared = np.einsum("ni,nij,nj->n", innovation, inverse, innovation)
    return x, P, innovation, squared


def _product(left: Array, right: Array) -> Array:
    """The products of two stacks of matrices; entry by entry where they are small: matmul pays a matrix."""
    rows, shared, columns = left.shape[1], left.shape[2], right.shape[2]
    if shared > SMALL:
        return np.asarray(left @ right, dtype=np.float64)
    result = np.empty((len(left), rows, columns))
    for i in range(rows):
        for j in range(columns):
            total = left[:, i, 0] * right[:, 0, j]
            for k in range(1, shared):
                total += left[:, i, k] * right[:, k, j]
            result[:, i, j] = total
    return result


def _inverse(S: Array) -> Array:
    """The inverses of a stack of covariances; one and two metrics, the usual ones, in closed form."""
    if S.shape[-1] == 1:
        return 1.0 / S
    if S.shape[-1] == 2:
        a, b, c, d = S[:, 0, 0], S[:, 0, 1], S[:, 1, 0], S[:, 1, 1]
        result = np.empty_like(S)
        determinant = a * d - b * c
        result[:, 0, 0], result[:, 0, 1] = d / determinant, -b / determinant
        result[:, 1, 0], result[:, 1, 1] = -c / determinant, a / determinant
        return result
    return np.asarray(np.linalg.inv(S), dtype=np.float64)


def clip_eigenvalues(covariance: Array, floor: float) -> Array:
    """The nearest covariances whose eigenvalues are at least `floor`."""
    eigenvalues, vectors = np.linalg.eigh(covariance)
    clipped: Array = (vectors * np.maximum(eigenvalues, floor)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return clipped


def recency_weighted(weights: Array, sums: Array, squares: Array) -> tuple[Array, Array]:
    """x̂0 and the diagonal of P0 from running sums over the dead time, where the i-th reading weighs i.

    `weights` is Σ i, `sums` Σ i·z and `squares` Σ i·z², each (n, m), so that no reading has to be kept.
    Without gaps, Σ i is the triangular number Δn.
    """
    # Paper 001, Equation (16): x̂0 = Σ (i/Δn) z_i
    x0 = sums / np.maximum(weights, 1.0)
    # Paper 001, Equation (17): P0 = Σ i/(Δn − 1) (z_i − x̂0)², metric by metric. Twenty readings cannot tell
    # a correlation from chance, and a false one would let memory move the estimate of a clamped CPU.
    P0 = np.maximum(squares - weights * x0**2, 0.0) / np.maximum(weights - 1.0, 1.0)
    return x0, P0
