"""What a streaming query's checkpoint says, read without Spark: the one place that knows Spark's formats.

A checkpoint has the offsets of every started micro-batch (`offsets/`), a mark for every finished one
(`commits/`), and a log for each source (`sources/<index>/`). Spark's file sink notes its files in a log of
the same make. Reading them costs no Spark job, and works while the query runs and after it was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

_LOGGED_BATCH = re.compile(rb'"batchId":\s*(\d+)')
_FIRST_LOOK = 16_384
"""Bytes of a compacted log's end that are looked at first."""
_IDENTITY = "penstock-identity"


class LoggedFile(NamedTuple):
    """One file a file source has taken."""

    path: str
    modified_ms: int
    number: int
    """The entry of the source's log it is in: one of each micro-batch that took files."""


class Checkpoint:
    """The checkpoint of one query, in a folder. It need not exist yet: then nothing is started."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def identity(self) -> str:
        """A word that is this checkpoint's as long as it exists; made where there is none yet.

        Batch numbers begin anew with a new checkpoint, so whoever writes by number tells by this word
        whether a number is its own.
        """
        file = self.folder / _IDENTITY
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            part = file.with_name(f".{_IDENTITY}-{uuid.uuid4().hex}")
            part.write_text(uuid.uuid4().hex)
            with contextlib.suppress(FileExistsError):
                os.link(part, file)
            part.unlink()
        return file.read_text()

    def started(self) -> int:
        """The last micro-batch that was started; -1 where none was."""
        return max(_numbers(self.folder / "offsets"), default=-1)

    def finished(self) -> int:
        """The last micro-batch that was finished; -1 where none was."""
        return max(_numbers(self.folder / "commits"), default=-1)

    def unfinished(self) -> int | None:
        """The micro-batch that was started and not finished; None where there is none."""
        started = self.started()
        return started if started > self.finished() else None

    def shards(self) -> int | None:
        """The pieces the query's state is kept in, where it has any; None where no batch has ended."""
        try:
            # Line 2 is the batch's metadata, with the settings that hold for the checkpoint.
            metadata = (self.folder / "offsets" / str(self.finished())).read_text().splitlines()[1]
            return int(json.loads(metadata)["conf"]["spark.sql.shuffle.partitions"])
        except (OSError, IndexError, KeyError, ValueError):
            return None

    def offsets(self, batch_id: int) -> list[dict[str, Any] | None]:
        """The end offsets of a micro-batch, one for each place a source is read at; empty where not known."""
        try:
            # Line 1 is the version, line 2 the batch's metadata, then one line a place ("-" for none).
            lines = (self.folder / "offsets" / str(batch_id)).read_text().splitlines()[2:]
        except FileNotFoundError:
            return []
        return [None if line == "-" else json.loads(line) for line in lines]

    def note_places(self, sources: Sequence[str]) -> None:
        """Write down beside the checkpoint which source each line of its offsets is about.

        A query that reads a source in several branches has a line for each, so that the number of a
        source's log (`sources/<index>/`) is not the number of its line.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(list(sources))
        # By a rename: a full disk must not leave half of it.
        if not self._places.exists() or self._places.read_text() != text:
            part = self._places.with_suffix(".part")
            part.write_text(text)
            part.replace(self._places)

    def place_of(self, marker: str) -> int | None:
        """The first line of the offsets that is about a folder; None where nothing was written down."""
        sources = self.places()
        if sources is None:
            return None
        return next((place for place, source in enumerate(sources) if marker in source), None)

    def places(self) -> list[str] | None:
        """Which source each line of the offsets is about; None where nothing was written down."""
        try:
            found: list[str] = json.loads(self._places.read_text())
        except (OSError, ValueError):
            return None
        return found

    def source_of(self, marker: str) -> int | None:
        """Which source's log speaks of a folder or a topic; None while none does."""
        for name in sorted(_names(self.folder / "sources")):
            for entry in _names(self.folder / "sources" / name):
                with contextlib.suppress(OSError, UnicodeDecodeError):
                    text = (self.folder / "sources" / name / entry).read_text()
                    if marker in unquote(text):
                        return int(name)
                    # One entry tells, unless nothing is left of it: a source has one folder or one topic.
                    if "\n" in text.strip():
                        break
        return None

    def source_log(self, index: int) -> SourceLog:
        """The log of a file source."""
        return SourceLog(self.folder / "sources" / str(index))

    def first_offsets(self, index: int) -> dict[str, Any]:
        """The offsets a source with offsets of its own (Kafka) began with."""
        # Behind the version, in one line.
        first: dict[str, Any] = json.loads(
            (self.folder / "sources" / str(index) / "0").read_text().splitlines()[-1]
        )
        return first

    def sync(self) -> None:
        """Bring what the checkpoint says of its last micro-batches to the disk, for good."""
        finished = str(self.finished())
        for part in ("offsets", "commits"):
            for file in (self.folder / part / finished, self.folder / part):
                with contextlib.suppress(FileNotFoundError):
                    sync(file)
        for name in _names(self.folder / "sources"):
            log = self.source_log(int(name)) if name.isdigit() else None
            for file in log.files_after(-1)[-2:] if log is not None else ():
                with contextlib.suppress(FileNotFoundError):
                    sync(file)

    @property
    def _places(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}-sources.json")


