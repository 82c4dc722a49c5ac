"""The `kafka` channel: one topic a producer, by Spark's own connector. At least once between units.

The topic carries each record as JSON under its id, so every consuming unit reads the one topic at its own
pace. A batch that is written again after a crash is there twice with the same ids: a unit that must not see
that sets the channel's `deduplicate` to how long ids are remembered. Topics are made with enough partitions
for the unit that reads them at its largest, and with a retention, so disk use is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from penstock.channels.envelope import RECORD_ID, SOURCE_TIME
from penstock.channels.files import TIMESTAMP_FORMAT, offsets_of, source_index_of
from penstock.channels.model import Stream
from penstock.channels.schemas import carried_schema, fitted
from penstock.errors import ClusterError, ConfigurationError
from penstock.quantities import duration_s

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLL_S = 0.1
"""How long Spark waits before it looks for new records again, as our settings have it."""
FETCH_WAIT_MS = 10
"""How long the broker may keep a request for records that are not there yet.

Spark's reader looks at a partition's end after every fetch, and Kafka's client answers that look only when
its request ahead is back: at Kafka's usual 500 ms every task waited that long, and held its slot meanwhile.
Between batches nobody asks, so a short wait costs the broker nothing.
"""
_EVENLY = (0.1, 0.3, 0.5, 0.7, 0.9)
_LOOKS_KEPT = 500


class KafkaChannel:
    """One topic a producer on a broker."""

    kind: ClassVar[str] = "kafka"
    exactly_once: ClassVar[bool] = False

    def __init__(
        self,
        bootstrap: str,
        prefix: str = "penstock",
        partitions: int = 8,
        retention: str = "1 h",
        max_records_per_batch: int = 100_000,
        deduplicate: str | None = None,
    ) -> None:
        """`bootstrap` is the broker's address; `prefix` stands before every topic's name."""
        if partitions < 1:
            raise ConfigurationError(f"channel kafka: expected at least 1 partition, got {partitions}")
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.partitions = partitions
        self.retention_s = duration_s(retention)
        self.max_records_per_batch = max_records_per_batch
        self.deduplicate_s = None if deduplicate is None else duration_s(deduplicate)

    def topic(self, producer: str) -> str:
        """The topic of a producer's records."""
        return f"{self.prefix}.{producer}"

    def prepare(self, spark: SparkSession, streams: Sequence[Stream]) -> None:
        """Create the topics that do not exist yet; ClusterError where the broker does not answer."""
        from py4j.protocol import Py4JJavaError

        jvm: Any = spark._jvm
        settings = jvm.java.util.Properties()
        settings.put("bootstrap.servers", self.bootstrap)
        settings.put("default.api.timeout.ms", "20000")
        settings.put("request.timeout.ms", "10000")
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        try:
            # Topic by topic: one that exists must not keep the others from being made.
            for name in sorted({self.topic(stream.producer) for stream in streams}):
                replication = jvm.java.lang.Short.parseShort("1")
                topic = jvm.org.apache.kafka.clients.admin.NewTopic(name, self.partitions, replication)
                configuration = jvm.java.util.HashMap()
                configuration.put("retention.ms", str(int(self.retention_s * 1000)))
                # Retention works on closed segments only: close them well within it.
                configuration.put("segment.ms", str(max(1000, int(self.retention_s * 250))))
                wanted = jvm.java.util.ArrayList()
                wanted.add(topic.configs(configuration))
                try:
                    admin.createTopics(wanted).all().get()
                except Py4JJavaError as error:
                    cause = str(error.java_exception)
                    if "TopicExistsException" not in cause:
                        raise ClusterError(
                            f"channel kafka: topic {name} could not be created at {self.bootstrap}: {cause}; "
                            "is the broker up (`penstock broker status`)?"
                        ) from None
        finally:
            admin.close()

    def read(self, spark: SparkSession, stream: Stream) -> DataFrame:
        """The topic's records as they arrive; when they did is in the offsets (`OffsetHistory`)."""
        raw = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", self.topic(stream.producer))
            .option("kafka.fetch.max.wait.ms", FETCH_WAIT_MS)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.max_records_per_batch)
            # A record past its retention is gone: say so in the log, do not stop the unit for ever.
            .option("failOnDataLoss", "false")
            .load()
        )
        records = self._decoded(raw, stream)
        if self.deduplicate_s is not None:
            records = records.withWatermark(
                SOURCE_TIME, f"{max(1, round(self.deduplicate_s))} seconds"
            ).dropDuplicatesWithinWatermark([RECORD_ID])
        return records

    def read_batch(self, spark: SparkSession, stream: Stream, checkpoint: Path, batch_id: int) -> DataFrame:
        """The records of one micro-batch again, by their offsets."""
        topic = self.topic(stream.producer)
        end = _offset_of(topic, checkpoint, batch_id)
        if end is None:
            return spark.createDataFrame([], carried_schema(stream.schema, stream.producer))
        start = _offset_of(topic, checkpoint, batch_id - 1) or {}
        # -2 is Kafka's word for the earliest record, where a partition had no offset before.
        begin = {
            topic: {partition: start.get(topic, {}).get(partition, -2) for partition in partitions}
            for topic, partitions in end.items()
        }
        raw = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", self.topic(stream.producer))
            .option("startingOffsets", json.dumps(begin))
            .option("endingOffsets", json.dumps(end))
            .option("failOnDataLoss", "false")
            .load()
        )
        return self._decoded(raw, stream)

    def append(self, records: DataFrame, streams: Sequence[Stream], batch_id: int) -> None:
        """Send one finished micro-batch; said again, its records are there twice with the same ids."""
        if streams:
            self.encoded(records, streams[0]).write.format("kafka").options(**self.sink_options()).save()

    def sink_options(self) -> dict[str, str]:
        """Options of Spark's Kafka sink."""
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            # A broker that is away for less than this is waited for; the backlog waits in the source.
            "kafka.delivery.timeout.ms": "120000",
            "kafka.request.timeout.ms": "10000",
            "kafka.linger.ms": "5",
        }

    def encoded(self, records: DataFrame, stream: Stream) -> DataFrame:
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

        schema = carried_schema(stream.schema, stream.producer)
        decoded = sql.from_json(
            sql.col("value").cast("string"),
            schema,
            {"timestampFormat": TIMESTAMP_FORMAT, "mode": "PERMISSIVE"},
        )
        return raw.select(decoded.alias("record")).select("record.*")


