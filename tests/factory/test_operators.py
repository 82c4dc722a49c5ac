"""The nine operators on Spark, in the units of the topology file, against the generator's truth."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("PIL")
pytest.importorskip("rapidocr_onnxruntime")
pytest.importorskip("fpdf")

from factory.effectiveness import effectiveness_in_batch, new_defects, new_violations
from factory.feed import Emission, Load, emissions, json_line, records_of
from factory.inbox import FOLDER_VARIABLE, messages_in
from factory.machines import TEMPERATURE_LIMIT

from penstock.channels.batches import publish
from penstock.channels.sinks import read_results
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.plan import generated_sources
from penstock.spark.unit.query import UnitQuery
from penstock.topology.file import load_topology
from penstock.topology.model import Topology

from ..spark_units.conftest import process_all

pytestmark = pytest.mark.spark

TOPOLOGY = Path(__file__).resolve().parents[2] / "examples" / "factory" / "factory.yaml"
LOAD = Load(machines=(2, 3, 2), hold_s=8.0, rate_factor=0.16, seed=11, smudged_ratio=0.05)
REPORT_EVERY = 6


def write_disordered(topology: Topology, folders: RunFolders, found: list[Emission]) -> None:
    """The feed as two batches a source, out of order and (but for pictures) with repetitions."""
    shuffled = random.Random(7)
    for source, units in generated_sources(topology).items():
        records = [record for emission in found for record in records_of(emission, 1.7e9)[source]]
        if source != "production":
            records += shuffled.sample(records, len(records) // 10)
        shuffled.shuffle(records)
        half = len(records) // 2 + 1
        for number in range(2):
            lines = [json_line(record) for record in records[number * half : (number + 1) * half]]
            written = folders.sources / f"_writing-{number}"
            written.mkdir(parents=True)
            (written / "records.json").write_text("\n".join(lines) + "\n")
            streams = [folders.sources / source / unit for unit in units]
            publish(written, [written / "records.json"], len(lines), streams, number)


@pytest.fixture(scope="module")
def outcome(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the units of the topology file make of the feed, with the inbox written twice each time."""
    from factory import operators

    place = tmp_path_factory.mktemp("factory")
    topology = load_topology(TOPOLOGY)
    folders = RunFolders(place)
    found = list(emissions(LOAD))
    write_disordered(topology, folders, found)
    spark.conf.set(operators.REPORT_EVERY, str(REPORT_EVERY))
    readings: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(place / "inbox"))
        for unit in topology.units_in_order:
            process_all(UnitQuery(spark, topology, unit.name, folders))
            if unit.name == "read":
                stream = folders.channels / "files" / "parse_and_distribute" / "analyse"
                readings = spark.read.parquet(f"{stream}/batch-*").collect()
    return {
        "emissions": found,
        "readings": readings,
        "values": read_results(folders.results / "values"),
        "messages": messages_in(place / "inbox"),
        "inbox": place / "inbox",
    }


def test_ocr_reads_every_clean_picture_right_and_counts_every_smudged_one(outcome: dict[str, Any]) -> None:
    truth = {(e.minute.machine, e.minute.number): e for e in outcome["emissions"]}
    smudged = {key for key, emission in truth.items() if emission.smudged}

    assert Counter((r.machine, r.sequence) for r in outcome["readings"]) == Counter(truth.keys())
    assert {(r.machine, r.sequence) for r in outcome["readings"] if not r.readable} == smudged
    assert smudged, "the load was chosen so that some pictures cannot be read"
    for reading in outcome["readings"]:
        cycle = truth[reading.machine, reading.sequence].minute.cycle
        if reading.readable:
            assert (reading.produced, reading.defective) == (cycle.produced, cycle.defective)
            assert (reading.planned_stop_s, reading.defect_stop_s) == (
                cycle.planned_stop_s,
                cycle.defect_stop_s,
            )


def test_oee_of_the_stream_equals_oee_in_batch_for_each_machine_and_timestamp(
    outcome: dict[str, Any],
) -> None:
    minutes = [emission.minute for emission in outcome["emissions"]]
    unreadable = {(e.minute.machine, e.minute.number) for e in outcome["emissions"] if e.smudged}
    truth = effectiveness_in_batch(minutes, unreadable)
    stream = {(value["machine"], value["sequence"]): value for value in outcome["values"]}

    assert len(outcome["values"]) == len(minutes), "every picture makes one value, no more"
    assert {key for key, value in stream.items() if "oee" not in value} == unreadable
    assert set(stream) == set(truth) | unreadable
    for key, expected in truth.items():
        value = stream[key]
        assert value["time_s"] == 60 * key[1]
        for name in ("availability", "performance", "quality", "oee"):
            assert value[name] == pytest.approx(getattr(expected, name), rel=1e-12)


def test_every_new_defect_and_violation_is_warned_of_once(outcome: dict[str, Any]) -> None:
    minutes = [emission.minute for emission in outcome["emissions"]]
    warned = Counter((m.kind, m.machine, m.sequence) for m in outcome["messages"] if m.kind != "report")

    expected = {("defect", *key) for key in new_defects(minutes)}
    expected |= {("temperature", *key) for key in new_violations(minutes, TEMPERATURE_LIMIT)}
    assert {kind for kind, _, _ in expected} == {"defect", "temperature"}
    assert warned == Counter(expected)


def test_a_report_is_made_of_every_so_many_values_and_reaches_the_inbox(outcome: dict[str, Any]) -> None:
    reports = [message for message in outcome["messages"] if message.kind == "report"]

    assert len(reports) == len(outcome["values"]) // REPORT_EVERY
    for report in reports:
        assert report.document is not None
        assert report.document.read_bytes().startswith(b"%PDF-")


def test_records_keep_the_id_and_time_they_left_their_source_with(outcome: dict[str, Any]) -> None:
    by_id = {
        record["record_id"]: datetime.fromisoformat(record["source_time"])
        for emission in outcome["emissions"]
        for records in records_of(emission, 1.7e9).values()
        for record in records
    }

    for value in outcome["values"]:
        assert datetime.fromisoformat(value["source_time"]) == by_id[value["record_id"]]
    for file in outcome["inbox"].glob("*.json"):
        message = json.loads(file.read_text())
        assert message["kind"] == "report" or message["record_id"] in by_id
