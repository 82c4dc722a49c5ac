"""Results survive a power cut where a channel is durable, whichever way they leave a unit."""

from __future__ import annotations

import os

import pytest

from penstock.channels.sinks import read_results
from penstock.runs.in_one_session import LocalRun
from penstock.topology.model import Channel, Operator, Sink, Unit

from .conftest import a_topology, put

ONE_WAY = [Operator("op", ("numbers",), "functions:double")]
TWO_WAYS = [*ONE_WAY, Operator("other", ("numbers",), "functions:even")]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("channel", "operators", "is_synced"),
    [
        (Channel("c", "kafka", {"bootstrap": "127.0.0.1:1", "durable": True}), ONE_WAY, True),
        (Channel("c", "files", {"durable": True}), TWO_WAYS, True),
        (Channel("c", "files", {}), TWO_WAYS, False),
    ],
    ids=["beside a broker", "in a call a micro-batch", "not durable"],
)
def test_results_are_synced_before_they_count(spark, tmp_path, monkeypatch, channel, operators, is_synced):
    sinks = [Sink(f"out-{operator.name}", (operator.name,), "jsonl:") for operator in operators]
    unit = Unit("unit", tuple(operator.name for operator in operators))
    put(tmp_path, range(4))
    seen = []
    rename = os.rename
    monkeypatch.setattr("penstock.channels.batches.sync", lambda path: seen.append(("synced", path)))
    monkeypatch.setattr(os, "rename", lambda a, b: (seen.append(("there", b)), rename(a, b)))
    local = LocalRun(spark, a_topology(operators, sinks, [unit], channels=(channel,)), tmp_path)
    local.start()
    try:
        local.process_all()
    finally:
        local.stop()

    for sink in sinks:
        folder = local.folders.results / sink.name
        assert read_results(folder)
        own = [what for what, path in seen if folder in (path, path.parent)]
        assert own == (["synced", "there", "synced"] if is_synced else ["there"])
