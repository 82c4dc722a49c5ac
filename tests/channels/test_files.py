"""The files channel: exactly once, cleaned behind, with a known backlog."""

from __future__ import annotations

import json
import os

import pytest

from penstock.channels.batches import batches_in, publish
from penstock.channels.files import FilesChannel, FilesOptions
from penstock.channels.files_taken import FilesConsumption
from penstock.channels.model import Leaving, Stream
from penstock.spark.checkpoints import Checkpoint, log_entries_after

pytestmark = pytest.mark.spark

STREAM = Stream("upper", "counting", "number long")
OTHER = Stream("upper", "archive", "number long")


def a_batch(spark, numbers):
    from pyspark.sql import functions as sql

    frame = spark.createDataFrame([(n,) for n in numbers], "number long")
    return frame.select(
        sql.concat(sql.lit("r"), "number").alias("record_id"),
        sql.timestamp_millis(sql.col("number") * 1000 + 1_700_000_000_000).alias("source_time"),
        "number",
    )


def start(spark, channel, checkpoint, results, stream=STREAM):
    def collect(batch, batch_id):
        results.extend((row.record_id, row.source_time, row.number) for row in batch.collect())

    query = channel.read(spark, stream).writeStream.foreachBatch(collect)
    return query.option("checkpointLocation", str(checkpoint)).start()


@pytest.mark.parametrize("file_format", ["parquet", "json"])
def test_what_is_appended_is_read_once_with_ids_and_times(spark, tmp_path, file_format):
    channel = FilesChannel(tmp_path / "c", FilesOptions(format=file_format))
    channel.prepare(spark, [STREAM])
    results = []
    query = start(spark, channel, tmp_path / "check", results)
    try:
        channel.append(a_batch(spark, range(5)), [STREAM], 0, "me")
        query.processAllAvailable()
        channel.append(a_batch(spark, range(5, 8)), [STREAM], 1, "me")
        query.processAllAvailable()
    finally:
        query.stop()

    assert sorted(results) == sorted(
        (row.record_id, row.source_time, row.number) for row in a_batch(spark, range(8)).collect()
    )


def test_a_batch_written_again_is_dropped_also_after_it_was_cleaned(spark, tmp_path):
    channel = FilesChannel(tmp_path / "c")
    results = []
    channel.append(a_batch(spark, [1, 2]), [STREAM], 4, "me")
    channel.append(a_batch(spark, [1, 2]), [STREAM], 4, "me")
    query = start(spark, channel, tmp_path / "check", results)
    try:
        query.processAllAvailable()
        assert channel.consumption(STREAM, tmp_path / "check").clean() > 0
        channel.append(a_batch(spark, [1, 2]), [STREAM], 4, "me")
        query.processAllAvailable()
    finally:
        query.stop()

    assert sorted(row[2] for row in results) == [1, 2]


def test_finished_files_are_deleted_and_the_query_restarts_without_them(spark, tmp_path):
    channel = FilesChannel(tmp_path / "c")
    results = []
    checkpoint = tmp_path / "check"
    for round_number in range(3):
        channel.append(a_batch(spark, [round_number]), [STREAM], round_number, "me")
        query = start(spark, channel, checkpoint, results)
        query.processAllAvailable()
        query.stop()
        channel.consumption(STREAM, checkpoint).clean()

    assert [row[2] for row in results] == [0, 1, 2]
    assert [list(batch.path.iterdir()) for batch in batches_in(channel.folder(STREAM))] == [[]]


def test_every_consumer_has_its_own_copy_of_the_same_bytes(spark, tmp_path):
    channel = FilesChannel(tmp_path / "c")
    channel.append(a_batch(spark, [1]), [STREAM, OTHER], 0, "me")
    results = []
    query = start(spark, channel, tmp_path / "check", results)
    query.processAllAvailable()
    query.stop()
    first = next(batches_in(channel.folder(STREAM))[0].path.iterdir())
    assert os.stat(first).st_nlink == 2

    channel.consumption(STREAM, tmp_path / "check").clean()

    assert len(list(batches_in(channel.folder(OTHER))[0].path.iterdir())) == 1
    assert channel.consumption(OTHER, tmp_path / "none").backlog().waiting == 1