class SourceLog:
    """The log of a file source: the files of each micro-batch, before it runs. Every tenth repeats all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def after(self, number: int) -> Iterator[tuple[int, list[LoggedFile]]]:
        """Entries behind a number, in order, with the number each brings us to."""
        return self._entries(self.files_after(number), number)

    def after_a_gap(self, number: int) -> Iterator[tuple[int, list[LoggedFile]]]:
        """The same where Spark has removed what follows the number: whoever reads was away for long."""
        return self._entries(self.files_after(-1), number)

    @staticmethod
    def _entries(files: list[Path], known: int) -> Iterator[tuple[int, list[LoggedFile]]]:
        for file in files:
            number = int(file.name.removesuffix(".compact"))
            if number > known:
                entries = log_entries_after(file, known)
                known = number
                yield known, entries

    def files_after(self, number: int) -> list[Path]:
        """The log's files behind a number, in order.

        From the second time on without listing the folder: Spark keeps thousands of old ones in it.
        """
        if number < 0:
            found = _newest_forms(self.folder)
            compacted = max((n for n, name in found.items() if name.endswith(".compact")), default=-1)
            return [self.folder / found[n] for n in sorted(found) if n >= compacted]
        files = []
        while True:
            number += 1
            for name in (f"{number}.compact", str(number)):
                if os.path.exists(f"{self.folder}/{name}"):
                    files.append(self.folder / name)
                    break
            else:
                return files

    def newest_size(self) -> int:
        """Bytes of the newest file that repeats all; Spark reads it whole at a start and writes it anew."""
        files = self.files_after(-1)
        return files[0].stat().st_size if files and files[0].name.endswith(".compact") else 0

    @property
    def checked(self) -> bool:
        """Whether the newest file that repeats all has a checksum beside it, which its reader compares."""
        return any(_checksum(file).exists() for file in self.files_after(-1)[:1])

    def forget_until(self, number: int) -> None:
        """Drop the entries up to a number from the file that repeats all; only finished ones.

        Spark never does: it would have to know that the files are gone for good. It reads the file once
        more, to repeat it ten batches later, and finds the old or the new one. With a checksum beside it, its
        reader could find one of each: do it only while the query is stopped then.
        """
        for file in self.files_after(-1)[:1]:
            if not file.name.endswith(".compact"):
                return
            version, *lines = file.read_bytes().splitlines()
            kept = [line for line in lines if line and (_batch_of(line) or 0) > number]
            part = file.with_name(f".{file.name}.part")
            part.write_bytes(b"\n".join([version, *kept]))
            sync(part)
            # Spark's checksum of the old content first: without one nothing is compared.
            _checksum(file).unlink(missing_ok=True)
            part.replace(file)


LONGEST_SINK_NOTE = 64 * 1024
"""How long a compacted note of the file sink's log may be, in bytes."""
LONGEST_CHECKED_SINK_NOTE = 4 * 2**20
"""The same where files have checksums beside them: there it takes a stop of the query."""
_COMPACTED_EVERY = 10
"""Spark's `spark.sql.streaming.fileSink.log.compactInterval`, which nobody here changes."""


class SinkLog:
    """The log of Spark's file sink in its folder: the files of each finished micro-batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "_spark_metadata"

    def numbers_from(self, number: int) -> list[int]:
        """Finished micro-batches from a number on, in order."""
        return sorted(n for n in _newest_forms(self.folder) if n >= number)

    def files(self, number: int) -> list[Path]:
        """The files of a micro-batch; a compacted note repeats those of older ones."""
        for name in (f"{number}.compact", str(number)):
            with contextlib.suppress(FileNotFoundError):
                lines = (self.folder / name).read_text().splitlines()[1:]
                return [Path(local_path(json.loads(line)["path"])) for line in lines]
        return []

    @property
    def overgrown(self) -> bool:
        """Whether the newest compacted note is too long and can be emptied in a stop of the query alone."""
        file = self._compacted()
        if file is None or not _checksum(file).exists():
            return False
        with contextlib.suppress(FileNotFoundError):
            return file.stat().st_size > LONGEST_CHECKED_SINK_NOTE
        return False

    def forget_all(self) -> None:
        """Empty the newest compacted note if it is long; while the query is stopped and all is published."""
        file = self._compacted()
        if file is not None and file.stat().st_size > LONGEST_SINK_NOTE:
            # The checksum of the old content first: without one nothing is compared.
            _checksum(file).unlink(missing_ok=True)
            _empty_note(file)

    def _compacted(self) -> Path | None:
        found = _newest_forms(self.folder)
        newest = max((n for n, name in found.items() if name.endswith(".compact")), default=None)
        return None if newest is None else self.folder / found[newest]

    def forget(self, number: int) -> None:
        """Empty a long compacted note whose files are all gone; also while the query runs.

        Spark reads it once more, ten micro-batches later, to repeat it; nobody reads these files by it.
        """
        file = self.folder / f"{number}.compact"
        # A checksum beside it would not fit the new content for a moment.
        if _checksum(file).exists():
            return
        with contextlib.suppress(FileNotFoundError):
            if file.stat().st_size > LONGEST_SINK_NOTE:
                _empty_note(file)

    def fill(self, last: int) -> None:
        """Note micro-batches up to `last` that were written in another way, as without files.

        Spark's sink compacts its log every ten micro-batches and stops where one of them is not in it. A unit
        that served its micro-batches by itself for a while has left such a gap. How often it does so it tells
        by its two newest compacted notes: one that is missing before the newest would double that.
        """
        known, newest = _newest_forms(self.folder), (last + 1) // _COMPACTED_EVERY * _COMPACTED_EVERY - 1
        for number in (newest - _COMPACTED_EVERY, *range(newest, last + 1)):
            if number < 0:
                continue
            if number not in known:
                self.folder.mkdir(parents=True, exist_ok=True)
                suffix = ".compact" if (number + 1) % _COMPACTED_EVERY == 0 else ""
                _empty_note(self.folder / f"{number}{suffix}")


def _checksum(file: Path) -> Path:
    """Where Hadoop's checking file system keeps the checksum of a file."""
    return file.with_name(f".{file.name}.crc")


