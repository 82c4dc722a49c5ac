"""The filter's equations against an independent implementation (filterpy)."""

from __future__ import annotations

import numpy as np
import pytest
from filterpy.kalman import ExtendedKalmanFilter

from penstock.filters.equations import clip_eigenvalues, predict_covariance, recency_weighted, update
from penstock.filters.kalman import KalmanFilter, KalmanParameters
from penstock.filters.readings import Readings


def a_covariance(random: np.random.Generator, size: int) -> np.ndarray:
    root = random.normal(size=(size, size))
    return root @ root.T / size + 0.1 * np.eye(size)


@pytest.mark.parametrize("metrics", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(3))
def test_predict_and_update_agree_with_filterpy_on_random_systems(metrics: int, seed: int) -> None:
    random = np.random.default_rng([metrics, seed])
    instances, ticks = 3, 50
    F = random.normal(size=(instances, metrics, metrics)) / (2 * metrics)
    Q = np.stack([a_covariance(random, metrics) for _ in range(instances)])
    R = a_covariance(random, metrics)
    x = random.normal(size=(instances, metrics))
    P = np.stack([a_covariance(random, metrics) for _ in range(instances)])
    theirs = []
    for row in range(instances):
        other = ExtendedKalmanFilter(dim_x=metrics, dim_z=metrics)
        other.x, other.P, other.F, other.Q, other.R = x[row], P[row], F[row], Q[row], R
        theirs.append(other)
    observed = np.ones((instances, metrics), dtype=bool)
    for _ in range(ticks):
        z = random.normal(size=(instances, metrics))
        x, P = (F @ x[:, :, None])[:, :, 0], predict_covariance(P, F, Q)
        x, P, innovation, squared = update(x, P, z, R, observed)
        for row, other in enumerate(theirs):
            other.predict()
            other.update(z[row], lambda _: np.eye(metrics), lambda state: state)
            np.testing.assert_allclose(x[row], other.x, rtol=0, atol=1e-9)
            np.testing.assert_allclose(P[row], other.P, rtol=0, atol=1e-9)
            np.testing.assert_allclose(innovation[row], other.y, rtol=0, atol=1e-9)
            assert squared[row] == pytest.approx(float(other.y @ other.SI @ other.y), abs=1e-8)


def a_pendulum(states: np.ndarray, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A transition that is not linear: each metric follows the sine of its neighbour and the input."""
    metrics = states.shape[1]
    neighbour = np.roll(states, 1, axis=1)
    following = 0.6 * states + 0.2 * np.sin(neighbour) ** 2 + 0.01 * inputs[:, :1]
    jacobian = np.broadcast_to(0.6 * np.eye(metrics), (len(states), metrics, metrics)).copy()
    for j in range(metrics):
        jacobian[:, j, (j - 1) % metrics] += 0.2 * np.sin(2 * states[:, (j - 1) % metrics])
    return following, jacobian


@pytest.mark.parametrize("metrics", [1, 2, 3, 4, 5])
def test_the_whole_filter_agrees_with_filterpy_for_a_transition_that_is_not_linear(metrics: int) -> None:
    random = np.random.default_rng(metrics)
    parameters = KalmanParameters(
        dead_time_s=0.0, ease_in_s=0.0, noise_std=(0.05,), noise_floor=1e-4, divergence_ratio=1e9
    )
    ours = KalmanFilter(parameters, transition=a_pendulum)
    keys = ("one", "two", "three")
    theirs: list[ExtendedKalmanFilter] = []
    for tick in range(60):
        z = 0.4 + 0.05 * random.normal(size=(3, metrics))
        inputs = np.abs(random.normal(size=(3, 2)))
        estimates = ours.step(Readings(0.5 * tick, keys, z, inputs))
        if tick == 0:
            for row in range(3):
                other = ExtendedKalmanFilter(dim_x=metrics, dim_z=metrics)
                other.x, other.P = z[row].copy(), 1e-4 * np.eye(metrics)
                other.Q, other.R = 1e-4 * np.eye(metrics), 0.05**2 * np.eye(metrics)
                theirs.append(other)
        else:
            for row, other in enumerate(theirs):
                following, jacobian = a_pendulum(other.x[None, :], inputs[row : row + 1])
                other.x, other.P = following[0], jacobian[0] @ other.P @ jacobian[0].T + other.Q
                other.update(z[row], lambda _: np.eye(metrics), lambda state: state)
        for row, other in enumerate(theirs):
            np.testing.assert_allclose(estimates.values[row], other.x, rtol=0, atol=1e-9)
            np.testing.assert_allclose(estimates.variances[row], np.diag(other.P), rtol=0, atol=1e-9)


def test_a_metric_that_was_not_observed_is_corrected_only_through_its_covariance() -> None:
    x, P = np.array([[0.5, 0.5]]), np.array([[[0.02, 0.01], [0.01, 0.03]]])
    R = np.diag([0.01, 0.01])
    after, covariance, innovation, _ = update(x, P, np.array([[0.8, np.nan]]), R, np.array([[True, False]]))
    # By hand, with H = (1, 0): G = P Hᵀ / (P11 + R11) = (0.02, 0.01) / 0.03
    np.testing.assert_allclose(after, [[0.5 + 0.3 * 2 / 3, 0.5 + 0.3 / 3]])
    np.testing.assert_allclose(covariance[0, 0, 0], 0.02 / 3)
    np.testing.assert_allclose(covariance[0, 1, 1], 0.03 - 0.01**2 / 0.03)
    np.testing.assert_allclose(innovation, [[0.3, 0.0]])


def test_nothing_observed_changes_nothing() -> None:
    random = np.random.default_rng(7)
    x, P = random.normal(size=(3, 2)), np.stack([a_covariance(random, 2) for _ in range(3)])
    nothing = np.zeros((3, 2), dtype=bool)
    after, covariance, innovation, squared = update(x, P, np.full((3, 2), np.nan), np.eye(2), nothing)
    np.testing.assert_allclose(after, x)
    np.testing.assert_allclose(covariance, P)
    assert not innovation.any()
    assert not squared.any()


def test_clipping_lifts_only_eigenvalues_below_the_floor() -> None:
    clipped = clip_eigenvalues(np.array([[0.5, 0.0], [0.0, -0.3]]), 1e-6)
    np.testing.assert_allclose(clipped, [[0.5, 0.0], [0.0, 1e-6]], atol=1e-12)


def test_the_first_estimate_weighs_readings_by_recency() -> None:
    readings = [0.2, 0.4, 0.9]
    weights = np.array([1.0, 2.0, 3.0])
    x0, P0 = recency_weighted(
        np.array([[6.0]]), np.array([[weights @ readings]]), np.array([[weights @ np.square(readings)]])
    )
    mean = (0.2 + 2 * 0.4 + 3 * 0.9) / 6
    assert x0[0, 0] == pytest.approx(mean)
    assert P0[0, 0] == pytest.approx(
        sum(i * (z - mean) ** 2 for i, z in zip(weights, readings, strict=True)) / 5
    )