def test_waiting_counts_records_of_no_started_batch(spark, tmp_path):
    channel = FilesChannel(tmp_path / "c")
    consumption = channel.consumption(STREAM, tmp_path / "check")
    assert consumption.backlog().waiting == 0
    channel.append(a_batch(spark, range(7)), [STREAM], 0, "me")
    assert consumption.backlog().waiting == 7

    query = start(spark, channel, tmp_path / "check", [])
    query.processAllAvailable()
    query.stop()
    assert consumption.backlog().waiting == 0

    channel.append(a_batch(spark, range(7, 10)), [STREAM], 1, "me")
    assert consumption.backlog().waiting == 3


def test_a_micro_batch_can_be_read_again_from_the_checkpoint(spark, tmp_path):
    channel = FilesChannel(tmp_path / "c")
    query = start(spark, channel, tmp_path / "check", [])
    for batch_id in range(3):
        channel.append(a_batch(spark, [batch_id]), [STREAM], batch_id, "me")
        query.processAllAvailable()
    query.stop()

    again = channel.read_batch(spark, STREAM, tmp_path / "check", 1)

    assert [row.number for row in again.collect()] == [1]


def test_an_empty_batch_leaves_nothing(spark, tmp_path):
    channel = FilesChannel(tmp_path / "c")
    channel.append(a_batch(spark, []), [STREAM], 0, "me")

    assert batches_in(channel.folder(STREAM)) == []


def test_a_crash_between_two_consumers_is_made_good_by_writing_again(tmp_path):
    first, second = tmp_path / "p" / "a", tmp_path / "p" / "b"
    for attempt, folders in enumerate([[first], [first, second]]):
        written = tmp_path / "p" / f"_writing-{attempt}"
        written.mkdir(parents=True)
        (written / "part.json").write_text(f'{{"attempt": {attempt}}}\n')
        publish(written, [written / "part.json"], 1, folders, 0)

    assert [len(batches_in(folder)) for folder in (first, second)] == [1, 1]
    assert (batches_in(first)[0].path / "part.json").read_text() == '{"attempt": 0}\n'


def test_a_folder_that_does_not_exist_has_nothing_waiting(tmp_path):
    assert FilesConsumption(tmp_path / "no", tmp_path / "none").backlog().waiting == 0


def test_a_batchs_name_says_from_when_its_records_are(tmp_path):
    written = tmp_path / "written"
    written.mkdir()
    lines = [{"record_id": f"r{n}", "source_time": f"2026-01-01T00:00:0{n}.500Z"} for n in range(4)]
    (written / "part.json").write_text("".join(json.dumps(line) + "\n" for line in lines))

    publish(written, [written / "part.json"], 4, [tmp_path / "to"], 0)

    (batch,) = batches_in(tmp_path / "to")
    assert batch.records == 4
    assert batch.span_s == (1767225600.5, 1767225603.5)


def test_parquet_tells_the_same_by_its_footers(spark, tmp_path):
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    channel = FilesChannel(tmp_path / "c")

    channel.append(a_batch(spark, range(5)), [STREAM], 0, "me")

    (batch,) = batches_in(channel.folder(STREAM))
    assert batch.span_s == (1_700_000_000.0, 1_700_000_004.0)


