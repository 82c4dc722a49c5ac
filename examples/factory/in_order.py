"""Each machine's records in their own order, exactly once, whatever order they arrive in.

Totals over a machine's life are right only if every record is added once and in turn, but a parallel
stream promises neither: two pictures of one machine may be read by two slots, and a channel may deliver
a record again. So the state keeps the number of the next record due, what was remembered so far and the
records that came too early. It is bounded by the disorder, needs no watermark and drops nothing late.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import StructType

ENVELOPE = ("record_id", "source_time")
"""Columns that identify a record and its birth; every operator passes them on."""

PASSED_ON = (*ENVELOPE, "machine", "sequence", "time_s")
"""Columns an outgoing record has from the incoming one that completed it."""

Record = dict[str, Any]
Step = Callable[[Any, Record], tuple[Any, Record | None]]
"""(remembered, record) to (remembered from now on, the columns to emit or None)."""


def for_each_in_order(rows: DataFrame, step: Step, remembered: Any, columns: str) -> DataFrame:
    """Run `step` over each machine's records by their `sequence` (1, 2, 3, …) and emit what it returns.

    `remembered` is what the step is given with a machine's first record; like all that a step remembers,
    it must be picklable. `columns` are the step's own outgoing columns as a DDL string; the columns
    `PASSED_ON` come before them.
    """
    return with_state(rows, "machine", InOrder(step, remembered), columns)


def gather(rows: DataFrame, parts: tuple[str, ...]) -> DataFrame:
    """Put together the rows that share machine and sequence as soon as all `parts` are there.

    Each incoming row names its part in the column `part` and has a `value`, which may be null; the
    outgoing row has one column a part. Rows that wait for others are the only state.
    """
    return with_state(rows, "machine", Gather(parts), ", ".join(f"{part} double" for part in parts))


def with_state(rows: DataFrame, key: str, memory: Remembering, columns: str) -> DataFrame:
    """Hand the rows of each key to a memory of its own."""
    session = rows.sparkSession
    # Spark refuses this call twice in a query, because timeouts and watermarks of one could mislead the
    # other. There are none here: nothing in this file knows what time it is.
    session.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    # A few machines make little state, and every partition of every operator is a Python task a batch:
    # operators side by side, not partitions of one, keep the slots busy.
    session.conf.set("spark.sql.shuffle.partitions", "1")
    outgoing = StructType([rows.schema[name] for name in PASSED_ON])
    for field in StructType.fromDDL(columns):
        outgoing.add(field)
    memory.names = tuple(outgoing.names)
    return rows.groupBy(key).applyInPandasWithState(
        memory, outgoing, "memory binary", "append", GroupStateTimeout.NoTimeout
    )


class Remembering(ABC):
    """What Spark calls for the new rows of one key; all it remembers of a key is one Python value."""

    names: tuple[str, ...] = ()
    """The outgoing columns in their order."""

    @abstractmethod
    def first(self) -> Any:
        """What is remembered before the first record."""

    @abstractmethod
    def advance(self, memory: Any, records: Iterator[Record]) -> tuple[Any, list[Record]]:
        """What is remembered after these records, and what to emit."""

    def __call__(
        self, key: Any, batches: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Spark's call: the key, its new rows, and its state."""
        memory = pickle.loads(bytes(state.get[0])) if state.exists else self.first()
        records = (record for batch in batches for record in batch.to_dict("records"))
        memory, emitted = self.advance(memory, records)
        state.update((pickle.dumps(memory),))
        if emitted:
            yield pd.DataFrame(emitted, columns=list(self.names))


class InOrder(Remembering):
    """Runs a step over the records of one key by their number."""

    def __init__(self, step: Step, remembered: Any) -> None:
        self._step = step
        self._remembered = remembered

    def first(self) -> Any:
        """Record 1 is due, and none came early."""
        return 1, self._remembered, {}

    def advance(self, memory: Any, records: Iterator[Record]) -> tuple[Any, list[Record]]:
        """Take every record that is due; one that was taken before is a repetition and is dropped."""
        due, remembered, early = memory
        for record in records:
            if record["sequence"] >= due:
                early.setdefault(record["sequence"], record)
        emitted: list[Record] = []
        while due in early:
            record = early.pop(due)
            remembered, result = self._step(remembered, record)
            if result is not None:
                emitted.append({name: record[name] for name in PASSED_ON} | result)
            due += 1
        return (due, remembered, early), emitted


class Gather(Remembering):
    """Puts together the parts of each sequence number; a part that comes again changes nothing."""

    def __init__(self, parts: tuple[str, ...]) -> None:
        self._parts = parts

    def first(self) -> Any:
        """Nothing was put together, and nothing waits."""
        return 1, set(), {}

    def advance(self, memory: Any, records: Iterator[Record]) -> tuple[Any, list[Record]]:
        """Emit every number whose last part is among the records."""
        due, beyond, waiting = memory
        emitted: list[Record] = []
        for record in records:
            number = record["sequence"]
            if number < due or number in beyond:
                continue
            found = waiting.setdefault(number, {})
            found[record["part"]] = record["value"]
            if len(found) == len(self._parts):
                emitted.append({name: record[name] for name in PASSED_ON} | waiting.pop(number))
                beyond.add(number)
        # Numbers done without a gap are remembered by the first one that is not.
        while due in beyond:
            beyond.remove(due)
            due += 1
        return (due, beyond, waiting), emitted
