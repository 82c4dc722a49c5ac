"""A load's record, the ways it may go, and its season."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.forecasts.forecasters import AHEAD, lines_of
from penstock.forecasts.outlook import TOGETHER, Asked, outlook_of, outlooks_of
from penstock.forecasts.record import Load, LoadRecord, late_records
from penstock.forecasts.season import DAY_S, season_of
from penstock.monitoring.measurements import Measurement


def measured(
    at_s: float, *, interval_s: float = 15.0, arrived: int = 30, done: int = 30, **fields
) -> Measurement:
    return Measurement("u", at_s, interval_s, arrived=arrived, processed=done, **fields)


def a_load(rates, bin_s: float = 60.0) -> Load:
    rates = np.asarray(rates, dtype=float)
    return Load(bin_s, len(rates) * bin_s, rates, rates, rates * bin_s, np.zeros_like(rates))


def test_a_bin_is_closed_once_measurements_fill_it():
    record = LoadRecord(60.0)
    for number in range(1, 8):
        record.add(measured(15.0 * number, arrived=15 * number), 1.0)
    load = record.load()
    assert len(load) == 1
    assert load.rate_per_s[0] == pytest.approx((15 + 30 + 45 + 60) / 60)
    assert load.newest_per_s[0] == pytest.approx(4.0)


def test_that_nothing_came_before_the_first_record_is_not_how_a_load_moves():
    record = LoadRecord(15.0)
    for number in range(1, 11):
        record.add(measured(15.0 * number, arrived=0, done=0), 1.0)
    assert len(record.load()) == 10, "a source that is empty is known to be"
    for number in range(11, 51):
        record.add(measured(15.0 * number), 1.0)
    assert record.load().rate_per_s.tolist() == [2.0] * 40
    assert outlook_of(record.load(), 2).quantile(0.99, 1) == pytest.approx(2.0)
    record.add(measured(15.0 * 51, arrived=0, done=0), 1.0)
    record.add(measured(15.0 * 52), 1.0)
    assert record.load().rate_per_s.tolist() == [*[2.0] * 40, 0.0, 2.0], "once it has begun, a pause is one"


def test_a_long_measurement_fills_several_bins():
    record = LoadRecord(60.0)
    record.add(measured(180.0, interval_s=180.0, arrived=360, done=360, on_time=330), 1.0)
    load = record.load()
    assert load.rate_per_s.tolist() == [2.0, 2.0, 2.0]
    assert load.late.sum() == pytest.approx(30)


def test_the_oldest_bins_are_forgotten_and_a_snapshot_stays():
    record = LoadRecord(15.0, depth=10)
    snapshot = None
    for number in range(1, 200):
        record.add(measured(15.0 * number, arrived=number), 1.0)
        if number == 20:
            snapshot = record.load()
            seen = snapshot.rate_per_s.copy()
    assert len(record.load()) == 10
    assert record.load().rate_per_s[-1] == pytest.approx(199 / 15)
    assert snapshot is not None
    assert (snapshot.rate_per_s == seen).all()


def test_a_short_gap_is_bridged_and_after_a_long_one_the_load_begins_anew():
    record = LoadRecord(60.0)
    record.add(measured(60.0, interval_s=60.0, arrived=120), 1.0)
    record.add(measured(300.0, interval_s=60.0, arrived=240), 1.0)
    assert record.load().rate_per_s.tolist() == [2.0, 2.0, 2.0, 2.0, 4.0]
    assert record.load().done.tolist() == [30.0, 0.0, 0.0, 0.0, 30.0]
    record.add(measured(7200.0, interval_s=60.0, arrived=60), 1.0)
    assert record.load().rate_per_s.tolist() == [1.0]


def over_days(days: float, step_s: float = 300.0) -> tuple[list[float], list[float]]:
    """A load with a peak at noon, higher on the first day of each week."""
    times_s = np.arange(step_s / 2, days * DAY_S, step_s)
    first = (times_s // DAY_S) % 7 == 0
    rates = (50.0 - 30.0 * np.cos(2 * np.pi * times_s / DAY_S)) * np.where(first, 2.0, 1.0)
    return times_s.tolist(), rates.tolist()


def test_a_day_is_a_season_however_often_decisions_are_made():
    record = LoadRecord(3.0)
    for at_s, rate in zip(*over_days(1.1), strict=True):
        record.add(measured(at_s + 150.0, interval_s=300.0, arrived=round(300 * rate)), 1.0)
    season = record.season()
    assert season is not None
    assert season.period_s == DAY_S
    assert record.load().end_s - 3.0 * len(record.load()) > 0.9 * DAY_S, "its bins hold hours only"


def test_what_is_recalled_makes_a_week_a_season():
    record = LoadRecord(60.0)
    times_s, rates_per_s = over_days(8.0)
    for at_s in range(60, 601, 60):
        record.add(measured(8 * DAY_S + at_s, interval_s=60.0, arrived=600), 1.0)
    assert record.season() is None
    record.recall(times_s, rates_per_s)
    season = record.season()
    assert season is not None
    assert season.period_s == 7 * DAY_S
    noon, next_noon = (np.exp(season.level[round((day + 0.5) * DAY_S / 300)]) for day in (0, 1))
    assert noon == pytest.approx(160.0, rel=0.01)
    assert next_noon == pytest.approx(80.0, rel=0.01)
    assert record.load().rate_per_s.tolist() == [10.0] * 10, "the bins stay as they were"


def test_what_is_recalled_is_not_taken_in_twice():
    record = LoadRecord(60.0)
    for minute in range(1, 6):
        record.add(measured(60.0 * minute, interval_s=60.0, arrived=600), 1.0)
    record.recall([-150.0, 150.0], [1.0, 10.0])
    record.recall([-150.0, 150.0], [1.0, 10.0])
    assert list(record._coarse) == [(-150.0, 1.0), (150.0, 10.0)]


def test_late_records_are_read_off_percentiles_where_nobody_counted():
    known = measured(15.0, done=1000, duration_s=0.5, duration_p95_s=2.0, duration_p99_s=4.0)
    assert late_records(known, 2.0) == pytest.approx(50)
    assert late_records(known, 4.0) == pytest.approx(10)
    assert late_records(known, 100.0) == 0
    assert late_records(measured(15.0, done=10, on_time=7), 1.0) == 3


def test_what_was_counted_by_the_slo_is_not_what_is_late_by_a_budget():
    known = {"duration_s": 0.5, "duration_p95_s": 2.0, "duration_p99_s": 4.0}
    counted = measured(15.0, done=1000, on_time=1000, **known)
    assert late_records(counted, 5.0, 5.0) == 0
    assert late_records(counted, 2.0, 5.0) == pytest.approx(50)
    # Of those that broke the SLO none kept a stricter limit, and by a wider one there are no more.
    assert late_records(measured(15.0, done=1000, on_time=100, **known), 4.0, 5.0) == 900
    assert late_records(measured(15.0, done=1000, on_time=998, **known), 4.0, 1.0) == 2
    record = LoadRecord(15.0)
    record.add(counted, 2.0, 5.0)
    assert record.load().late[-1] == pytest.approx(50)


def test_a_steady_load_stays_and_a_jumping_one_has_wide_ways():
    steady = outlook_of(a_load(np.full(300, 50.0)), 2)
    assert steady.ways_per_s == pytest.approx(np.full_like(steady.ways_per_s, 50.0))
    rng = np.random.default_rng(4)
    jumping = outlook_of(a_load(50.0 * np.exp(rng.normal(0, 0.1, 300))), 2)
    assert jumping.quantile(0.98, 1) > 1.15 * jumping.quantile(0.5, 1)


def test_longer_bins_ahead_are_as_the_shorter_ones_in_them():
    outlook = outlook_of(a_load(100.0 * 1.01 ** np.arange(120)), 2)
    assert np.array_equal(outlook.next_bins(1), outlook.ways_per_s[:, :6])
    middle = len(outlook.ways_per_s) // 2
    # Bins of three: the first one's middle is the second of the outlook, the last one's the seventeenth.
    assert outlook.next_bins(3)[middle, 0] == outlook.ways_per_s[middle, 1]
    assert outlook.next_bins(3)[middle, 5] == pytest.approx(
        (3 * outlook.ways_per_s[middle, 9] + outlook.ways_per_s[middle, 10]) / 4
    )


def test_little_known_is_careful():
    early, later = outlook_of(a_load([50.0, 50.0]), 2), outlook_of(a_load(np.full(60, 50.0)), 2)
    assert early.quantile(0.98, 1) > 1.05 * later.quantile(0.98, 1)


def test_a_trend_takes_over_where_it_beats_the_last_value():
    rates = 50.0 * np.exp(0.3 * np.sin(np.arange(400) / 20.0))
    found = outlook_of(a_load(rates), 2)
    assert found.forecaster.startswith("goes on as")


def test_noise_around_a_level_is_told_by_its_mean():
    rates = 50.0 + np.random.default_rng(2).normal(0, 4, 400)
    found = outlook_of(a_load(rates), 2)
    assert found.forecaster.startswith("mean of the last")


def test_the_quantiles_hold_on_what_comes_next():
    """Of a random walk, about 5 in 100 of what comes two bins later are above the 95 % quantile."""
    rng = np.random.default_rng(7)
    rates = 100.0 * np.exp(np.cumsum(rng.normal(0, 0.03, 1200)))
    above = 0
    for end in range(700, 1190):
        found = outlook_of(a_load(rates[:end]), 2)
        above += rates[end + 1] > found.quantile(0.95, AHEAD.index(2))
    assert 0.02 < above / 490 < 0.09


def with_crowds(*begins: int):
    rates = 50.0 * np.exp(np.random.default_rng(3).normal(0, 0.005, 700))
    for begin in begins:
        rates[begin : begin + 20] *= 2.5
    return a_load(rates)


def test_one_bin_is_told_as_one():
    rising = np.cumprod(np.full((1, 60), 1.02), axis=1)
    names = [line.name for line in lines_of(rising, rising)]
    assert "goes on as over the last bin" in names
    assert "goes on as over the last 2 bins" in names


def test_a_crowd_that_came_once_is_no_reason_to_wait_for_another():
    """Neither at the end of a lead time nor within the next hour."""
    once, twice = outlook_of(with_crowds(400), 2), outlook_of(with_crowds(400, 500), 2)
    assert once.ways_per_s[-1, 1] < 55.0 < 100.0 < twice.ways_per_s[-1, 1]
    assert once.peaks_per_s[-2, -1] < 55.0 < 100.0 < twice.peaks_per_s[-2, -1]


def test_a_crowd_that_has_just_been_is_remembered():
    assert outlook_of(with_crowds(670), 2).ways_per_s[-1, 1] > 60.0


def test_a_rise_as_never_before_is_taken_to_go_on():
    rates = 50.0 * np.exp(np.random.default_rng(3).normal(0, 0.005, 700))
    usual, unheard = outlook_of(a_load([*rates, 50.5]), 2), outlook_of(a_load([*rates, 57.0]), 2)
    assert not usual.forecaster.startswith("goes on as over the last bin")
    assert unheard.forecaster.startswith("goes on as over the last bin")
    assert unheard.quantile(0.5, 1) > 60.0
    assert unheard.unheard
    assert not usual.unheard


def test_a_load_that_often_jumps_is_not_taken_to_go_on_after_a_jump():
    rates = np.repeat(50.0 * np.exp(np.random.default_rng(3).normal(0, 0.15, 140)), 5)
    assert outlook_of(a_load([*rates, rates[-1] * 1.15]), 2).quantile(0.5, 1) < rates[-1] * 1.17


def test_a_load_that_something_bounds_is_not_taken_to_go_beyond_it():
    steps = np.random.default_rng(5).integers(-1, 2, 700)
    level, rates = 4, []
    for step in steps:
        level = int(np.clip(level + step, 1, 7))
        rates.append(10.0 * level)
    bounded = outlook_of(a_load([*rates, 70.0]), 2)
    rising = 50.0 * 1.01 ** np.cumsum(np.abs(steps))
    assert bounded.ways_per_s.max() == pytest.approx(70.0)
    assert outlook_of(a_load(rising), 2).ways_per_s[:, 1].max() > 1.005 * rising[-1]


def test_a_bound_that_was_broken_is_none():
    swinging = 50.0 + 10.0 * np.sin(np.arange(700) / 20.0)
    assert outlook_of(a_load([*swinging, 60.0, 60.0]), 2).ways_per_s.max() < 61.0
    assert outlook_of(a_load([*swinging, 75.0, 90.0]), 2).ways_per_s.max() > 95.0


def test_the_highest_of_a_short_record_bounds_nothing():
    rates = [20.0, 40.0, 20.0, 40.0, 60.0, 40.0, 20.0, 40.0] * 3
    short = outlook_of(a_load([*rates, 60.0]), lead_bins=2)
    # As far again as it ever rose within two bins, not a quarter more.
    assert short.ways_per_s[-1, 1] == pytest.approx(100.0)
    long = outlook_of(a_load([*rates * 10, 60.0]), lead_bins=2)
    assert long.ways_per_s[-1, 1] <= 75.0


def test_a_peak_is_never_below_what_the_load_reaches():
    rates = 50.0 + np.random.default_rng(2).normal(0, 4, 400)
    found = outlook_of(a_load(rates), 2)
    assert (found.peaks_per_s >= found.ways_per_s - 1e-9).all()
    assert (np.diff(found.peaks_per_s, axis=1) >= -1e-9).mean() > 0.95


def test_a_day_is_learned_and_wins_where_it_repeats():
    times_s = np.arange(0.0, 2 * DAY_S, 60.0)
    jumps = np.where((times_s % 3600.0) < 1800.0, 50.0, 90.0)  # every half hour, at the same minute
    season = season_of(times_s, jumps, step_s=60.0)
    assert season is not None
    assert season.period_s == DAY_S
    known = outlook_of(a_load(jumps[: 1440 + 29]), 2, season)
    assert "earlier days" in known.forecaster
    assert known.quantile(0.5, AHEAD.index(3)) == pytest.approx(90.0, rel=0.05)
    assert outlook_of(a_load(jumps[: 1440 + 29]), 2).quantile(0.5, AHEAD.index(3)) < 60.0


def test_a_season_that_misleads_is_not_used():
    times_s = np.arange(0.0, 2 * DAY_S, 60.0)
    jumps = np.where((times_s % 3600.0) < 1800.0, 50.0, 90.0)
    season = season_of(times_s, jumps, step_s=60.0)
    rng = np.random.default_rng(3)
    walk = 60.0 * np.exp(np.cumsum(rng.normal(0, 0.005, 800)))
    assert "earlier days" not in outlook_of(a_load(walk), 2, season).forecaster


def test_half_a_day_is_no_season():
    times_s = np.arange(0.0, DAY_S / 2, 60.0)
    assert season_of(times_s, np.full(len(times_s), 5.0)) is None


def test_a_day_is_seen_from_afar_although_it_tells_nothing_of_the_next_minutes():
    """Noise hides where a day goes within two bins, and not where it goes within an hour."""
    times_s = np.arange(0.0, 2 * DAY_S, 60.0)
    rng = np.random.default_rng(6)
    rates = 50.0 * np.exp(0.8 * np.sin(times_s / DAY_S * 2 * np.pi) + rng.normal(0, 0.03, len(times_s)))
    season = season_of(times_s[:1440] + 30.0, rates[:1440])
    assert season is not None
    now = 1440 + 60  # an hour after midnight it rises steeply
    known, unknown = (outlook_of(a_load(rates[:now]), 2, told) for told in (season, None))
    hour = AHEAD.index(60)
    real = rates[now + 55 : now + 65].mean()
    assert abs(known.quantile(0.5, hour) - real) < abs(unknown.quantile(0.5, hour) - real)
    assert known.quantile(0.95, hour) - known.quantile(0.5, hour) < 0.2 * real


def test_the_noise_of_one_day_is_no_part_of_its_calm_season():
    times_s = np.arange(0.0, DAY_S, 300.0)
    noise = np.random.default_rng(6).normal(0, 0.1, len(times_s))
    season = season_of(times_s + 150.0, 50.0 * np.exp(noise))
    assert season is not None
    assert season.calm.std() < 0.5 * season.level.std()
    assert season.calm.mean() == pytest.approx(season.level.mean())


def test_crowds_are_unheard_of_until_the_load_had_some_however_long_they_took_to_rise():
    rates = np.full(700, 50.0) * np.exp(np.random.default_rng(6).normal(0, 0.004, 700))
    rise = np.linspace(1.0, 2.0, 9)

    def with_rises(*begins: int) -> Load:
        found = rates.copy()
        for begin in begins:
            found[begin : begin + 9] *= rise
            found[begin + 9 : begin + 40] *= 2.0
        found[-2:] *= rise[1:3]
        return a_load(found)

    assert outlook_of(with_rises(100, 300), 2).forecaster.startswith("goes on as over the last bin")


def test_who_is_right_as_a_rule_is_not_told_by_a_crowd():
    """Noise about a level, and one crowd, in whose rise alone what goes on is the better forecast."""
    rates = 50.0 + np.random.default_rng(2).normal(0, 1.0, 700)
    rates[300:308] *= np.linspace(1.2, 2.6, 8)
    rates[308:340] *= 2.6
    assert outlook_of(a_load(rates), 2).forecaster.startswith("mean of the last")


def test_a_rise_goes_on_by_no_more_than_it_rose():
    """A step up of one bin, of a load that always went on rising so far: by as much again at the most."""
    steps = np.tile([3.0] * 8 + [-3.0] * 8, 20)
    rates = 100.0 + np.cumsum(steps)
    found = outlook_of(a_load([*rates, rates[-1], rates[-1] + 8.0]), 3)
    assert found.forecaster.startswith("goes on as over the last bin")
    assert found.quantile(0.5, 2) <= rates[-1] + 8.0 + 8.0 + 0.5


def test_soon_after_a_fall_as_never_before_no_mean_is_believed():
    rates = 50.0 + np.random.default_rng(2).normal(0, 1.0, 700)
    rates[640:696] *= 2.5
    fallen, long_ago = outlook_of(a_load(rates), 2), outlook_of(a_load([*rates, *rates[:40]]), 2)
    assert fallen.forecaster == "the load stays"
    assert long_ago.forecaster.startswith("mean of the last")


def test_loads_told_at_once_go_the_same_ways_as_told_one_by_one():
    """Of all lengths, with and without a season, by shares and by amounts, with crowds and in steps."""
    rng = np.random.default_rng(9)
    day = season_of(np.arange(150.0, DAY_S, 300.0), 60.0 + 20.0 * np.sin(np.arange(288) / 288 * 2 * np.pi))
    asked = []
    for number in range(TOGETHER + 72):
        length = (1, 25, 45, 150, 500, 800)[number % 6]
        rates = (
            60.0 * np.exp(rng.normal(0, 0.03, length)),
            60.0 * np.exp(np.cumsum(rng.normal(0, 0.04, length))),
            60.0 + rng.normal(0, 8, length),
            np.repeat(60.0 * np.exp(rng.normal(0, 0.3, length // 5 + 1)), 5)[:length],
        )[number // 6 % 4]
        rates[length // 2 : length // 2 + 15] *= 1.0 + number % 3
        rates[-1] *= 1.0 + 0.5 * (number % 7 == 0)
        asked.append(Asked(a_load(rates), 1 + number % 5 % 2, day if number % 5 > 2 else None))
    together = outlooks_of(asked)
    forecasters = {one.forecaster for one in together}
    assert len(forecasters) > 5, forecasters
    assert sum(one.unheard for one in together) > 5
    for one, found in zip(asked, together, strict=True):
        alone = outlook_of(*one)
        assert (found.forecaster, found.known, found.unheard) == (
            alone.forecaster,
            alone.known,
            alone.unheard,
        )
        np.testing.assert_allclose(found.ways_per_s, alone.ways_per_s, rtol=1e-9)
        np.testing.assert_allclose(found.peaks_per_s, alone.peaks_per_s, rtol=1e-9)
