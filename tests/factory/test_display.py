"""What a display shows is read back by optical character recognition, or known to be unreadable."""

from __future__ import annotations

from dataclasses import astuple, fields
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("PIL")
pytest.importorskip("rapidocr_onnxruntime")

from factory.display import Cycle, check_number, draw_display
from factory.machines import live
from factory.reader import display_reader

counters = st.integers(0, 99_999)


@given(st.tuples(*[counters] * 5), st.integers(0, 4), st.integers(0, 4), st.integers(1, 9))
def test_one_wrong_digit_in_any_counter_changes_the_check_number(
    values: tuple[int, ...], which: int, digit: int, change: int
) -> None:
    power = 10**digit
    old = values[which] // power % 10
    wrong = list(values)
    wrong[which] += ((old + change) % 10 - old) * power

    assert check_number(Cycle(*values)) != check_number(Cycle(*wrong))


def test_the_picture_is_about_as_large_as_the_papers() -> None:
    sizes = [len(draw_display(m.machine, m.number, m.cycle)) for m in islice(live("M01"), 10)]

    assert min(sizes) > 9_000
    assert max(sizes) < 18_000


def test_every_picture_of_a_life_is_read_as_it_was_drawn() -> None:
    for minute in islice(live("M07", seed=5), 15):
        reading = display_reader().read(draw_display(minute.machine, minute.number, minute.cycle))

        assert reading.cycle == minute.cycle
        assert reading.looks == 1


@pytest.mark.parametrize("value", [0, 1, 7, 11_111, 38_838, 70_717, 99_999])
def test_every_digit_is_told_from_every_other(value: int) -> None:
    cycle = Cycle(*[value] * len(fields(Cycle)))

    assert display_reader().read(draw_display("M01", 1, cycle)).cycle == cycle


def test_a_smudged_picture_is_unreadable_and_not_misread() -> None:
    cycle = Cycle(118, 3, 480, 12, 0)

    reading = display_reader().read(draw_display("M01", 1, cycle, smudged=True))

    assert reading.cycle is None
    assert reading.looks == 2


def test_counters_the_quick_look_misses_are_found_by_the_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = display_reader()
    cycle = Cycle(118, 3, 480, 12, 0)
    monkeypatch.setattr(reader, "_recognise", lambda pictures: ["?????"] * len(pictures))

    reading = reader.read(draw_display("M01", 1, cycle))

    assert astuple(reading.cycle) == astuple(cycle)
    assert reading.looks == 2
