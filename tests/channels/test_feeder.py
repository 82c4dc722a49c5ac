"""The feeder: exact ids at the workload's pace; a restarted one goes on without a gap or a double."""

from __future__ import annotations

import json

import pytest

from penstock.channels.feeder import feed, generated_columns
from penstock.channels.files import batches_in
from penstock.channels.registry import channel_options, make_channel
from penstock.channels.sinks import load_function, make_sink, read_results
from penstock.errors import ConfigurationError
from penstock.topology.model import Channel, Choice, Operator, Source, Topology

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


TOPOLOGY = Topology("shop", (Source("orders", workload=CONSTANT),), (Operator("check", ("orders",)),))


def test_a_channel_is_made_of_its_kind_and_options(tmp_path):
    made = make_channel(Channel("fast", "files", {"format": "json"}), TOPOLOGY, tmp_path)
    assert (made.kind, made.exactly_once, made.root) == ("files", True, tmp_path / "fast")

    kafka = make_channel(Channel("k", "kafka"), TOPOLOGY, tmp_path, bootstrap="127.0.0.1:9")
    assert (kafka.bootstrap, kafka.partitions, kafka.topic("check")) == ("127.0.0.1:9", 50, "shop.k.check")


@pytest.mark.parametrize(
    ("channel", "told"),
    [
        (Channel("c", "pigeons"), "unknown kind 'pigeons'; known: files, kafka"),
        (Channel("c", "files", {"speed": 3}), "unknown option 'speed'; known: format"),
        (Channel("c", "kafka"), "penstock broker up"),
    ],
)
def test_a_channel_that_cannot_be_made_says_what_would_be_right(tmp_path, channel, told):
    with pytest.raises(ConfigurationError, match=told):
        make_channel(channel, TOPOLOGY, tmp_path)


def test_every_kind_names_its_options():
    assert channel_options("files") == ("format", "max_files_per_batch")
    assert "retention" in channel_options("kafka")


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
    assert make_sink("json:dumps", tmp_path, "s") is json.dumps
