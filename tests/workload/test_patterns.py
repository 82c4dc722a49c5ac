"""Each pattern has the shape its name promises, and the papers' settings by default."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.topology.model import Choice
from penstock.workload import WORKLOADS, Workload, make_workload, scaled
from penstock.workload.patterns import (
    MACHINE_PER_S,
    Constant,
    DayProfile,
    Linear,
    Pyramid,
    RandomWalk,
    Sine,
    Square,
    Stepwise,
    TwoLevel,
)

PATTERNS = [name for name in WORKLOADS if name != "trace"]


@pytest.mark.parametrize(
    ("workload", "at_s", "expected"),
    [
        (Constant(7.0), [0, 1e6], [7, 7]),
        (Linear(10, 20, 100.0), [0, 50, 100, 500], [10, 15, 20, 20]),
        (Sine(100, 50, 360.0), [0, 90, 180, 270, 360], [100, 150, 100, 50, 100]),
        (Sine(100, 50, 360.0, phase_ratio=0.75), [0, 180], [50, 150]),
        (Stepwise((1, 2, 3), 10.0), [0, 9.9, 10, 20, 30], [1, 1, 2, 3, 1]),
        (TwoLevel(1, 5, 10.0), [0, 10, 20], [1, 5, 1]),
        (Square(), [0, 369, 370, 739, 740], [1, 1, 65, 65, 1]),
        (Pyramid(), [0, 130, 260, 390, 520, 650, 910, 1040], [0, 15, 30, 45, 60, 45, 15, 0]),
        (Pyramid(0, 50, 20, 10.0), [0, 10, 20, 30, 40, 60], [0, 20, 40, 50, 40, 0]),
        (DayProfile((0, 10), day_s=100.0), [0, 25, 50, 75, 100], [0, 5, 10, 5, 0]),
        (Stepwise((1, 2), 10.0, rate_scale=3, time_scale=2), [0, 19, 20, 40], [3, 3, 6, 3]),
    ],
)
def test_the_rate_at_an_instant(workload, at_s, expected):
    np.testing.assert_allclose(workload.rate_per_s(np.array(at_s, dtype=float)), expected, atol=1e-9)


def test_the_sine_stays_within_a_hundred_thousandth_of_the_true_one():
    t = np.linspace(0, 7200, 20_011)
    true = 100 + 80 * np.sin(2 * np.pi * t / 3600)
    np.testing.assert_allclose(Sine().rate_per_s(t), true, atol=80e-5)


def test_paper_000_emits_a_hundred_records_in_three_seconds_for_each_machine():
    assert abs(MACHINE_PER_S - 100 / 3) < 1e-9
    assert Stepwise().levels_per_s == pytest.approx([200 / 3, 400 / 3, 200, 400 / 3])


@pytest.mark.parametrize("name", PATTERNS)
def test_every_workload_keeps_the_contract(name):
    workload = make_workload(Choice(name))
    assert isinstance(workload, Workload)
    t = np.linspace(0, 200_000, 5001)
    rates = workload.rate_per_s(t)
    assert rates.shape == t.shape
    assert np.all(rates >= 0)
    assert np.all(np.isfinite(rates))
    np.testing.assert_array_equal(rates, workload.rate_per_s(t))
    assert workload.duration_s() is None or workload.duration_s() > 0
    assert workload == pickle.loads(pickle.dumps(workload))


@pytest.mark.parametrize("name", PATTERNS)
def test_every_workload_scales_in_rate_and_time(name):
    workload = make_workload(Choice(name))
    changed = scaled(workload, rate=3.0, time=0.5)
    t = np.linspace(0, 7000, 701) + 0.123
    np.testing.assert_allclose(changed.rate_per_s(t / 2), 3 * workload.rate_per_s(t), rtol=1e-9, atol=1e-9)
    assert float(changed.curve.records(1000)) == pytest.approx(1.5 * float(workload.curve.records(2000)))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    lowest=st.integers(0, 4),
    above=st.integers(0, 6),
    start=st.integers(0, 6),
)
def test_a_random_walk_stays_in_its_bounds_and_goes_one_step_at_a_time(seed, lowest, above, start):
    highest = lowest + above
    walk = RandomWalk(seed, min(lowest + start, highest), lowest, highest, steps=500)
    levels = np.array(walk.levels())
    assert levels.min() >= lowest
    assert levels.max() <= highest
    assert np.all(np.abs(np.diff(levels)) <= 1)


def test_a_random_walk_is_the_same_for_the_same_seed_and_begins_the_same_whatever_its_length():
    assert RandomWalk(7).levels() == RandomWalk(7).levels()
    assert RandomWalk(7).levels() != RandomWalk(8).levels()
    assert RandomWalk(7, steps=50).levels() == RandomWalk(7).levels()[:50]


def test_a_random_walk_steps_with_the_chances_of_equation_6_and_is_reflected():
    levels = np.array(RandomWalk(5, steps=100_000).levels())
    inside = (levels[:-1] > 1) & (levels[:-1] < 8)
    steps = np.diff(levels)[inside]
    shares = [np.mean(steps == change) for change in (-1, 0, 1)]
    assert shares == pytest.approx([0.4, 0.2, 0.4], abs=0.01)
    # At the lowest level a step down is reflected: up with 0.4 + 0.4, the same with 0.2.
    at_bottom = np.diff(levels)[levels[:-1] == 1]
    assert np.mean(at_bottom == 1) == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice("sqare"), 'unknown workload "sqare"; did you mean "square"'),
        (Choice("sine", {"period": 3}), 'has no parameter "period"; did you mean "period_s"'),
        (Choice("sine", {"period_s": "3 GiB"}), "period_s: '3 GiB' has the unit 'GiB'"),
        (Choice("sine", {"amplitude_per_s": 1000}), "would become negative"),
        (Choice("constant", {"level_per_s": -1}), "level_per_s: expected a number, 0 or more, got -1"),
        (Choice("constant", {"rate_scale": -1}), "rate_scale"),
        (Choice("constant", {"time_scale": 0}), "time_scale"),
        (Choice("linear", {"over_s": 0}), "over_s above 0"),
        (Choice("stepwise", {"levels_per_s": []}), "at least one level"),
        (Choice("stepwise", {"levels_per_s": "5"}), "expected a list"),
        (Choice("square", {"low_per_s": 9, "high_per_s": 1}), "low_per_s not above high_per_s"),
        (Choice("random_walk", {"start": 9}), "lowest ≤ start ≤ highest"),
        (Choice("random_walk", {"seed": 1.5}), "expected a whole number"),
        (Choice("random_walk", {"down_ratio": 0.9}), "together at most 1"),
        (Choice("day_profile", {"rates_per_s": [1]}), "at least two"),
        (Choice("trace"), 'needs the parameter "path"'),
        (Choice("trace", {"path": "x.csv", "repeat": "maybe"}), "expected true or false"),
    ],
)
def test_a_wrong_choice_is_refused_with_what_would_be_right(choice, message):
    with pytest.raises(ConfigurationError) as refused:
        make_workload(choice)
    assert message in str(refused.value)


def test_parameters_may_be_quantities():
    workload = make_workload(
        Choice("square", {"low_per_s": "60/min", "high_per_s": "1/ms", "hold_s": "2 min"})
    )
    assert workload == Square(1.0, 1000.0, 120.0)


def test_every_parameter_is_listed():
    assert set(WORKLOADS.parameters("linear")) == {
        "from_per_s",
        "to_per_s",
        "over_s",
        "rate_scale",
        "time_scale",
    }
