"""Compliance levels, duration statistics, rates of a measurement."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.monitoring.measurements import Measurement
from penstock.monitoring.sla import Compliance, DurationStatistics
from tests.builders import a_signal


def test_a_record_is_within_a_level_up_to_and_with_its_limit() -> None:
    found = Compliance.of(np.array([0.5, 1.0, 1.01, 2.0, 4.0, 5.0, 5.01]), 1.0)
    assert found == Compliance(7, 2, 4, 6)
    assert found.delayed("real_time") == 5
    assert found.ratio("relaxed") == pytest.approx(6 / 7)


def test_compliance_adds_up() -> None:
    assert Compliance(3, 1, 2, 3) + Compliance(1, 1, 1, 1) == Compliance(4, 2, 3, 4)


def test_no_records_comply() -> None:
    assert Compliance().ratio("real_time") == 1.0
    assert DurationStatistics.of([]) == DurationStatistics()


def test_statistics_of_durations() -> None:
    found = DurationStatistics.of(np.arange(101) / 100)
    assert found == DurationStatistics(101, pytest.approx(0.5), 0.5, pytest.approx(0.95), pytest.approx(0.99))


@pytest.mark.parametrize(("interval_s", "rate"), [(15.0, 10.0), (0.0, 0.0)])
def test_rates_are_per_second_and_nothing_over_no_time(interval_s: float, rate: float) -> None:
    measurement = Measurement("a", 15.0, interval_s, arrived=150, processed=150)
    assert measurement.arrival_rate_per_s == measurement.processing_rate_per_s == rate


def test_a_signal_is_about_its_measurement() -> None:
    signal = a_signal("b", at_s=30.0, queue=7)
    assert (signal.unit, signal.at_s, signal.measurement.waiting) == ("b", 30.0, 7)


def test_a_share_of_no_records_is_shown_as_a_dash() -> None:
    assert Compliance().shown("real_time") == "–"
    assert Compliance(3, 1, 2, 3).shown("near_real_time") == "66.7%"
