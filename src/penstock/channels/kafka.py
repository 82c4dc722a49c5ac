"""The `kafka` channel: one topic a producer, by Spark's own connector. At least once between units.

The topic carries each record as JSON under its id, so every consuming unit reads the one topic at its own
pace. A batch that is written again after a crash is there twice with the same ids: a unit that must not see
that sets the channel's `deduplicate` to how long ids are remembered. Topics carry the run's name, have enough
partitions for the unit that reads them at its largest, and keep a record until every reader is done with it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.channels.batches import TIMESTAMP_FORMAT
from penstock.channels.envelope import RECORD_ID, SOURCE_TIME, admitted, received
from penstock.channels.kafka_access import client_settings
from penstock.channels.kafka_jars import connector_jars
from penstock.channels.kafka_offsets import KafkaConsumption, offset_of
from penstock.channels.kafka_service import BrokerService
from penstock.channels.model import ChannelPlace, Leaving, Stream
from penstock.channels.schemas import carried_schema, fitted
from penstock.errors import ConfigurationError
from penstock.machine.folders import cache_folder
from penstock.quantities import duration_s
from penstock.spark.checkpoints import Checkpoint
from penstock.spark.gateway.kafka_admin import KafkaAdmin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FETCH_WAIT_MS = 10
"""How long the broker may keep a request for records that are not there yet.

Spark's reader looks at a partition's end after every fetch, and Kafka's client answers that look only when
its request ahead is back: at Kafka's usual 500 ms every task waited that long, and held its slot meanwhile.
Between batches nobody asks, so a short wait costs the broker nothing.
"""
SEGMENT_BYTES = 64 * 2**20
"""How long a file of a topic gets. A broker removes whole files alone: with Kafka's 1 GiB, that much of every
partition stays after it was read."""
MOST_PARTITIONS = 10_000
_MALFORMED = "penstock_malformed"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_ADDRESS = re.compile(r"^[^\s,:]+:\d{1,5}$")
_OUTAGE = re.compile(
    r"kafka\.common\.errors|TimeoutException|DisconnectException|Could not find valid partition"
    r"|Failed to construct kafka",
    re.IGNORECASE,
)
_LOSS = re.compile(r"KAFKA_DATA_LOSS|Some data may have been lost|OffsetOutOfRangeException")


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Topics on a Kafka broker."""

    name: ClassVar[str] = "kafka"

    bootstrap: str | None = None
    """The broker's address as host:port, or several with commas; by default one that Penstock starts."""
    prefix: str | None = None
    """What topics' names begin with; by default the run's and the channel's name. Runs that share it mix."""
    partitions: int | None = None
    """Partitions of a topic; by default as many as the largest reading unit has slots, at most 64."""
    retention: str | None = None
    """How long the broker keeps records whether or not they were read, such as "1 h".

    By default a record is kept until every unit that reads it is done with it.
    """
    max_records_per_batch: int = 100_000
    """Most records of a micro-batch: a backlog is worked off in bites."""
    deduplicate: str | None = None
    """How long ids are remembered, so that a record that comes twice is taken once; by default not at all."""
    on_data_loss: Literal["stop", "go on"] = "stop"
    """What a unit does where the broker has lost records it had not read: stop and name the offsets."""
    durable: bool = False
    """Whether batches in folders beside it are on the disk for good before they count: those of generated
    sources, and of `jsonl:` and `parquet:` sinks of units that write to it. When a broker syncs is its own
    matter."""
    client_file: str | None = None
    """A file with settings of Kafka's clients (name=value a line), such as how a broker of yours lets in."""

    def __post_init__(self) -> None:
        for name, value, most in (
            ("partitions", self.partitions, MOST_PARTITIONS),
            ("max_records_per_batch", self.max_records_per_batch, None),
        ):
            if value is not None and (value < 1 or (most is not None and value > most)):
                right = "1 or more" if most is None else f"from 1 to {most}"
                raise ConfigurationError(f"{name}: expected {right}, got {value}")
        for name, text in (("retention", self.retention), ("deduplicate", self.deduplicate)):
            if text is not None and duration_s(text) < 1:
                raise ConfigurationError(f'{name}: expected 1 s or more, such as "1 h", got {text!r}')
        if self.bootstrap is not None:
            for address in self.bootstrap.split(","):
                if not _ADDRESS.match(address.strip()):
                    raise ConfigurationError(f"bootstrap: expected host:port, got {address.strip()!r}")
        if self.prefix is not None and not _NAME.fullmatch(self.prefix):
            raise ConfigurationError(f"prefix: expected letters, digits, . _ or -, got {self.prefix!r}")
        if self.on_data_loss not in ("stop", "go on"):
            raise ConfigurationError(f"on_data_loss: expected stop or go on, got {self.on_data_loss!r}")

    def opened(self, place: ChannelPlace) -> KafkaChannel:
        """The channel at its broker."""
        bootstrap = self.bootstrap or place.address
        if bootstrap is None:
            raise ConfigurationError(
                "no broker is named and none runs; set the option `bootstrap`, or start one with "
                "`penstock broker up`"
            )
        prefix = self.prefix or "-".join(_NAME.findall(f"{place.run}.{place.name}"))
        # A partition is read by one task at a time: a reading unit at its largest keeps all slots busy.
        partitions = self.partitions or min(64, max(4, place.most_slots))
        return KafkaChannel(self, bootstrap, prefix, partitions, dict(place.readers), place.folder)

    @property
    def remembers_ids(self) -> bool:
        """Where it was asked to."""
        return self.deduplicate is not None

    def jars(self) -> list[Path]:
        """Spark's connector."""
        import pyspark

        return connector_jars(cache_folder("jars"), pyspark.__version__)

    def service(self) -> BrokerService:
        """The broker."""
        return BrokerService(self.bootstrap)


