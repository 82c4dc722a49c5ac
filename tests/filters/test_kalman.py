"""The Kalman filter as a whole: starting, saturation, gaps, newcomers, divergence, sensitivities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.filters.calibration import Calibration
from penstock.filters.kalman import KalmanFilter, KalmanParameters
from penstock.filters.readings import Estimates, Readings
from penstock.filters.sensitivities import fit_sensitivities

WORK_S = 0.2
"""Utilisation one record a second brings: b."""


def a_filter(**changes: object) -> KalmanFilter:
    settings = {"noise_std": (0.05, 0.01), "sensitivity": ((0.0, WORK_S), (0.0, 0.0)), **changes}
    return KalmanParameters(**settings).make()


def a_tick(
    at_s: float,
    cpu: list[float],
    rate: float = 3.0,
    change: float = 0.0,
    memory: float = 0.3,
    keys: tuple[str, ...] | None = None,
) -> Readings:
    values = np.array([[value, memory] for value in cpu])
    inputs = np.tile([rate, change], (len(cpu), 1))
    return Readings(at_s, keys or tuple(f"unit-{i}" for i in range(len(cpu))), values, inputs)


def settled(
    filter_: KalmanFilter, cpu: float, rate: float, seed: int = 1, until_s: float = 40.0
) -> Estimates:
    random = np.random.default_rng(seed)
    for at_s in np.arange(0.0, until_s, 0.5):
        noisy = float(np.clip(cpu + 0.05 * random.normal(), 0.0, 1.0))
        estimates = filter_.step(a_tick(float(at_s), [noisy], rate))
    return estimates


def test_it_is_not_trusted_before_dead_time_and_ease_in_are_over() -> None:
    filter_ = a_filter(dead_time_s=10.0, ease_in_s=10.0)
    trusted = [
        bool(filter_.step(a_tick(float(at_s), [0.6])).trusted[0]) for at_s in np.arange(0.0, 25.0, 0.5)
    ]
    assert trusted == [at_s >= 20.0 for at_s in np.arange(0.0, 25.0, 0.5)]


def test_a_long_interval_still_collects_three_readings_before_it_starts() -> None:
    filter_ = a_filter(dead_time_s=10.0, ease_in_s=0.0)
    trusted = [bool(filter_.step(a_tick(at_s, [0.6])).trusted[0]) for at_s in (0.0, 15.0, 30.0, 45.0)]
    assert trusted == [False, False, True, True]


def test_it_converges_to_a_constant_and_its_variance_falls() -> None:
    filter_ = a_filter()
    early = settled(filter_, 0.6, 3.0, until_s=21.0)
    late = settled(a_filter(), 0.6, 3.0, until_s=200.0)
    assert late.values[0, 0] == pytest.approx(0.6, abs=0.02)
    assert late.variances[0, 0] < early.variances[0, 0]


def test_a_change_of_the_input_shows_before_the_readings_do() -> None:
    filter_ = a_filter()
    settled(filter_, 0.4, 2.0)
    estimates = filter_.step(a_tick(40.0, [0.4], rate=8.0, change=6.0))
    assert estimates.values[0, 0] == pytest.approx(0.4 + WORK_S * 6.0, abs=0.1)


def test_clamped_readings_do_not_drag_demand_beyond_capacity_down() -> None:
    filter_ = a_filter()
    settled(filter_, 0.4, 2.0)
    filter_.step(a_tick(40.0, [1.0], rate=10.0, change=8.0))
    for at_s in np.arange(40.5, 60.0, 0.5):
        estimates = filter_.step(a_tick(float(at_s), [0.97], rate=10.0))
    assert estimates.values[0, 0] == pytest.approx(2.0, abs=0.1)


def test_as_printed_its_variance_grows_for_ever_and_a_full_sensor_drags_its_estimate_below_zero() -> None:
    early = settled(a_filter(as_printed=True), 0.6, 3.0, until_s=21.0)
    late = settled(a_filter(as_printed=True), 0.6, 3.0, until_s=200.0)
    assert late.variances[0, 0] > early.variances[0, 0]

    filter_ = a_filter(as_printed=True)
    settled(filter_, 0.4, 2.0, until_s=2000.0)
    filter_.step(a_tick(2000.0, [1.0], rate=10.0, change=8.0))
    for at_s in np.arange(2000.5, 2200.0, 0.5):
        estimates = filter_.step(a_tick(float(at_s), [1.0], rate=10.0))
    assert estimates.values[0, 0] == pytest.approx(1.0, abs=0.05)  # the demand is 2
    estimates = filter_.step(a_tick(2200.0, [np.nan], rate=2.0, change=-8.0))
    assert estimates.values[0, 0] < 0.0


def test_low_readings_again_and_again_disprove_demand_beyond_capacity() -> None:
    filter_ = a_filter()
    settled(filter_, 0.4, 2.0)
    filter_.step(a_tick(40.0, [1.0], rate=10.0, change=8.0))
    notices: list[str] = []
    for at_s in np.arange(40.5, 60.0, 0.5):
        estimates = filter_.step(a_tick(float(at_s), [0.5], rate=10.0))
        notices += estimates.notices
    assert len(notices) == 1
    assert "unit-0: Kalman filter reset" in notices[0]
    assert estimates.values[0, 0] == pytest.approx(0.5, abs=0.05)


def test_a_filter_that_diverges_is_reset_with_a_notice_and_not_trusted_for_the_ease_in_time() -> None:
    filter_ = a_filter(ease_in_s=5.0)
    settled(filter_, 0.3, 1.5)
    reset_s = None
    for at_s in np.arange(40.0, 60.0, 0.5):
        estimates = filter_.step(a_tick(float(at_s), [0.8], rate=1.5))
        if estimates.notices:
            reset_s = float(at_s)
            assert not estimates.trusted[0]
            assert "read 0.800" in estimates.notices[0]
    assert reset_s is not None
    assert reset_s <= 44.0
    assert estimates.trusted[0]
    assert estimates.values[0, 0] == pytest.approx(0.8, abs=0.05)


def test_a_single_outlier_is_no_divergence() -> None:
    filter_ = a_filter()
    settled(filter_, 0.3, 1.5)
    assert filter_.step(a_tick(40.0, [0.9], rate=1.5)).notices == ()


def test_a_gate_leaves_a_single_outlier_out() -> None:
    gated, open_ = a_filter(gate_sigma=4.0, noise_floor=1e-3), a_filter(noise_floor=1e-3)
    before = settled(gated, 0.3, 1.5).values[0, 0]
    settled(open_, 0.3, 1.5)
    assert gated.step(a_tick(40.0, [0.85], rate=1.5)).values[0, 0] == pytest.approx(before, abs=1e-9)
    assert open_.step(a_tick(40.0, [0.85], rate=1.5)).values[0, 0] > before + 0.1


def test_an_adaptive_filter_follows_a_drift_its_model_does_not_know() -> None:
    fixed, adaptive = a_filter(divergence_ratio=1e9), a_filter(adaptive_ratio=1.0, divergence_ratio=1e9)
    for filter_ in (fixed, adaptive):
        settled(filter_, 0.3, 1.5)
    for tick, at_s in enumerate(np.arange(40.0, 60.0, 0.5)):
        level = 0.3 + 0.01 * tick
        far = fixed.step(a_tick(float(at_s), [level], rate=1.5)).values[0, 0]
        near = adaptive.step(a_tick(float(at_s), [level], rate=1.5)).values[0, 0]
    assert abs(near - level) < 0.5 * abs(far - level)


def test_full_readings_are_put_down_to_a_backlog_for_a_while_but_not_for_ever() -> None:
    filter_ = a_filter(drain_s=20.0)
    settled(filter_, 0.6, 3.0)
    seen = {}
    for at_s in np.arange(40.0, 80.0, 0.5):
        estimates = filter_.step(a_tick(float(at_s), [1.0], rate=3.0))
        seen[float(at_s)] = float(estimates.values[0, 0])
    assert seen[59.5] == pytest.approx(0.6, abs=0.05)
    assert seen[79.5] == pytest.approx(1.0, abs=0.05)


def test_a_missing_reading_predicts_without_an_update() -> None:
    filter_ = a_filter()
    before = settled(filter_, 0.4, 2.0)
    after = filter_.step(a_tick(40.0, [np.nan], rate=3.0, change=1.0, memory=np.nan))
    assert after.values[0, 0] == pytest.approx(before.values[0, 0] + WORK_S)
    assert after.variances[0, 0] > before.variances[0, 0]


def test_a_metric_that_is_never_read_stays_unknown_and_harms_nobody() -> None:
    filter_ = a_filter()
    for at_s in np.arange(0.0, 40.0, 0.5):
        estimates = filter_.step(a_tick(float(at_s), [0.6], memory=np.nan))
    assert np.isnan(estimates.values[0, 1])
    assert estimates.values[0, 0] == pytest.approx(0.6, abs=0.01)
    assert estimates.trusted[0]


def test_a_newcomer_of_a_running_unit_starts_from_its_peers_and_is_trusted_at_once() -> None:
    filter_ = a_filter()
    settled(filter_, 0.8, 4.0)
    estimates = filter_.step(a_tick(40.0, [0.4, 0.4], rate=2.0, change=-2.0))
    np.testing.assert_allclose(estimates.values[:, 0], estimates.values[0, 0], atol=1e-6)
    assert estimates.values[1, 0] == pytest.approx(0.4, abs=0.05)
    assert estimates.trusted.all()


def test_a_newcomer_of_another_unit_starts_for_itself() -> None:
    filter_ = a_filter()
    settled(filter_, 0.8, 4.0)
    estimates = filter_.step(a_tick(40.0, [0.8, 0.2], rate=4.0, keys=("unit-0", "other-0")))
    assert estimates.trusted.tolist() == [True, False]


def test_vanished_instances_leave_the_others_as_they_were() -> None:
    both, alone = a_filter(), a_filter()
    random = np.random.default_rng(3)
    for at_s in np.arange(0.0, 60.0, 0.5):
        one, two = 0.5 + 0.05 * random.normal(size=2)
        pair = at_s < 30.0
        ours = both.step(
            a_tick(float(at_s), [two, one] if pair else [one], keys=("b-0", "a-0") if pair else ("a-0",))
        )
        theirs = alone.step(a_tick(float(at_s), [one], keys=("a-0",)))
    np.testing.assert_allclose(ours.values[-1], theirs.values[-1], atol=1e-12)


@pytest.mark.parametrize("sensitivity", [((0.0, WORK_S), (0.0, 0.0)), None])
def test_a_start_under_full_load_recovers_within_a_minute(
    sensitivity: tuple[tuple[float, float], ...] | None,
) -> None:
    """One instance meets three times what it can do; from 20 s on there are five of them."""
    filter_ = a_filter(sensitivity=sensitivity)
    random = np.random.default_rng(5)
    total, work_s, last = 15.0, WORK_S, None
    for at_s in np.arange(0.0, 80.5, 0.5):
        count = 1 if at_s < 20.0 else 5
        truth = total * work_s / count
        cpu = np.clip(min(truth, 1.0) + 0.05 * random.normal(size=count), 0.0, 1.0)
        rate = total / count
        estimates = filter_.step(
            a_tick(float(at_s), cpu.tolist(), rate, 0.0 if last is None else rate - last)
        )
        last = rate
    assert estimates.trusted.any()
    assert float(estimates.values[:, 0].mean()) == pytest.approx(0.6, abs=0.05)


def test_the_input_share_is_learnt_where_it_is_not_given() -> None:
    filter_ = a_filter(sensitivity=None)
    random = np.random.default_rng(7)
    last = 2.0
    for tick in range(400):
        rate = 2.0 if (tick // 40) % 2 == 0 else 3.5
        cpu = WORK_S * rate + 0.03 * random.normal()
        filter_.step(a_tick(0.5 * tick, [cpu], rate, rate - last))
        last = rate
    cpu_share, memory_share = filter_.sensitivities["unit"]
    assert cpu_share.b == pytest.approx(WORK_S, rel=0.15)
    assert cpu_share.a == 0.0
    assert memory_share.b == 0.0


def test_least_squares_on_changes_finds_b_and_leaves_a_at_zero() -> None:
    random = np.random.default_rng(11)
    rate = np.repeat(random.uniform(1.0, 4.0, 60), 10)
    inputs = np.column_stack([rate, np.diff(rate, prepend=rate[0])])
    values = np.column_stack([0.2 * rate + 0.02 * random.normal(size=600), np.full(600, 0.4)])
    cpu, memory = fit_sensitivities(inputs, values)
    assert (cpu.a, memory.a, memory.b) == (0.0, 0.0, 0.0)
    assert cpu.b == pytest.approx(0.2, rel=0.05)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 1) | st.just(float("nan")), st.floats(0, 50), st.integers(1, 4), st.floats(0.1, 60)
        ),
        min_size=1,
        max_size=40,
    )
)
def test_estimates_are_never_negative_and_variances_never_vanish(
    ticks: list[tuple[float, float, int, float]],
) -> None:
    filter_ = a_filter(adaptive_ratio=1.0, gate_sigma=5.0)
    at_s, last = 0.0, 0.0
    for cpu, rate, count, gap_s in ticks:
        at_s += gap_s
        estimates = filter_.step(a_tick(at_s, [cpu] * count, rate, rate - last))
        last = rate
        known = ~np.isnan(estimates.values)
        assert np.isfinite(estimates.values[known]).all()
        assert (estimates.values[known] >= 0).all()
        assert (estimates.variances[known] > 0).all()


def test_a_calibration_file_gives_the_measurement_noise(tmp_path: object) -> None:
    path = tmp_path / "calibration.json"  # type: ignore[operator]
    random = np.random.default_rng(2)
    readings = np.column_stack([0.5 + 0.1 * random.normal(size=500), 0.3 + 0.02 * random.normal(size=500)])
    found = Calibration.of(("cpu", "memory"), readings, 0.5, 0.5)
    found.write(path)
    assert Calibration.read(path) == found
    filter_ = KalmanParameters(calibration=str(path), dead_time_s=0.0, ease_in_s=0.0).make()
    filter_.step(a_tick(0.0, [0.5]))
    gain = filter_.step(a_tick(0.5, [0.6])).values[0, 0] - 0.5
    assert 0 < gain < 0.1 * 0.1


def test_a_calibration_file_that_is_none_says_how_to_get_one(tmp_path: object) -> None:
    with pytest.raises(ConfigurationError, match="penstock calibrate"):
        KalmanParameters(calibration=str(tmp_path / "none.json")).make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"noise_std": ()}, "noise_std"),
        ({"noise_std": (0.0,)}, "use `none`"),
        ({"noise_floor": 0.0}, "noise_floor above 0"),
        ({"sensitivity": ((1.0,),)}, "(a, b)"),
        ({"dead_time_s": -1.0}, "dead_time_s"),
    ],
)
def test_wrong_parameters_are_told(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        KalmanParameters(**wrong)  # type: ignore[arg-type]
    assert said in str(told.value)
