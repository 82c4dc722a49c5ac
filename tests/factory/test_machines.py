"""The generator: the same truth for the same seed, and a load that goes up and down by steps."""

from __future__ import annotations

import json
from itertools import islice, pairwise
from pathlib import Path

import pytest
from factory.effectiveness import (
    availability,
    effectiveness_in_batch,
    new_defects,
    new_violations,
    oee,
    performance,
    quality,
)
from factory.feed import PER_MINUTE, Load, emissions, json_line, records_of, truth, write_feed
from factory.machines import (
    AVAILABLE,
    DEFECT,
    PLANNED,
    STATUS_S,
    TEMPERATURE_LIMIT,
    Cycle,
    Minute,
    live,
    machine_name,
)

from penstock.channels.batches import batches_in
from penstock.channels.feeder import FINISHED


def a_minute(number: int, statuses: str = "aaaaa", cycle: Cycle | None = None, hot: str = "") -> Minute:
    words = {"a": AVAILABLE, "p": PLANNED, "d": DEFECT}
    temperatures = tuple(90.0 if letter == "h" else 60.0 for letter in hot.ljust(10, "c"))
    return Minute(
        "M01", number, tuple(words[s] for s in statuses), temperatures, cycle or Cycle(0, 0, 500, 0, 0)
    )


def test_a_life_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    once, again, other = (list(islice(live("M01", seed), 50)) for seed in (3, 3, 4))

    assert once == again
    assert once != other
    assert once != list(islice(live("M02", 3), 50))


def test_what_the_display_shows_agrees_with_the_availability_sensor() -> None:
    for minute in islice(live("M03"), 500):
        cycle = minute.cycle
        assert cycle.planned_stop_s == STATUS_S * minute.statuses.count(PLANNED)
        assert cycle.defect_stop_s == STATUS_S * minute.statuses.count(DEFECT)
        assert 0 <= cycle.defective <= cycle.produced
        running_s = STATUS_S * minute.statuses.count(AVAILABLE)
        assert cycle.produced * cycle.ideal_ms <= running_s * 1000


def test_warnings_are_as_rare_as_in_table_2() -> None:
    minutes = [m for number in range(1, 5) for m in islice(live(machine_name(number)), 3000)]

    assert len(minutes) * 5 / len(new_defects(minutes)) == pytest.approx(50, rel=0.15)
    assert len(minutes) * 10 / len(new_violations(minutes, TEMPERATURE_LIMIT)) == pytest.approx(100, rel=0.15)


def test_the_formulas_of_the_paper_on_numbers_worked_out_by_hand() -> None:
    assert performance(produced=90, ideal_ms=500, reporting_cycle_s=60) == pytest.approx(0.75)
    assert availability(total_s=240, planned_stop_s=24, defect_stop_s=36) == pytest.approx(0.75)
    assert quality(total_produced=200, total_defective=10) == pytest.approx(0.95)
    assert quality(0, 0) == 1.0
    assert oee(0.75, 0.75, 0.95) == pytest.approx(0.534375)


def test_the_batch_adds_up_a_life() -> None:
    life = [a_minute(1, cycle=Cycle(100, 10, 500, 12, 0)), a_minute(2, cycle=Cycle(60, 2, 500, 0, 24))]

    truth = effectiveness_in_batch(life)

    second = truth["M01", 2]
    assert second.performance == pytest.approx(60 * 0.5 / 60)
    assert second.availability == pytest.approx((120 - 12 - 24) / 120)
    assert second.quality == pytest.approx((160 - 12) / 160)
    assert second.oee == pytest.approx(second.performance * second.availability * second.quality)


def test_an_unreadable_cycle_has_no_value_and_is_unknown_to_later_ones() -> None:
    life = [a_minute(1, cycle=Cycle(100, 10, 500, 12, 0)), a_minute(2, cycle=Cycle(60, 2, 500, 0, 24))]

    truth = effectiveness_in_batch(life, {("M01", 1)})

    assert set(truth) == {("M01", 2)}
    assert truth["M01", 2].quality == pytest.approx(58 / 60)
    assert truth["M01", 2].availability == pytest.approx((120 - 24) / 120)


def test_a_defect_over_the_end_of_a_minute_is_one_defect() -> None:
    life = [a_minute(1, "daadd"), a_minute(2, "dadpd")]

    assert new_defects(life) == {("M01", 1), ("M01", 4), ("M01", 8), ("M01", 10)}


def test_a_violation_over_the_end_of_a_minute_is_one_violation() -> None:
    life = [a_minute(1, hot="hhcccccchh"), a_minute(2, hot="hch")]

    assert new_violations(life, TEMPERATURE_LIMIT) == {("M01", 1), ("M01", 9), ("M01", 13)}


def test_machines_take_turns_and_the_load_goes_up_and_down() -> None:
    load = Load(machines=(1, 3, 1), hold_s=10.0, rate_factor=0.48)

    found = list(emissions(load))

    by_step = [[e for e in found if step * 10 <= e.at_s < step * 10 + 10] for step in range(3)]
    assert [len({e.minute.machine for e in step}) for step in by_step] == [1, 3, 1]
    assert len(by_step[1]) == pytest.approx(3 * len(by_step[0]), abs=2)
    assert all(one.at_s < other.at_s for one, other in pairwise(found))


def test_a_machine_that_was_switched_off_goes_on_with_its_life() -> None:
    load = Load(machines=(3, 1, 3), hold_s=10.0, rate_factor=0.48)
    found = [e.minute for e in emissions(load)]

    for machine in {minute.machine for minute in found}:
        own = [minute for minute in found if minute.machine == machine]
        assert [minute.number for minute in own] == list(range(1, len(own) + 1))
    assert truth(load, len(found)) == found


def test_a_minute_makes_sixteen_records_with_ids_of_their_own() -> None:
    first, second = islice(emissions(Load()), 2)

    records = [
        record
        for emission in (first, second)
        for rows in records_of(emission, 1e9).values()
        for record in rows
    ]

    assert len(records) == 32
    assert len({record["record_id"] for record in records}) == 32
    assert all("\n" not in json_line(record) for record in records)
    assert len({record["source_time"] for record in records}) == 2


def test_a_feed_that_was_interrupted_goes_on_where_it_was_and_doubles_nothing(tmp_path: Path) -> None:
    load = Load(machines=(2, 1), hold_s=5.0, rate_factor=0.48)
    streams = {source: [tmp_path / source / "unit"] for source in PER_MINUTE}
    clock = [1000.0]

    def wait(delay_s: float) -> None:
        clock[0] += delay_s

    def feed(until_s: float) -> int:
        stopped = lambda: clock[0] >= until_s  # noqa: E731
        return write_feed(load, streams, 1000.0, now_s=lambda: clock[0], wait=wait, stopped=stopped)

    interrupted = feed(1004.0)
    count = feed(float("inf"))

    assert 0 < interrupted < count == len(list(emissions(load)))
    for source, per_minute in PER_MINUTE.items():
        batches = batches_in(tmp_path / source / "unit")
        assert [batch.batch_id for batch in batches] == list(range(count))
        assert json.loads((tmp_path / source / FINISHED).read_text())["records"] == count * per_minute
        ids = [
            json.loads(line)["record_id"]
            for batch in batches
            for line in (batch.path / "records.json").read_text().splitlines()
        ]
        assert len(set(ids)) == len(ids) == count * per_minute
