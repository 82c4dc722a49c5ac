"""The window of a region: whatever order images come in, answers equal the batch computation."""

from __future__ import annotations

import random

import pytest
from cells.window import BLOCK, CHANNELS, KEPT_BLOCKS, LENGTH, PICTURE_BYTES, Window, in_batch
from hypothesis import given, settings
from hypothesis import strategies as some

from cells import window


class Kept:
    """Blocks in a dict."""

    def __init__(self) -> None:
        self.blocks: dict[int, bytes] = {}

    def get(self, block: int) -> bytes | None:
        return self.blocks.get(block)

    def put(self, block: int, content: bytes) -> None:
        self.blocks[block] = content

    def drop(self, block: int) -> None:
        self.blocks.pop(block, None)


def grid(number: int) -> bytes:
    return random.Random(number).randbytes(8).ljust(PICTURE_BYTES, b"%c" % (number % 256))


@settings(max_examples=30, deadline=None)
@given(some.integers(1, 90), some.integers(0, 2**16), some.integers(1, 12), some.integers(0, 255))
def test_answers_are_those_of_the_batch_in_any_order_and_with_repetitions(
    count: int, seed: int, batch: int, point: int
) -> None:
    grids = [grid(number) for number in range(1, count + 1)]
    order = random.Random(seed)
    numbers = list(range(1, count + 1)) + order.choices(range(1, count + 1), k=count // 4)
    # Disorder stays near, as in a stream.
    numbers.sort(key=lambda number: number + order.uniform(0, 20))
    kept, through, ahead = Kept(), 0, set[int]()
    for begin in range(0, len(numbers), batch):
        # Every micro-batch has a window of its own, as in Spark.
        now = Window(kept, through, ahead)
        for number in numbers[begin : begin + batch]:
            now.add(number, grids[number - 1])
        asked = order.randint(0, count)
        answer = now.answer(point, asked)
        assert answer.through == min(now.through, asked)
        assert answer.intensities == in_batch(grids, point, answer.through)
        now.keep()
        through, ahead = now.through, now.ahead
    assert (through, ahead) == (count, set())


def test_a_window_reaches_back_a_thousand_images_and_its_state_is_bounded() -> None:
    grids = [grid(number) for number in range(1, 2501)]
    kept, through = Kept(), 0
    for begin in range(0, len(grids), 10):
        now = Window(kept, through)
        for number in range(begin + 1, begin + 11):
            now.add(number, grids[number - 1])
        now.keep()
        through = now.through

    answer = Window(kept, through).answer(9, through)

    assert len(answer.intensities) == LENGTH * CHANNELS
    assert answer.intensities == in_batch(grids, 9, 2500)
    assert len(kept.blocks) <= KEPT_BLOCKS
    assert {len(content) for content in kept.blocks.values()} == {BLOCK * PICTURE_BYTES}


def test_a_repeated_image_is_told_and_changes_nothing() -> None:
    now = Window(Kept(), 0)

    assert now.add(1, grid(1))
    assert not now.add(1, grid(2))
    assert now.answer(0, 1).intensities == grid(1)[:CHANNELS]


def test_images_behind_a_gap_wait_for_it() -> None:
    now = Window(Kept(), 0)
    now.add(2, grid(2))

    assert now.answer(0, 2).through == 0
    now.add(1, grid(1))
    assert now.answer(0, 2).through == 2


def test_a_query_does_not_see_images_that_came_after_it() -> None:
    now = Window(Kept(), 0)
    for number in (1, 2, 3):
        now.add(number, grid(number))

    assert now.answer(0, 2).intensities == grid(1)[:CHANNELS] + grid(2)[:CHANNELS]


def test_every_point_of_the_tissue_is_in_one_region() -> None:
    places = {
        (window.region_at(x, y), window.point_at(x, y))
        for x in range(window.SIDE)
        for y in range(window.SIDE)
    }

    assert len(places) == window.SIDE**2
    assert {region for region, _ in places} == set(range(window.REGIONS))


def test_a_grid_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes"):
        Window(Kept(), 0).add(1, b"short")
