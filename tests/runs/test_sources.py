"""The sources of a run."""

from __future__ import annotations

from pathlib import Path

from penstock.runs.sources import LEAD_S, Feed
from penstock.spark.unit.folders import RunFolders
from penstock.topology.file import parse_topology

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
