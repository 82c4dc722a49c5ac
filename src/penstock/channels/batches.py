"""Folders of batches: how finished micro-batches lie on a disk, for `files` channels and built-in sinks.

A batch is written into a hidden folder and renamed into place, once for each folder that takes it (hard
links, so the bytes lie there once). The rename is the commit: a batch written again after a crash finds
its number taken and is dropped. That holds for one writer only, whose numbers grow; so a folder carries its
writer's mark, and a second writer is refused; so is a writer that another attempt has taken the place of. A
folder may be handed over to another writer: its mark then says by how much that writer's numbers are shifted,
so that they go on behind the last one. A batch's name
says how many records it has and from when they are, so measuring looks at no record.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.channels.envelope import SOURCE_TIME
from penstock.errors import ConfigurationError
from penstock.spark.checkpoints import sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMESTAMP_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
"""JSON keeps microseconds only when told so."""
FEEDER = "feeder"
"""The mark of whoever writes a source's records by itself, outside of any query."""

_BATCH = re.compile(r"^batch-(\d{9})-(\d+)r-(\d+)f(?:-(\d+)-(\d+)ms)?$")
_MARK = "_writer"
_SOURCE_TIME_TEXT = re.compile(rb'"source_time": ?"([^"]+)"')
_LONGEST_LINE = 16_384
"""How much of a JSON file's two ends is looked at for the source times of its first and last record."""
_PIECE_BYTES, _NEW_LINE = 2**18, ord("\n")
_WRITTEN: dict[Path, tuple[tuple[int, int, int], int]] = {}
"""How each folder was left after this process's last batch in it, and that batch's number."""


class Writer(str):
    """A writer's mark, and a fence it asks before anything it wrote becomes visible; it raises where not."""

    fence: Callable[[], None]

    def __new__(cls, mark: str, fence: Callable[[], None]) -> Writer:
        made = super().__new__(cls, mark)
        made.fence = fence
        return made


@dataclass(frozen=True, slots=True)
class BatchFolder:
    """One committed batch in a stream's folder; its name says how much it had and from when."""

    path: Path
    batch_id: int
    records: int
    files: int
    span_s: tuple[float, float] | None = None
    """Source times of its first and last record, in seconds since 1970; None where they are not known."""

    @staticmethod
    def of(path: Path) -> BatchFolder | None:
        """The batch a folder's name tells of; None where it is not one."""
        match = _BATCH.match(path.name)
        if match is None:
            return None
        span_s = None if match[4] is None else (int(match[4]) / 1000, int(match[5]) / 1000)
        return BatchFolder(path, int(match[1]), int(match[2]), int(match[3]), span_s)


def batch_name(batch_id: int, records: int, files: int, span_s: tuple[float, float] | None = None) -> str:
    """The name of a batch's folder."""
    when = "" if span_s is None else f"-{int(span_s[0] * 1000)}-{int(span_s[1] * 1000)}ms"
    return f"batch-{batch_id:09d}-{records}r-{files}f{when}"


def source_span_s(files: Iterable[Path]) -> tuple[float, float] | None:
    """The earliest and latest source time in some files, in seconds since 1970; None where not known.

    Parquet's footers have them exactly; of a JSON file the first and the last record are looked at.
    """
    found = [instant_s for file in files for instant_s in _source_times_s(file)]
    return (min(found), max(found)) if found and min(found) >= 0 else None


def _source_times_s(file: Path) -> list[float]:
    if file.suffix == ".parquet":
        from pyarrow.parquet import read_metadata

        return _footer_times_s(read_metadata(file))
    with file.open("rb") as lines:
        texts = _SOURCE_TIME_TEXT.findall(lines.readline(_LONGEST_LINE))[:1]
        size = lines.seek(0, os.SEEK_END)
        lines.seek(max(0, size - _LONGEST_LINE))
        texts += _SOURCE_TIME_TEXT.findall(lines.read().rstrip(b"\n").rpartition(b"\n")[2])[:1]
    with contextlib.suppress(ValueError, OverflowError):  # a source's own notation of time
        return [datetime.fromisoformat(text.decode().replace("Z", "+00:00")).timestamp() for text in texts]
    return []


