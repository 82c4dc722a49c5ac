"""Records that wait in a query's sources: by offsets that count records, or by files not yet taken."""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from penstock.spark.checkpoints import SourceLog, local_path
from penstock.spark.gateway.queries import checkpoint_of, source_descriptions
from penstock.spark.session.progress import SourceProgress

_BATCHES_REMEMBERED = 9
"""So many batches tell the size of a record."""
_BEGINNING = 1 << 16
"""Bytes of a file that are looked at before anything of it was read."""
_FILE_SOURCE = "FileStreamSource["


def offsets_behind(source: SourceProgress) -> int | None:
    """Records between the end of the last batch and the newest one there is, by the source's offsets.

    Sums over topics and partitions (Kafka) or takes the difference of plain counters; None where the
    offsets do not count records (files, the `rate` source).
    """
    if (
        source.latest_offset is None
        or source.end_offset is None
        or source.description.startswith("RateStreamV2")
    ):
        return None
    latest, end = _numbers(source.latest_offset), _numbers(source.end_offset)
    if latest is None or end is None:
        latest, end = _own_counters(source.latest_offset), _own_counters(source.end_offset)
        start = _own_counters(source.start_offset)
        # A source's own words count records where they did so in the batch that was read.
        if latest is None or end is None or start is None or _between(start, end) != source.rows:
            return None
    return max(0, _between(end, latest))


def reported_outstanding(source: SourceProgress) -> int | None:
    """What a source itself says is left, such as Delta's files; a file counts as one record."""
    for name in ("numRecordsOutstanding", "numFilesOutstanding"):
        text = str(source.metrics.get(name, ""))
        if text.isascii() and text.isdigit():
            return int(text)
    return None


def _between(earlier: Mapping[str, int], later: Mapping[str, int]) -> int:
    return sum(value - earlier.get(place, 0) for place, value in later.items())


def _parsed(offset: Any) -> Any:
    with contextlib.suppress(ValueError, TypeError):
        return json.loads(offset)
    return offset


def _own_counters(offset: Any) -> dict[str, int] | None:
    """Counters of an offset with names of the source's own, such as `{"offset": 7}`."""
    found = _parsed(offset)
    plain = isinstance(found, dict) and all(type(value) is int for value in found.values())
    return found if plain and found else None


def _numbers(offset: Any) -> dict[str, int] | None:
    """The counters of an offset by topic and partition; None where it has none."""
    if isinstance(offset, str):
        offset = _parsed(offset)
    if isinstance(offset, bool):
        return None
    if isinstance(offset, int):
        return {"": offset}
    if not isinstance(offset, dict):
        return None
    if set(offset) == {"offset", "timestamp"}:  # the rate-micro-batch source
        return {"": int(offset["offset"])}
    found = {}
    for topic, partitions in offset.items():
        if not isinstance(partitions, dict):
            return None
        for partition, number in partitions.items():
            found[f"{topic}/{partition}"] = int(number)
    return found


MOST_OFF = 1.5
"""So many times the time between two files an interval may be off, because one came just before or after."""


