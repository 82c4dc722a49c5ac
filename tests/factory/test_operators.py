"""The nine operators on Spark, as streams in two units, against the generator's truth."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("PIL")
pytest.importorskip("rapidocr_onnxruntime")
pytest.importorskip("fpdf")

from examples.factory.effectiveness import effectiveness_in_batch, new_defects, new_violations
from examples.factory.feed import SOURCES, Emission, Load, emissions, json_line, records_of
from examples.factory.inbox import FOLDER_VARIABLE, messages_in
from examples.factory.machines import TEMPERATURE_LIMIT

pytestmark = pytest.mark.spark

LOAD = Load(machines=(2, 3, 2), hold_s=8.0, rate_factor=0.16, seed=11, smudged_ratio=0.05)
REPORT_EVERY = 6


def write_feed(folder: Path, found: list[Emission]) -> None:
    """The feed as files, out of order and with repetitions, in three batches."""
    shuffled = random.Random(7)
    for source in SOURCES:
        records = [record for emission in found for record in records_of(emission, 1.7e9)[source]]
        if source != "production":
            records += shuffled.sample(records, len(records) // 10)
        shuffled.shuffle(records)
        target = folder / source
        target.mkdir(parents=True)
        third = len(records) // 3 + 1
        for number in range(3):
            lines = [json_line(record) for record in records[number * third : (number + 1) * third]]
            (target / f"{number}.json").write_text("\n".join(lines) + "\n")


def read(spark: Any, folder: Path, columns: str, kind: str = "json") -> Any:
    reader = spark.readStream.schema(f"record_id string, source_time timestamp, {columns}")
    return reader.option("maxFilesPerTrigger", 1).format(kind).load(str(folder))


def run(frame: Any, work: Any, checkpoint: Path) -> None:
    query = (
        frame.writeStream.foreachBatch(work)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@pytest.fixture(scope="module")
def outcome(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two units, read and analyse with report, make of the feed."""
    from examples.factory import operators as o

    place = tmp_path_factory.mktemp("factory")
    found = list(emissions(LOAD))
    write_feed(place / "feed", found)
    spark.conf.set(o.REPORT_EVERY, str(REPORT_EVERY))

    pictures = read(spark, place / "feed" / "production", o.PRODUCTION_SCHEMA)
    parsed = o.parse_and_distribute(pictures)
    parsed_columns = parsed.schema

    def keep(batch: Any, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(str(place / "parsed" / f"batch={batch_id}"))

    run(parsed, keep, place / "checkpoint-read")
    readings = spark.read.schema(parsed_columns).parquet(str(place / "parsed" / "*")).collect()

    parsed = spark.readStream.schema(parsed_columns).parquet(str(place / "parsed" / "*"))
    availability = read(spark, place / "feed" / "availability", o.AVAILABILITY_SCHEMA)
    temperature = read(spark, place / "feed" / "temperature", o.TEMPERATURE_SCHEMA)
    oee = o.calculate_oee(
        calculate_performance=o.calculate_performance(parsed),
        calculate_availability=o.calculate_availability(parsed),
        calculate_quality=o.calculate_quality(parsed),
    )
    messages = o.inform_user(
        filter_availability=o.filter_availability(availability),
        monitor_temperature=o.monitor_temperature(temperature),
        generate_report=o.generate_report(oee),
    )
    values: list[Any] = []
    run(oee, lambda batch, batch_id: values.extend(batch.collect()), place / "checkpoint-oee")

    from examples.factory.inbox import put_into_inbox

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(place / "inbox"))

        def twice(batch: Any, batch_id: int) -> None:
            put_into_inbox(batch, batch_id)
            put_into_inbox(batch, batch_id)

        run(messages, twice, place / "checkpoint-messages")
    return {
        "emissions": found,
        "readings": readings,
        "values": values,
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
    stream = {(value.machine, value.sequence): value for value in outcome["values"]}

    assert len(outcome["values"]) == len(minutes), "every picture makes one value, no more"
    assert {key for key, value in stream.items() if value.oee is None} == unreadable
    assert set(stream) == set(truth) | unreadable
    for key, expected in truth.items():
        value = stream[key]
        assert value.time_s == 60 * key[1]
        assert value.availability == expected.availability
        assert value.quality == expected.quality
        assert value.performance == pytest.approx(expected.performance, rel=1e-12)
        assert value.oee == pytest.approx(expected.oee, rel=1e-12)


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
        record["record_id"]: record["source_time"]
        for emission in outcome["emissions"]
        for records in records_of(emission, 1.7e9).values()
        for record in records
    }

    for value in outcome["values"]:
        assert value.source_time.isoformat(timespec="microseconds") + "+00:00" == by_id[value.record_id]
    for file in outcome["inbox"].glob("*.json"):
        message = json.loads(file.read_text())
        assert message["kind"] == "report" or message["record_id"] in by_id