def test_a_compacted_log_is_read_from_its_end_as_far_as_needed(tmp_path):
    entries = [
        {"path": f"file:///c/batch-{n:09d}-1r-1f/part", "timestamp": n, "batchId": n // 2}
        for n in range(2000)
    ]
    log = tmp_path / "999.compact"
    log.write_text("v1\n" + "\n".join(json.dumps(entry) for entry in entries))

    logged = [(f"/c/batch-{n:09d}-1r-1f/part", n, n // 2) for n in range(2000)]
    assert log_entries_after(log, 997) == logged[-4:]
    assert log_entries_after(log, -1) == logged
    assert log_entries_after(log, 999) == []
    assert log_entries_after(tmp_path / "1000", 999) == []


def test_the_log_of_a_source_is_shortened_and_the_query_goes_on_without_loss_or_double(
    spark, tmp_path, monkeypatch
):
    monkeypatch.setattr("penstock.channels.files_taken.LONGEST_LOG_BYTES", 300)
    channel, checkpoint, results = FilesChannel(tmp_path / "c"), tmp_path / "check", []
    consumption, sizes = channel.consumption(STREAM, checkpoint), []
    query = start(spark, channel, checkpoint, results)
    for number in range(33):
        channel.append(a_batch(spark, [number]), [STREAM], number, "me")
        query.processAllAvailable()
        consumption.clean()
        sizes.append(Checkpoint(checkpoint).source_log(0).newest_size())
        if number == 20:
            query.stop()
            assert channel.consumption(STREAM, checkpoint).taken() == 21
            query = start(spark, channel, checkpoint, results)
    query.stop()

    assert channel.consumption(STREAM, checkpoint).taken() == 33
    assert sorted(row[2] for row in results) == list(range(33))
    assert max(sizes[9:]) < 300, "only what is not finished stays, also while the query runs"


def test_a_log_with_checksums_is_shortened_while_the_query_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.channels.files_taken.LONGEST_LOG_BYTES", 300)
    monkeypatch.setattr("penstock.channels.files_taken.LONGEST_CHECKED_LOG_BYTES", 300)
    consumption, log = a_log_of_ten(tmp_path, finished=9)
    (log / ".9.compact.crc").touch()

    assert consumption.clean() == 10
    assert consumption.overgrown
    assert len(log_entries_after(log / "9.compact", -1)) == 10

    consumption.shorten()
    assert not consumption.overgrown
    assert log_entries_after(log / "9.compact", -1) == []
    assert not (log / ".9.compact.crc").exists()
    assert consumption.taken() == 10


def test_a_query_whose_source_remembers_too_many_files_starts_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.channels.files_taken.MOST_FILES_REMEMBERED", 9)
    consumption, _ = a_log_of_ten(tmp_path, finished=9)
    assert not consumption.overgrown
    consumption.clean()
    assert consumption.overgrown
    consumption.shorten()
    assert not consumption.overgrown


def a_log_of_ten(tmp_path, finished):
    """A source that has taken ten files, one a micro-batch, up to one that is finished."""
    folder, check = tmp_path / "c", tmp_path / "check"
    log = check / "sources" / "0"
    for part in (log, check / "offsets", check / "commits"):
        part.mkdir(parents=True)
    check.with_name("check-sources.json").write_text(json.dumps([f"{folder}/batch-"]))
    entries = []
    for number in range(10):
        batch = folder / f"batch-{number:09d}-1r-1f"
        batch.mkdir(parents=True)
        (batch / "part").touch()
        entries.append(json.dumps({"path": f"file://{batch}/part", "timestamp": 1, "batchId": number}))
    (log / "9.compact").write_text("\n".join(["v1", *entries]))
    if finished >= 0:
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({"logOffset": finished})]
        (check / "offsets" / str(finished)).write_text("\n".join(lines))
        (check / "commits" / str(finished)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return FilesConsumption(folder, check), log


def test_a_log_that_cannot_be_shortened_does_not_ask_for_it_again(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.channels.files_taken.LONGEST_LOG_BYTES", 300)
    monkeypatch.setattr("penstock.channels.files_taken.LONGEST_CHECKED_LOG_BYTES", 300)
    consumption, log = a_log_of_ten(tmp_path, finished=-1)
    (log / ".9.compact.crc").touch()
    assert consumption.overgrown

    consumption.shorten()
    (log / ".9.compact.crc").touch()

    assert not consumption.overgrown
    assert len(log_entries_after(log / "9.compact", -1)) == 10, "nothing is finished: all of it stays"


def test_sparks_sink_goes_on_with_a_log_that_forgets_and_old_notes_of_it_go(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.spark.checkpoints.LONGEST_SINK_NOTE", 10)
    spark.conf.set("spark.sql.streaming.fileSink.log.cleanupDelay", "1")
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "10")
    (tmp_path / "in").mkdir()
    for number in range(32):
        line = {"record_id": f"r{number}", "source_time": "2026-01-01T00:00:00Z", "number": number}
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps(line))
    given = spark.readStream.schema("record_id string, source_time timestamp, number long")
    source = given.option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    channel, staging = FilesChannel(tmp_path / "c"), tmp_path / "staging"
    native = channel.native_writer([Leaving("upper", source, (STREAM,))], staging, "me")
    native.start()
    try:
        query = native.writer().option("checkpointLocation", str(tmp_path / "out")).start()
        query.processAllAvailable()
        query.stop()
    finally:
        native.stop()
        spark.conf.unset("spark.sql.streaming.fileSink.log.cleanupDelay")
        spark.conf.unset("spark.sql.streaming.minBatchesToRetain")

    results = []
    reading = start(spark, channel, tmp_path / "check", results)
    reading.processAllAvailable()
    reading.stop()
    assert sorted(row[2] for row in results) == list(range(32))
    notes = [file for file in (staging / "_spark_metadata").iterdir() if file.name[0] != "."]
    assert max(len(file.read_text().splitlines()) for file in notes) <= 11, "ten of its own at the most"
    assert len(notes) < 32


def test_a_source_is_known_by_its_log_also_where_all_was_dropped_from_an_entry_of_it(tmp_path, monkeypatch):
    log = tmp_path / "check" / "sources" / "0"
    log.mkdir(parents=True)
    (log / "9.compact").write_text("v1")
    (log / "10").write_text('v1\n{"path": "file:///c/batch-000000010-1r-1f/part", "batchId": 10}')
    listed = os.listdir
    monkeypatch.setattr("penstock.spark.checkpoints.os.listdir", lambda f: sorted(listed(f), reverse=True))

    assert Checkpoint(tmp_path / "check").source_of("/c/batch-") == 0


def test_what_was_finished_while_the_cleaner_was_frozen_is_cleaned_although_spark_removed_its_notes(tmp_path):
    folder, check = tmp_path / "c", tmp_path / "check"
    log = check / "sources" / "0"
    for part in (log, check / "offsets", check / "commits"):
        part.mkdir(parents=True)
    (check.with_name("check-sources.json")).write_text(json.dumps([f"{folder}/batch-"]))

    def noted(number):
        batch = folder / f"batch-{number:09d}-1r-1f"
        batch.mkdir(parents=True)
        (batch / "part").touch()
        return json.dumps({"path": f"file://{batch}/part", "timestamp": 1, "batchId": number})

    def finished(number):
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({"logOffset": number})]
        (check / "offsets" / str(number)).write_text("\n".join(lines))
        (check / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    entries = [noted(number) for number in range(24)]
    for number in range(4):
        (log / str(number)).write_text(f"v1\n{entries[number]}")
    finished(3)
    consumption = FilesConsumption(folder, check)
    assert consumption.clean() == 4

    for number in range(4):
        (log / str(number)).unlink()
    (log / "19.compact").write_text("\n".join(["v1", *entries[:20]]))
    for number in range(20, 24):
        (log / str(number)).write_text(f"v1\n{entries[number]}")
    finished(22)

    assert consumption.clean() == 19
    assert consumption.backlog().in_service == 1
    finished(23)
    assert (consumption.clean(), consumption.clean()) == (1, 0)


def test_good_lines_pay_for_no_column_of_bad_ones_and_a_bad_one_ends_the_query_all_the_same(
    spark, tmp_path, capsys
):
    channel = FilesChannel(tmp_path / "c", FilesOptions(format="json"))
    channel.append(a_batch(spark, range(3)), [STREAM], 0, "me")
    channel.read(spark, STREAM).explain(extended=True)
    assert "malformed" not in capsys.readouterr().out
    channel.read(spark, STREAM, left_out=["r1"]).explain(extended=True)
    assert "malformed" in capsys.readouterr().out, "to be left out, a bad line has to be named"

    file = next((tmp_path / "c").rglob("*.json"))
    file.write_text(file.read_text() + '{"record_id": "r3", "number": "three"}\n')
    query = start(spark, channel, tmp_path / "check", [])
    with pytest.raises(Exception, match="MALFORMED_RECORD_IN_PARSING"):
        query.processAllAvailable()