class WaitingFiles:
    """Counts records in files a file source has not taken yet, in local folders.

    Spark takes files in the order of their modification times and logs those it took; a file younger
    than the youngest taken one waits. Its records are told by its size: files taken lately say how many
    records a byte has, so that a load that has risen shows before the first of its files is read.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self._folder = folder
        self._log = SourceLog(log)
        self._taken_ms = -1
        self._taken_then: set[str] = set()
        self._last_entry = -1
        self._unfinished: dict[int, list[int]] = {}
        """Sizes of the files of each log entry whose batch is not known to be done."""
        self._per_byte: deque[float] = deque(maxlen=_BATCHES_REMEMBERED)
        """Records a byte, of the last batches."""
        self._guess: float | None = None
        self._done = _Amount()
        self._there: _Amount | None = None
        """All that there was at the last count, what was done included."""
        self._newest_ms = -1
        self.came = 0
        """Records that came between the last count and the one before, in files: what was done is in it."""

    def finish(self, rows: int, end_offset: Any) -> None:
        """A batch that ended at this offset read so many rows: its files are done, their average learnt."""
        numbers = json.loads(end_offset) if isinstance(end_offset, str) else end_offset
        last = int(numbers["logOffset"]) if isinstance(numbers, dict) and "logOffset" in numbers else -1
        with contextlib.suppress(OSError):
            self._read_log()
        sizes = [s for n in list(self._unfinished) if n <= last for s in self._unfinished.pop(n)]
        done = _Amount(sum(sizes), len(sizes))
        self._done += done
        if rows and done.bytes:
            self._per_byte.append(rows / done.bytes)

    def count(self, interval_s: float | None = None) -> tuple[int, int] | None:
        """Records in files not yet taken, and in files taken by the running batch.

        None where the folder cannot be read here. `interval_s` is the time since the last count.
        """
        try:
            self._read_log()
            waiting, sample, newest_ms = self._look()
        except OSError:
            return None
        if not self._per_byte and self._guess is None and sample is not None:
            self._guess = _lines_per_byte(sample)
        running = _Amount(sum(map(sum, self._unfinished.values())), sum(map(len, self._unfinished.values())))
        found = self._records(waiting), self._records(running)
        before, self._there = self._there, self._done + waiting + running
        last_ms, self._newest_ms = self._newest_ms, max(self._newest_ms, newest_ms)
        if before is None:
            self.came = sum(found)
        else:
            came = self._there - before
            span_s = (self._newest_ms - last_ms) / 1000 if last_ms >= 0 else 0.0
            self.came = round(max(0, self._records(came)) * _paced(came.files, span_s, interval_s))
        return found

    def _look(self) -> tuple[_Amount, str | None, int]:
        """What is in files that were not taken yet, one of them, and when the newest was written."""
        size = files = 0
        sample, newest_ms = None, self._taken_ms
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.startswith((".", "_")) or not entry.is_file():
                    continue
                status = entry.stat()
                modified_ms = status.st_mtime_ns // 1_000_000
                if modified_ms > self._taken_ms or (
                    modified_ms == self._taken_ms and entry.name not in self._taken_then
                ):
                    size += status.st_size
                    files += 1
                    sample, newest_ms = entry.path, max(newest_ms, modified_ms)
        return _Amount(size, files), sample, newest_ms

    def _records(self, amount: _Amount) -> int:
        # The median: a batch whose tasks ran twice counts its rows twice, and is one of several.
        each = median(self._per_byte) if self._per_byte else self._guess
        # Where nothing is known of what is in a file it counts as one record.
        return amount.files if each is None else round(amount.bytes * each)

    def _read_log(self) -> None:
        """Read the source's log entries since the last call: one small file a batch."""
        first = self._last_entry < 0
        for number, files in self._log.after(self._last_entry):
            for taken in files:
                size = 0
                with contextlib.suppress(OSError):  # deleted already
                    size = os.path.getsize(taken.path)
                self._unfinished.setdefault(taken.number, []).append(size)
                if taken.modified_ms > self._taken_ms:
                    self._taken_ms = taken.modified_ms
                    self._taken_then = set()
                if taken.modified_ms == self._taken_ms:
                    self._taken_then.add(os.path.basename(taken.path))
            self._last_entry = number
        if first and self._unfinished:
            # Batches come one after the other: of those of a query that has run before, the last may go on.
            newest = max(self._unfinished)
            self._unfinished = {newest: self._unfinished[newest]}


@dataclass(frozen=True, slots=True)
class _Amount:
    """What is in some files."""

    bytes: int = 0
    files: int = 0

    def __add__(self, other: _Amount) -> _Amount:
        return _Amount(self.bytes + other.bytes, self.files + other.files)

    def __sub__(self, other: _Amount) -> _Amount:
        return _Amount(self.bytes - other.bytes, self.files - other.files)


def _paced(files: int, span_s: float, interval_s: float | None) -> float:
    """How many times what came in files came in an interval, by the times of the files themselves.

    Files that come four times in an interval are three or five in some of them: their records came
    in the time between the newest one and the one that was the newest before, which is then shorter
    or longer than the interval. Files that come less often than once an interval are left as they are.
    """
    if interval_s is None or files < 1 or not 0.0 < span_s <= files * interval_s:
        return 1.0
    return interval_s / span_s if abs(span_s - interval_s) <= MOST_OFF * span_s / files else 1.0


def _lines_per_byte(path: str) -> float | None:
    """Lines a byte of a text file, as its beginning has it; None of other files."""
    try:
        with open(path, "rb") as file:
            begin = file.read(_BEGINNING)
    except OSError:
        return None
    lines = begin.count(b"\n")
    return lines / len(begin) if lines and b"\0" not in begin else None


def file_sources(query: Any) -> dict[int, WaitingFiles] | None:
    """Counters for a query's file sources, by their place among its sources; None before it has any source.

    Found before its first batch ends, so that what waits then counts already.
    """
    descriptions, checkpoint = source_descriptions(query), checkpoint_of(query)
    if not descriptions or checkpoint is None:
        return None
    return {
        index: WaitingFiles(
            Path(local_path(description.removeprefix(_FILE_SOURCE).removesuffix("]"))),
            Path(local_path(checkpoint)) / "sources" / str(index),
        )
        for index, description in enumerate(descriptions)
        if description.startswith(_FILE_SOURCE)
    }
