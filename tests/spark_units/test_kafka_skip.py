"""A record that no function can take, read from a broker: it is left out, and no good record with it."""

from __future__ import annotations

import pytest

from penstock.channels.sinks import read_results
from penstock.runs.in_one_session import LocalRun
from penstock.spark.unit.faults import Skipped
from penstock.spark.unit.folders import RunFolders
from penstock.topology.model import Channel, Operator, Sink, Unit

from ..channels.test_kafka import broker  # noqa: F401  (a real one, for these tests)
from .conftest import a_topology, put

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_record_that_fails_behind_a_broker_is_skipped_and_no_good_one_with_it(spark, broker, tmp_path):  # noqa: F811
    topology = a_topology(
        [
            Operator("double", ("numbers",), "functions:double", schema="number long, twice long"),
            Operator("op", ("double",), "functions:superstitious", on_error="skip"),
        ],
        [Sink("out", ("op",), "jsonl:out")],
        [Unit("before", ("double",)), Unit("unit", ("op",))],
        channels=(Channel("broker", "kafka", {"partitions": 2}),),
    )
    put(tmp_path, range(10, 20), unit="before")
    local = LocalRun(spark, topology, tmp_path, broker.record().bootstrap)
    local.start()
    try:
        local.process_all()
        put(tmp_path, range(20, 30), batch_id=1, unit="before")
        local.process_all()
    finally:
        local.stop()

    ids = sorted(record["record_id"] for record in read_results(tmp_path / "results" / "out"))
    assert ids == [f"r{n:06d}" for n in range(10, 30) if n != 13], local.notices
    assert Skipped(RunFolders(tmp_path).dead_letters("unit")).ids() == {("double", "r000013")}