class KafkaChannel:
    """One topic a producer on a broker."""

    exactly_once: ClassVar[bool] = False

    def __init__(
        self,
        options: KafkaOptions,
        bootstrap: str,
        prefix: str,
        partitions: int = 4,
        readers: dict[str, tuple[str, ...]] | None = None,
        folder: Path | None = None,
    ) -> None:
        """`readers` are the units that read each producer's records; without them nothing is cleaned.

        `folder` is where is written down who outside reads a topic.
        """
        self.options = options
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.partitions = partitions
        self.client = client_settings(bootstrap, options.client_file)
        """What its clients need to be let in by the broker."""
        self._readers = readers or {}
        self._folder = folder

    @property
    def durable(self) -> bool:
        """As its options say."""
        return self.options.durable

    def topic(self, producer: str) -> str:
        """The topic of a producer's records."""
        return f"{self.prefix}.{producer}"

    def prepare(self, spark: SparkSession, streams: Sequence[Stream]) -> None:
        """Create the topics that do not exist yet; ClusterError where the broker does not answer."""
        retention = self.options.retention
        configuration = {"retention.ms": "-1", "segment.bytes": str(SEGMENT_BYTES)}
        if retention is not None:
            retention_ms = int(duration_s(retention) * 1000)
            # Retention works on closed segments only: close them well within it.
            segment_ms = max(1000, retention_ms // 4)
            configuration |= {"retention.ms": str(retention_ms), "segment.ms": str(segment_ms)}
        with KafkaAdmin(spark, self.bootstrap, self.client) as admin:
            for name in sorted({self.topic(stream.producer) for stream in streams}):
                admin.create_topic(name, self.partitions, configuration)

    def read(self, spark: SparkSession, stream: Stream, left_out: Collection[str] = ()) -> DataFrame:
        """The topic's records as they arrive; when they did is in the offsets (`KafkaConsumption`)."""
        raw = (
            spark.readStream.format("kafka")
            .options(**self._source(stream))
            .option("kafka.fetch.max.wait.ms", FETCH_WAIT_MS)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.options.max_records_per_batch)
            .load()
        )
        records = self._decoded(raw, stream)
        records = admitted(records, stream.producer, left_out, records[_MALFORMED]).drop(_MALFORMED)
        if self.options.deduplicate is not None:
            remembered = f"{max(1, round(duration_s(self.options.deduplicate)))} seconds"
            records = records.withWatermark(SOURCE_TIME, remembered).dropDuplicatesWithinWatermark(
                [RECORD_ID]
            )
        return records

    def read_batch(self, spark: SparkSession, stream: Stream, checkpoint: Path, batch_id: int) -> DataFrame:
        """The records of one micro-batch again, by their offsets."""
        topic, written = self.topic(stream.producer), Checkpoint(checkpoint)
        end = offset_of(topic, written, batch_id)
        if end is None:
            return received(spark.createDataFrame([], carried_schema(stream.schema, stream.producer)))
        start = offset_of(topic, written, batch_id - 1) or {}
        # -2 is Kafka's word for the earliest record, where a partition had no offset before.
        begin = {partition: start.get(partition, -2) for partition in end}
        records = self._between(spark, stream, begin, end)
        return received(records, records[_MALFORMED]).drop(_MALFORMED)

    def append(self, records: DataFrame, streams: Sequence[Stream], batch_id: int, writer: str) -> None:
        """Send one finished micro-batch; said again, its records are there twice with the same ids."""
        if streams:
            self._encoded(records, streams[0]).write.format("kafka").options(**self._sink()).save()

    def native_writer(self, leaving: Sequence[Leaving], staging: Path, writer: str) -> KafkaWriter | None:
        """The connector's own sink, several operators by its topic column, where all goes to topics."""
        if any(each.folders or each.functions or not each.streams for each in leaving):
            return None
        encoded = [self._encoded(each.records, each.streams[0]) for each in leaving]
        union = encoded[0]
        for more in encoded[1:]:
            union = union.unionAll(more)
        return KafkaWriter(union, self._sink())

    def consumption(
        self, stream: Stream, checkpoint: Path, spark: SparkSession | None = None
    ) -> KafkaConsumption:
        """What a query has started and finished of a topic."""
        topic = self.topic(stream.producer)
        readers = self._readers.get(stream.producer, ()) if self.options.retention is None else ()
        admin = (
            None
            if spark is None
            else (lambda: KafkaAdmin(spark, self.bootstrap, self.client, patience_s=3.0))
        )
        outside = self.stream(stream.producer)
        return KafkaConsumption(
            topic, stream.consumer, Checkpoint(checkpoint), readers, admin, outside, durable=self.durable
        )

    def batches_of(self, stream: Stream) -> None:
        """None: records lie at the broker."""
        return

    def newest(self, spark: SparkSession, stream: Stream, most: int) -> DataFrame:
        """The last records of each partition, but for those that nobody could read."""
        end = self.reached(spark, stream.producer)
        if not end:
            return spark.createDataFrame([], carried_schema(stream.schema, stream.producer))
        begin = {partition: max(0, last - math.ceil(most / len(end))) for partition, last in end.items()}
        # What was deleted meanwhile is no loss: they are read for a look.
        records = self._between(spark, stream, begin, end, failOnDataLoss="false")
        return records.where(records[_MALFORMED].isNull()).drop(_MALFORMED)

    def stream(self, producer: str) -> Path | None:
        """The folder that says who outside reads an operator's topic, and how much is kept for them."""
        return None if self._folder is None else self._folder / producer

    def reached(self, spark: SparkSession, producer: str) -> dict[str, int]:
        """The end of each partition of an operator's topic."""
        with KafkaAdmin(spark, self.bootstrap, self.client) as admin:
            return admin.ends(self.topic(producer))

    def is_outage(self, error: str) -> bool:
        """Whether the broker does not answer."""
        return _OUTAGE.search(error) is not None and not self.is_loss(error)

    def is_loss(self, error: str) -> bool:
        """Whether the broker has lost records that were not read; the error names the offsets."""
        return _LOSS.search(error) is not None

    def _between(
        self,
        spark: SparkSession,
        stream: Stream,
        begin: Mapping[str, int],
        end: Mapping[str, int],
        **further: str,
    ) -> DataFrame:
        """The records between two offsets of every partition, and what is malformed of them."""
        topic = self.topic(stream.producer)
        raw = (
            spark.read.format("kafka")
            .options(**{**self._source(stream), **further})
            .option("startingOffsets", json.dumps({topic: begin}))
            .option("endingOffsets", json.dumps({topic: end}))
            .load()
        )
        return self._decoded(raw, stream)

    def _broker(self) -> dict[str, str]:
        client = {f"kafka.{name}": value for name, value in self.client.items()}
        return {**client, "kafka.bootstrap.servers": self.bootstrap}

    def _source(self, stream: Stream) -> dict[str, str]:
        return {
            **self._broker(),
            "subscribe": self.topic(stream.producer),
            "failOnDataLoss": str(self.options.on_data_loss == "stop").lower(),
        }

    def _sink(self) -> dict[str, str]:
        return {
            **self._broker(),
            # A broker that is away for less than this is waited for; the backlog waits in the source.
            "kafka.delivery.timeout.ms": "120000",
            "kafka.request.timeout.ms": "10000",
            "kafka.linger.ms": "5",
        }

    def _encoded(self, records: DataFrame, stream: Stream) -> DataFrame:
        """Records as the Kafka sink wants them: topic, key and value."""
        from pyspark.sql import functions as sql

        fitting = fitted(records, stream.schema, f"operator {stream.producer}")
        value = sql.to_json(sql.struct(*fitting.columns), {"timestampFormat": TIMESTAMP_FORMAT})
        return fitting.select(
            sql.lit(self.topic(stream.producer)).alias("topic"),
            sql.col(RECORD_ID).cast("binary").alias("key"),
            value.cast("binary").alias("value"),
        )

    def _decoded(self, raw: DataFrame, stream: Stream) -> DataFrame:
        from pyspark.sql import functions as sql

        schema = carried_schema(stream.schema, stream.producer).add(_MALFORMED, "string")
        reading: dict[str, Any] = {
            "timestampFormat": TIMESTAMP_FORMAT,
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": _MALFORMED,
        }
        # Spark moves filters, ours and the user's, below a projection and would read the JSON again
        # for each of their columns. A projection that draws lots (all win) lets no filter through.
        value = sql.when(sql.rand(0) + 1 > 0, sql.col("value").cast("string"))
        decoded = sql.from_json(value, schema, reading)
        return raw.select(decoded.alias("record")).select("record.*")


class KafkaWriter:
    """The connector's own sink: nothing stands beside it, and Spark counts what it sends."""

    published = 0
    problem: str | None = None
    has_to_stop = False

    def __init__(self, records: DataFrame, options: dict[str, str]) -> None:
        self.records = records
        self._options = options

    def writer(self) -> DataStreamWriter:
        """The connector's sink."""
        return self.records.writeStream.format("kafka").options(**self._options)

    def start(self) -> None:
        """Nothing to begin with."""

    def publish(self) -> None:
        """Nothing: what is sent is visible."""

    def stop(self) -> None:
        """Nothing to end."""
