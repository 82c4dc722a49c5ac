"""What a batch costs whatever is in it, told apart from what each record adds."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from penstock.spark.gateway.executors import Executor
from penstock.spark.session.progress import Batch
from penstock.spark.session.work import LEAST, Beginnings, KeptSlots, Work

FIXED_S, RECORD_S, LONGEST_S = 1.5, 0.005, 4.0


def told(
    work: Work, sizes: Iterable[int], rate_per_s: float, *, noise: float = 0.1, record_s: float = RECORD_S
) -> float:
    """What is said of a record after batches of some sizes, each a little off what it should take."""
    chance, found = random.Random(7), 0.0
    for rows in sizes:
        work.arrive(2.0, round(2.0 * rate_per_s))
        busy_s = (FIXED_S + record_s * rows) * chance.uniform(1 - noise, 1 + noise)
        found = work.record_s(1, rows, busy_s, LONGEST_S)
    return found


def in_batches_of(rows: float) -> float:
    return RECORD_S + FIXED_S / rows


def test_a_record_costs_what_it_would_in_batches_as_long_as_they_may_be() -> None:
    work = Work()
    told(work, [640, 800, 480, 960, 640, 720, 800, 560], 320.0)
    small = told(work, [160, 120, 160, 80, 160, 120] * 3, 80.0)
    assert small == pytest.approx(in_batches_of(80.0 * LONGEST_S), rel=0.25), (
        "not the 17 ms that 120 rows tell"
    )


def test_what_is_said_stays_when_fewer_executors_make_batches_larger() -> None:
    work = Work()
    told(work, [640, 800, 480, 960, 640, 720, 800, 560], 320.0)
    with_many = told(work, [80, 120, 160] * 5, 80.0)
    with_few = told(work, [280, 320, 240] * 5, 80.0)
    assert with_few == pytest.approx(with_many, rel=0.25)


def test_sizes_that_hardly_differ_leave_all_of_it_to_the_records() -> None:
    found = told(Work(), [150, 151, 149, 150, 152, 150, 148, 150], 80.0, noise=0.2)
    assert found == pytest.approx(in_batches_of(150), rel=0.25)


def test_small_batches_that_took_longer_than_large_ones_leave_nothing_to_the_records() -> None:
    found = told(Work(), [400, 10] * 7, 1000.0, noise=0.05, record_s=-0.001)
    assert found == pytest.approx((FIXED_S - 0.2) / 400, rel=0.25), "not 0.15 s each, as ten lines tell"


def test_no_batch_is_taken_to_be_larger_than_one_that_was_seen() -> None:
    found = told(Work(), [40, 100, 60, 80, 50, 90] * 5, 1000.0, noise=0.01)
    assert found == pytest.approx(in_batches_of(100), rel=0.1), "4,000 records would come within four seconds"


def test_a_batch_longer_than_it_may_be_does_not_make_records_look_cheap() -> None:
    found = told(Work(), [200, 400, 800, 1600, 1200, 300] * 3 + [1600], 80.0, noise=0.01)
    assert found == pytest.approx(in_batches_of(320), rel=0.1)


def test_records_that_take_longer_than_before_are_noticed_at_once() -> None:
    work = Work()
    before = told(work, [160, 320, 80, 240] * 5, 80.0)
    after = told(work, [320], 80.0, record_s=10 * RECORD_S)
    assert after > 4 * before


def test_the_first_measurements_tell_what_they_took() -> None:
    work = Work()
    work.arrive(2.0, 160)
    assert work.record_s(2, 100, 3.0, LONGEST_S) == pytest.approx(0.03)
    assert work.record_s(1, 400, 4.0, LONGEST_S) == pytest.approx(0.01)


def test_another_query_is_learnt_anew() -> None:
    work = Work()
    told(work, [640, 800, 480, 960, 160, 80, 120] * 2, 80.0)
    work.forget()
    assert work.record_s(1, 100, 2.0, LONGEST_S) == pytest.approx(0.02)


def a_batch(rows: int, query: str = "query") -> Batch:
    return Batch(query, 0, 0.0, 7.5, rows, None, {})


def test_a_first_batch_and_small_ones_before_many_records_only_begin() -> None:
    begins = Beginnings()
    assert begins.finish([a_batch(10)], there=0), "the first starts Python and compiles"
    assert begins.finish([a_batch(40)], there=640), "as much again, for forty records of what is there"
    assert not begins.finish([a_batch(600)], there=680)
    assert not begins.finish([a_batch(40)], there=680), "later ones are what the query does"
    assert begins.finish([a_batch(600), a_batch(5, "another")], there=0)


def test_a_second_batch_tells_what_it_took_where_no_more_is_there() -> None:
    begins = Beginnings()
    begins.finish([a_batch(4)], there=0)
    assert not begins.finish([a_batch(25)], there=0)


def executors_with(*tasks: int) -> list[Executor]:
    return [Executor(f"{n}", "h", 2, 0.0, 0, active, 0.0, 0) for n, active in enumerate(tasks)]


def test_queries_in_real_time_keep_the_slots_their_tasks_have_most_of_the_time() -> None:
    kept = KeptSlots()
    assert kept.look((), executors_with(2, 1), tells_tasks=True) == 0, "others are no matter of it"
    for _ in range(LEAST - 1):
        assert kept.look({"q"}, executors_with(0, 0), tells_tasks=True) == 4, "it may only just begin"
    for _ in range(2 * LEAST):
        found = kept.look({"q"}, executors_with(2, 1), tells_tasks=True)
    assert found == 3
    assert kept.look({"q"}, executors_with(0, 0), tells_tasks=True) == 3, "between two batches"
    assert kept.look({"q"}, executors_with(2, 2), tells_tasks=True) == 3, "a job beside it"
    assert kept.look({"q", "r"}, executors_with(2, 1), tells_tasks=True) == 4, "another one begins"
    assert kept.look((), executors_with(2, 1), tells_tasks=True) == 0


def test_where_tasks_are_not_told_queries_in_real_time_keep_all_slots() -> None:
    kept = KeptSlots()
    for _ in range(2 * LEAST):
        assert kept.look({"q"}, executors_with(0, 0, 0), tells_tasks=False) == 6
