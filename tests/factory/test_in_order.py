"""Whatever order records arrive in, and however often: each is taken once, in turn."""

from __future__ import annotations

from typing import Any

from factory.in_order import Gather, InOrder
from hypothesis import given
from hypothesis import strategies as st


def a_record(number: int, **columns: Any) -> dict[str, Any]:
    return {
        "record_id": f"r{number}",
        "source_time": None,
        "machine": "M01",
        "sequence": number,
        "time_s": 60 * number,
        **columns,
    }


def in_batches(records: list[dict[str, Any]], sizes: list[int]) -> list[list[dict[str, Any]]]:
    batches = []
    for size in sizes:
        batches.append(records[:size])
        records = records[size:]
    return [*batches, records]


arrivals = st.integers(1, 20).flatmap(
    lambda count: st.tuples(
        st.permutations(list(range(1, count + 1)) * 2), st.lists(st.integers(0, 6), max_size=8)
    )
)


@given(arrivals)
def test_running_totals_are_right_for_every_order_and_repetition(given_: tuple[list[int], list[int]]) -> None:
    order, sizes = given_
    count = max(order)

    def step(total: int, record: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        total += record["sequence"] ** 2
        return total, {"total": total}

    processor = InOrder(step, 0)
    memory, emitted = processor.first(), []
    for batch in in_batches([a_record(number) for number in order], sizes):
        memory, more = processor.advance(memory, iter(batch))
        emitted += more

    assert [record["sequence"] for record in emitted] == list(range(1, count + 1))
    assert [r["total"] for r in emitted] == [sum(i * i for i in range(1, n + 1)) for n in range(1, count + 1)]
    assert memory[2] == {}, "nothing waits once all have come"


@given(arrivals, st.randoms(use_true_random=False))
def test_three_parts_are_put_together_once_in_every_order(
    given_: tuple[list[int], list[int]], random: Any
) -> None:
    order, sizes = given_
    records = [a_record(n, part=part, value=float(n)) for n in order for part in "abc"]
    random.shuffle(records)

    processor = Gather(("a", "b", "c"))
    memory, emitted = processor.first(), []
    for batch in in_batches(records, sizes):
        memory, more = processor.advance(memory, iter(batch))
        emitted += more

    assert sorted(record["sequence"] for record in emitted) == list(range(1, max(order) + 1))
    assert all(record["a"] == record["b"] == record["c"] == record["sequence"] for record in emitted)
    assert memory == (max(order) + 1, set(), {}), "the state does not grow with the life of a machine"


def test_a_step_that_emits_nothing_ends_the_record() -> None:
    processor = InOrder(lambda seen, record: (seen + 1, None), 0)

    memory, emitted = processor.advance(processor.first(), iter([a_record(1), a_record(2)]))

    assert emitted == []
    assert memory == (3, 2, {})