def _footer_times_s(footer: Any) -> list[float]:
    """Least and greatest source time of each row group, where the writer noted them."""
    found: list[float] = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for position in range(group.num_columns):
            column = group.column(position)
            if column.path_in_schema == SOURCE_TIME and column.statistics is not None:
                # A time outside of Python's dates costs its batch the span in its name, nothing else.
                with contextlib.suppress(ValueError, OverflowError, OSError):
                    found += [
                        bound.replace(tzinfo=bound.tzinfo or timezone.utc).timestamp()
                        for bound in (column.statistics.min, column.statistics.max)
                        if isinstance(bound, datetime)
                    ]
    return found


def batches_in(folder: Path) -> list[BatchFolder]:
    """The committed batches of a stream's folder, in order."""
    try:
        names = sorted(entry for entry in os.listdir(folder) if entry.startswith("batch-"))
    except FileNotFoundError:
        return []
    found = (BatchFolder.of(folder / name) for name in names)
    return [batch for batch in found if batch is not None]


def claim(folder: Path, writer: str) -> int:
    """Mark a folder as a writer's; by how much its numbers are shifted there.

    ConfigurationError where the folder is another's, for numbers would clash; and what the writer's fence
    raises, where it has one.
    """
    if isinstance(writer, Writer):
        writer.fence()
    mark, shift = folder / _MARK, 0
    try:
        owner, shift = _mark_of(folder)
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
        if batches_in(folder):
            owner = "somebody who left no mark"
        else:
            part = folder / f"{_MARK}-{uuid.uuid4().hex}"
            part.write_text(writer)
            with contextlib.suppress(FileExistsError):
                os.link(part, mark)
            part.unlink()
            owner, shift = _mark_of(folder)
    if owner != writer:
        raise ConfigurationError(
            f"folder {folder}: it was written by {owner}, and now by {writer}; batches of two writers have "
            "the same numbers and records would be lost. Give each sink a folder of its own. Where a "
            "checkpoint was deleted, delete this folder too, or move it away"
        )
    return shift


def _mark_of(folder: Path) -> tuple[str, int]:
    """Whose a folder is, and by how much that writer's numbers are shifted."""
    owner, _, shift = (folder / _MARK).read_text().partition("\n")
    return owner, int(shift or 0)


def hand_over(folder: Path, writer: str, next_batch: int, same: str | None = None) -> bool:
    """Give a folder to a writer whose next batch has this number; whether it was another's.

    Only while nobody writes. Where the mark there has `same` in it (the word of a checkpoint that goes on),
    numbers go on as they were: a batch that is there already is known by its number.
    """
    try:
        owner, shift = _mark_of(folder)
    except FileNotFoundError:
        if not batches_in(folder):
            return False
        owner, shift = "", 0
    if owner == writer:
        return False
    if same is None or same not in owner:
        shift = last_batch(folder) + 1 - next_batch
    part = folder / f"{_MARK}-{uuid.uuid4().hex}"
    part.write_text(f"{writer}\n{shift}")
    sync(part)
    part.replace(folder / _MARK)
    return True


def has_batch(folder: Path, batch_id: int) -> bool:
    """Whether a batch of the folder's writer, or a later one, was published there."""
    try:
        shift = _mark_of(folder)[1]
    except FileNotFoundError:
        shift = 0
    return last_batch(folder) >= batch_id + shift


def begin_behind(folder: Path, number: int, writer: str = FEEDER) -> None:
    """Let a writer's empty folder begin behind a number, as if all batches up to it had been read."""
    if number >= 0 and last_batch(folder) < number:
        claim(folder, writer)
        (folder / batch_name(number, 0, 0)).mkdir(parents=True, exist_ok=True)


def publish(
    written: Path,
    files: Sequence[Path],
    records: int,
    folders: Sequence[Path],
    batch_id: int,
    writer: str = FEEDER,
    *,
    durable: bool = False,
) -> None:
    """Put the files of a finished batch into each folder and remove the folder they were written in."""
    link_into(files, records, folders, batch_id, writer, durable=durable)
    shutil.rmtree(written, ignore_errors=True)


def link_into(
    files: Sequence[Path],
    records: int,
    folders: Sequence[Path],
    batch_id: int,
    writer: str,
    *,
    durable: bool = False,
) -> None:
    """Put the files of a finished batch into each folder, each by one rename; a taken number is left alone.

    A consumer's batch folder outlives its files until a later one exists, so "taken" holds after cleaning.
    With `durable` everything is on the disk for good before the rename counts.
    """
    span_s = source_span_s(files)
    for file in files if durable else ():
        sync(file)
    for folder in folders:
        number = batch_id + claim(folder, writer)
        if _newest(folder) < number:
            staged = folder / f"_staged-{number:09d}"
            _link(files, staged, folder / batch_name(number, records, len(files), span_s), durable)
            _WRITTEN[folder] = (_left(folder), number)


