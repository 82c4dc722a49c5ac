"""What a unit does about a failed query: wait for what is away, leave a record out, or stop and say why.

Spark reports a failed task, not a failed record. Records are looked for only where nothing outside (a disk,
a broker, a host, a service that a function calls) explains the failure, and where many fail at once it is
taken for an outage: good records must not become dead letters because something was away for a while. Where
micro-batches are small, records that fail in a row are counted over several of them. But in a version that
was taken up a moment ago it is the version that fails: the one before takes its place.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from penstock.errors import PenstockError
from penstock.machine.files import written
from penstock.spark.checkpoints import Checkpoint
from penstock.spark.gateway.errors import cause_of
from penstock.spark.unit.culprits import PROBES, Culprits, Fault, find_culprits
from penstock.spark.unit.query import UnitQuery

LOG = logging.getLogger(__name__)

RETRIES = 3
"""How often a unit tries again by itself before it stops."""
SAME_TROUBLE_S = 60.0
"""The same words within this time are about the same trouble."""


class OperatorError(PenstockError):
    """An operator threw on a record; the message names operator, record and cause."""


_DISK = re.compile(r"No space left|Disk quota", re.IGNORECASE)
_OUTSIDE = re.compile(
    r"TimeoutException|ConnectException|Connection refused|ExecutorLost"
    # What Python's libraries say when a service that a function calls is away.
    r"|\b(?:Connection|ConnectionRefused|ConnectionReset|ConnectionAborted|BrokenPipe|Timeout)Error\b"
    r"|\bNewConnectionError\b|\bMaxRetryError\b|\bgaierror\b|\bURLError\b|\bLookupAwayError\b",
    re.IGNORECASE,
)
"""What says that a host or a service is at fault: no record is looked for, trying goes on for ever."""


class Skipped:
    """The records a unit leaves out, and what is known of each, in its dead-letter folder. Durable."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "skipped.jsonl"
        self._row_file = folder / "in-a-row.json"

    def ids(self, finished: int = -1) -> set[tuple[str, str]]:
        """Every record left out so far, as (input, id); a line that a crash tore is passed over.

        Such a line was being written when everything stopped: its record is found again at the next start.
        Records of micro-batches up to `finished` are never read again, and need not be left out any more.
        """
        try:
            lines = self._file.read_bytes().splitlines()
        except FileNotFoundError:
            return set()
        found = set()
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line)
                if entry.get("batch") is None or int(entry["batch"]) > finished:
                    found.add((str(entry["input"]), str(entry["record_id"])))
            except (ValueError, KeyError, TypeError, AttributeError):
                if line.strip():
                    LOG.warning("%s:%d: a line that cannot be read is passed over", self._file, number)
        return found

    def add(self, faults: Sequence[Fault], batch_id: int | None = None) -> None:
        """Write a micro-batch's faults down, with their records; one that is there is not written again."""
        known = self.ids()
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._file.open("ab") as file:
            if file.tell() and not self._file.read_bytes().endswith(b"\n"):
                file.write(b"\n")  # behind a torn line
            for fault in faults:
                if (fault.given, fault.record_id) not in known:
                    entry = {
                        "record_id": fault.record_id,
                        "input": fault.given,
                        "operator": fault.operator,
                        "cause": fault.cause,
                        "at_s": time.time(),
                        "batch": batch_id,
                        "record": fault.record,
                    }
                    file.write(json.dumps(entry, default=str).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def in_a_row(self, given: str, places: Collection[str]) -> int:
        """How many records of an input were left out in a row, the last of them at one of these places."""
        records, until = self._rows().get(given, (0, ""))
        return records if until in places else 0

    def note_in_a_row(self, rows: Mapping[str, tuple[int, str]]) -> None:
        """Write down by input how many records were left out in a row, and at which place the last was."""
        if rows:
            written(self._row_file, json.dumps({**self._rows(), **rows}), durable=True)

    def _rows(self) -> dict[str, tuple[int, str]]:
        try:
            found = json.loads(self._row_file.read_text())
            return {str(given): (int(row[0]), str(row[1])) for given, row in found.items()}
        except (OSError, ValueError, AttributeError, TypeError, IndexError):
            return {}


class Waiting:
    """What a unit waits for: said once for as long as it comes again and again."""

    def __init__(self) -> None:
        self._words = ""
        self._until_s = 0.0

    def said(self, words: str, now_s: float | None = None) -> str | None:
        """The words, or None where they were said of the same trouble already."""
        at_s = time.monotonic() if now_s is None else now_s
        again = words == self._words and at_s < self._until_s
        self._words, self._until_s = words, at_s + SAME_TROUBLE_S
        return None if again else words


def decide(
    query: UnitQuery, error: BaseException, attempt: int, skipped: Skipped, *, on_trial: bool = False
) -> str:
    """What to do about a failed query: a sentence where it shall start again, OperatorError where not.

    `attempt` counts failures of the same micro-batch. What is away is waited for however often it fails.
    `on_trial` says that the unit's version is new: where many records fail at once, it is to blame.
    """
    text, cause = str(error), cause_of(error)
    lost = [name for name, channel in query.channels.items() if channel.is_loss(text)]
    if lost:
        raise OperatorError(
            f"unit {query.plan.unit}: channel {lost[0]} has lost records that were not read: {cause}; "
            "put them back, or allow the loss in the channel's options"
        ) from error
    if _DISK.search(text):
        return f"the disk is full: records wait in the source until there is room ({cause})"
    away = [name for name, channel in query.channels.items() if channel.is_outage(text)]
    if away:
        return f"channel {away[0]} is away: records wait until it answers ({cause})"
    if _OUTSIDE.search(text):
        return f"something the unit needs is away: records wait until it is back ({cause})"
    batch_id = Checkpoint(query.checkpoint).unfinished()
    query.leaves_out_of(batch_id)
    culprits = Culprits() if batch_id is None else find_culprits(query, batch_id)
    rows = {} if batch_id is None else _rows(query, batch_id, culprits, skipped)
    longest = max((records for records, _ in rows.values()), default=0)
    outage = culprits.outage
    if outage is None and longest > PROBES:
        outage = f"{longest} records in a row fail in operator {culprits.faults[0].operator}"
    if outage is not None and on_trial:
        raise OperatorError(f"unit {query.plan.unit}: {outage}, in a version that is new: {cause}") from error
    if outage is not None:
        return f"{outage}: taken for an outage, records wait until it is over ({cause})"
    new = [fault for fault in culprits.faults if (fault.given, fault.record_id) not in query.skipped]
    if not new:
        if attempt >= RETRIES:
            raise OperatorError(
                f"unit {query.plan.unit}: its query failed {attempt + 1} times and no single record is to "
                f"blame: {cause}"
            ) from error
        return f"trying again after: {cause}"
    return _about(query, new, error, attempt, skipped, rows, batch_id)


def _rows(
    query: UnitQuery, batch_id: int, culprits: Culprits, skipped: Skipped
) -> dict[str, tuple[int, str]]:
    """By input of which every record of a micro-batch is to blame: how many in a row, and up to where."""
    if not culprits.whole:
        return {}
    begins, ends = query.places(batch_id - 1), query.places(batch_id)
    return {
        given: (skipped.in_a_row(given, (begins[given], ends[given])) + records, ends[given])
        for given, records in culprits.whole.items()
    }


def _about(
    query: UnitQuery,
    faults: Sequence[Fault],
    error: BaseException,
    attempt: int,
    skipped: Skipped,
    rows: Mapping[str, tuple[int, str]],
    batch_id: int | None,
) -> str:
    """What to do about records that operators throw on, by each operator's own choice."""
    choices = {fault: query.topology.operator_by_name[fault.operator].on_error for fault in faults}
    stopping = [fault for fault, choice in choices.items() if choice != "skip"]
    if not stopping:
        skipped.add(faults, batch_id)
        skipped.note_in_a_row(rows)
        query.skipped |= {(fault.given, fault.record_id) for fault in faults}
        folder = query.folders.dead_letters(query.plan.unit)
        return f"skipped {len(faults)} record(s) into {folder}: {faults[0]}"
    if all(choices[fault] == "retry" for fault in stopping) and attempt < RETRIES:
        return f"trying again: {stopping[0]}"
    more = f" (and {len(faults) - 1} more records)" if len(faults) > 1 else ""
    raise OperatorError(f"unit {query.plan.unit}: {stopping[0]}{more}") from error