class OffsetHistory:
    """When records arrived in a topic, from the newest offsets Spark saw at the start of each micro-batch.

    Between two looks records are taken to arrive evenly; no record is looked at. Partitions are added up:
    Spark takes from each in proportion to what waits there.
    """

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._newest: list[int] = []
        self._ended_s = 0.0

    def note(self, started_s: float, ended_s: float, source: Mapping[str, Any]) -> list[tuple[float, float]]:
        """Take in a micro-batch's part of a progress event: arrival times, and records at each."""
        newest, end = _total(source.get("latestOffset")), _total(source.get("endOffset"))
        begin = _total(source.get("startOffset"))
        # Spark counts what tasks have read; a task that ran twice counts twice, offsets do not.
        rows = int(source.get("numInputRows") or 0) if begin is None or end is None else end - begin
        if newest is None or end is None:
            return []
        if self._times_s and started_s - self._ended_s > 2 * POLL_S:
            # Spark has looked in vain since the last batch, the last time just before this one.
            self._look(started_s - POLL_S, self._newest[-1])
        self._look(started_s, newest)
        self._ended_s = ended_s
        if not rows:
            return []
        taken = [end - rows * (1 - share) for share in _EVENLY]
        instants_s = np.interp(taken, self._newest, self._times_s)
        return [(float(instant_s), rows / len(_EVENLY)) for instant_s in instants_s]

    def _look(self, at_s: float, newest: int) -> None:
        self._times_s.append(at_s)
        self._newest.append(newest)
        if len(self._times_s) > 2 * _LOOKS_KEPT:
            # What was seen long ago matters only for a long backlog: every other look of it stays.
            self._times_s[:_LOOKS_KEPT] = self._times_s[:_LOOKS_KEPT:2]
            self._newest[:_LOOKS_KEPT] = self._newest[:_LOOKS_KEPT:2]


def _total(offset: Any) -> int | None:
    found = _offsets(offset)
    return sum(int(n) for partitions in found.values() for n in partitions.values()) if found else None


def waiting_of(source_progress: dict[str, Any]) -> int:
    """Records that wait in Kafka, from a source's part of a progress event: latest minus end offsets."""
    latest = _offsets(source_progress.get("latestOffset"))
    end = _offsets(source_progress.get("endOffset"))
    return sum(
        max(0, offset - int(end.get(topic, {}).get(partition, 0)))
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    )


def _offsets(value: Any) -> dict[str, dict[str, int]]:
    if isinstance(value, str):
        value = json.loads(value)
    return value if isinstance(value, dict) else {}


def taken_from(topic: str, checkpoint: Path) -> int:
    """Records of a topic that a query has finished since its first start, by its offsets."""
    finished = [int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")]
    index = source_index_of(checkpoint, f'"{topic}"')
    end = _offset_of(topic, checkpoint, max(finished)) if finished else None
    if end is None or index is None:
        return 0
    # What the query began with; behind the version, in one line.
    begin = json.loads((checkpoint / "sources" / str(index) / "0").read_text().splitlines()[-1])
    return (_total(end) or 0) - (_total(begin) or 0)


def _offset_of(topic: str, checkpoint: Path, batch_id: int) -> dict[str, Any] | None:
    """The end offset of a topic in one micro-batch; None where it has none."""
    return next((offset for offset in offsets_of(checkpoint, batch_id) if offset and topic in offset), None)