def _empty_note(file: Path) -> None:
    """A note of the file sink's log without files; it appears whole, or not."""
    part = file.with_name(f".{file.name}-{uuid.uuid4().hex}")
    part.write_text("v1")
    part.replace(file)


def log_entries_after(file: Path, number: int) -> list[LoggedFile]:
    """The entries of one file of a file source's log that are of batches behind a number.

    A compacted file repeats the whole history, oldest first: it is read from its end, as far as needed.
    """
    try:
        with file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            length = _FIRST_LOOK
            while True:
                log.seek(max(0, size - length))
                # The first line is the version, or the rest of an entry that was cut.
                lines = log.read().splitlines()[1:]
                oldest = _batch_of(lines[0]) if lines else number
                if length >= size or (oldest is not None and oldest <= number):
                    break
                length *= 4
    except FileNotFoundError:
        return []
    entries = (json.loads(line) for line in lines if line and (_batch_of(line) or 0) > number)
    return [LoggedFile(local_path(e["path"]), int(e["timestamp"]), int(e["batchId"])) for e in entries]


def local_path(location: str) -> str:
    """The path of a location as Spark writes it: a path, or a URL with escapes."""
    parsed = urlparse(location)
    return unquote(parsed.path) if parsed.scheme else location


def whole(checkpoint: Path) -> None:
    """Bring back a checkpoint whose rewriting ended between two renames; clear away what was left of it."""
    copy, before = _aside(checkpoint)
    if before.exists() and not checkpoint.exists():
        before.rename(checkpoint)
    shutil.rmtree(before, ignore_errors=True)
    shutil.rmtree(copy, ignore_errors=True)


@contextlib.contextmanager
def rewritten(checkpoint: Path) -> Iterator[Path]:
    """A copy of a checkpoint (hard links), which takes its place by a rename at the end of the block.

    Replace files in it, never write into them. Where the block raises, the checkpoint is as it was.
    """
    whole(checkpoint)
    copy, before = _aside(checkpoint)
    try:
        shutil.copytree(checkpoint, copy, copy_function=_linked)
        yield copy
        sync(copy)
    except BaseException:
        shutil.rmtree(copy, ignore_errors=True)
        raise
    checkpoint.rename(before)
    copy.rename(checkpoint)
    shutil.rmtree(before, ignore_errors=True)


def _aside(checkpoint: Path) -> tuple[Path, Path]:
    """Where a checkpoint's next form is made, and where the last one is put meanwhile."""
    return checkpoint.with_name(f"{checkpoint.name}-fitting"), checkpoint.with_name(
        f"{checkpoint.name}-before"
    )


def _linked(source: str, target: str) -> str:
    os.link(source, target)
    return target


def sync(path: Path) -> None:
    """Bring a file or a folder to the disk, for good: it is there after a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _batch_of(line: bytes) -> int | None:
    """The batch number at the end of a log's line, without reading the rest of it."""
    match = _LOGGED_BATCH.search(line)
    return int(match[1]) if match else None


def _newest_forms(log: Path) -> dict[int, str]:
    """Names in a log by number; a compacted file repeats every older entry, both forms may exist."""
    found: dict[int, str] = {}
    for name in _names(log):
        digits = name.removesuffix(".compact")
        if digits.isdigit():
            found[int(digits)] = max(found.get(int(digits), ""), name, key=len)
    return found


def _numbers(folder: Path) -> list[int]:
    return [int(name) for name in _names(folder) if name.isdigit()]


def _names(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name[0] not in "._"]
    except (FileNotFoundError, NotADirectoryError):
        return []
