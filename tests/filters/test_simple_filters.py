"""Filters `none` and `gaussian`, the registry, and the number of instances to start with."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.errors import ConfigurationError
from penstock.filters import FILTERS, Filter, Readings, make_filter, starting_instances
from penstock.topology.model import Choice


def a_tick(at_s: float, values: list[list[float]], keys: tuple[str, ...] | None = None) -> Readings:
    array = np.array(values, dtype=np.float64)
    return Readings(
        at_s, keys or tuple(f"unit-{i}" for i in range(len(values))), array, np.zeros((len(values), 2))
    )


def test_none_hands_readings_on() -> None:
    estimates = make_filter(Choice("none")).step(a_tick(0.0, [[0.4, 0.2], [np.nan, np.nan]]))
    np.testing.assert_array_equal(estimates.values, [[0.4, 0.2], [np.nan, np.nan]])
    assert estimates.trusted.tolist() == [True, False]


def test_gaussian_weighs_readings_by_the_square_of_their_age() -> None:
    filter_ = make_filter(Choice("gaussian", {"t": 4.0}))
    for at_s, value in ((0.0, 0.2), (1.0, 0.6), (3.0, 1.0)):
        estimates = filter_.step(a_tick(at_s, [[value]]))
    weights = np.exp(-(np.array([3.0, 2.0, 0.0]) ** 2) / 8.0)
    assert estimates.values[0, 0] == pytest.approx(weights @ [0.2, 0.6, 1.0] / weights.sum())


def test_gaussian_is_renormalised_so_a_constant_stays_what_it_is() -> None:
    filter_ = make_filter(Choice("gaussian"))
    for tick in range(300):
        estimates = filter_.step(a_tick(0.5 * tick, [[0.7, 0.3]]))
        np.testing.assert_allclose(estimates.values, [[0.7, 0.3]])


def test_gaussian_forgets_what_is_older_than_its_window() -> None:
    filter_ = make_filter(Choice("gaussian", {"t": 1e6, "window_s": "10 s"}))
    filter_.step(a_tick(0.0, [[1.0]]))
    assert filter_.step(a_tick(11.0, [[0.2]])).values[0, 0] == pytest.approx(0.2)


def test_gaussian_gives_missing_readings_no_weight() -> None:
    filter_ = make_filter(Choice("gaussian"))
    filter_.step(a_tick(0.0, [[0.6]]))
    assert filter_.step(a_tick(0.5, [[np.nan]])).values[0, 0] == pytest.approx(0.6)


def test_gaussian_keeps_rows_apart_as_instances_come_and_go() -> None:
    filter_ = make_filter(Choice("gaussian"))
    for tick in range(60):
        keys = ("a-1", "a-2") if tick < 20 else ("a-3", "a-2")
        estimates = filter_.step(a_tick(0.5 * tick, [[0.1], [0.9]] if tick < 20 else [[0.5], [0.9]], keys))
    np.testing.assert_allclose(estimates.values[:, 0], [0.5, 0.9])


@pytest.mark.parametrize("name", FILTERS)
def test_every_filter_takes_readings_of_nobody(name: str) -> None:
    filter_ = make_filter(Choice(name))
    nobody = Readings(0.0, (), np.zeros((0, 2)), np.zeros((0, 2)))
    for readings in (nobody, nobody, a_tick(1.0, [[0.4, 0.2]]), nobody, a_tick(2.0, [[0.6, 0.3]])):
        estimates = filter_.step(readings)
        assert estimates.values.shape == readings.values.shape
        assert estimates.trusted.shape == (len(readings.keys),)
    # Who comes after everybody was gone starts from its own readings.
    np.testing.assert_allclose(estimates.values, [[0.6, 0.3]])


@pytest.mark.parametrize("name", list(FILTERS))
def test_every_filter_keeps_the_contract(name: str) -> None:
    """Deterministic, shaped like its readings, quiet about no instances at all, described for people."""
    random = np.random.default_rng(1)
    history = [a_tick(0.5 * tick, random.uniform(0, 1, (3, 2)).tolist()) for tick in range(60)]
    one, two = make_filter(Choice(name)), make_filter(Choice(name))
    assert isinstance(one, Filter)
    for readings in history:
        first, second = one.step(readings), two.step(readings)
        np.testing.assert_array_equal(first.values, second.values)
        assert first.values.shape == first.variances.shape == (3, 2)
        assert first.trusted.shape == (3,)
        assert first.keys == readings.keys
    empty = one.step(Readings(31.0, (), np.zeros((0, 2)), np.zeros((0, 2))))
    assert empty.values.shape == (0, 2)
    assert FILTERS.described(name).endswith(".") or ")" in FILTERS.described(name)
    assert all(parameter.meaning for parameter in FILTERS.parameters(name).values())


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (Choice("kalmann"), 'did you mean "kalman"'),
        (Choice("kalman", {"noise_flor": 1.0}), 'did you mean "noise_floor"'),
        (Choice("gaussian", {"t": 0.0}), "above 0"),
    ],
)
def test_a_wrong_choice_is_told_with_the_nearest_right_one(choice: Choice, said: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        make_filter(choice)
    assert said in str(told.value)


@pytest.mark.parametrize(
    ("keys", "values", "inputs"),
    [
        (("a", "b"), np.zeros((1, 2)), np.zeros((2, 2))),
        (("a",), np.zeros((1, 2)), np.zeros((1, 1))),
    ],
)
def test_readings_of_the_wrong_shape_are_refused(
    keys: tuple[str, ...], values: np.ndarray, inputs: np.ndarray
) -> None:
    with pytest.raises(ValueError, match="expected"):
        Readings(0.0, keys, values, inputs)


@pytest.mark.parametrize(
    ("last_run", "until_s", "expected"),
    [
        ((), None, 1),
        (((0.0, 4),), None, 1),
        (((0.0, 4),), 100.0, 4),
        (((0.0, 2), (50.0, 8)), 100.0, 5),
        (((0.0, 1), (90.0, 6)), 100.0, 2),
    ],
)
def test_a_warm_start_takes_the_mean_of_the_last_run(
    last_run: tuple[tuple[float, int], ...], until_s: float | None, expected: int
) -> None:
    assert starting_instances(last_run, until_s) == expected
