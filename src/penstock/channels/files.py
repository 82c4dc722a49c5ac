"""The `files` channel: folders of batches on a disk that driver and executors share. Exactly once.

The consumer is Spark's own file source, which logs what it has started; from that log we know what waits,
and delete what is done with. Disk use is bounded by the backlog.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.channels.batches import TIMESTAMP_FORMAT, write_batch
from penstock.channels.envelope import admitted, received
from penstock.channels.files_taken import FilesConsumption
from penstock.channels.model import ChannelPlace, Leaving, Stream
from penstock.channels.publishing import FolderWriter, folder_writer
from penstock.channels.schemas import carried_schema, fitted
from penstock.channels.subscriptions import publish_to_subscribers
from penstock.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMATS = ("parquet", "json")
_MALFORMED = "penstock_malformed"
"""The column Spark's JSON reader puts a line into that it cannot read."""


@dataclass(frozen=True, slots=True)
class FilesOptions:
    """Batches of files on a disk that all processes of the run share."""

    name: ClassVar[str] = "files"

    format: Literal["parquet", "json"] = "parquet"
    """How records are written."""
    max_files_per_batch: int = 100
    """Most files of a micro-batch: a backlog is worked off in bites.

    A bite is cut for the slots there are when it starts; those added meanwhile wait for the next one.
    """
    durable: bool = False
    """Whether a batch is on the disk for good before it counts as finished; also those of generated sources
    and of `jsonl:` and `parquet:` sinks of units that write to the channel.

    false: nothing is lost or doubled whichever processes are killed; a power cut may lose the last seconds
    that the operating system had not written yet. true: a finished batch survives a power cut, and what was
    read is deleted only when the reader's checkpoint is on the disk. It costs a sync a file and two a folder
    in every batch: one to twenty milliseconds a batch of one file, as measured.
    """

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ConfigurationError(f"format: expected one of {', '.join(FORMATS)}, got {self.format!r}")
        if self.max_files_per_batch < 1:
            raise ConfigurationError(
                f"max_files_per_batch: expected 1 or more, got {self.max_files_per_batch}"
            )

    def opened(self, place: ChannelPlace) -> FilesChannel:
        """The channel in its folder."""
        return FilesChannel(place.folder, self)

    remembers_ids: ClassVar[bool] = False

    def jars(self) -> list[Path]:
        """None: Spark reads and writes files by itself."""
        return []

    def service(self) -> None:
        """None: a disk is all it needs."""
        return


