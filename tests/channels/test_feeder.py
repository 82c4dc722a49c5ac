"""The feeder: exact ids at the workload's pace; a restarted one goes on without a gap or a double."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from penstock.channels.batches import batches_in
from penstock.channels.feeder import FULL_S, feed, generated_columns
from penstock.channels.sinks import load_function, make_sink, read_results
from penstock.errors import ConfigurationError
from penstock.topology.model import Choice, Sink

CONSTANT = Choice("constant", {"level_per_s": 50.0})


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def wait(self, delay_s):
        self.now_s += delay_s


def run(folders, duration_s, stopped=lambda: False, schema="number long, name string"):
    clock = Clock()
    return feed(
        "orders", CONSTANT, schema, folders, 1000.0, duration_s, lambda: clock.now_s, clock.wait, stopped
    )


def test_records_are_numbered_without_a_gap_and_timed_on_the_raster(tmp_path):
    folder = tmp_path / "orders" / "unit"

    assert run([folder], 2.0) == 100

    records = read_results(folder)
    assert [record["record_id"] for record in records] == [f"orders-{n:09d}" for n in range(100)]
    assert records[0]["source_time"] == "1970-01-01T00:16:40.010000+00:00"
    assert records[7] | {"name": "name-7"} == records[7]
    assert json.loads((tmp_path / "orders" / "_finished.json").read_text()) == {
        "records": 100,
        "complete": True,
    }


def test_a_feeder_that_was_killed_goes_on_where_it_was(tmp_path):
    folder = tmp_path / "orders" / "unit"
    calls = iter(range(1000))
    run([folder], 2.0, stopped=lambda: next(calls) >= 7)
    written = len(read_results(folder))
    assert 0 < written < 100
    assert json.loads((tmp_path / "orders" / "_finished.json").read_text())["complete"] is False

    run([folder], 2.0)

    assert len(read_results(folder)) == len({r["record_id"] for r in read_results(folder)}) == 100


def test_two_units_get_the_same_records(tmp_path):
    folders = [tmp_path / "orders" / "a", tmp_path / "orders" / "b"]
    run(folders, 1.0)

    assert read_results(folders[0]) == read_results(folders[1])
    assert len(batches_in(folders[0])) == 10


def test_a_type_that_cannot_be_generated_is_told_with_those_that_can():
    with pytest.raises(ConfigurationError, match=r"got 'tags array<string>'.*function"):
        generated_columns("number long, tags array<string>")


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("no_such_module_here:f", "cannot be imported"),
        ("json:no_such_function", "has no function"),
        ("json", "expected a function as module:function"),
    ],
)
def test_a_function_that_is_not_there_is_told_with_whose_it_is(reference, told):
    with pytest.raises(ConfigurationError, match=f"sink s: .*{told}"):
        load_function(reference, "sink s")


def test_a_users_sink_is_its_own_function(tmp_path):
    sink = Sink("s", ("check",), "json:dumps")
    assert make_sink(sink, "check", tmp_path, "me") is json.dumps


def test_a_batch_that_the_disk_does_not_take_waits_and_is_written_once_there_is_room(tmp_path):
    folder = tmp_path / "orders" / "unit"
    obstacle = tmp_path / "orders" / "_writing-000000003"
    obstacle.parent.mkdir()
    obstacle.touch()
    clock, tried = Clock(), []

    def wait(delay_s):
        clock.now_s += delay_s
        if delay_s == FULL_S:
            tried.append(delay_s)
            if len(tried) == 3:
                obstacle.unlink()

    count = feed("orders", CONSTANT, "number long", [folder], 1000.0, 2.0, lambda: clock.now_s, wait)

    assert len(tried) == 3
    assert [r["record_id"] for r in read_results(folder)] == [f"orders-{n:09d}" for n in range(count)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_feeder_whose_log_is_on_the_full_disk_as_well_waits_all_the_same(tmp_path, monkeypatch):
    folder = tmp_path / "orders" / "unit"
    obstacle = tmp_path / "orders" / "_writing-000000003"
    obstacle.parent.mkdir()
    obstacle.touch()
    clock = Clock()

    def wait(delay_s):
        clock.wait(delay_s)
        if delay_s == FULL_S:
            obstacle.unlink()

    # As Python's own: what could not be written is not kept for later.
    with open("/dev/full", "wb", buffering=0) as full:  # noqa: SIM117
        with io.TextIOWrapper(full, write_through=True) as log:
            monkeypatch.setattr("sys.stderr", log)
            count = feed("orders", CONSTANT, "number long", [folder], 1000.0, 2.0, lambda: clock.now_s, wait)
            monkeypatch.undo()

    assert len(read_results(folder)) == count == 100


def test_a_feeder_that_is_stopped_while_the_disk_is_full_counts_what_is_written(tmp_path):
    folder = tmp_path / "orders" / "unit"
    obstacle = tmp_path / "orders" / "_writing-000000003"
    obstacle.parent.mkdir()
    obstacle.touch()
    calls = iter(range(1000))

    assert run([folder], 2.0, stopped=lambda: next(calls) >= 8) == len(read_results(folder)) == 15


def numbered(source):
    """What `records` may name: remembers how many it has made."""
    made = []

    def columns(first, instants_s):
        made.extend(instants_s)
        return [{"place": f"{source} {len(made)}", "raw": b"\x00\xff"} for _ in instants_s]

    return columns


def test_a_function_makes_the_columns_and_sees_every_batch_also_where_a_feeder_goes_on(tmp_path):
    folder = tmp_path / "orders" / "unit"
    calls = iter(range(1000))
    clock = Clock()
    for stopped in (lambda: next(calls) >= 7, lambda: False):
        feed(
            "orders", CONSTANT, "place string, raw binary", [folder], 1000.0, 2.0, lambda: clock.now_s,
            clock.wait, stopped, "tests.channels.test_feeder:numbered",
        )  # fmt: skip
    records = read_results(folder)
    assert len(records) == 100
    assert records[-1]["place"] == "orders 100"
    assert records[0]["raw"] == "AP8="
    assert "number" not in records[0]
