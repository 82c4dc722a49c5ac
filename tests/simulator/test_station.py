"""One queue and its slots, record by record, against a plain reference; nothing lost, nothing doubled."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.simulator.flows import Flow, Way
from penstock.simulator.kernel import BINS, add_to_histogram, percentile
from penstock.simulator.station import Station


def a_station(
    *, service_s: float = 0.1, shape: str = "deterministic", cv: float = 0.25, slots: int = 1
) -> Station:
    way = Way("a", service_s, cv, shape)
    return Station(Flow("a", 1.0, (way,), ()), slots, np.random.default_rng(1))


def received(station: Station, instants: list[float]) -> None:
    arrival = np.array(instants, dtype=np.float64)
    station.receive(arrival, arrival, 0)


def conserved(station: Station) -> bool:
    return station.arrived == station.waiting + station.in_service + station.done


def reference(arrivals: list[float], opens: list[float], service_s: float) -> list[float]:
    """When each record is finished: the first free server takes the first record."""
    free = sorted(opens)
    ends = []
    for arrival in arrivals:
        end = max(heapq.heappop(free), arrival) + service_s
        heapq.heappush(free, end)
        ends.append(end)
    return sorted(ends)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.0, 50.0), min_size=1, max_size=80).map(sorted),
    st.lists(st.floats(0.0, 30.0), min_size=1, max_size=5),
    st.floats(0.01, 5.0),
    st.lists(st.floats(0.1, 49.0), max_size=6).map(sorted),
)
def test_it_serves_like_a_plain_queue_however_time_is_cut(arrivals, opens, service_s, cuts) -> None:
    station = a_station(service_s=service_s)
    for number, from_s in enumerate(opens):
        station.add_slots(f"a-{number}", from_s)
    received(station, arrivals)
    ends: list[float] = []
    begin_s = 0.0
    for end_s in [*cuts, 1000.0]:
        finished = station.step(begin_s, end_s)
        assert np.all(np.diff(finished.end_s) >= 0)
        assert np.all(finished.end_s <= end_s)
        assert conserved(station)
        ends += finished.end_s.tolist()
        begin_s = end_s
    assert ends == pytest.approx(reference(arrivals, opens, service_s))
    assert station.done == len(arrivals)


def test_a_crash_puts_records_back_first_in_the_line() -> None:
    station = a_station(service_s=10.0)
    station.add_slots("a-1", 0.0)
    station.add_slots("a-2", 0.0)
    received(station, [0.0, 1.0, 2.0, 3.0])
    station.step(0.0, 5.0)
    assert (station.waiting, station.in_service) == (2, 2)
    assert station.remove_slots("a-1") == 1
    assert station.remove_slots("a-2") == 1
    assert (station.waiting, station.in_service) == (4, 0)
    assert conserved(station)
    station.add_slots("a-3", 6.0)
    finished = station.step(5.0, 100.0)
    assert finished.end_s.tolist() == [16.0, 26.0, 36.0, 46.0]
    assert finished.origin_s.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_closed_slot_finishes_what_it_has_begun_and_takes_nothing_new() -> None:
    station = a_station(service_s=2.0)
    station.add_slots("a-1", 0.0)
    received(station, [0.0, 0.5])
    station.step(0.0, 1.0)
    assert station.close_slots("a-1") == 2.0
    assert station.step(1.0, 10.0).end_s.tolist() == [2.0]
    assert station.waiting == 1
    assert station.close_slots("a-1") == -np.inf
    assert station.remove_slots("a-1") == 0


def test_an_instance_with_several_slots_works_on_several_records() -> None:
    station = a_station(service_s=1.0, slots=3)
    station.add_slots("a-1", 0.0)
    received(station, [0.0] * 4)
    assert station.step(0.0, 5.0).end_s.tolist() == [1.0, 1.0, 1.0, 2.0]
    names, load, finished, *_ = station.read(5.0, 5.0)
    assert (names, load.tolist(), finished) == (["a-1"], [pytest.approx(4.0 / 15.0)], [4])
    assert station.read(5.0, 5.0).load.tolist() == [0.0]


def test_busy_time_is_split_at_the_end_of_a_step() -> None:
    station = a_station(service_s=3.0)
    station.add_slots("a-1", 0.0)
    received(station, [1.0])
    station.step(0.0, 2.0)
    assert station.read(2.0, 2.0).load.tolist() == [0.5]
    station.step(2.0, 10.0)
    assert station.read(10.0, 8.0).load.tolist() == [0.25]


def test_only_running_instances_are_read_and_new_ones_by_the_time_they_had() -> None:
    station = a_station(service_s=2.0)
    for name, from_s in (("old", 0.0), ("young", 12.0), ("unborn", 30.0), ("retiring", 0.0)):
        station.add_slots(name, from_s)
    station.close_slots("retiring")
    received(station, [11.0, 12.0])
    station.step(0.0, 15.0)
    names, load, finished, *_ = station.read(15.0, 15.0)
    assert names == ["old", "young"]
    assert load.tolist() == pytest.approx([2.0 / 15.0, 2.0 / 3.0])
    assert finished == [1, 1]


def test_a_slow_instance_takes_longer_for_what_it_begins_from_then_on() -> None:
    station = a_station(service_s=1.0)
    station.add_slots("a-1", 0.0)
    received(station, [0.0, 5.0, 10.0])
    station.step(0.0, 4.0)
    station.slow_down("a-1", 3.0)
    assert station.step(4.0, 9.0).end_s.tolist() == [8.0]
    station.slow_down("a-1", 1.0)
    assert station.step(9.0, 20.0).end_s.tolist() == [11.0]


def test_a_measurement_tells_what_happened_since_the_last() -> None:
    station = a_station(service_s=0.5)
    station.add_slots("a-1", 0.0)
    received(station, [0.0, 1.0, 2.0, 2.25])
    station.step(0.0, 10.0)
    measured = station.measured(10.0, 10.0, 7, station.read(10.0, 10.0), ())
    assert (measured.unit, measured.emitted, measured.waiting, measured.in_service) == ("a", 7, 0, 0)
    assert (measured.arrived, measured.processed) == (4, 4)
    assert measured.service_s == pytest.approx(0.5)
    assert measured.duration_s == pytest.approx((0.5 * 3 + 0.75) / 4)
    assert measured.service_cv == pytest.approx(0.0, abs=1e-6)
    gaps = np.array([1.0, 1.0, 0.25])
    assert measured.arrival_cv == pytest.approx(gaps.std() / gaps.mean())
    assert measured.duration_p95_s == pytest.approx(0.75, rel=0.02)
    empty = station.measured(20.0, 10.0, 0, station.read(20.0, 10.0), ())
    assert (empty.arrived, empty.processed, empty.duration_s, empty.arrival_cv) == (0, 0, None, None)
    assert station.sums[0] == pytest.approx(2.25)


@pytest.mark.parametrize(("shape", "cv"), [("lognormal", 0.25), ("lognormal", 1.5), ("exponential", 1.0)])
def test_service_times_have_the_mean_and_spread_they_are_given(shape: str, cv: float) -> None:
    station = a_station(service_s=0.2, shape=shape, cv=cv)
    station.add_slots("a-1", 0.0)
    received(station, np.arange(0.0, 4e5, 2.0).tolist())
    station.step(0.0, 1e6)
    measured = station.measured(1e6, 1e6, 0, station.read(1e6, 1e6), ())
    assert measured.service_s == pytest.approx(0.2, rel=0.02)
    assert measured.service_cv == pytest.approx(cv, rel=0.05)


@settings(deadline=None)
@given(st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_of_the_histogram_is_near_the_true_one(values: list[float], share: float) -> None:
    histogram = np.zeros(BINS)
    total = add_to_histogram(np.array(values), histogram)
    assert total == pytest.approx(sum(values))
    true = sorted(values)[int(np.ceil(share * len(values) - 1e-9)) - 1]
    assert percentile(histogram, share) == pytest.approx(true, rel=0.02)


def test_durations_out_of_the_histogram_are_counted_at_its_ends() -> None:
    histogram = np.zeros(BINS)
    add_to_histogram(np.array([0.0, 1e-6, 1e9]), histogram)
    assert histogram.sum() == 3
    assert percentile(histogram, 0.5) <= 1e-4
    assert percentile(np.zeros(BINS), 0.5) == 0.0