class FilesChannel:
    """Batches of files below one root, one folder a producer and consumer."""

    exactly_once: ClassVar[bool] = True

    def __init__(self, root: Path, options: FilesOptions | None = None) -> None:
        self.root = Path(root)
        self.options = options or FilesOptions()

    @property
    def durable(self) -> bool:
        """As its options say."""
        return self.options.durable

    def folder(self, stream: Stream) -> Path:
        """Where the records of a stream lie."""
        return self.root / stream.producer / stream.consumer

    def prepare(self, spark: SparkSession, streams: Sequence[Stream]) -> None:
        """Make the streams' folders."""
        for stream in streams:
            self.folder(stream).mkdir(parents=True, exist_ok=True)

    def read(self, spark: SparkSession, stream: Stream, left_out: Collection[str] = ()) -> DataFrame:
        """The stream's records as they arrive; when they did is in the source's log (`FilesConsumption`)."""
        self.folder(stream).mkdir(parents=True, exist_ok=True)
        # With nothing to leave out, Spark's reader ends the query at a line it cannot read: a column for
        # such lines costs a copy of every record. Which line it was is found when the batch is read again.
        named = self.options.format == "json" and bool(left_out)
        reader = (
            spark.readStream.format(self.options.format)
            .schema(self._schema(stream, malformed=named))
            .options(**self._reading(malformed=named))
            .option("maxFilesPerTrigger", self.options.max_files_per_batch)
        )
        # The glob, and not the folder: what is being written beside the batches is no record.
        records = reader.load(f"{self.folder(stream)}/batch-*")
        if not named:
            return admitted(records, stream.producer, left_out)
        return admitted(records, stream.producer, left_out, records[_MALFORMED]).drop(_MALFORMED)

    def read_batch(self, spark: SparkSession, stream: Stream, checkpoint: Path, batch_id: int) -> DataFrame:
        """The records of one micro-batch again."""
        files = self.consumption(stream, checkpoint).files_of(batch_id)
        if not files:
            return self._received(spark.createDataFrame([], self._schema(stream)))
        reader = spark.read.format(self.options.format).schema(self._schema(stream))
        return self._received(reader.options(**self._reading()).load([str(file) for file in files]))

    def append(self, records: DataFrame, streams: Sequence[Stream], batch_id: int, writer: str) -> None:
        """Write the batch once and publish it to every stream."""
        if not streams:
            return
        first = streams[0]
        fitting = fitted(records, first.schema, f"operator {first.producer}")
        scratch, folders = self.root / first.producer, [self.folder(stream) for stream in streams]
        file_format, durable = self.options.format, self.options.durable
        also = functools.partial(self._to_subscribers, first.producer, batch_id, writer)
        write_batch(fitting, scratch, folders, batch_id, file_format, writer, durable=durable, also=also)

    def batches_of(self, stream: Stream) -> Path:
        """Where the records of a stream lie."""
        return self.folder(stream)

    def newest(self, spark: SparkSession, stream: Stream, most: int) -> None:
        """None: whoever wants them links the files."""
        return

    def stream(self, producer: str) -> Path:
        """The folder in which those outside subscribe to an operator's records."""
        return self.root / producer

    def reached(self, spark: SparkSession, producer: str) -> dict[str, int]:
        """Nothing: whoever begins to read has a folder of its own."""
        return {}

    def topic(self, producer: str) -> None:
        """None: an operator's records are files."""

    def _to_subscribers(
        self, producer: str, batch_id: int, writer: str, files: Sequence[Path], records: int
    ) -> None:
        stream, durable = self.stream(producer), self.options.durable
        publish_to_subscribers(stream, files, records, batch_id, writer, durable=durable)

    def native_writer(self, leaving: Sequence[Leaving], staging: Path, writer: str) -> FolderWriter | None:
        """Spark's file sink and a publisher, where one operator's records go into folders of one format."""
        if len(leaving) != 1:
            return None
        only = leaving[0]
        folders = [(self.folder(stream), self.options.format) for stream in only.streams]
        stream = self.stream(only.operator) if only.streams else None
        places, durable = [*only.folders, *folders], self.options.durable
        return folder_writer(only, places, staging, writer, durable=durable, stream=stream)

    def consumption(
        self, stream: Stream, checkpoint: Path, spark: SparkSession | None = None
    ) -> FilesConsumption:
        """What a query has started and finished of a stream."""
        return FilesConsumption(self.folder(stream), checkpoint, durable=self.options.durable)

    def is_outage(self, error: str) -> bool:
        """Never: a disk that is full is everybody's matter, not this channel's."""
        return False

    def is_loss(self, error: str) -> bool:
        """Whether a file is gone that a query was about to read."""
        return "FAILED_READ_FILE.FILE_NOT_EXIST" in error and str(self.root) in error

    def _reading(self, *, malformed: bool = True) -> dict[str, str]:
        """Options of Spark's reader; without `malformed` a line that cannot be read is an error."""
        if self.options.format != "json":
            return {}
        bad = {"columnNameOfCorruptRecord": _MALFORMED} if malformed else {"mode": "FAILFAST"}
        return {"timestampFormat": TIMESTAMP_FORMAT, **bad}

    def _schema(self, stream: Stream, *, malformed: bool = True) -> StructType:
        schema = carried_schema(stream.schema, stream.producer)
        if malformed and self.options.format == "json":
            schema = schema.add(_MALFORMED, "string")
        return schema

    def _received(self, records: DataFrame) -> DataFrame:
        if self.options.format != "json":
            return received(records)
        return received(records, records[_MALFORMED]).drop(_MALFORMED)
