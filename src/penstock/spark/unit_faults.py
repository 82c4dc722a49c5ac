"""Which record an operator throws on: found after the fact, so that good records cost nothing.

Spark reports a failed task, not a failed record. When a unit's query fails, its micro-batch is read again
from the channel, the operators are tried one by one, and the records are halved until the ones that fail
stand alone. The error then names operator, record id and cause; by the operator's choice the unit stops,
puts the records into its dead-letter folder and goes on without them, or tries again.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.channels.envelope import RECORD_ID
from penstock.errors import PenstockError
from penstock.spark.unit_plan import UnitQuery
from penstock.topology.model import Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOG = logging.getLogger(__name__)

MOST_RECORDS = 100_000
"""Ids looked at in one micro-batch; a larger one is searched as far as this."""
MOST_FAULTS = 50
"""Failing records named in one search; the rest is found at the next failure."""
RETRIES = 3
"""How often a unit tries again by itself before it stops."""


class OperatorError(PenstockError):
    """An operator threw on a record; the message names operator, record and cause."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A record an operator throws on."""

    operator: str
    record_id: str
    cause: str
    record: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"operator {self.operator} failed on record {self.record_id}: {self.cause}"


def find_faults(query: UnitQuery, batch_id: int) -> list[Fault]:
    """The records of a micro-batch that make an operator throw; none where trying again works."""
    frames = query.read_batch(batch_id)
    if set(frames) != {given.name for given in query.plan.inputs}:
        return []
    for operator in query.plan.operators:
        cause = _failure(query, operator, frames)
        if cause is None:
            frames[operator.name] = query.applied(operator, frames)
            continue
        return _halved(query, operator, frames, cause)
    return []


def _halved(query: UnitQuery, operator: Operator, frames: dict[str, DataFrame], cause: str) -> list[Fault]:
    """The failing records of one operator: parts that pass are dropped, parts that fail are halved."""
    name = operator.inputs[0]
    ids = [row[0] for row in frames[name].select(RECORD_ID).limit(MOST_RECORDS).collect()]
    found: list[Fault] = []
    parts: list[tuple[list[str], str]] = [(sorted(set(ids)), cause)]
    while parts and len(found) < MOST_FAULTS:
        part, why = parts.pop(0)
        if len(part) == 1:
            found.append(Fault(operator.name, part[0], why, _record(frames[name], part[0])))
            continue
        for half in (part[: len(part) // 2], part[len(part) // 2 :]):
            failure = _failure(query, operator, {**frames, name: _only(frames[name], half)})
            if failure is not None:
                parts.append((half, failure))
    return found


def _only(records: DataFrame, ids: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as sql

    # A range keeps the condition small; ids are unique and sorted.
    return records.filter(sql.col(RECORD_ID).between(ids[0], ids[-1]))


def _record(records: DataFrame, record_id: str) -> dict[str, object]:
    from pyspark.sql import functions as sql

    rows = records.filter(sql.col(RECORD_ID) == record_id).limit(1).collect()
    return rows[0].asDict(recursive=True) if rows else {}


def _failure(query: UnitQuery, operator: Operator, frames: dict[str, DataFrame]) -> str | None:
    """Why an operator fails on these records, in one line; None where it does not."""
    try:
        query.applied(operator, frames).write.format("noop").mode("overwrite").save()
    except PenstockError:
        raise
    except Exception as error:
        return cause_of(error)
    return None


_PYTHON_CAUSE = re.compile(r"^\s*(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt|Warning)\w*): ?(.*)$")


def cause_of(error: BaseException | str) -> str:
    """The line of a Spark error that says why: the last Python error in it, or Java's innermost cause."""
    text = str(error)
    lines = text.splitlines()
    python = [line.strip() for line in lines if _PYTHON_CAUSE.match(line) and "py4j" not in line.lower()]
    wrapped = ("PythonException", "StreamingQueryException", "SparkException", "Py4JJavaError")
    inner = [line for line in python if not any(name in line.split(":")[0] for name in wrapped)]
    if inner:
        return inner[-1]
    causes = [
        line.strip().removeprefix("Caused by: ") for line in lines if line.strip().startswith("Caused by")
    ]
    return causes[-1] if causes else (lines[0] if lines else type(error).__name__)


_DISK = re.compile(r"No space left|Disk quota", re.IGNORECASE)
_BROKER = re.compile(r"kafka", re.IGNORECASE)
_OUTSIDE = re.compile(
    r"No space left|Disk quota|TimeoutException|ConnectException|Connection refused|kafka\.common\.errors"
    r"|DisconnectException|ExecutorLost|Could not find valid partition|Failed to construct kafka",
    re.IGNORECASE,
)
"""What says that a disk, a broker or a host is at fault: no record is looked for, trying goes on for ever."""


class Skipped:
    """The ids a unit leaves out, and the records themselves in its dead-letter folder. Durable."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ids = folder / "skipped.jsonl"

    def ids(self) -> set[str]:
        """Every id left out so far."""
        if not self._ids.exists():
            return set()
        return {json.loads(line)["record_id"] for line in self._ids.read_text().splitlines() if line}

    def add(self, faults: Sequence[Fault]) -> None:
        """Write the faults down, with their records; an id that is there already is not written again."""
        known = self.ids()
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._ids.open("a") as file:
            for fault in faults:
                if fault.record_id in known:
                    continue
                entry = {
                    "record_id": fault.record_id,
                    "operator": fault.operator,
                    "cause": fault.cause,
                    "at_s": time.time(),
                    "record": fault.record,
                }
                file.write(json.dumps(entry, default=str) + "\n")
            file.flush()
            os.fsync(file.fileno())


def failed_batch(checkpoint: Path) -> int | None:
    """The micro-batch that was started and not finished, from a query's checkpoint; None where none was."""
    offsets = _numbers(checkpoint / "offsets")
    commits = _numbers(checkpoint / "commits")
    started = max(offsets, default=-1)
    return started if started > max(commits, default=-1) else None


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    except FileNotFoundError:
        return []


def decide(query: UnitQuery, error: BaseException, attempt: int, skipped: Skipped) -> str:
    """What to do about a failed query: a sentence where it shall start again, OperatorError where not.

    A failure that names no record (an executor lost too often, a broker away, a disk full) is tried again.
    """
    batch_id = failed_batch(query.checkpoint)
    outside = _OUTSIDE.search(str(error)) is not None
    faults = find_faults(query, batch_id) if batch_id is not None and not outside else []
    if not faults:
        if attempt >= RETRIES and not outside:
            raise OperatorError(
                f"unit {query.plan.unit}: its query failed {attempt + 1} times and no single record is to "
                f"blame: {cause_of(error)}"
            ) from error
        if _DISK.search(str(error)):
            return f"the disk is full: records wait in the source until there is room ({cause_of(error)})"
        if outside and _BROKER.search(str(error)):
            return f"the broker does not answer: records wait until it does ({cause_of(error)})"
        return f"trying again after: {cause_of(error)}"
    choice = query.topology.operator_by_name[faults[0].operator].on_error
    if choice == "skip":
        skipped.add(faults)
        query.skipped |= {fault.record_id for fault in faults}
        return (
            f"skipped {len(faults)} record(s) into {query.folders.dead_letters(query.plan.unit)}: {faults[0]}"
        )
    if choice == "retry" and attempt < RETRIES:
        return f"trying again: {faults[0]}"
    more = f" (and {len(faults) - 1} more records)" if len(faults) > 1 else ""
    raise OperatorError(f"unit {query.plan.unit}: {faults[0]}{more}") from error
