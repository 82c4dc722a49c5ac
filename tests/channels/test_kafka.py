"""The kafka channel on a real broker from Maven's jars; skipped where those are out of reach."""

from __future__ import annotations

import json
import os
import signal

import pytest

from penstock.channels.broker import Broker, listens
from penstock.channels.kafka import KafkaChannel, OffsetHistory, waiting_of
from penstock.channels.maven import broker_jars
from penstock.channels.model import Stream
from penstock.errors import ClusterError
from penstock.spark.folders import cache_folder
from penstock.spark.java import find_java

from .test_files import a_batch

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

STREAM = Stream("upper", "counting", "number long")


@pytest.fixture(scope="module")
def broker(kafka_jars, tmp_path_factory):
    if isinstance(kafka_jars, str):
        pytest.skip(f"Kafka's connector cannot be fetched: {kafka_jars}")
    try:
        jars = broker_jars(cache_folder("jars"))
    except ClusterError as error:
        pytest.skip(f"the broker's jars cannot be fetched: {error}")
    broker = Broker(tmp_path_factory.mktemp("broker"), find_java().executable, jars)
    broker.start()
    yield broker
    broker.stop()
    assert not broker.record().alive


def channel_of(broker, prefix, **options):
    return KafkaChannel(broker.record().bootstrap, prefix=prefix, partitions=2, **options)


def test_topics_are_made_once_with_partitions_and_records_keep_ids_and_times(spark, broker, tmp_path):
    channel = channel_of(broker, "once")
    channel.prepare(spark, [STREAM])
    channel.prepare(spark, [STREAM])
    batch = a_batch(spark, range(20))
    channel.append(batch, [STREAM], 0)
    results = []

    query = (
        channel.read(spark, STREAM)
        .writeStream.foreachBatch(lambda found, number: results.extend(found.collect()))
        .option("checkpointLocation", str(tmp_path / "check"))
        .start()
    )
    query.processAllAvailable()
    progress = [entry for entry in query.recentProgress if entry["numInputRows"]][-1]
    query.stop()

    assert {(row.record_id, row.source_time, row.number) for row in results} == {
        tuple(row) for row in batch.collect()
    }
    assert waiting_of(progress["sources"][0]) == 0
    end = progress["sources"][0]["endOffset"]
    assert set((json.loads(end) if isinstance(end, str) else end)["once.upper"]) == {"0", "1"}
    again = channel.read_batch(spark, STREAM, tmp_path / "check", progress["batchId"])
    assert again.count() == len(results) == 20


def test_a_batch_written_again_is_there_twice_and_deduplicated_by_choice(spark, broker, tmp_path):
    channel = channel_of(broker, "twice", deduplicate="1 h")
    channel.prepare(spark, [STREAM])
    results = []
    query = (
        channel.read(spark, STREAM)
        .writeStream.foreachBatch(lambda found, number: results.extend(found.collect()))
        .option("checkpointLocation", str(tmp_path / "check"))
        .start()
    )
    for _ in range(2):
        channel.append(a_batch(spark, range(5)), [STREAM], 0)
        query.processAllAvailable()
    query.stop()

    assert sorted(row.number for row in results) == [0, 1, 2, 3, 4]


def test_a_killed_broker_comes_back_at_its_address_with_its_records(spark, broker):
    channel = channel_of(broker, "killed")
    channel.prepare(spark, [STREAM])
    channel.append(a_batch(spark, range(3)), [STREAM], 0)
    before = broker.record()
    os.kill(before.pid, signal.SIGKILL)
    broker._child.wait(10)
    assert not listens(before.port)

    after = broker.start()

    assert (after.bootstrap, after.pid != before.pid) == (before.bootstrap, True)
    raw = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", after.bootstrap)
        .option("subscribe", channel.topic("upper"))
        .load()
    )
    assert raw.count() == 3


@pytest.mark.parametrize(
    ("latest", "end", "waiting"),
    [
        ({"t": {"0": 10, "1": 5}}, {"t": {"0": 7, "1": 5}}, 3),
        ('{"t": {"0": 10}}', '{"t": {"0": 4}}', 6),
        ({"t": {"0": 2}}, None, 2),
        (None, None, 0),
    ],
)
def test_waiting_is_latest_minus_end(latest, end, waiting):
    assert waiting_of({"latestOffset": latest, "endOffset": end}) == waiting


def a_source(latest, end, rows):
    return {"latestOffset": {"t": {"0": latest}}, "endOffset": {"t": {"0": end}}, "numInputRows": rows}


def test_arrivals_lie_evenly_between_two_looks_at_the_newest_offset():
    history = OffsetHistory()
    history.note(10.0, 12.0, a_source(0, 0, 0))

    (first, *_, last) = history.note(12.0, 13.0, a_source(100, 100, 100))

    assert first == (pytest.approx(10.2), pytest.approx(20.0))
    assert last == (pytest.approx(11.8), pytest.approx(20.0))


def test_a_backlog_is_as_old_as_it_was_seen_to_come():
    history = OffsetHistory()
    history.note(10.0, 12.0, a_source(0, 0, 0))
    history.note(12.0, 20.0, a_source(100, 50, 50))

    found = history.note(20.0, 21.0, a_source(100, 100, 50))

    assert found[0][0] == pytest.approx(11.1)
    assert found[-1][0] == pytest.approx(11.9)


def test_records_after_a_pause_arrived_just_before_their_batch():
    history = OffsetHistory()
    history.note(10.0, 10.5, a_source(0, 0, 0))

    found = history.note(60.0, 61.0, a_source(10, 10, 10))

    assert all(59.9 <= at_s <= 60.0 for at_s, _ in found)


def test_records_of_a_task_that_ran_twice_count_once():
    history = OffsetHistory()
    history.note(10.0, 12.0, a_source(0, 0, 0))

    found = history.note(12.0, 13.0, {**a_source(100, 100, 170), "startOffset": {"t": {"0": 0}}})

    assert sum(records for _, records in found) == pytest.approx(100.0)
