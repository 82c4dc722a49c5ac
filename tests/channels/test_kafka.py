"""The kafka channel on a real broker from Maven's jars; skipped where those are out of reach."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import struct
import time

import pytest
from faults.ground import make_clock

from penstock.channels.broker import Broker, listens
from penstock.channels.envelope import identified
from penstock.channels.kafka import KafkaChannel, KafkaOptions
from penstock.channels.kafka_access import CLIENT_FILE, client_settings
from penstock.channels.kafka_jars import broker_jars
from penstock.channels.kafka_offsets import KafkaConsumption, OffsetHistory
from penstock.channels.kafka_service import BrokerService, RunBroker
from penstock.channels.model import FinishedBatch, Stream
from penstock.channels.services import ServiceWatch
from penstock.channels.subscriptions import Terms, subscribe, unsubscribe
from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder
from penstock.machine.java import find_java
from penstock.machine.processes import wait_until
from penstock.spark.checkpoints import Checkpoint
from penstock.spark.gateway.kafka_admin import KafkaAdmin
from penstock.spark.gateway.session import java

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
    readers = {STREAM.producer: (STREAM.consumer,)}
    return KafkaChannel(KafkaOptions(**options), broker.record().bootstrap, prefix, 2, readers)


def test_topics_are_made_once_with_partitions_and_records_keep_ids_and_times(spark, broker, tmp_path):
    channel = channel_of(broker, "once")
    channel.prepare(spark, [STREAM])
    channel.prepare(spark, [STREAM])
    batch = a_batch(spark, range(20))
    channel.append(batch, [STREAM], 0, "me")
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
    end = progress["sources"][0]["endOffset"]
    assert set((json.loads(end) if isinstance(end, str) else end)["once.upper"]) == {"0", "1"}
    again = channel.read_batch(spark, STREAM, tmp_path / "check", progress["batchId"])
    assert again.count() == len(results) == 20


def test_a_topics_files_are_short_so_that_what_was_read_leaves_the_disk(spark, broker, monkeypatch):
    from pyspark.sql import functions as sql

    monkeypatch.setattr("penstock.channels.kafka.SEGMENT_BYTES", 2**20)
    channel = KafkaChannel(KafkaOptions(), broker.record().bootstrap, "short", 1)
    stream = Stream("upper", "counting", "text string")
    channel.prepare(spark, [stream])
    records = spark.range(3000).select(
        sql.col("id").cast("string").alias("record_id"),
        sql.current_timestamp().alias("source_time"),
        sql.repeat(sql.sha2(sql.col("id").cast("string"), 512), 8).alias("text"),
    )
    channel.append(records, [stream], 0, "me")

    files = list((broker.folder / "data").glob(f"{channel.topic('upper')}-0/*.log"))
    assert len(files) >= 3
    assert max(file.stat().st_size for file in files) <= 2**20


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
        channel.append(a_batch(spark, range(5)), [STREAM], 0, "me")
        query.processAllAvailable()
    query.stop()

    assert sorted(row.number for row in results) == [0, 1, 2, 3, 4]


class SetBackOnce:
    """The clock was set back before the first look."""

    def __init__(self, by_s: float) -> None:
        self._by_s = by_s

    def since_last_s(self) -> float:
        by_s, self._by_s = self._by_s, 0.0
        return by_s


def set_ahead(step, by_s: int) -> None:
    """Set the faked clock: in place, for the broker has the file in its memory, and dies where it is cut."""
    with step.open("r+b") as file:
        file.write(struct.pack("<q", by_s * 10**9))


def begin_topics(spark, address, step) -> None:
    """Ask for topics while the clock is a day ahead, and set it back before they are written down."""
    clients = java(spark).org.apache.kafka.clients.admin
    one = java(spark).java.lang.Short.parseShort("1")
    with KafkaAdmin(spark, address, client_settings(address)) as admin:
        for number in range(3):
            set_ahead(step, 86_400)
            wanted = java(spark).java.util.ArrayList()
            wanted.add(clients.NewTopic(f"ahead-{number}", 1, one))
            admin._admin.createTopics(wanted)
            time.sleep(0.005 * (number + 1))
            set_ahead(step, 0)


def test_a_broker_makes_topics_again_after_the_clock_was_a_day_ahead(
    spark, kafka_jars, tmp_path, monkeypatch
):
    """What it began to write then it would finish when that day has come, and nothing before it."""
    if isinstance(kafka_jars, str):
        pytest.skip(f"Kafka's connector cannot be fetched: {kafka_jars}")
    clock = make_clock(tmp_path)
    if isinstance(clock, str):
        pytest.skip(clock)
    library, step = clock
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("FAULTS_CLOCK", str(step))
    broker = RunBroker(f"clock-{os.getpid()}", tmp_path / "broker")
    try:
        address = broker.start()
        monkeypatch.delenv("LD_PRELOAD")

        def make(prefix: str) -> None:
            KafkaChannel(KafkaOptions(), address, prefix, 1).prepare(spark, [STREAM])

        make("before")
        begin_topics(spark, address, step)
        watch = ServiceWatch(BrokerService(), address, broker.revive, broker.end, SetBackOnce(86_400.0))
        assert "was set back by 24 h" in watch.tick(0.0)[0]
        assert wait_until(lambda: BrokerService().answers(address), 60)
        make("after")
        make("before")
    finally:
        broker.stop()


def test_a_killed_broker_comes_back_at_its_address_with_its_records(spark, broker):
    channel = channel_of(broker, "killed")
    channel.prepare(spark, [STREAM])
    channel.append(a_batch(spark, range(3)), [STREAM], 0, "me")
    before = broker.record()
    os.kill(before.process.pid, signal.SIGKILL)
    assert wait_until(lambda: not listens(before.port), 10)

    after = broker.start()

    assert (after.bootstrap, after.process.pid != before.process.pid) == (before.bootstrap, True)
    raw = (
        spark.read.format("kafka")
        .options(**channel._broker())
        .option("subscribe", channel.topic("upper"))
        .load()
    )
    assert raw.count() == 3


@pytest.mark.parametrize(
    ("latest", "backlog"),
    [
        ({"t": {"0": 10, "1": 5}}, (3, 6)),
        ('{"t": {"0": 10, "1": 5}}', (3, 6)),
        ({"other": {"0": 10}}, (0, 6)),
        (None, (0, 6)),
    ],
)
def test_waiting_is_latest_minus_what_is_started_and_that_is_in_service(tmp_path, latest, backlog):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    for number, ends in enumerate(({"0": 4, "1": 2}, {"0": 7, "1": 5})):
        (tmp_path / "offsets" / str(number)).write_text("v1\n{}\n" + json.dumps({"t": ends}))
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    consumption = KafkaConsumption("t", "reader", Checkpoint(tmp_path))
    source = {"description": "KafkaV2[Subscribe[t]]", "latestOffset": latest, "endOffset": {"t": {"0": 7}}}

    consumption.note(FinishedBatch(0, 1.0, 2.0, [source]))

    assert consumption.backlog() == backlog


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


def raw_write(spark, broker, topic, values):
    frame = spark.createDataFrame([(value,) for value in values], "value string")
    options = {**channel_of(broker, "raw")._broker(), "topic": topic}
    frame.write.format("kafka").options(**options).save()


def query_of(channel, spark, checkpoint, results, left_out=(), stream=STREAM):
    writer = channel.read(spark, stream, left_out).writeStream
    writer = writer.foreachBatch(lambda found, number: results.extend(found.collect()))
    return writer.option("checkpointLocation", str(checkpoint)).start()


def test_malformed_json_is_a_fault_with_a_name_and_not_a_row_of_nulls(spark, broker, tmp_path):
    channel, results = channel_of(broker, "malformed"), []
    channel.prepare(spark, [STREAM])
    channel.append(a_batch(spark, [1]), [STREAM], 0, "me")
    raw_write(spark, broker, channel.topic("upper"), ['{"record_id": "r2", "numb', '{"number": 3}'])
    query = query_of(channel, spark, tmp_path / "check", results)
    with pytest.raises(Exception, match=r"upper: a record (cannot be read|has no record_id)"):
        query.processAllAvailable()

    bad = channel.read_batch(spark, STREAM, tmp_path / "check", 0).filter("penstock_problem is not null")
    names = [row.record_id for row in bad.collect()]
    assert sorted(name.split("-")[0] for name in names) == ["malformed", "without"]

    again = query_of(channel, spark, tmp_path / "check", results, names)
    again.processAllAvailable()
    again.stop()
    assert [row.number for row in results] == [1]


def test_a_record_is_decoded_once_whatever_is_asked_of_it(spark, broker, tmp_path, capsys):
    channel = channel_of(broker, "decoded")
    channel.prepare(spark, [STREAM])
    channel.append(a_batch(spark, [1, 7]), [STREAM], 0, "me")
    records = identified(channel.read(spark, STREAM).filter("number > 3"), "op")
    query = records.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "check")).start()
    query.processAllAvailable()
    query.explain()
    query.stop()
    plan = capsys.readouterr().out

    assert plan.count("from_json(") == 1, plan
    assert "Filter" in plan


def earliest(spark, broker, topic):
    raw = spark.read.format("kafka").options(**channel_of(broker, "raw")._broker())
    return raw.option("subscribe", topic).load().count()


def test_a_record_stays_until_every_reader_is_done_with_it(spark, broker, tmp_path, monkeypatch):
    readers = {"upper": ("counting", "archive")}
    synced = []
    monkeypatch.setattr("penstock.spark.checkpoints.sync", synced.append)
    channel = KafkaChannel(KafkaOptions(durable=True), broker.record().bootstrap, "kept", 2, readers)
    other = Stream("upper", "archive", "number long")
    channel.prepare(spark, [STREAM])
    channel.append(a_batch(spark, range(10)), [STREAM], 0, "me")

    counting = query_of(channel, spark, tmp_path / "counting", [])
    counting.processAllAvailable()
    counting.stop()
    assert channel.consumption(STREAM, tmp_path / "counting", spark).clean() == 0
    assert earliest(spark, broker, channel.topic("upper")) == 10, "the archive has not read them"
    assert tmp_path / "counting" / "commits" / "0" in synced, "before the broker knew how far it is"

    archive = query_of(channel, spark, tmp_path / "archive", [], stream=other)
    archive.processAllAvailable()
    archive.stop()
    assert channel.consumption(other, tmp_path / "archive", spark).clean() == 10
    assert earliest(spark, broker, channel.topic("upper")) == 0

    channel.append(a_batch(spark, [10]), [STREAM], 1, "me")
    results = []
    counting = query_of(channel, spark, tmp_path / "counting", results)
    counting.processAllAvailable()
    counting.stop()
    assert [row.number for row in results] == [10], "what was deleted had been read"


def lose(spark, channel, records):
    """Delete records at the broker that nobody has read."""
    with KafkaAdmin(spark, channel.bootstrap, channel.client) as admin:
        admin.delete_before(channel.topic("upper"), records)


@pytest.mark.parametrize("choice", ["stop", "go on"])
def test_lost_records_stop_the_unit_with_their_offsets_unless_chosen_otherwise(
    spark, broker, tmp_path, choice
):
    options = KafkaOptions(on_data_loss=choice)
    channel = KafkaChannel(options, broker.record().bootstrap, f"lost-{choice[:2]}", 1)
    channel.prepare(spark, [STREAM])
    channel.append(a_batch(spark, range(3)), [STREAM], 0, "me")
    first = query_of(channel, spark, tmp_path / "check", [])
    first.processAllAvailable()
    first.stop()
    channel.append(a_batch(spark, range(3, 9)), [STREAM], 1, "me")
    lose(spark, channel, {0: 7})

    results = []
    query = query_of(channel, spark, tmp_path / "check", results)
    if choice == "go on":
        query.processAllAvailable()
        query.stop()
        assert len(results) == 2
        return
    with pytest.raises(Exception, match="lost") as error:
        query.processAllAvailable()
    assert channel.is_loss(str(error.value))
    assert not channel.is_outage(str(error.value))
    assert re.search(r"\b3\b", str(error.value)), "the error names the offsets"


def test_a_broker_that_does_not_answer_is_told_by_cleaning_and_asked_again_later(spark, tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n" + json.dumps({"t": {"0": 4}}))
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    asked = []

    def admin():
        asked.append(1)
        return KafkaAdmin(spark, "127.0.0.1:9", patience_s=0.5)

    consumption = KafkaConsumption("t", "reader", Checkpoint(tmp_path), ("reader",), admin)

    with pytest.raises(ClusterError, match="is the broker up"):
        consumption.clean()
    assert consumption.clean() == 0, "not at once again"
    assert len(asked) == 1


def test_what_an_absent_subscriber_has_not_read_is_kept_within_its_bound(spark, broker, tmp_path):
    readers = {"upper": ("counting",)}
    bootstrap = broker.record().bootstrap
    channel = KafkaChannel(KafkaOptions(), bootstrap, "outside", 1, readers, tmp_path / "channel")
    channel.prepare(spark, [STREAM])
    subscription = subscribe(channel.stream("upper"), Terms("office", 15))
    topic = channel.topic("upper")
    group = f"{topic}.~office"

    def read_and_clean(numbers, batch_id):
        channel.append(a_batch(spark, numbers), [STREAM], batch_id, "me")
        query = query_of(channel, spark, tmp_path / "counting", [])
        query.processAllAvailable()
        query.stop()
        consumption = channel.consumption(STREAM, tmp_path / "counting", spark)
        consumption.clean()
        return consumption

    read_and_clean(range(10), 0)
    assert earliest(spark, broker, topic) == 10, "every unit is done with them, the subscriber is not"
    assert subscription.standing().waiting == 10
    with KafkaAdmin(spark, bootstrap, channel.client) as admin:
        assert admin.committed(group, topic) == {0: 0}, "it begins with what was kept"
        admin.commit(group, topic, {0: 4})  # as its own client does
    read_and_clean(range(10, 15), 1)
    assert earliest(spark, broker, topic) == 11
    read_and_clean(range(15, 40), 2)
    assert earliest(spark, broker, topic) == 15, "no more than it asked for"
    standing = subscription.standing()
    assert (standing.waiting, standing.dropped) == (15, 21)
    assert unsubscribe(channel.stream("upper"), "office")
    read_and_clean(range(40, 41), 3)
    assert earliest(spark, broker, topic) == 0, "who has left holds up nothing"


def test_off_the_loopback_address_a_broker_speaks_tls_and_lets_in_who_has_its_client_file(
    spark, broker, tmp_path
):
    folder = tmp_path / "elsewhere"
    elsewhere = Broker(folder, find_java().executable, broker_jars(cache_folder("jars")), address="127.0.0.2")
    try:
        record = elsewhere.start()
        assert record.bootstrap.startswith("127.0.0.2:")
        file = folder / CLIENT_FILE
        assert file.stat().st_mode & 0o077 == 0, "it holds the password"
        certificate = re.search(r"certificates=(-+BEGIN.*END CERTIFICATE-+)", file.read_text())[1]
        begin, body, end = re.match(r"(-+BEGIN CERTIFICATE-+) (.*) (-+END.*)", certificate).groups()
        trusted = ssl.create_default_context(cadata="\n".join([begin, *body.split(), end]))
        with (
            socket.create_connection(("127.0.0.2", record.port), 10) as plain,
            trusted.wrap_socket(plain, server_hostname="127.0.0.2") as wrapped,
        ):
            assert wrapped.version() in ("TLSv1.2", "TLSv1.3")

        options = KafkaOptions(client_file=str(file))
        channel = KafkaChannel(options, record.bootstrap, "far", 2, {STREAM.producer: (STREAM.consumer,)})
        channel.prepare(spark, [STREAM])
        channel.append(a_batch(spark, range(7)), [STREAM], 0, "me")
        found = channel.read(spark, STREAM).writeStream.format("memory").queryName("far")
        query = found.option("checkpointLocation", str(tmp_path / "check")).start()
        query.processAllAvailable()
        query.stop()
        assert spark.table("far").count() == 7
    finally:
        elsewhere.stop()