def _link(files: Sequence[Path], staged: Path, batch: Path, durable: bool) -> None:
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    for file in files:
        os.link(file, staged / file.name)
    if durable:
        sync(staged)
    os.rename(staged, batch)
    if durable:
        sync(batch.parent)


def last_batch(folder: Path) -> int:
    """The number of the newest batch in a folder; -1 where there is none."""
    found = batches_in(folder)
    return found[-1].batch_id if found else -1


def _newest(folder: Path) -> int:
    """The same for whoever writes there. Results stay for ever: where nobody else has been in the folder
    since this process's last batch, a year of them is not listed for every further one."""
    left, number = _WRITTEN.get(folder, (None, -1))
    return number if left is not None and left == _left(folder) else last_batch(folder)


def _left(folder: Path) -> tuple[int, int, int]:
    """What changes whenever something comes into a folder, or goes."""
    seen = folder.stat()
    return seen.st_ino, seen.st_mtime_ns, seen.st_nlink


def data_files(folder: Path) -> list[Path]:
    """The data files of a written batch, without Spark's markers and checksums."""
    return sorted(file for file in folder.iterdir() if file.is_file() and file.name[0] not in "._")


def count_records(files: Iterable[Path], file_format: str) -> dict[Path, int]:
    """Records in each file: from Parquet's footers, or by counting lines."""
    if file_format == "parquet":
        from pyarrow.parquet import read_metadata

        return {file: read_metadata(file).num_rows for file in files}
    return {file: _lines_in(file) for file in files}


def _lines_in(file: Path) -> int:
    """The lines of a file, a piece at a time and compared whole: a third of the time of `bytes.count`."""
    piece, found = bytearray(_PIECE_BYTES), 0
    seen = np.frombuffer(piece, np.uint8)
    with file.open("rb", buffering=0) as reader:
        while length := reader.readinto(piece):
            found += int(np.count_nonzero(seen[:length] == _NEW_LINE))
    return found


def write_batch(
    records: DataFrame,
    scratch: Path,
    folders: Sequence[Path],
    batch_id: int,
    file_format: str,
    writer: str,
    *,
    durable: bool = False,
    gathered: bool = False,
    also: Callable[[Sequence[Path], int], None] = lambda files, records: None,
) -> int:
    """Write one micro-batch once and publish it to every folder; gives back how many records it had.

    `gathered` brings its records here first: executors on other machines do not have these folders.

    Says nothing and does nothing for folders that have the batch already. `also` is given the files that have
    records, and how many those are, before they are gone from where they were written.
    """
    wanted = [folder for folder in folders if _newest(folder) < batch_id + claim(folder, writer)]
    if not wanted:
        return 0
    written = scratch / f"_writing-{batch_id:09d}"
    if gathered:
        _write_here(records, written, file_format)
    else:
        output = records.write.mode("overwrite").format(file_format).option("compression", "none")
        if file_format == "json":
            output = output.option("timestampFormat", TIMESTAMP_FORMAT)
        output.save(str(written))
    counts = count_records(data_files(written), file_format)
    filled = [file for file, count in counts.items() if count]
    if filled:
        also(filled, sum(counts.values()))
        link_into(filled, sum(counts.values()), wanted, batch_id, writer, durable=durable)
    shutil.rmtree(written, ignore_errors=True)
    return sum(counts.values())


def _write_here(records: DataFrame, written: Path, file_format: str) -> None:
    """Write records as one file, by this process."""
    from pyspark.sql import functions as sql

    shutil.rmtree(written, ignore_errors=True)
    written.mkdir(parents=True)
    if file_format == "parquet":
        from pyarrow.parquet import write_table

        write_table(records.toArrow(), written / "part.parquet", compression="none")
        return
    line = sql.to_json(sql.struct("*"), {"timestampFormat": TIMESTAMP_FORMAT})
    lines = [row["line"] for row in records.select(line.alias("line")).collect()]
    (written / "part.json").write_text("".join(f"{text}\n" for text in lines))
