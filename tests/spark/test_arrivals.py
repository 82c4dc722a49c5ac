"""How old records are when their batch begins, by how many had come by when."""

from __future__ import annotations

import pytest

from penstock.spark.session.arrivals import MOST_POINTS, Arrivals


def test_what_came_while_a_long_batch_ran_does_not_make_its_records_older() -> None:
    arrivals = Arrivals()
    arrivals.look(0.0, 0)
    # 100 a second come. The batch at 2 s takes the 200 that are there, and lasts a minute.
    for at_s in range(2, 62, 2):
        arrivals.look(float(at_s), 100 * at_s)
    assert arrivals.take(200, 2.0) is None, "nothing was left behind"
    arrivals.look(62.0, 6_000)
    assert arrivals.take(6_000, 62.0) is None


def test_records_that_batches_are_too_small_for_wait_for_the_ones_before() -> None:
    arrivals = Arrivals()
    arrivals.look(0.0, 0)
    # 100 a second come, and each second 50 are taken: those of the batch at 10 s came from 4.5 s to 5 s.
    for second in range(1, 11):
        arrivals.look(float(second), 100 * second - 50 * (second - 1))
        found = arrivals.take(50, float(second))
    assert found == pytest.approx((5.0, 0.5))


def test_a_backlog_is_as_old_as_it_is_although_nothing_comes_any_more() -> None:
    arrivals = Arrivals()
    arrivals.look(0.0, 0)
    arrivals.look(10.0, 1_000)
    for second in range(11, 20):
        arrivals.look(float(second), 1_000 - 100 * (second - 11))
        found = arrivals.take(100, float(second))
    assert found == pytest.approx((10.0, 1.0)), "the youngest of them came at 9 s"


def test_an_estimate_that_was_too_high_is_corrected_by_the_next_count() -> None:
    arrivals = Arrivals()
    arrivals.look(0.0, 0)
    arrivals.look(1.0, 900)  # it was 100
    arrivals.look(2.0, 200)
    assert arrivals.take(200, 2.0) is None
    arrivals.look(3.0, 100)
    assert arrivals.take(100, 3.0) is None


def test_more_rows_than_ever_came_are_no_sign_of_age_and_little_is_remembered() -> None:
    arrivals = Arrivals()
    assert arrivals.take(10, 0.0) is None
    for second in range(5 * MOST_POINTS):
        arrivals.look(float(second), 10 * second)
    assert len(arrivals._at_s) <= MOST_POINTS
    age_s, _ = arrivals.take(1_000, 10_000.0) or (0.0, 0.0)
    assert age_s == pytest.approx(9_900.0, abs=10.0)
    assert arrivals.take(10**9, 10_001.0) is None
