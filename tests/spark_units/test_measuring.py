"""What is made of measurements: ages of records, totals of a run. All without Spark."""

from __future__ import annotations

import pickle

import pytest

from penstock.channels.model import Arrival
from penstock.monitoring import Measurement
from penstock.spark.session.progress import parse_progress
from penstock.spark.unit.meter import ages_of, by_the_clock, came_in
from penstock.spark.unit.totals import UnitTotals


def an_event(**more):
    event = {
        "timestamp": "1970-01-01T00:01:40.000Z",
        "batchId": 4,
        "numInputRows": 100,
        "durationMs": {"triggerExecution": 2000},
        "observedMetrics": {
            "penstock-input-x": {"source_mean_ms": 100_000.0, "source_first_ms": 99_000},
            "other": {"source_mean_ms": 0.0, "source_first_ms": 0},
        },
    }
    return parse_progress({"id": "query", **event, **more})


def test_ages_are_from_the_records_instants_to_the_end_of_their_batch():
    ages = ages_of([an_event()], "source", {})

    assert ages.mean_s == pytest.approx(2.0)
    assert 2.8 < ages.p95_s < ages.p99_s <= 3.0


def test_ages_since_arrival_come_from_the_files_where_they_are_known():
    arrived = {4: [Arrival(101.0, 90), Arrival(98.0, 10)]}

    ages = ages_of([an_event()], "arrived", arrived)

    assert (ages.mean_s, ages.p95_s) == (pytest.approx(1.3), pytest.approx(4.0))


def test_ages_since_the_source_are_spread_over_what_a_files_name_tells():
    arrived = {4: [Arrival(101.0, 50, (96.0, 98.0)), Arrival(101.0, 50, (98.0, 100.0))]}

    ages = ages_of([an_event(observedMetrics={})], "source", arrived)

    assert ages.mean_s == pytest.approx(4.0)
    assert 5.5 < ages.p95_s <= ages.p99_s <= 6.0


def test_ages_of_records_from_a_time_of_day_are_by_the_runs_clock():
    ages = ages_of([an_event()], "source", {}, lambda told_s: told_s - 10.0)

    assert ages.mean_s == pytest.approx(12.0)


def test_source_times_of_a_feeder_stay_and_those_of_day_become_the_runs():
    told = {"fed": [Arrival(9.0, 1, (7.0, 8.0))], "read": [Arrival(9.0, 1, (17.0, 18.0)), Arrival(9.0, 1)]}

    found = by_the_clock(told, {"read"}, lambda told_s: told_s - 10.0)

    assert found == {"fed": told["fed"], "read": [Arrival(9.0, 1, (7.0, 8.0)), Arrival(9.0, 1)]}


@pytest.mark.parametrize("event", [an_event(numInputRows=0), an_event(observedMetrics={})])
def test_nothing_is_said_of_ages_nobody_measured(event):
    assert ages_of([event], "source", {}).mean_s is None


def test_records_of_a_batch_that_is_done_and_not_told_of_yet_do_not_come_in_twice():
    # As it was seen in a run: 156 records in work are done, Spark tells of them one look later.
    first, unseen = came_in(0, 63 - 204, 0)
    second, left = came_in(156, 93 - 63, unseen)
    assert (first, unseen, second, left) == (0, 141, 45, 0)
    assert came_in(156, 93 - 204, 0) == (45, 0)


def test_totals_count_compliance_and_percentiles_of_a_run():
    totals = UnitTotals(slo_s=1.0)
    for duration_s in (0.5, 3.0):
        totals.add(
            Measurement("unit", 1.0, 1.0, 100, 100, 100, duration_s=duration_s, duration_p95_s=duration_s,
                        duration_p99_s=duration_s, latency_s=2 * duration_s)
        )  # fmt: skip

    count = totals.count()
    assert (count.arrived, count.processed, totals.emitted) == (200, 200, 200)
    assert (count.compliance.records, count.compliance.real_time, count.compliance.relaxed) == (200, 100, 200)
    assert (count.durations.p50_s, count.durations.p99_s) == (0.5, 3.0)
    assert totals.latencies().mean_s == pytest.approx(3.5)


def test_a_month_of_heartbeats_is_counted_like_a_minute_of_them_and_takes_no_more_room():
    short, long = UnitTotals(slo_s=1.0), UnitTotals(slo_s=1.0)
    told = Measurement(
        "unit", 1.0, 1.0, 100, 100, 100, duration_s=0.4, duration_p95_s=0.9, duration_p99_s=1.5
    )
    short.add(told)
    room = len(pickle.dumps(short))
    for _ in range(12_000):
        long.add(told)

    once, often = short.count(), long.count()
    assert often.compliance.ratio("real_time") == once.compliance.ratio("real_time") == 0.95
    assert often.durations.p95_s == pytest.approx(once.durations.p95_s)
    assert often.durations.p99_s == pytest.approx(once.durations.p99_s)
    assert often.durations.count == 12_000 * once.durations.count
    assert len(pickle.dumps(long)) < 1.01 * room
