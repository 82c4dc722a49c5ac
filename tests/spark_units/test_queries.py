"""Units as queries, in one local session: composing, ways that part, faults, restarts."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace

import pytest

from penstock.channels.sinks import read_results
from penstock.errors import ConfigurationError
from penstock.machine.processes import wait_until
from penstock.runs.in_one_session import LocalRun
from penstock.spark.gateway.executors import ExecutorControl
from penstock.spark.gateway.queries import trigger_of
from penstock.spark.unit.faults import OperatorError, cause_of
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.meter import UnitMeter
from penstock.spark.unit.query import UnitQuery
from penstock.topology.model import Operator, Sink, Unit

from .conftest import a_topology, one_operator, put

pytestmark = pytest.mark.spark


def run(spark, topology, folder, numbers=range(40)):
    put(folder, numbers, unit=topology.units[0].name)
    local = LocalRun(spark, topology, folder)
    local.start()
    try:
        local.process_all()
    finally:
        local.stop()
    return local


def ids(records):
    return sorted(record["record_id"] for record in records)


def test_fused_operators_and_a_hop_give_every_record_once_with_id_and_time(spark, tmp_path):
    topology = a_topology(
        [
            Operator("double", ("numbers",), "functions:double", schema="twice long"),
            Operator("even", ("double",), "sql:SELECT * FROM {double} WHERE twice % 4 = 0"),
        ],
        [Sink("out", ("even",), "jsonl:out"), Sink("nothing", ("double",))],
        [Unit("first", ("double",)), Unit("second", ("even",))],
    )

    local = run(spark, topology, tmp_path)

    results = read_results(tmp_path / "results" / "out")
    assert ids(results) == [f"r{n:06d}" for n in range(0, 40, 2)]
    assert {record["source_time"] for record in results} == {"2026-01-01T00:00:00.000001Z"}
    assert {name: unit.processed for name, unit in local.result().units.items()} == {
        "first": 40,
        "second": 40,
    }


def test_ways_that_part_leave_in_one_micro_batch_and_meet_again_by_name(spark, tmp_path):
    topology = a_topology(
        [
            Operator("double", ("numbers",), "functions:double"),
            Operator("even", ("double",), "functions:even"),
            Operator("odd", ("double",), "functions:odd"),
            Operator("joined", ("even", "odd"), "functions:joined"),
        ],
        [Sink("evens", ("even",), "jsonl:evens"), Sink("all", ("joined",), "jsonl:all")],
        [Unit("u", ("double", "even", "odd", "joined"))],
    )

    local = run(spark, topology, tmp_path)

    assert ids(read_results(tmp_path / "results" / "evens")) == [f"r{n:06d}" for n in range(0, 40, 2)]
    assert ids(read_results(tmp_path / "results" / "all")) == [f"r{n:06d}" for n in range(40)]
    assert local.result().units["u"].batches == 1


def test_a_stateful_way_beside_a_stateless_one_is_one_query(spark, tmp_path):
    topology = a_topology(
        [
            Operator("even", ("numbers",), "functions:even"),
            Operator("counted", ("numbers",), "functions:count_by_parity", stateful=True),
        ],
        [Sink("evens", ("even",), "jsonl:evens"), Sink("counts", ("counted",), "jsonl:counts")],
        [Unit("u", ("even", "counted"))],
    )

    run(spark, topology, tmp_path)

    assert len(read_results(tmp_path / "results" / "evens")) == 20
    assert {(r["parity"], r["records"]) for r in read_results(tmp_path / "results" / "counts")} == {
        (0, 20),
        (1, 20),
    }


def test_each_input_s_arrivals_and_each_operator_s_records_are_counted_by_themselves(spark, tmp_path):
    one = a_topology(
        [
            Operator("even", ("numbers",), "functions:even"),
            Operator("counted", ("more",), "functions:count_by_parity", stateful=True),
        ],
        [Sink("evens", ("even",), "jsonl:evens"), Sink("counts", ("counted",), "jsonl:counts")],
        [Unit("u", ("even", "counted"))],
    )
    topology = replace(one, sources=(*one.sources, replace(one.sources[0], name="more")))
    put(tmp_path, range(40), unit="u")
    put(tmp_path, range(10), unit="u", source="more")
    query = UnitQuery(spark, topology, "u", RunFolders(tmp_path))
    meter = UnitMeter(spark, ExecutorControl(spark), query)
    came, left, arrived = Counter(), Counter(), 0
    running = query.start()
    try:
        meter.measure(time.time())

        def all_came() -> bool:
            nonlocal arrived
            found = meter.measure(time.time())
            if found is not None:
                came.update(dict(found.arrived_from))
                left.update(dict(found.emitted_by))
                arrived += found.arrived
            return left["even"] >= 26 and left["counted"] >= 2

        put(tmp_path, range(40, 52), 1, unit="u")
        assert wait_until(all_came, 120, poll_s=0.2)
    finally:
        running.stop()
        query.stop_publishing()
    assert (left["even"], left["counted"]) == (26, 2)
    # What lay there at the first look did not come in since; what came after it did.
    assert 12 <= came["numbers"] <= 52
    assert came["more"] in (0, 10)
    assert came["numbers"] + came["more"] == arrived


def test_records_an_operator_throws_on_are_skipped_into_dead_letters_by_choice(spark, tmp_path):
    topology = one_operator("functions:superstitious", on_error="skip")

    local = run(spark, topology, tmp_path, range(28, 36))

    assert ids(read_results(tmp_path / "results" / "out")) == [f"r{n:06d}" for n in range(28, 36) if n != 33]
    letters = (tmp_path / "units" / "unit" / "dead-letters" / "skipped.jsonl").read_text().splitlines()
    (letter,) = map(json.loads, letters)
    assert (letter["record_id"], letter["operator"]) == ("r000033", "op")
    assert (letter["cause"], letter["record"]["number"]) == ("ValueError: 33 is unlucky", 33)
    assert "skipped 1 record(s)" in local.notices[0]


def test_a_unit_that_shall_stop_names_operator_record_and_cause(spark, tmp_path):
    with pytest.raises(
        OperatorError, match=r"operator op failed on record r000013 of numbers: ValueError: 13 is unlucky"
    ):
        run(spark, one_operator("functions:superstitious"), tmp_path, range(12, 15))


def test_a_restarted_unit_goes_on_from_its_checkpoint(spark, tmp_path):
    topology = one_operator()
    run(spark, topology, tmp_path, range(10))
    put(tmp_path, range(10, 20), batch_id=1)
    calmer = replace(topology, units=(replace(topology.units[0], trigger_s=0.25),))
    again = LocalRun(spark, calmer, tmp_path)
    again.start()
    assert [str(trigger_of(query)) for query in spark.streams.active] == ["every 0.25 s"]
    again.process_all()
    again.stop()

    assert ids(read_results(tmp_path / "results" / "out")) == [f"r{n:06d}" for n in range(20)]


def test_a_function_that_gives_no_frame_is_told(spark, tmp_path):
    with pytest.raises(ConfigurationError, match="operator op: expected functions:not_a_frame to give back"):
        run(spark, one_operator("functions:not_a_frame"), tmp_path)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("PythonException: \n  File x\nValueError: no\n\tat java", "ValueError: no"),
        (
            "SparkException: Job aborted\nCaused by: java.io.IOException: No space left",
            "java.io.IOException: No space left",
        ),
        ("something else", "something else"),
    ],
)
def test_the_cause_is_the_innermost_line_that_says_why(text, cause):
    assert cause_of(text) == cause
