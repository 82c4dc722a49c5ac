"""Measuring: progress events, waiting records, and a real session's measurement."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import TimesOfDay, WallClock
from penstock.machine.processes import wait_until
from penstock.spark.gateway.executors import Executor, ExecutorControl
from penstock.spark.session.goals import Goals
from penstock.spark.session.meter import ENDED_S, MeterState, SessionMeter
from penstock.spark.session.progress import SourceProgress, parse_progress
from penstock.spark.session.readings import busy_ratio, size_mib
from penstock.spark.session.waiting import WaitingFiles, offsets_behind

EVENT = {
    "id": "query", "runId": "run", "batchId": 7, "timestamp": "2026-03-01T10:00:01.500Z", "numInputRows": 30,
    "durationMs": {"triggerExecution": 250, "addBatch": 180},
    "stateOperators": [
        {"numRowsTotal": 12, "memoryUsedBytes": 700, "allUpdatesTimeMs": 40, "commitTimeMs": 25},
        {"numRowsTotal": 0, "memoryUsedBytes": 50, "allUpdatesTimeMs": 2, "commitTimeMs": 5},
    ],
    "sources": [
        {
            "description": "KafkaV2[Subscribe[lines]]", "numInputRows": 30,
            "endOffset": {"lines": {"0": 100, "1": 50}}, "latestOffset": {"lines": {"0": 140, "1": 55}},
        }
    ],
    "sink": {"numOutputRows": 9},
    "observedMetrics": {"penstock": {"latency_s": 1.25, "other": 3}},
}  # fmt: skip


def test_a_progress_event_becomes_a_batch() -> None:
    batch = parse_progress(EVENT)
    assert (batch.number, batch.rows, batch.rows_out, batch.state_rows) == (7, 30, 9, 12)
    assert batch.duration_s == 0.25
    assert batch.parts_s["addBatch"] == 0.18
    assert (batch.state_bytes, batch.state_s) == (750, {"update": 0.042, "remove": 0.0, "commit": 0.03})
    assert batch.started_s == 1772359201.5
    assert batch.observed == {"latency_s": 1.25}


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_batchs_times_are_the_runs_whatever_the_machines_clock_is_set_to(
    monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    began_s, step = parse_progress(EVENT).started_s, [0.0]
    now_s = [began_s + 1.0]
    monkeypatch.setattr("penstock.clock.counted_s", lambda: now_s[0])
    monkeypatch.setattr(time, "time", lambda: now_s[0] + step[0])
    at_s = TimesOfDay(WallClock(0.0)).at_s
    assert parse_progress(EVENT, at_s).started_s == began_s
    step[0] = step_s
    after = {**EVENT, "timestamp": datetime.fromtimestamp(began_s + 5.0 + step_s, timezone.utc).isoformat()}
    now_s[0] += 10.0
    batch = parse_progress(after, at_s)
    assert (batch.started_s, batch.duration_s) == (began_s + 5.0, 0.25)


def test_a_batch_within_which_the_clock_was_set_forward_took_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began_s = parse_progress(EVENT).started_s
    monkeypatch.setattr("penstock.clock.counted_s", lambda: began_s + 3.0)
    monkeypatch.setattr(time, "time", lambda: began_s + 3603.0)
    at_s = TimesOfDay(WallClock(0.0)).at_s
    batch = parse_progress({**EVENT, "durationMs": {"triggerExecution": 3_602_000}}, at_s)
    assert (batch.started_s, batch.duration_s) == (began_s, 2.0)


def an_executor(active: int, done: int, time_s: float, cores: int = 1) -> Executor:
    return Executor("1", "10.0.0.5", cores, 0.0, done, active, time_s, 100)


@pytest.mark.parametrize(
    ("before", "now", "ratio"),
    [
        (an_executor(0, 4, 9.0), an_executor(0, 4, 9.0), 0.0),
        (an_executor(0, 4, 9.0), an_executor(0, 6, 10.0), 0.5),
        (an_executor(1, 4, 9.0), an_executor(1, 4, 9.0), 1.0),  # one that lasts longer than the interval
        (an_executor(1, 4, 9.0), an_executor(0, 5, 99.0), 1.0),  # and ends
        (an_executor(2, 4, 9.0, cores=4), an_executor(1, 5, 60.0, cores=4), 0.5),
        (an_executor(0, 4, 9.0), an_executor(1, 4, 9.0), 0.0),  # begun just now
    ],
)
def test_slots_are_busy_with_tasks_that_ended_and_with_those_that_last(
    before: Executor, now: Executor, ratio: float
) -> None:
    assert busy_ratio(before, now, 2.0) == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("description", "end", "latest", "behind"),
    [
        ("KafkaV2[Subscribe[t]]", {"t": {"0": 100, "1": 50}}, {"t": {"0": 140, "1": 55}}, 45),
        ("KafkaV2[Subscribe[t]]", {"t": {"0": 100}}, {"t": {"0": 100, "1": 7}}, 7),
        ("KafkaV2[Subscribe[t]]", '{"t": {"0": 1}}', '{"t": {"0": 3}}', 2),
        ("RateStreamMicroBatch[...]", {"offset": 10, "timestamp": 5}, {"offset": 30, "timestamp": 6}, 20),
        ("MemoryStream[value]", 3, 8, 5),
        ("RateStreamV2[rowsPerSecond=10]", 3, 8, None),
        ("FileStreamSource[file:/in]", {"logOffset": 3}, None, None),
        ("FileStreamSource[file:/in]", {"logOffset": 3}, {"logOffset": 4}, None),
        ("TextSocket", "not json", "at all", None),
        ("KafkaV2[Subscribe[t]]", None, {"t": {"0": 3}}, None),
    ],
)
def test_waiting_records_are_counted_from_offsets_that_count_records(
    description: str, end: Any, latest: Any, behind: int | None
) -> None:
    assert offsets_behind(SourceProgress(description, 0, end, latest)) == behind


def source_log(folder: Path, number: int, names: list[str], data: Path, *, compact: bool = False) -> None:
    """A log entry as Spark's file source writes it."""
    folder.mkdir(exist_ok=True)
    lines = ["v1"]
    for name in names:
        modified_ms = (data / name).stat().st_mtime_ns // 1_000_000
        batch = number if not compact else int(name.split("-")[0])
        lines.append(
            json.dumps({"path": f"file://{data / name}", "timestamp": modified_ms, "batchId": batch})
        )
    (folder / (f"{number}.compact" if compact else str(number))).write_text("\n".join(lines))


