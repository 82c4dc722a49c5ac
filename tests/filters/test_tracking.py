"""Filters for a single number: the noise is learned, the level is followed, a jump is no noise."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.filters import make_tracker
from penstock.filters.tracking import GaussianTracker, LevelTracker, Tracker
from penstock.topology.model import Choice


def estimates(tracker: Tracker, values: np.ndarray) -> np.ndarray:
    return np.array([tracker.step(15.0 * step, float(value)) for step, value in enumerate(values)])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("make", [LevelTracker, lambda: GaussianTracker(900.0, 120.0)])
def test_a_noisy_level_is_told_better_than_by_its_readings(make: type[LevelTracker], seed: int) -> None:
    drawn = np.random.default_rng(seed)
    truth = np.full(200, 100.0)
    readings = truth + drawn.normal(0, 20, 200)
    error = np.abs(estimates(make(), readings) - truth)[30:].mean()
    assert error < 0.6 * np.abs(readings - truth)[30:].mean()


@pytest.mark.parametrize("seed", range(5))
def test_a_level_that_wanders_without_noise_is_followed_without_delay(seed: int) -> None:
    truth = 100 + np.cumsum(np.random.default_rng(seed).normal(0, 5, 200))
    found = estimates(LevelTracker(), truth)
    assert np.abs(found - truth)[30:].mean() < 2.0


def test_a_jump_is_followed_at_the_second_reading() -> None:
    drawn = np.random.default_rng(1)
    truth = np.concatenate((np.full(60, 20.0), np.full(20, 400.0)))
    found = estimates(LevelTracker(), truth + drawn.normal(0, 3, 80))
    assert found[60] < 30, "a single one may be noise"
    assert found[61] == pytest.approx(400, abs=15)


def test_no_filter_tracks_nothing_and_the_others_have_their_own() -> None:
    assert make_tracker(Choice("none")) is None
    assert isinstance(make_tracker(Choice("kalman")), LevelTracker)
    assert isinstance(make_tracker(Choice("gaussian", {"t": 4.0})), GaussianTracker)
    assert estimates(LevelTracker(), np.zeros(50)).tolist() == [0.0] * 50


@pytest.mark.parametrize("filter_", ["kalman", "gaussian"])
def test_a_policy_that_decides_on_a_queue_scales_less_often_with_a_filter(filter_: str) -> None:
    from penstock.simulator import SimulationSettings, simulate
    from tests.builders import a_topology

    def rescales(chosen: Choice) -> int:
        policy = Choice("threshold", {"up_queue": 4, "up_twice_queue": 400, "down_queue": 2})
        topology = a_topology(units=("a",), per_s=8.0, policy=policy, filter=chosen)
        settings = [SimulationSettings(seed=seed, process="poisson") for seed in (1, 2)]
        return sum(simulate(topology, each, duration_s=7200).rescales for each in settings)

    slow = {"t": 3600.0, "window_s": 300.0} if filter_ == "gaussian" else {}
    assert rescales(Choice(filter_, slow)) < rescales(Choice("none"))
