"""The sources of a run."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.channels import feeder
from penstock.channels.batches import last_batch
from penstock.machine.processes import wait_until
from penstock.runs.sources import LEAD_S, Feed, waited_until_s
from penstock.spark.unit.folders import RunFolders
from penstock.topology.file import parse_topology
from penstock.topology.model import Source
from tests.builders import a_topology

READING = """
sources: {numbers: {function: "a:numbers"}}
operators: {count: {inputs: numbers, function: "a:count"}}
"""


def test_a_run_that_makes_no_records_itself_begins_all_the_same(tmp_path: Path) -> None:
    feed = Feed("run", parse_topology(READING), RunFolders(tmp_path))
    feed.start(100.0)
    assert feed.started_s == 100.0 + LEAD_S
    assert not feed.running()
    assert feed.unfinished() == ()


WRITING = """
loop: {silence: 5 s, monitoring: 1 s}
sources: {numbers: {workload: {name: constant, level_per_s: 50}, schema: number long}}
operators: {count: {inputs: numbers, function: "a:count"}}
"""


def test_a_feeder_that_is_frozen_is_told_ended_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    feed = Feed("run", parse_topology(WRITING), RunFolders(tmp_path / "run"))
    written = tmp_path / "run" / "sources" / "numbers" / "count"
    (tmp_path / "run").mkdir()
    feed.start(time.time())
    try:
        assert wait_until(lambda: last_batch(written) > 3 and not feed.watch(time.monotonic()), 60)
        frozen = feed.children.records["numbers"].pid
        os.kill(frozen, signal.SIGSTOP)
        reached = last_batch(written)

        told: list[str] = []
        assert wait_until(lambda: bool(told.extend(feed.watch(time.monotonic())) or told), 60)
        assert told == ["the feeder of source numbers hung; it is started again and goes on"]
        assert feed.children.records["numbers"].pid != frozen
        assert wait_until(lambda: last_batch(written) > reached + 5, 60)
    finally:
        feed.stop()


@pytest.mark.parametrize("channel", ["{}", "{durable: true}", "{kind: kafka, durable: true}"])
def test_records_of_a_generated_source_are_synced_where_a_channel_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, channel: str
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    topology = parse_topology(f"{WRITING}channels: {{between: {channel}}}\n")
    feed = Feed("run", topology, RunFolders(tmp_path / "run"), duration_s=0.5)
    (tmp_path / "run").mkdir()
    feed.start(time.time())
    feed.stop()
    # What its process was started with, done here.
    synced: list[str] = []
    monkeypatch.setattr("penstock.channels.batches.sync", lambda path: synced.append(path.name))
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    shutil.rmtree(tmp_path / "run" / "sources", ignore_errors=True)
    feeder.main([str(tmp_path / "run" / "feeder-numbers.json")])

    assert last_batch(tmp_path / "run" / "sources" / "numbers" / "count") == 4
    a_batch = ["records.json", "_staged-000000000", "count"]
    assert synced[:3] == ([] if channel == "{}" else a_batch)


class Dying(Feed):
    """A feed whose process ends at once, as one does that cannot import its function."""

    def launch(self, sources: Collection[str]) -> None:
        for name in sources:
            self.children.start(name, ["false"], log=self.folders.root / "feeder.log")


def test_a_feeder_that_dies_at_once_is_tried_after_growing_pauses_until_a_person_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    feed = Dying("run", parse_topology(WRITING), RunFolders(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    feed.start(0.0)
    tried, told = list[int](), list[str]()
    for second in range(2000):
        assert wait_until(lambda: not feed.children.alive("numbers"), 10, poll_s=0.002)
        before = feed.tries["numbers"].count
        told += feed.watch(float(second))
        assert feed.running() or feed.asks, "a run does not end because its feeder waits to be started again"
        tried += [second] * (feed.tries["numbers"].count - before)

    died, asked = told
    assert died == "the feeder of source numbers died; it is started again and goes on"
    assert "was started 20 times and did not last; a person is asked" in asked
    assert [later - sooner for sooner, later in pairwise(tried)][:7] == [1, 1, 2, 4, 8, 16, 30]
    assert len(tried) == 20
    assert feed.asks == ("the feeder of source numbers does not last",)
    assert not feed.running()


def test_a_run_waits_while_records_move_but_not_for_a_source_that_never_ends() -> None:
    generated = a_topology()
    read = a_topology(sources=[Source("s", function="job:read")])
    assert waited_until_s(generated, end_s=60.0, moved_s=500.0) == 500.0
    assert waited_until_s(generated, end_s=60.0, moved_s=10.0) == 60.0
    assert waited_until_s(read, end_s=60.0, moved_s=500.0) == 60.0
