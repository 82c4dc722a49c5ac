"""A record that no function can take, read from a broker: it is left out, and no good record with it."""

from __future__ import annotations

import pytest

from penstock.channels.sinks import read_results
from penstock.runs.in_one_session import LocalRun
from penstock.spark.unit.faults import Skipped
from penstock.spark.unit.folders import RunFolders
from penstock.topology.model import Channel, Choice, Operator, Sink, Source, Topology, Unit

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


def test_a_unit_goes_on_although_what_it_began_with_at_its_broker_is_torn(spark, broker, tmp_path):  # noqa: F811
    topology = a_topology(
        [
            Operator("double", ("numbers",), "functions:double", schema="number long, twice long"),
            Operator("op", ("double",)),
        ],
        [Sink("out", ("op",), "jsonl:out")],
        [Unit("before", ("double",)), Unit("unit", ("op",))],
        channels=(Channel("broker", "kafka", {"partitions": 2}),),
    )
    began = RunFolders(tmp_path).checkpoint("unit") / "sources" / "0" / "0"
    for number in range(3):
        put(tmp_path, range(10 * number, 10 * number + 10), batch_id=number, unit="before")
        local = LocalRun(spark, topology, tmp_path, broker.record().bootstrap)
        local.start()
        try:
            local.process_all()
        finally:
            local.stop()
        if number < 2:
            began.write_bytes(began.read_bytes()[:-1])

    ids = sorted(record["record_id"] for record in read_results(tmp_path / "results" / "out"))
    assert ids == [f"r{n:06d}" for n in range(30)], local.notices
    assert any("began with was torn" in told for told in local.notices)


def test_behind_a_broker_it_does_not_matter_how_many_inputs_and_operators_there_are(spark, broker, tmp_path):  # noqa: F811
    constant = Choice("constant", {"level_per_s": 20.0})
    topology = Topology(
        "test",
        tuple(Source(name, workload=constant, schema="number long") for name in ("numbers", "more")),
        (
            Operator("left", ("numbers",), "functions:double", schema="number long, twice long"),
            Operator("right", ("more",), "functions:double", schema="number long, twice long"),
            Operator("both", ("left", "right")),
            Operator("renamed", ("both",), "functions:own_ids"),
            Operator("op", ("renamed",), "functions:superstitious", on_error="skip"),
        ),
        (Sink("out", ("op",), "jsonl:out"),),
        (Unit("before", ("left", "right")), Unit("unit", ("both", "renamed", "op"))),
        channels=(Channel("broker", "kafka", {"partitions": 2}),),
    )
    put(tmp_path, range(10, 20), unit="before")
    put(tmp_path, range(25, 35), unit="before", source="more")
    local = LocalRun(spark, topology, tmp_path, broker.record().bootstrap)
    local.start()
    try:
        local.process_all()
    finally:
        local.stop()

    ids = sorted(record["record_id"] for record in read_results(tmp_path / "results" / "out"))
    good = [*range(10, 20), *range(25, 35)]
    assert ids == [f"own-r{n:06d}" for n in good if n not in (13, 33)], local.notices
    skipped = Skipped(RunFolders(tmp_path).dead_letters("unit")).ids()
    assert skipped == {("left", "r000013"), ("right", "r000033")}
