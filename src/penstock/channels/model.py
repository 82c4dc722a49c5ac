"""What a channel is: a stream's name, and the few calls a unit makes on a channel.

A stream goes from one producer (an operator or a source) to one consuming unit. A unit's driver reads
streams, appends each finished micro-batch to others, and asks how much waits. The two kinds of channel
differ in where the records lie, and in what happens to a batch that is written twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Stream:
    """The records of one producer on their way to one consuming unit."""

    producer: str
    """The operator or source whose records they are."""
    consumer: str
    """The unit that reads them."""
    schema: str
    """The user's columns as a Spark DDL string; the envelope's columns are added to it."""


class RecordChannel(Protocol):
    """One channel of a topology, as a unit's driver uses it.

    `prepare` and `append` may be said again without harm; `waiting` reads only and never blocks for long.
    """

    kind: ClassVar[str]
    exactly_once: ClassVar[bool]
    """Whether a batch appended twice (a restart between writing and committing) is seen once."""

    def prepare(self, spark: SparkSession, streams: Sequence[Stream]) -> None:
        """Make what the streams need (folders, topics) where it does not exist yet."""
        ...

    def read(self, spark: SparkSession, stream: Stream) -> DataFrame:
        """A streaming DataFrame of the envelope and the user's columns."""
        ...

    def read_batch(self, spark: SparkSession, stream: Stream, checkpoint: Path, batch_id: int) -> DataFrame:
        """The records of one micro-batch again, as an ordinary DataFrame, from a query's checkpoint."""
        ...

    def append(self, records: DataFrame, streams: Sequence[Stream], batch_id: int) -> None:
        """Append one finished micro-batch of one producer to all its streams."""
        ...
