"""Every kind of channel in the registry keeps the port's promises: one suite over all of them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import penstock
from penstock.channels.kafka_jars import broker_jars
from penstock.channels.model import ChannelPlace, Leaving, Stream
from penstock.channels.registry import CHANNELS, channel_kind, make_channel, service_of
from penstock.choosing import parameters_of
from penstock.errors import ClusterError, ConfigurationError
from penstock.machine.folders import cache_folder
from penstock.runs.known import known_names
from penstock.topology.model import Channel, Choice, Operator, Sink, Source, Topology
from penstock.topology.validation import find_mistakes

from .test_files import a_batch

STREAM = Stream("upper", "counting", "number long")
TOPOLOGY = Topology(
    "shop",
    (Source("orders", workload=Choice("constant", {"level_per_s": 50.0})),),
    (Operator("check", ("orders",), schema="number long"), Operator("count", ("check",))),
)

KINDS = pytest.mark.parametrize("kind", CHANNELS)
ON_SPARK = pytest.mark.spark


@pytest.fixture(scope="module")
def servers(kafka_jars, tmp_path_factory):
    """Addresses of what the kinds need, by kind, each started when first asked for."""
    started = {}

    def address(kind):
        service = channel_kind(kind, {}).service()
        if service is None:
            return None
        if isinstance(kafka_jars, str):
            pytest.skip(f"jars cannot be fetched: {kafka_jars}")
        if kind not in started:
            try:
                broker_jars(cache_folder("jars"))
            except ClusterError as error:
                pytest.skip(f"jars cannot be fetched: {error}")
            own = service.own(
                f"contract-{tmp_path_factory.getbasetemp().name}", tmp_path_factory.mktemp(kind)
            )
            started[kind] = (own, own.start())
        return started[kind][1]

    yield address
    for own, _ in started.values():
        own.stop()


@pytest.fixture
def opened(servers, tmp_path):
    def make(kind, run="run-1", **options):
        place = ChannelPlace("c", run, tmp_path / "c", servers(kind), 2, {"upper": ("counting",)})
        return channel_kind(kind, options).opened(place)

    return make


def start(spark, records, checkpoint, results):
    query = records.writeStream.foreachBatch(lambda batch, number: results.extend(batch.collect()))
    return query.option("checkpointLocation", str(checkpoint)).start()


def numbers(rows):
    return sorted(row.number for row in rows)


@KINDS
def test_a_kind_is_a_frozen_dataclass_with_a_default_for_every_option(kind):
    options = CHANNELS[kind]
    assert options.name == kind
    assert options.__dataclass_params__.frozen
    assert all(field.default is not dataclasses.MISSING for field in dataclasses.fields(options))
    assert tuple(CHANNELS.parameters(kind)) == tuple(parameters_of(options))
    assert channel_kind(kind, {}) == options()


@KINDS
def test_nothing_is_fetched_or_started_by_asking_for_the_service(kind):
    service = channel_kind(kind, {}).service()
    assert service is None or (service.name and service.named is None)


@ON_SPARK
@KINDS
def test_what_is_appended_is_read_counted_and_cleaned(spark, opened, tmp_path, kind):
    channel, checkpoint, results = opened(kind), tmp_path / "check", []
    channel.prepare(spark, [STREAM])
    channel.prepare(spark, [STREAM])
    consumption = channel.consumption(STREAM, checkpoint, spark)
    assert consumption.backlog() == (0, 0)
    channel.append(a_batch(spark, range(6)), [STREAM], 0, "me")

    query = start(spark, channel.read(spark, STREAM, ["r4"]), checkpoint, results)
    query.processAllAvailable()
    query.stop()

    assert numbers(results) == [0, 1, 2, 3, 5], "the record to leave out is left out"
    assert {row.record_id for row in results} == {f"r{n}" for n in (0, 1, 2, 3, 5)}
    again = channel.consumption(STREAM, checkpoint)
    assert (again.taken(), again.backlog()) == (6, (0, 0))
    last = max(int(name.name) for name in (checkpoint / "offsets").glob("[0-9]*"))
    batches = [channel.read_batch(spark, STREAM, checkpoint, n) for n in range(last + 1)]
    assert sorted(n for batch in batches for n in numbers(batch.collect())) == list(range(6))
    assert consumption.clean() > 0
    assert channel.consumption(STREAM, checkpoint).taken() == 6, "cleaning forgets nothing"


@ON_SPARK
@KINDS
def test_a_batch_appended_twice_is_seen_once_where_that_is_promised(spark, opened, tmp_path, kind):
    channel, results = opened(kind, run="twice"), []
    channel.prepare(spark, [STREAM])
    for _ in range(2):
        channel.append(a_batch(spark, range(3)), [STREAM], 0, "me")
    query = start(spark, channel.read(spark, STREAM), tmp_path / "check", results)
    query.processAllAvailable()
    query.stop()

    assert numbers(results) == ([0, 1, 2] if channel.exactly_once else [0, 0, 1, 1, 2, 2])


@ON_SPARK
@KINDS
def test_two_runs_do_not_read_each_others_records(spark, opened, servers, tmp_path, kind):
    mine = channel_kind(kind, {}).opened(ChannelPlace("c", "mine", tmp_path / "mine", servers(kind)))
    other = channel_kind(kind, {}).opened(ChannelPlace("c", "other", tmp_path / "other", servers(kind)))
    results = []
    for channel in (mine, other):
        channel.prepare(spark, [STREAM])
    other.append(a_batch(spark, [7]), [STREAM], 0, "them")
    mine.append(a_batch(spark, [1]), [STREAM], 0, "me")
    query = start(spark, mine.read(spark, STREAM), tmp_path / "check", results)
    query.processAllAvailable()
    query.stop()

    assert numbers(results) == [1]


@ON_SPARK
@KINDS
def test_a_native_writer_gives_the_same_records(spark, opened, tmp_path, kind):
    channel, results = opened(kind, run="native"), []
    spark.createDataFrame(
        [("r1", None, 1), ("r2", None, 2)], "record_id string, source_time timestamp, n long"
    )
    (tmp_path / "in").mkdir()
    a_batch(spark, [1, 2]).write.parquet(str(tmp_path / "in" / "x"))
    source = spark.readStream.schema(a_batch(spark, []).schema).parquet(str(tmp_path / "in" / "*"))
    channel.prepare(spark, [STREAM])
    native = channel.native_writer([Leaving("upper", source, (STREAM,))], tmp_path / "staging", "me")
    assert native is not None
    native.start()
    query = native.writer().option("checkpointLocation", str(tmp_path / "out")).start()
    query.processAllAvailable()
    query.stop()
    native.stop()

    assert native.problem is None
    assert not native.has_to_stop
    reading = start(spark, channel.read(spark, STREAM), tmp_path / "check", results)
    reading.processAllAvailable()
    reading.stop()
    assert numbers(results) == [1, 2]


@KINDS
def test_an_error_that_means_nothing_to_a_channel_is_neither_outage_nor_loss(kind):
    channel = channel_kind(kind, {}).opened(ChannelPlace("c", "run", Path("nowhere"), "127.0.0.1:9"))
    assert not channel.is_outage("ValueError: 13 is unlucky")
    assert not channel.is_loss("ValueError: 13 is unlucky")


def test_a_channel_lies_where_the_run_is_and_topics_carry_its_name(tmp_path):
    files = make_channel(Channel("fast", "files", {"format": "json"}), TOPOLOGY, tmp_path, "run-1")
    assert files.root == tmp_path / "fast"

    kafka = make_channel(Channel("k", "kafka"), TOPOLOGY, tmp_path, "run 1", "127.0.0.1:9")
    assert (kafka.bootstrap, kafka.partitions, kafka.topic("check")) == (
        "127.0.0.1:9", 50, "run-1.k.check",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("channel", "told"),
    [
        (Channel("c", "pigeons"), 'unknown channel "pigeons"'),
        (Channel("c", "files", {"speed": 3}), 'has no parameter "speed"'),
        (Channel("c", "kafka"), "penstock broker up"),
    ],
)
def test_a_channel_that_cannot_be_made_says_what_would_be_right(tmp_path, channel, told):
    with pytest.raises(ConfigurationError, match=f"channel c .*{told}"):
        make_channel(channel, TOPOLOGY, tmp_path, "run")


@pytest.mark.parametrize(
    ("kind", "option", "value", "told"),
    [
        ("files", "format", "xml", "format: expected one of parquet, json"),
        ("files", "max_files_per_batch", 0, "expected 1 or more, got 0"),
        ("files", "max_files_per_batch", "many", "expected a whole number"),
        ("files", "durable", "yes", "expected true or false"),
        ("kafka", "partitions", -3, "partitions: expected from 1 to 10000, got -3"),
        ("kafka", "partitions", 10**9, "expected from 1 to 10000"),
        ("kafka", "partitions", True, "expected a whole number"),
        ("kafka", "retention", "soon", "soon"),
        ("kafka", "retention", "-5 s", "-5 s"),
        ("kafka", "deduplicate", "0 s", "expected 1 s or more"),
        ("kafka", "bootstrap", "broker", "bootstrap: expected host:port, got 'broker'"),
        ("kafka", "prefix", "a b", "prefix: expected letters"),
        ("kafka", "max_records_per_batch", 0, "expected 1 or more"),
        ("kafka", "on_data_loss", "cry", "expected one of stop, go on"),
    ],
)
def test_a_bad_option_is_refused_by_check_with_the_reason(kind, option, value, told):
    topology = dataclasses.replace(TOPOLOGY, channels=(Channel("c", kind, {option: value}),))

    messages = [mistake.message for mistake in find_mistakes(topology, known_names())]

    assert any("channel" in message and re.search(re.escape(told), message) for message in messages), messages


def test_no_server_is_needed_without_a_channel_that_needs_one():
    assert service_of(TOPOLOGY) is None
    kafka = dataclasses.replace(
        TOPOLOGY, channels=(Channel("a", "kafka", {"bootstrap": "h:1"}), Channel("b", "kafka"))
    )
    assert service_of(kafka).named is None, "the one that is to be found comes first"
    assert service_of(dataclasses.replace(kafka, channels=kafka.channels[:1])).address() == "h:1"


def test_nobody_but_a_kinds_own_files_asks_which_kind_a_channel_is():
    source = Path(penstock.__file__).parent
    names = "|".join(CHANNELS)
    asking = re.compile(rf"""isinstance\([^)]*(?:Channel|Options)\)|kind\s*[!=]=\s*["'](?:{names})["']""")

    found = [
        str(path.relative_to(source)) for path in source.rglob("*.py") if asking.search(path.read_text())
    ]

    assert [path for path in found if not re.match(rf"channels/(?:{names})", path)] == []


@pytest.mark.parametrize(
    ("functions", "clash"),
    [
        (("jsonl:out", "jsonl:out"), 'sink "two": its folder "out" is also that of sink "one"'),
        (("jsonl:out", "parquet:./x/../out"), 'its folder "out" is also that of sink "one"'),
        (("jsonl", "jsonl:one"), 'its folder "one" is also that of sink "one"'),
        (("jsonl:a", "jsonl:../channels/files/check/count"), "the run keeps for itself"),
        (("jsonl:a", "jsonl:b"), None),
        (("jsonl:/data/a", "jsonl:a"), None),
    ],
)
def test_two_writers_of_one_folder_are_refused_by_check(functions, clash):
    sinks = tuple(
        Sink(name, ("check",), function) for name, function in zip(("one", "two"), functions, strict=True)
    )

    found = find_mistakes(dataclasses.replace(TOPOLOGY, sinks=sinks), known_names())

    doubled = [mistake.message for mistake in found if mistake.code == "doubled-folder"]
    assert (clash is None and not doubled) or (clash is not None and clash in doubled[0])
