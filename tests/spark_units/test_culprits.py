"""Which record is to blame: whatever inputs and operators there are, no good record becomes a dead letter."""

from __future__ import annotations

import json

import pytest

from penstock.channels.sinks import read_results
from penstock.errors import ConfigurationError
from penstock.runs.in_one_session import LocalRun
from penstock.spark.checkpoints import Checkpoint
from penstock.spark.unit.culprits import Fault, find_culprits
from penstock.spark.unit.faults import SAME_TROUBLE_S, OperatorError, Skipped, Waiting, decide
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.query import UnitQuery
from penstock.topology.model import Choice, Operator, Sink, Source, Topology, Unit

from .conftest import a_topology, one_operator, put

CONSTANT = Choice("constant", {"level_per_s": 20.0})


def two_inputs(function):
    sources = tuple(Source(name, workload=CONSTANT, schema="number long") for name in ("numbers", "more"))
    operator = Operator("op", ("numbers", "more"), function, on_error="skip")
    return Topology(
        "test", sources, (operator,), (Sink("out", ("op",), "jsonl:out"),), (Unit("unit", ("op",)),)
    )


def run(spark, topology, folder):
    local = LocalRun(spark, topology, folder)
    local.start()
    try:
        local.process_all()
    finally:
        local.stop()
    return local


def ids(folder):
    return sorted(record["record_id"] for record in read_results(folder / "results" / "out"))


def letters(folder):
    return sorted(Skipped(RunFolders(folder).dead_letters("unit")).ids())


@pytest.mark.spark
def test_a_fault_in_the_second_input_blames_that_record_alone(spark, tmp_path):
    put(tmp_path, range(10, 20))
    put(tmp_path, range(10, 16), source="more")

    local = run(spark, two_inputs("functions:superstitious_about_more"), tmp_path)

    assert letters(tmp_path) == [("more", "r000013")], local.notices
    # The first input's record of the same id is a good one.
    assert ids(tmp_path).count("r000013") == 1
    assert len(ids(tmp_path)) == 15


@pytest.mark.spark
def test_a_fault_behind_an_operator_with_ids_of_its_own_is_left_out_at_the_door(spark, tmp_path):
    topology = a_topology(
        [
            Operator("renamed", ("numbers",), "functions:own_ids"),
            Operator("op", ("renamed",), "functions:superstitious", on_error="skip"),
        ],
        [Sink("out", ("op",), "jsonl:out")],
        [Unit("unit", ("renamed", "op"))],
    )
    put(tmp_path, range(10, 16))

    local = run(spark, topology, tmp_path)

    assert letters(tmp_path) == [("numbers", "r000013")]
    assert ids(tmp_path) == [f"own-r{n:06d}" for n in (10, 11, 12, 14, 15)]
    assert len(local.notices) == 1


@pytest.mark.spark
def test_a_record_that_fails_only_with_another_is_told_apart_from_those_it_fails_with(spark, tmp_path):
    put(tmp_path, range(4))
    put(tmp_path, [5, 13], source="more")

    run(spark, two_inputs("functions:multiplied"), tmp_path)

    assert letters(tmp_path) == [("more", "r000013")]
    assert len(ids(tmp_path)) == 4


@pytest.mark.spark
def test_where_look_ups_cannot_be_seen_records_wait_and_none_is_a_dead_letter(spark, tmp_path):
    put(tmp_path, [1])
    topology = one_operator("functions:looked_up", on_error="skip")
    query = UnitQuery(spark, topology, "unit", RunFolders(tmp_path))
    query.folders.lookups.rmdir()  # made at the unit's start; as a host without the run's folder has it
    running = query.start()
    with pytest.raises(Exception, match="LookupAwayError"):
        running.processAllAvailable()

    skipped = Skipped(RunFolders(tmp_path).dead_letters("unit"))
    assert "records wait until it is back" in decide(query, running.exception(), 7, skipped, on_trial=True)
    assert letters(tmp_path) == []


@pytest.mark.spark
def test_many_records_that_fail_at_once_are_an_outage_unless_the_version_is_new(spark, tmp_path, monkeypatch):
    away = tmp_path / "away"
    away.touch()
    monkeypatch.setenv("PENSTOCK_TEST_AWAY", str(away))
    topology = one_operator("functions:calling", on_error="skip")
    put(tmp_path, range(12))
    query = UnitQuery(spark, topology, "unit", RunFolders(tmp_path))
    skipped = Skipped(RunFolders(tmp_path).dead_letters("unit"))
    running = query.start()
    with pytest.raises(Exception, match="503"):
        running.processAllAvailable()

    for attempt in (0, 7):
        told = decide(query, running.exception(), attempt, skipped)
        assert "8 of 8 records looked at fail at once in operator op: taken for an outage" in told
    with pytest.raises(OperatorError, match=r"8 of 8 .* in operator op, in a version that is new: .*503"):
        decide(query, running.exception(), 0, skipped, on_trial=True)
    assert skipped.ids() == set()

    away.unlink()
    assert find_culprits(query, Checkpoint(query.checkpoint).unfinished()).faults == ()
    running = query.start()
    running.processAllAvailable()
    running.stop()
    query.stop_publishing()
    assert len(ids(tmp_path)) == 12


