"""Arrivals follow the rate, and chunks of any size add up to exactly the whole."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.topology.model import Choice
from penstock.workload import WORKLOADS, ArrivalStream, arrivals, make_workload
from penstock.workload.patterns import Constant, Linear, Pyramid, Square, Stepwise

PATTERNS = [name for name in WORKLOADS if name != "trace"]
HOUR_S = 3600.0


def test_a_constant_rate_gives_equal_spacing():
    instants = arrivals(Constant(4.0), 0, 2)
    np.testing.assert_allclose(instants, [0.125, 0.375, 0.625, 0.875, 1.125, 1.375, 1.625, 1.875])


@pytest.mark.parametrize("name", PATTERNS)
def test_a_span_gets_as_many_regular_records_as_are_due(name):
    workload = make_workload(Choice(name))
    due = float(workload.curve.records(HOUR_S))
    assert abs(arrivals(workload, 0, HOUR_S).size - due) <= 0.5 + 1e-6


@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.floats(0, HOUR_S), max_size=12))
def test_regular_chunks_add_up_to_exactly_the_whole(name, cuts):
    workload = make_workload(Choice(name, {"rate_scale": 0.02}))
    edges = [0.0, *sorted(cuts), HOUR_S]
    whole = arrivals(workload, 0, HOUR_S)
    parts = [arrivals(workload, a, b) for a, b in pairwise(edges)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    for part, (a, b) in zip(parts, pairwise(edges), strict=True):
        assert part.size == 0 or (a <= part[0] and part[-1] < b)


@pytest.mark.parametrize("process", ["regular", "poisson"])
@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.floats(0, HOUR_S), max_size=12), seed=st.integers(0, 5))
def test_a_stream_read_in_chunks_equals_one_read_whole(process, cuts, seed):
    workload = Stepwise((3.0, 0.0, 11.0), hold_s=97.0)
    whole = ArrivalStream(workload, np.random.default_rng(seed), process).until(HOUR_S)
    stream = ArrivalStream(workload, np.random.default_rng(seed), process)
    parts = [stream.until(edge) for edge in [*sorted(cuts), HOUR_S]]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert np.all(np.diff(whole) >= 0)


def test_arrivals_are_sorted_and_never_in_silent_parts():
    workload = Pyramid()
    instants = arrivals(workload, 0, 5000, np.random.default_rng(3), "poisson")
    assert np.all(np.diff(instants) >= 0)
    assert np.all(workload.rate_per_s(instants) > 0)


def test_poisson_counts_have_the_mean_and_the_variance_of_their_rate():
    counts = np.array(
        [
            arrivals(Square(10, 30, 5.0), 0, 10, np.random.default_rng(seed), "poisson").size
            for seed in range(800)
        ]
    )
    # 5 s at 10/s and 5 s at 30/s: mean and variance 200; four standard errors on either side.
    assert abs(counts.mean() - 200) < 4 * np.sqrt(200 / 800)
    assert 0.8 < counts.var() / 200 < 1.2


def test_poisson_gaps_are_exponential():
    gaps = np.diff(arrivals(Constant(100.0), 0, 500, np.random.default_rng(11), "poisson"))
    assert gaps.mean() == pytest.approx(0.01, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, rel=0.02)


def test_a_climb_has_more_records_late_than_early():
    instants = arrivals(Linear(0, 100, 100.0), 0, 100)
    assert np.sum(instants < 50) == pytest.approx(1250, abs=1)
    assert np.sum(instants >= 50) == pytest.approx(3750, abs=1)


def test_records_go_on_where_an_earlier_start_left_off():
    whole = arrivals(Constant(3.0), 0, 1_000_000.7)
    late = arrivals(Constant(3.0), 999_999.1, 1_000_000.7)
    np.testing.assert_array_equal(late, whole[whole >= 999_999.1])


def test_an_unknown_process_is_refused():
    with pytest.raises(ConfigurationError, match="regular, poisson"):
        arrivals(Constant(), 0, 1, np.random.default_rng(0), "bursty")
    with pytest.raises(ConfigurationError, match="random generator"):
        arrivals(Constant(), 0, 1, None, "poisson")
