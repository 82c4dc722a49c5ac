"""A rate curve's integral and inverse agree with each other and with plain numerical integration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.workload.curve import RateCurve

rates = st.floats(0, 1000, allow_nan=False)
segments = st.lists(st.tuples(st.floats(0.01, 100), rates, rates), min_size=1, max_size=8)


def a_curve(parts: list[tuple[float, float, float]], repeats: bool) -> RateCurve:
    widths, first, last = zip(*parts, strict=True)
    return RateCurve(np.concatenate(([0.0], np.cumsum(widths))), first, last, repeats=repeats)


@settings(max_examples=150, deadline=None)
@given(segments, st.booleans())
def test_records_never_decrease_and_the_inverse_leads_back(parts, repeats):
    curve = a_curve(parts, repeats)
    t = np.linspace(0, curve.length_s * (3 if repeats else 1), 400)
    records = curve.records(t)
    assert np.all(np.diff(records) >= -1e-6)
    back = curve.records(curve.instants_s(records[records > 0]))
    np.testing.assert_allclose(back, records[records > 0], rtol=1e-9, atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(segments, st.booleans())
def test_the_integral_is_that_of_the_rate(parts, repeats):
    curve = a_curve(parts, repeats)
    end = curve.length_s * (2 if repeats else 1)
    edges = np.linspace(0, end, 20_001)
    middles = (edges[1:] + edges[:-1]) / 2
    numeric = float(np.sum(curve.rate_per_s(middles)) * end / 20_000)
    assert float(curve.records(end)) == pytest.approx(numeric, rel=1e-2, abs=0.1 * end)


def test_nothing_arrives_before_the_start_or_after_the_end():
    curve = RateCurve([0, 10], [5], [5])
    np.testing.assert_array_equal(curve.rate_per_s([-1, 0, 9.99, 10, 50]), [0, 5, 5, 0, 0])
    np.testing.assert_array_equal(curve.records([-1, 0, 10, 50]), [0, 0, 50, 50])
    assert np.isinf(curve.instants_s([50.5])[0])


def test_a_silent_part_delays_the_next_record_to_its_end():
    curve = RateCurve([0, 1, 5, 6], [1, 0, 1], [1, 0, 1])
    np.testing.assert_allclose(curve.instants_s([1.0, 1.5]), [1.0, 5.5])


def test_a_curve_that_is_silent_for_ever_gives_no_instant():
    for curve in (RateCurve.steps([0.0], 10), RateCurve([0, np.inf], [0], [0])):
        assert np.all(np.isinf(curve.instants_s([0.5, 10.0])))


@pytest.mark.parametrize(("rate", "time"), [(2.0, 1.0), (1.0, 0.5), (0.3, 7.0)])
def test_scaling_multiplies_rates_and_durations(rate, time):
    curve = RateCurve([0, 10, 30], [0, 8], [4, 2], repeats=True)
    bigger = curve.scaled(rate, time)
    assert bigger.length_s == pytest.approx(30 * time)
    t = np.linspace(0, 59, 60)
    np.testing.assert_allclose(bigger.rate_per_s(t * time), curve.rate_per_s(t) * rate, atol=1e-9)
    assert bigger.peak_per_s == pytest.approx(curve.peak_per_s * rate)


@pytest.mark.parametrize(
    ("edges", "first", "last", "message"),
    [
        ([0, 0], [1], [1], "grow from 0"),
        ([1, 2], [1], [1], "grow from 0"),
        ([0, 1], [-1], [1], "cannot be negative"),
        ([0, 1], [np.nan], [1], "finite"),
        ([0, np.inf], [1], [2], "endless segment"),
    ],
)
def test_an_impossible_curve_is_refused(edges, first, last, message):
    with pytest.raises(ConfigurationError, match=message):
        RateCurve(edges, first, last)
