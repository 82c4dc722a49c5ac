"""What the benchmarks of `attach` make of what a run left behind."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from benchmarks.attach_memory import JOURNAL, WHOLE_S, grown
from benchmarks.attach_sides import Side, compared, kept_since

from penstock.controller.journal import Journal, TickRecord
from penstock.monitoring.measurements import Measurement, Signal


def a_journal(path: Path, on_time: int | None) -> Path:
    """Ten lines before the load began, and forty of 8 s in the mean after."""
    measured = (
        Measurement("job", 5.0, 2.0, processed=10, duration_s=20.0, on_time=0),
        Measurement("job", 15.0, 2.0, processed=40, duration_s=8.0, on_time=on_time),
    )
    with Journal(path, run="job") as journal:
        for one in measured:
            journal.record(TickRecord(one.at_s, False, 1, 1, 1, 1, Decimal(0), signals=(Signal(one),)))
    return path


@pytest.mark.parametrize(("on_time", "kept"), [(30, (0.75, True)), (None, (1.0, False))])
def test_lines_within_the_slo_are_counted_one_by_one_where_the_journal_has_it(
    tmp_path: Path, on_time: int | None, kept: tuple[float, bool]
) -> None:
    assert kept_since(a_journal(tmp_path / "journal.db", on_time), 10.0) == kept


def test_how_lines_were_counted_is_said_and_two_ways_are_not_held_against_each_other() -> None:
    counted, by_mean = Side(6.0, 0.9, 1, 10, 10.0, line_by_line=True), Side(10.0, 1.0, 1, 10, 10.0)
    names = {f.name for f in compared("hill", {"attach": counted, "dynamic allocation": by_mean})}
    assert "hill, attach: lines within 10 s" in names
    assert "hill, dynamic allocation: lines in measurements with a mean within 10 s" in names
    assert not any("above dynamic" in name for name in names)
    both = compared("hill", {"attach": counted, "dynamic allocation": counted})
    assert [f.holds for f in both if "above dynamic" in f.name] == [True]


@pytest.mark.parametrize(("spent_s", "holds"), [(WHOLE_S, [True, False]), (WHOLE_S / 2, [None, None])])
def test_memory_is_flat_by_its_last_tenth_and_less_than_an_hour_is_no_answer(
    spent_s: float, holds: list[bool | None]
) -> None:
    # What is there while everything starts does not count: the first tenth is left out.
    samples = [{"flat": 900.0, "growing": 1.0, JOURNAL: 5.0}] * 2
    samples += [{"flat": 100.0, "growing": 100.0 + n, JOURNAL: 5.0 * n} for n in range(1, 19)]
    found = {figure.name: figure for figure in grown(samples, spent_s)}
    ratios = [found[f"attached, {name}: last tenth to second"] for name in ("flat", "growing", JOURNAL)]
    assert [figure.holds for figure in ratios[:2]] == holds
    assert ratios[0].here == 1.0
    assert (ratios[2].bar, ratios[2].holds) == (None, None), "the journal grows by design"