@pytest.mark.spark
def test_small_micro_batches_that_fail_one_after_the_other_are_an_outage_too(spark, tmp_path, monkeypatch):
    away = tmp_path / "away"
    away.touch()
    monkeypatch.setenv("PENSTOCK_TEST_AWAY", str(away))
    topology, folders = one_operator("functions:calling", on_error="skip"), RunFolders(tmp_path)

    def fails(query, skipped):
        running = query.start()
        with pytest.raises(Exception, match="503"):
            running.processAllAvailable()
        return decide(query, running.exception(), 0, skipped)

    def passes(query):
        running = query.start()
        running.processAllAvailable()
        running.stop()
        query.stop_publishing()

    told = []
    for batch in range(3):
        # Another driver each time: what it counts on is written down.
        skipped = Skipped(folders.dead_letters("unit"))
        query = UnitQuery(spark, topology, "unit", folders, skipped=skipped.ids())
        put(tmp_path, range(3 * batch, 3 * batch + 3), batch_id=batch)
        told.append(fails(query, skipped))
        if batch < 2:
            passes(query)
    assert ["skipped 3 record(s)" in each for each in told] == [True, True, False], told
    assert "9 records in a row fail in operator op: taken for an outage" in told[2]
    assert "9 records in a row" in decide(query, RuntimeError("503"), 7, skipped), "for as long as it lasts"
    with pytest.raises(OperatorError, match=r"9 records in a row .* in a version that is new"):
        decide(query, RuntimeError("503"), 0, skipped, on_trial=True)
    assert len(letters(tmp_path)) == 6

    away.unlink()
    passes(query)
    assert ids(tmp_path) == [f"r{n:06d}" for n in (6, 7, 8)]

    # It is over: a micro-batch of one bad record is not the next of that row.
    away.touch()
    put(tmp_path, [9], batch_id=3)
    assert "skipped 1 record(s)" in fails(query, skipped)


@pytest.mark.spark
def test_an_operator_that_forgets_an_id_is_named_and_the_record_can_be_skipped(spark, tmp_path):
    topology = one_operator("functions:without_ids")
    put(tmp_path, range(12, 15))
    with pytest.raises(OperatorError, match=r"operator op failed on .* of numbers: .*it has no record_id"):
        run(spark, topology, tmp_path)

    again = run(spark, one_operator("functions:without_ids", on_error="skip"), tmp_path)

    assert (letters(tmp_path), ids(tmp_path)) == ([("numbers", "r000013")], ["r000012", "r000014"]), (
        again.notices
    )


@pytest.mark.spark
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            '{"record_id": null, "source_time": "2026-01-01T00:00:00.000001+00:00", "number": 2}',
            "no record_id",
        ),
        ('{"record_id": "r000002", "sour', "cannot be read"),
        ('{"record_id": "r000002", "number": "two"}', "cannot be read"),
    ],
)
def test_a_record_without_an_id_or_shape_is_refused_at_the_door_by_name(spark, tmp_path, line, problem):
    put(tmp_path, [0, 1, 2])
    (file,) = (tmp_path / "sources").rglob("records.json")
    content = file.read_text().splitlines()
    file.write_text("\n".join([*content[:2], line]) + "\n")

    local = run(spark, one_operator(on_error="skip"), tmp_path)

    assert ids(tmp_path) == ["r000000", "r000001"]
    assert len(letters(tmp_path)) == 1
    assert problem in local.notices[0], local.notices
    assert "numbers" in local.notices[0]


@pytest.mark.spark
def test_a_deleted_checkpoint_is_told_instead_of_losing_the_first_batches(spark, tmp_path):
    topology = one_operator()
    put(tmp_path, range(3))
    run(spark, topology, tmp_path)
    folders = RunFolders(tmp_path)
    folders.checkpoint("unit").rename(tmp_path / "gone")
    put(tmp_path, range(3, 6), batch_id=1)

    with pytest.raises(ConfigurationError, match="a checkpoint was deleted"):
        run(spark, topology, tmp_path)

    assert len(ids(tmp_path)) == 3


def test_a_torn_line_of_dead_letters_is_passed_over_and_the_next_one_stands_alone(tmp_path):
    skipped = Skipped(tmp_path)
    skipped.add([Fault("op", "numbers", "r1", "why")])
    with (tmp_path / "skipped.jsonl").open("a") as file:
        file.write('{"record_id": "r2", "inp')

    assert skipped.ids() == {("numbers", "r1")}
    skipped.add([Fault("op", "numbers", "r2", "why"), Fault("op", "numbers", "r1", "why")])

    assert skipped.ids() == {("numbers", "r1"), ("numbers", "r2")}
    lines = (tmp_path / "skipped.jsonl").read_text().splitlines()
    assert [json.loads(line)["record_id"] for line in (lines[0], lines[2])] == ["r1", "r2"]


def test_of_micro_batches_that_are_finished_no_record_is_left_out_any_more(tmp_path):
    skipped = Skipped(tmp_path)
    skipped.add([Fault("op", "numbers", "r1", "why")], 3)
    skipped.add([Fault("op", "numbers", "r2", "why")], 7)
    assert skipped.ids() == {("numbers", "r1"), ("numbers", "r2")}
    assert skipped.ids(finished=6) == {("numbers", "r2")}
    assert skipped.ids(finished=7) == set()


def test_what_a_unit_waits_for_is_said_once_while_it_lasts_and_again_when_it_comes_back():
    waiting = Waiting()
    said = [waiting.said("the disk is full", now_s) for now_s in range(0, 3600, 10)]
    assert said == ["the disk is full", *[None] * 359]
    assert waiting.said("the broker is away", 3600.0) == "the broker is away"
    assert waiting.said("the disk is full", 3610.0) == "the disk is full"
    assert waiting.said("the disk is full", 3610.0 + SAME_TROUBLE_S) == "the disk is full"
