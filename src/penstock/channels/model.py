"""What a channel is: the port behind which records cross from one unit to the next.

A stream goes from one producer (an operator or a source) to one consuming unit. A kind of channel is one
file: a frozen dataclass of its options (`ChannelKind`), which opens the channel itself (`RecordChannel`),
and one line in the registry. The kinds differ in where the records lie, in what happens to a batch that is
written twice, and in what they need around them: jars, a server. Whoever runs units asks, and never looks
which kind it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True, slots=True)
class Stream:
    """The records of one producer on their way to one consuming unit."""

    producer: str
    """The operator or source whose records they are."""
    consumer: str
    """The unit that reads them."""
    schema: str
    """The user's columns as a Spark DDL string; the envelope's columns are added to it."""


class Arrival(NamedTuple):
    """When some records of a micro-batch arrived, how many they are, and from when they are."""

    at_s: float
    """By the clock of whoever asked (see `Consumption.arrivals`)."""
    records: float
    span_s: tuple[float, float] | None = None
    """Source times of the first and the last of them; None where they are not known."""


class Backlog(NamedTuple):
    """Records of a stream that are not finished."""

    waiting: int = 0
    """Records that belong to no started micro-batch."""
    in_service: int = 0
    """Records of a micro-batch that is started and not finished."""


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """A micro-batch as a query's progress event tells of it."""

    number: int
    started_s: float
    ended_s: float
    sources: Sequence[Mapping[str, Any]] = ()
    """What the event says of each source, as Spark writes it."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The records that leave a unit behind one operator, and all who take them."""

    operator: str
    records: DataFrame
    streams: tuple[Stream, ...] = ()
    folders: tuple[tuple[Path, str], ...] = ()
    """Folders of built-in sinks with their file formats."""
    functions: bool = False
    """Whether somebody takes them who needs a call for each micro-batch, such as a user's sink."""


@dataclass(frozen=True, slots=True)
class ChannelPlace:
    """Where a channel of a run lies, and who reads it."""

    name: str
    """The channel's name in its topology."""
    run: str
    """A name that no other run has, also on a server that runs share."""
    folder: Path
    """A folder of the channel's own, on a disk the run's processes share."""
    address: str | None = None
    """The server the run uses, where the channel's options name none."""
    most_slots: int = 1
    """Slots of the largest unit at its largest."""
    readers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The units that read each producer's records."""


class Consumption(Protocol):
    """What one query has taken of one stream. All calls read only what is written down, and are quick.

    May be used from two threads: one measures while the other cleans.
    """

    def note(self, batch: FinishedBatch) -> None:
        """Take in a finished micro-batch, each once and in order; what is known without it needs it not."""
        ...

    def backlog(self) -> Backlog:
        """Records that wait, and records in service."""
        ...

    def arrivals(self, batch_id: int, at_s: Callable[[float], float] = float) -> list[Arrival]:
        """When the records of a micro-batch arrived; empty for one that is long past.

        `at_s` makes an instant of the clock by which batches are noted of a time of day that files bear.
        """
        ...

    def place(self, batch_id: int) -> str:
        """Up to where in the stream a micro-batch went: the same word for the same place."""
        ...

    def taken(self) -> int:
        """Records of every micro-batch finished since the query's first start, each counted once."""
        ...

    def finished(self) -> Mapping[str, int]:
        """How far the query is in each part of a stream on a server; empty where the stream is files."""
        ...

    def clean(self) -> int:
        """Give back the room of what every reader is done with; how much, in a unit of the channel's own."""
        ...

    @property
    def overgrown(self) -> bool:
        """Whether the query's own books about the stream are so long that it shall be started again."""
        ...

    def shorten(self) -> None:
        """Drop from the query's own books what is long done with; only while the query is stopped."""
        ...


class NativeWriter(Protocol):
    """Spark's own sink for all that leaves a unit: the quickest way, without a call for each micro-batch."""

    @property
    def records(self) -> DataFrame:
        """What the query computes."""
        ...

    @property
    def published(self) -> int:
        """Records this process made visible to their takers by itself; 0 where Spark counts them."""
        ...

    @property
    def problem(self) -> str | None:
        """Why finished records cannot be made visible at present; None where they are. It is tried again."""
        ...

    @property
    def has_to_stop(self) -> bool:
        """Whether that lasts so long that the query has to wait for it, or it has to start anew."""
        ...

    def writer(self) -> DataStreamWriter:
        """The query's writer, but for its name, checkpoint and output mode."""
        ...

    def start(self) -> None:
        """Begin with what stands beside the query, such as a thread that publishes.

        ClusterError where that cannot be now, ConfigurationError where another writes to the same place.
        """
        ...

    def publish(self) -> None:
        """Make visible now whatever is finished."""
        ...

    def stop(self) -> None:
        """Make visible what is finished and end; to be called when the query has ended."""
        ...


