"""What a query has taken of a folder of batches, by its checkpoint: what waits, and what can be deleted."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from penstock.channels.batches import BatchFolder, batches_in
from penstock.channels.model import Arrival, Backlog, FinishedBatch
from penstock.spark.checkpoints import Checkpoint, LoggedFile, SourceLog, sync

LONGEST_LOG_BYTES = 256 * 1024
"""From which length on a file source's log is shortened: some 1,000 files. Spark repeats all of it at every
tenth batch, and keeps ten such files and more."""
LONGEST_CHECKED_LOG_BYTES = 4 * 2**20
"""The same where files have checksums beside them: there it takes a stop of the query."""
MOST_FILES_REMEMBERED = 100_000
"""Spark's source remembers every file it took for a week, some 300 bytes each; then its query starts anew."""
_ARRIVALS_KEPT = 200
"""Micro-batches whose arrival times are remembered; the agent asks within seconds."""


class _Dropped(NamedTuple):
    """What was dropped from a source's log: entries up to a number, and how many records they had."""

    until: int = -1
    records: int = 0


class FilesConsumption:
    """What one query's checkpoint says of one folder: which files it has started, which it has finished.

    Spark's file source logs the files of each batch before it runs, the query logs what it started and
    finished. Reading them costs no Spark job.
    """

    def __init__(self, folder: Path, checkpoint: Path, *, durable: bool = False) -> None:
        """With `durable` the checkpoint is on the disk for good before a file is deleted."""
        self._folder = folder
        self._checkpoint = Checkpoint(checkpoint)
        self._durable = durable
        self._index: int | None = None
        self._line: int | None = None
        self._started: dict[str, dict[str, int]] = {}
        """Log entry by batch folder and file name, without files already deleted."""
        self._present: dict[str, int] = {}
        """How many files each batch folder has: they come all at once, and only `clean` takes them away."""
        self._arrivals: dict[int, list[Arrival]] = {}
        """When the files of a log entry arrived."""
        self._offsets: dict[int, int] = {}
        """Log entry at which micro-batches of the query ended."""
        self._read_until = -1
        self._shortest = 0
        """Bytes of the source's log after it was last shortened."""
        self._remembered = 0
        """Files that the running query's source has taken."""
        # The agent asks how much waits while the cleaner works.
        self._lock = threading.Lock()

    def note(self, batch: FinishedBatch) -> None:
        """Nothing: the logs tell."""

    def backlog(self) -> Backlog:
        """Records of no started micro-batch, and records of one that is started and not finished."""
        with self._lock:
            # Before the log: a file that is started between the two looks is then in service, not both.
            batches = batches_in(self._folder)
            self._read_log()
            finished = self._finished()
            waiting = in_service = 0.0
            for batch in batches:
                if not batch.files:
                    continue
                name = batch.path.name
                if name not in self._present:
                    self._present[name] = _files_in(batch.path)
                share = batch.records / batch.files
                started = self._started.get(name, {})
                waiting += share * max(0, self._present[name] - len(started))
                in_service += share * sum(number > finished for number in started.values())
            return Backlog(round(waiting), round(in_service))

    def finished(self) -> dict[str, int]:
        """Nothing: what the query is done with is deleted."""
        return {}

    def place(self, batch_id: int) -> str:
        """The entry of the source's log at which a micro-batch ended."""
        with self._lock:
            return str(self._entry_of(batch_id) if self._found() else -1)

    def taken(self) -> int:
        """Records of every micro-batch the query has finished since its first start, each counted once.

        The source's log keeps every file it took, deleted or not, and what was dropped from it is written
        down: this is exact whoever was killed meanwhile. It reads the whole log, so ask at the end of a
        run, not in every tick of it.
        """
        with self._lock:
            if not self._found():
                return 0
            dropped = self._dropped()
            return dropped.records + self._counted(dropped.until, self._finished())

    @property
    def overgrown(self) -> bool:
        """Whether the query has to start anew, for its source's log or memory is longer than need be."""
        with self._lock:
            if self._remembered > MOST_FILES_REMEMBERED:
                return True
            return self._found() and self._log().checked and self._too_long(LONGEST_CHECKED_LOG_BYTES)

    def shorten(self) -> None:
        """Drop from the source's log what is finished and deleted; while the query is stopped."""
        with self._lock:
            self._remembered = 0
            if self._found() and self._log().newest_size() >= LONGEST_LOG_BYTES // 2:
                self._shorten()

    def _too_long(self, bytes_: int) -> bool:
        # What could not be dropped the last time is no reason for another one.
        return self._log().newest_size() > max(bytes_, 2 * self._shortest)

    def _shorten(self) -> None:
        """Write down how much it was, then drop it."""
        taken = (file for _, files in self._log().after(-1) for file in files)
        present = [file.number for file in taken if os.path.exists(file.path)]
        until = min([self._finished(), *(number - 1 for number in present)])
        before = self._dropped()
        if until > before.until:
            records = before.records + self._counted(before.until, until)
            part = self._dropped_file.with_suffix(".part")
            part.write_text(json.dumps({"until": until, "records": records}))
            sync(part)
            part.replace(self._dropped_file)
        self._log().forget_until(until)
        self._shortest = self._log().newest_size()

    def _counted(self, after: int, until: int) -> int:
        """Records of the files in some entries of the source's log."""
        total = 0.0
        for _, files in self._log().after(-1):
            for file in files:
                batch = BatchFolder.of(Path(file.path).parent)
                if batch is not None and after < file.number <= until:
                    total += batch.records / max(1, batch.files)
        return round(total)

    def _log(self) -> SourceLog:
        assert self._index is not None
        return self._checkpoint.source_log(self._index)

    @property
    def _dropped_file(self) -> Path:
        return self._checkpoint.folder / f"penstock-dropped-{self._index}.json"

    def _dropped(self) -> _Dropped:
        try:
            return _Dropped(**json.loads(self._dropped_file.read_text()))
        except FileNotFoundError:
            return _Dropped()

    def clean(self) -> int:
        """Delete the files of finished micro-batches; gives back how many."""
        with self._lock:
            self._read_log()
            finished = self._finished()
            done = [
                (folder, file)
                for folder, files in self._started.items()
                for file, number in files.items()
                if number <= finished
            ]
            if done and self._durable:
                self._checkpoint.sync()
            deleted = 0
            for folder, file in done:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._folder / folder / file)
                    deleted += 1
                del self._started[folder][file]
                if folder in self._present:
                    self._present[folder] -= 1
            self._started = {folder: files for folder, files in self._started.items() if files}
            # The newest folder stays, empty or not: its number tells a restarted producer what is done.
            for batch in batches_in(self._folder)[:-1]:
                if self._present.get(batch.path.name, 0) <= 0:
                    with contextlib.suppress(OSError):
                        os.rmdir(batch.path)
                        self._present.pop(batch.path.name, None)
            if self._found() and not self._log().checked and self._too_long(LONGEST_LOG_BYTES):
                self._shorten()
            return deleted

    def arrivals(self, batch_id: int, at_s: Callable[[float], float] = float) -> list[Arrival]:
        """When the files of one micro-batch of the query arrived, and what their names tell."""
        with self._lock:
            until, after = self._entry_of(batch_id), self._entry_of(batch_id - 1)
            if until > self._read_until or self._index is None:
                self._read_log()
                until, after = self._entry_of(batch_id), self._entry_of(batch_id - 1)
            return [
                arrival._replace(at_s=at_s(arrival.at_s))
                for number in range(max(after + 1, until - _ARRIVALS_KEPT), until + 1)
                for arrival in self._arrivals.get(number, ())
            ]

    def files_of(self, batch_id: int) -> list[Path]:
        """The files of one micro-batch of the query."""
        with self._lock:
            self._read_log()
            until, after = self._entry_of(batch_id), self._entry_of(batch_id - 1)
            return sorted(
                file
                for folder, files in self._started.items()
                for name, number in files.items()
                if after < number <= until and (file := self._folder / folder / name).exists()
            )

    def _found(self) -> bool:
        """Whether the folder's place among the query's sources is known by now."""
        if self._index is None:
            self._index = self._checkpoint.source_of(f"{self._folder}/batch-")
        return self._index is not None

    def _read_log(self) -> None:
        if not self._found():
            return
        self._take_up(self._log().after(self._read_until))
        if self._finished() > self._read_until:
            # Frozen for longer than Spark keeps a note: what was missed is repeated in its newest one.
            self._take_up(self._log().after_a_gap(self._read_until))
        if len(self._arrivals) > 2 * _ARRIVALS_KEPT:
            for old in sorted(self._arrivals)[:-_ARRIVALS_KEPT]:
                del self._arrivals[old]

    def _take_up(self, entries: Iterable[tuple[int, list[LoggedFile]]]) -> None:
        for number, files in entries:
            self._remembered += len(files)
            for file in files:
                folder, name = file.path.rsplit("/", 2)[1:]
                batch = BatchFolder.of(Path(folder))
                if batch is not None:
                    share = batch.records / max(1, batch.files)
                    arrival = Arrival(file.modified_ms / 1000, share, batch.span_s)
                    self._arrivals.setdefault(file.number, []).append(arrival)
                if os.path.exists(f"{self._folder}/{folder}/{name}"):
                    self._started.setdefault(folder, {})[name] = file.number
            self._read_until = number

    def _finished(self) -> int:
        """The entry of the source's log up to which the query has finished."""
        finished = self._checkpoint.finished()
        return self._entry_of(finished) if finished >= 0 else -1

    def _entry_of(self, batch_id: int) -> int:
        """The entry of the source's log at which a micro-batch ended."""
        if batch_id in self._offsets:
            return self._offsets[batch_id]
        if self._line is None:
            self._line = self._checkpoint.place_of(f"{self._folder}/batch-")
        line = self._line if self._line is not None else self._index
        offsets = self._checkpoint.offsets(batch_id)
        offset = offsets[line] if line is not None and line < len(offsets) else None
        if offset is None:
            return -1
        if len(self._offsets) > 2 * _ARRIVALS_KEPT:
            self._offsets.clear()
        self._offsets[batch_id] = int(offset["logOffset"])
        return self._offsets[batch_id]


def _files_in(folder: Path) -> int:
    try:
        return sum(name[0] not in "._" for name in os.listdir(folder))
    except FileNotFoundError:
        return 0