def data_file(data: Path, name: str, second: int, size: int = 1) -> None:
    (data / name).write_text("x" * size)
    os.utime(data / name, (second, second))


def test_files_younger_than_the_youngest_taken_one_wait(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    data.mkdir()
    files = WaitingFiles(data, log)
    assert files.count() == (0, 0)
    data_file(data, "0-a", 100)
    data_file(data, "1-b", 200)
    data_file(data, "2-c", 300)
    data_file(data, ".hidden", 400)
    assert files.count() == (3, 0), "before the first batch every file waits, one record each"
    source_log(log, 0, ["0-a"], data)
    assert files.count() == (2, 1), "the first is being read"
    files.finish(50, {"logOffset": 0})
    assert files.count() == (100, 0), "two files of fifty records, as the first had"
    source_log(log, 1, ["0-a", "1-b"], data, compact=True)
    assert files.count() == (50, 50), "a compacted entry repeats earlier ones"
    files.finish(50, '{"logOffset": 1}')
    assert files.count() == (50, 0)
    data_file(data, "3-d", 400, size=4)
    assert files.count() == (250, 0), "a file four times as large has four times the records"


def test_rows_that_were_counted_twice_are_no_arrivals(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    data.mkdir()
    files = WaitingFiles(data, log)
    for number in range(3):
        data_file(data, f"{number}-a", 100 + number, size=100)
        source_log(log, number, [f"{number}-a"], data)
        files.finish(10, {"logOffset": number})
    assert files.count() == (0, 0)
    for number in range(3, 8):
        data_file(data, f"{number}-a", 100 + number, size=100)
    assert (files.count(), files.came) == ((50, 0), 50)
    source_log(log, 3, ["3-a"], data)
    files.finish(20, {"logOffset": 3})  # its executor was lost, and its tasks ran twice
    assert (files.count(), files.came) == ((40, 0), 0), "what waits is 40 still, and nothing came"


def test_files_that_come_at_a_steady_pace_are_a_steady_load_whenever_one_looks(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    files = WaitingFiles(data, tmp_path / "log")

    def write(*halves_of_a_second: int) -> None:
        for half in halves_of_a_second:
            (data / str(half)).write_text("a line\n" * 40)
            os.utime(data / str(half), (100 + half / 2, 100 + half / 2))

    write(1, 2, 3, 4)
    files.count()
    for came in ((5, 6, 7), (8, 9, 10, 11, 12), (13, 14, 15, 16)):
        write(*came)
        files.count(2.0)
        assert files.came == 160, "three or five of them, but eighty lines a second"


def test_files_that_come_seldom_come_at_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    files = WaitingFiles(data, tmp_path / "log")
    (data / "0").write_text("a line\n" * 40)
    os.utime(data / "0", (100, 100))
    files.count()
    for second in (160, 220):
        (data / str(second)).write_text("a line\n" * 40)
        os.utime(data / str(second), (second, second))
        files.count(10.0)
        assert files.came == 40, "no less is there because none came for a minute"


def test_lines_of_text_are_counted_before_the_first_batch_is_done(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    data.mkdir()
    (data / "0").write_text("a line\n" * 30)
    files = WaitingFiles(data, log)
    assert (files.count(), files.came) == ((30, 0), 30)
    (data / "1").write_text("a line\n" * 5)
    assert (files.count(), files.came) == ((35, 0), 5)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "0").write_bytes(b"PAR1\0\n" * 30)
    assert WaitingFiles(tmp_path / "other", log).count() == (1, 0), "what is no text counts as one"


def test_what_a_query_read_in_an_earlier_life_is_neither_in_work_nor_learnt_from(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    data.mkdir()
    for number in range(5):
        data_file(data, f"{number}-a", 100 + number, size=100)
        source_log(log, number, [f"{number}-a"], data)
    files = WaitingFiles(data, log)
    assert (files.count(), files.came) == ((0, 1), 1), "a file counts as one record, and one may be in work"
    files.finish(10, {"logOffset": 4})
    data_file(data, "5-a", 200, size=100)
    assert (files.count(), files.came) == ((10, 0), 10), (
        "one batch of ten in a hundred bytes, not in five hundred"
    )


def test_files_of_the_same_instant_are_told_apart_by_name(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    data.mkdir()
    for name in ("0-a", "0-b"):
        data_file(data, name, 100)
    source_log(log, 0, ["0-a"], data)
    files = WaitingFiles(data, log)
    files.finish(10, {"logOffset": 0})
    assert files.count() == (10, 0)


def test_a_folder_that_is_not_here_gives_no_count(tmp_path: Path) -> None:
    assert WaitingFiles(tmp_path / "none", tmp_path / "log").count() is None


@pytest.mark.parametrize(
    ("text", "mib"), [("512m", 512), ("2g", 2048), ("1G", 1024), ("1048576", 1), ("2gb", 2048)]
)
def test_sizes_are_read_as_spark_writes_them(text: str, mib: int) -> None:
    assert size_mib(text) == mib


@pytest.mark.spark
def test_an_executor_is_there_since_an_instant_of_the_runs_clock(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_s, real = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: real() + step_s[0])
    clock = WallClock()
    meter = SessionMeter(spark, "lines", ExecutorControl(spark), times=TimesOfDay(clock))
    first = replace(an_executor(0, 0, 0.0), added_s=time.time())
    since_s = meter.since_s(first)
    step_s[0] = -3600.0
    second = replace(first, id="2", added_s=time.time())
    assert abs(meter.since_s(second) - clock.now_s()) < 5.0
    assert meter.since_s(first) == since_s


@pytest.mark.spark
def test_a_sessions_queries_are_measured(spark: Any, tmp_path: Path) -> None:
    lines, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    lines.mkdir()

    def feed(number: int) -> None:
        (lines / f".{number}").write_text("one line\n" * 25)
        (lines / f".{number}").rename(lines / f"{number}.txt")

    meter = SessionMeter(spark, "lines", ExecutorControl(spark))
    assert meter.measure(time.time()) is None, "nothing runs yet"
    assert meter.state is MeterState.WAITING
    feed(0)
    query = (
        spark.readStream.option("maxFilesPerTrigger", 1)
        .text(str(lines))
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        for number in range(1, 5):
            feed(number)
        seen = []

        def all_done() -> bool:
            found = meter.measure(time.time())
            if found is not None:
                seen.append(found)
            return sum(measurement.processed for measurement in seen) >= 125

        assert wait_until(all_done, 120, poll_s=0.5)
        newest = seen[-1]
        first = next(measurement for measurement in seen if measurement.processed)
        assert first.beginning, "what starts Python and compiles says nothing of a record"
        assert sum(measurement.processed for measurement in seen) == 125, "every record is counted once"
        assert newest.unit == "lines"
        assert newest.waiting == 0
        assert len(newest.readings) == 1
        before = seen[-1]
        assert before.in_service == 0
        feed(5)
        feed(6)
        query.processAllAvailable()
        last = meter.measure(time.time())
        assert last is not None
        assert (last.arrived, last.processed, last.waiting) == (50, 50, 0)
        assert last.duration_s is not None
        assert last.duration_p99_s is not None
        assert 0 < last.duration_s <= last.duration_p99_s
        assert last.service_s is not None
        assert not last.beginning
        assert last.readings[0].memory_ratio is not None, "the executor's process is visible here"
        assert meter.details.batches == 2
        assert meter.details.parts_s["addBatch"] > 0
        assert meter.state is MeterState.MEASURING
        feed(7)
        query.processAllAvailable()
    finally:
        query.stop()
    last = meter.measure(time.time())
    assert last is not None, "what the query did last counts, though it has ended since"
    assert last.processed == 25
    assert meter.measure(time.time()) is None, "no query runs any more"
    assert meter.state is MeterState.ENDED
    assert meter.details.queries == ()
    later = meter.measure(time.time() + ENDED_S + 1.0)
    assert later is not None, "executors that nobody needs are given back"
    assert (later.arrived, later.processed, later.waiting) == (0, 0, 0)
    assert later.service_s == last.service_s

    again = (
        spark.readStream.text(str(lines))
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        meter.measure(time.time())
        assert meter.state is MeterState.MEASURING, "a query that starts later is measured again"
    finally:
        again.stop()


def feed(lines: Path, name: str, count: int) -> None:
    """A file of lines, there as a whole."""
    (lines / f".{name}").write_text("one line\n" * count)
    (lines / f".{name}").rename(lines / f"{name}.txt")


def slow_query(spark: Any, lines: Path, slept_s: float) -> Any:
    """A query that waits for a while with every line of a folder's files."""
    return (
        spark.readStream.text(str(lines))
        .repartition(5)
        .selectExpr("value", f"java_method('java.lang.Thread', 'sleep', {slept_s * 1000:.0f}L) AS slept")
        .writeStream.format("noop")
        .option("checkpointLocation", f"{lines}-checkpoint")
        .start()
    )


@pytest.mark.spark
@pytest.mark.parametrize("behind", [0, 1_000])
def test_a_batch_that_outlasts_many_intervals_tells_the_work_and_the_age_of_a_record(
    spark: Any, tmp_path: Path, behind: int
) -> None:
    lines, slept_s = tmp_path / "lines", 0.1
    lines.mkdir()
    feed(lines, "first", 4)
    begun_s = time.monotonic()
    query = slow_query(spark, lines, slept_s)
    meter = SessionMeter(spark, "lines", ExecutorControl(spark), goals=Goals(60.0 if behind else 0.1))
    try:
        query.processAllAvailable()
        meter.measure(time.time())
        feed(lines, "second", 25)
        seen = []

        def done() -> bool:
            found = meter.measure(time.time())
            seen.extend([found] if found is not None else [])
            if len(seen) == 3 and behind:
                feed(lines, "third", behind)
            return any(measurement.processed for measurement in seen)

        assert wait_until(done, 60, poll_s=0.2)
        assert len(seen) > 4, "the batch took several intervals"
        last = seen[-1]
        # What came while it ran waits behind it, and makes its records no older.
        assert last.waiting + last.in_service >= behind / 2
        assert last.duration_s is not None
        # Where nothing was left behind, records may have come since the batch before began.
        assert 25 * slept_s / 5 < last.duration_s < time.monotonic() - begun_s
        assert last.on_time == (25 if behind else 0), (
            "all of them kept a minute, and none a tenth of a second"
        )
        # Of which so many wait that it was a beginning, nothing else is concluded.
        if behind:
            assert last.service_s is None
        else:  # and what a task takes beside its records, on a busy machine as long as they do
            assert last.service_s is not None
            assert 0.9 * slept_s < last.service_s < 2 * slept_s
    finally:
        query.stop()


@pytest.mark.spark
def test_a_small_batch_does_not_make_its_records_look_expensive(spark: Any, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.mkdir()
    query = (
        spark.readStream.text(str(lines))
        .repartition(4)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    executors = ExecutorControl(spark)
    meter = SessionMeter(spark, "lines", executors, goals=Goals(10.0))
    plain_s, told_s = 0.0, None
    try:
        meter.measure(time.time())
        for number, count in enumerate([400, 10] * 7):
            worked_s = sum(executor.task_time_s for executor in meter.executors)
            (lines / f".{number}").write_text("one line\n" * count)
            (lines / f".{number}").rename(lines / f"{number}.txt")
            query.processAllAvailable()
            found = meter.measure(time.time())
            assert found is not None
            worked_s = sum(executor.task_time_s for executor in meter.executors) - worked_s
            plain_s, told_s = worked_s / count, found.service_s
    finally:
        query.stop()
    assert told_s is not None
    assert 0 < told_s < plain_s / 2, "most of what ten lines took is what any batch takes"


@pytest.mark.spark
def test_a_batch_job_beside_is_not_taken_for_the_work_of_a_stream(spark: Any, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    writer = stream.writeStream.format("noop").trigger(processingTime="500 milliseconds")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    meter = SessionMeter(spark, "stream", ExecutorControl(spark))
    slept = "java_method('java.lang.Thread', 'sleep', 200L) AS slept"
    beside = threading.Thread(
        target=lambda: (
            spark.range(0, 40, 1, 4).selectExpr(slept).write.format("noop").mode("overwrite").save()
        )
    )
    try:
        assert wait_until(lambda: query.lastProgress is not None, 60)
        meter.measure(time.time())
        beside.start()  # eight seconds of one slot
        seen, slots = [], 0
        while beside.is_alive() or not any(measurement.processed for measurement in seen):
            time.sleep(0.5)
            found = meter.measure(time.time())
            seen.extend([found] if found is not None else [])
            batches = [batch for batch in meter.batches if batch.rows]
            if found is not None and batches and found.service_s is not None:
                slots = max(slots, sum(executor.cores for executor in meter.executors))
                spent_s = slots * sum(batch.duration_s for batch in batches)
                assert found.service_s * found.processed <= spent_s + 0.01, (
                    "its slots, as long as its batches"
                )
        assert sum(measurement.processed for measurement in seen) > 0
    finally:
        query.stop()
        beside.join(60)