class RecordChannel(Protocol):
    """One channel of a topology, as a unit's driver uses it.

    `prepare` and `append` may be said again without harm. Everything else may block as long as Spark does.
    """

    exactly_once: ClassVar[bool]
    """Whether a batch appended twice (a restart between writing and committing) is seen once."""

    @property
    def durable(self) -> bool:
        """Whether batches in folders, also those of sinks beside it, survive a power cut once finished."""
        ...

    def prepare(self, spark: SparkSession, streams: Sequence[Stream]) -> None:
        """Make what the streams need (folders, topics) where it does not exist yet."""
        ...

    def read(self, spark: SparkSession, stream: Stream, left_out: Collection[str] = ()) -> DataFrame:
        """A streaming DataFrame of the envelope and the user's columns, without the records of some ids.

        A record that cannot be read or has no id makes the query fail (`envelope.admitted`).
        """
        ...

    def read_batch(self, spark: SparkSession, stream: Stream, checkpoint: Path, batch_id: int) -> DataFrame:
        """The records of one micro-batch again, as an ordinary DataFrame, from a query's checkpoint.

        Records that cannot be read are among them, with the reason in a column (`envelope.PROBLEM`).
        """
        ...

    def append(self, records: DataFrame, streams: Sequence[Stream], batch_id: int, writer: str) -> None:
        """Append one finished micro-batch of one producer to all its streams.

        `writer` is the identity of the writing query's checkpoint.
        """
        ...

    def native_writer(self, leaving: Sequence[Leaving], staging: Path, writer: str) -> NativeWriter | None:
        """Spark's own sink for all that leaves, at least one stream among it; None where there is no such."""
        ...

    def consumption(self, stream: Stream, checkpoint: Path, spark: SparkSession | None = None) -> Consumption:
        """What a query has taken of a stream; cleaning may need a session."""
        ...

    def batches_of(self, stream: Stream) -> Path | None:
        """The folder of batches a stream lies in; None where it lies elsewhere."""
        ...

    def newest(self, spark: SparkSession, stream: Stream, most: int) -> DataFrame | None:
        """About so many of a stream's newest records, read beside whoever reads them; None: they are files.

        ClusterError where the server does not answer.
        """
        ...

    def stream(self, producer: str) -> Path | None:
        """The folder in which those outside subscribe to an operator's records; None where they cannot."""
        ...

    def reached(self, spark: SparkSession, producer: str) -> Mapping[str, int]:
        """How far an operator's records go in each part of a stream on a server; empty where it is files.

        ClusterError where the server does not answer.
        """
        ...

    def topic(self, producer: str) -> str | None:
        """What a server calls an operator's records; None where they are files."""
        ...

    def is_outage(self, error: str) -> bool:
        """Whether an error says that what carries the records is away for a while: it is waited for."""
        ...

    def is_loss(self, error: str) -> bool:
        """Whether an error says that records are gone which a query had not read: trying again is useless."""
        ...


class OwnService(Protocol):
    """A server that is one run's own; its process ends with the run, its records stay."""

    def start(self) -> str:
        """Start it, or adopt the one an earlier owner left running, and wait for it; its address."""
        ...

    def revive(self) -> None:
        """Start it where it does not run, without waiting for it."""
        ...

    def end(self) -> None:
        """End its process at once, as one that hangs has to be."""
        ...

    def stop(self) -> None:
        """Stop it; calling it again does nothing."""
        ...


class ChannelService(Protocol):
    """The server a kind of channel needs, such as a broker: where it is, and how one is started."""

    name: ClassVar[str]
    """What it is called, to people."""

    @property
    def named(self) -> str | None:
        """The address the user gave; None where Penstock has to find or start one."""
        ...

    def address(self) -> str | None:
        """Where it is: as the user said, else one that runs for everybody here; None where none does."""
        ...

    def answers(self, address: str) -> bool:
        """Whether it takes connections there."""
        ...

    def silent(self, address: str) -> bool:
        """Whether it takes connections there and says nothing on them: it hangs, or is about to."""
        ...

    def own(self, run: str, folder: Path) -> OwnService:
        """One for a run alone, with its records in a folder."""
        ...

    def revival(self, address: str) -> Callable[[], None] | None:
        """How to start the one at an address again where it died; None where it is not ours to start."""
        ...


class ChannelKind(Protocol):
    """A kind of channel with its options: a frozen dataclass, checked when made (ConfigurationError)."""

    name: ClassVar[str]
    """The kind's name in topology files."""

    def opened(self, place: ChannelPlace) -> RecordChannel:
        """The channel; ConfigurationError where something it needs is not there."""
        ...

    @property
    def durable(self) -> bool:
        """Whether what was finished shall survive a power cut."""
        ...

    @property
    def remembers_ids(self) -> bool:
        """Whether units that read it keep ids in their state, to take what comes twice once."""
        ...

    def jars(self) -> list[Path]:
        """Jars a session needs for it, fetched where not there yet; ClusterError where that fails."""
        ...

    def service(self) -> ChannelService | None:
        """The server its records go through; None where it needs none."""
        ...
