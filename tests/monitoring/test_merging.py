"""Several measurements as one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.monitoring import Counted, InstanceReading, Measurement
from penstock.monitoring.merging import merged


def test_a_single_measurement_is_kept_as_it_is() -> None:
    one = Measurement("unit", 3.0, 1.0, 5, 5)
    assert merged([one], 4.0) == replace(one, at_s=4.0)


def test_sums_the_last_backlog_and_means_weighted_by_records() -> None:
    parts = [
        Measurement(
            "unit", at_s, 1.0, 20, processed, waiting=waiting, duration_s=duration_s,
            readings=(InstanceReading("0", cpu),),
        )
        for at_s, processed, waiting, duration_s, cpu in ((1.0, 10, 9, 1.0, 0.4), (2.0, 30, 5, 2.0, 0.6))
    ]  # fmt: skip
    one = merged(parts, 9.0)
    assert (one.at_s, one.interval_s, one.arrived, one.processed, one.waiting) == (9.0, 2.0, 40, 40, 5)
    assert one.duration_s == pytest.approx(1.75)
    assert [(r.instance, r.cpu_ratio) for r in one.readings] == [("0", pytest.approx(0.5))]


def test_records_by_name_are_summed_and_not_told_where_one_part_does_not_tell_them() -> None:
    first = Measurement("unit", 1.0, 1.0, arrived_from=(Counted("a", 3), Counted("b", 1)))
    second = Measurement("unit", 2.0, 1.0, arrived_from=(Counted("b", 4),))
    assert merged([first, second], 2.0).arrived_from == (Counted("a", 3), Counted("b", 5))
    assert merged([first, Measurement("unit", 2.0, 1.0)], 2.0).arrived_from == ()


def test_records_on_time_are_summed_and_not_told_where_one_part_does_not_tell_them() -> None:
    first, second = (Measurement("a", at_s, 1.0, processed=9, on_time=7) for at_s in (1.0, 2.0))
    assert merged([first, second], 2.0).on_time == 14
    assert merged([Measurement("a", 1.0, 1.0, processed=9), second], 2.0).on_time is None


def test_what_began_within_it_is_not_forgotten() -> None:
    first, second = Measurement("a", 1.0, 1.0, processed=10, beginning=True), Measurement("a", 2.0, 1.0)
    assert merged([first, second], 2.0).beginning
    assert not merged([second, second], 2.0).beginning
