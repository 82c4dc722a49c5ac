"""Records that wait in a query's sources: by offsets that count records, or by files not yet taken."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.spark.checkpoints import SourceLog, local_path
from penstock.spark.gateway.queries import checkpoint_of, source_descriptions
from penstock.spark.session.progress import SourceProgress

_ROWS_REMEMBERED = 100_000
"""How many rows tell the size of a record."""
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


class WaitingFiles:
    """Counts records in files a file source has not taken yet, in local folders.

    Spark takes files in the order of their modification times and logs those it took; a file younger
    than the youngest taken one waits. Its records are told by its size: files taken lately say how many
    bytes a record has, so that a load that has risen shows before the first of its files is read.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self._folder = folder
        self._log = SourceLog(log)
        self._taken_ms = -1
        self._taken_then: set[str] = set()
        self._last_entry = -1
        self._unfinished: dict[int, list[int]] = {}
        """Sizes of the files of each log entry whose batch is not known to be done."""
        self._bytes = 0
        self._rows = 0

    def finish(self, rows: int, end_offset: Any) -> None:
        """A batch that ended at this offset read so many rows: its files are done, their average learnt."""
        numbers = json.loads(end_offset) if isinstance(end_offset, str) else end_offset
        last = int(numbers["logOffset"]) if isinstance(numbers, dict) and "logOffset" in numbers else -1
        with contextlib.suppress(OSError):
            self._read_log()
        done = [number for number in self._unfinished if number <= last]
        self._bytes += sum(sum(self._unfinished.pop(number)) for number in done)
        self._rows += rows
        if self._rows > _ROWS_REMEMBERED:  # forget slowly: records may change their size
            self._bytes //= 2
            self._rows //= 2

    def count(self) -> tuple[int, int] | None:
        """Records in files not yet taken, and in files taken by the running batch.

        None where the folder cannot be read here.
        """
        try:
            self._read_log()
            waiting = files = 0
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.startswith((".", "_")) or not entry.is_file():
                        continue
                    status = entry.stat()
                    modified_ms = status.st_mtime_ns // 1_000_000
                    if modified_ms > self._taken_ms or (
                        modified_ms == self._taken_ms and entry.name not in self._taken_then
                    ):
                        waiting += status.st_size
                        files += 1
        except OSError:
            return None
        if not self._bytes or not self._rows:
            # Before the first batch is done a file counts as one record: more is not known.
            return files, sum(len(sizes) for sizes in self._unfinished.values())
        each = self._rows / self._bytes
        return round(waiting * each), round(sum(map(sum, self._unfinished.values())) * each)

    def _read_log(self) -> None:
        """Read the source's log entries since the last call: one small file a batch."""
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
