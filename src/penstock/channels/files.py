"""The `files` channel: a folder of batches on a disk that driver and executors share. Exactly once.

A producer writes a micro-batch into a hidden folder and renames it into place, once for each consumer
(hard links, so the bytes lie there once). The rename is the commit: a batch written again after a crash
finds its number taken and is dropped. The consumer is Spark's own file source, which logs what it has
started; from that log we know what waits, and delete what is done with. Disk use is bounded by the backlog.
A batch's name says how many records it has and from when they are, so measuring looks at no record.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from penstock.channels.envelope import SOURCE_TIME
from penstock.channels.model import Stream
from penstock.channels.schemas import carried_schema, fitted
from penstock.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "json")
TIMESTAMP_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
"""JSON keeps microseconds only when told so."""

_ARRIVALS_KEPT = 200
"""Micro-batches whose arrival times are remembered; the agent asks within seconds."""

_BATCH = re.compile(r"^batch-(\d{9})-(\d+)r-(\d+)f(?:-(\d+)-(\d+)ms)?$")
_LOGGED_BATCH = re.compile(rb'"batchId":\s*(\d+)')
_SOURCE_TIME_TEXT = re.compile(rb'"source_time": ?"([^"]+)"')
_LONGEST_LINE = 16_384
"""How much of a JSON file's two ends is looked at for the source times of its first and last record."""


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


@dataclass(frozen=True, slots=True)
class ArrivedFile:
    """When one file of a micro-batch arrived, how many records it has, and from when they are."""

    at_s: float
    records: float
    span_s: tuple[float, float] | None = None


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
    with contextlib.suppress(ValueError):  # a source's own notation of time
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
                found += [
                    bound.replace(tzinfo=bound.tzinfo or UTC).timestamp()
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


def publish(
    written: Path, files: Sequence[Path], records: int, folders: Sequence[Path], batch_id: int
) -> None:
    """Put the files of a finished batch into each folder and remove the folder they were written in."""
    link_into(files, records, folders, batch_id)
    shutil.rmtree(written, ignore_errors=True)


def link_into(files: Sequence[Path], records: int, folders: Sequence[Path], batch_id: int) -> None:
    """Put the files of a finished batch into each folder, each by one rename; a taken number is left alone.

    A consumer's batch folder outlives its files until a later one exists, so "taken" holds after cleaning.
    """
    span_s = source_span_s(files)
    for folder in folders:
        if last_batch(folder) >= batch_id:
            continue
        staged = folder / f"_staged-{batch_id:09d}"
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        for file in files:
            os.link(file, staged / file.name)
        os.rename(staged, folder / batch_name(batch_id, records, len(files), span_s))


def last_batch(folder: Path) -> int:
    """The number of the newest batch in a folder; -1 where there is none."""
    found = batches_in(folder)
    return found[-1].batch_id if found else -1


def data_files(folder: Path) -> list[Path]:
    """The data files of a written batch, without Spark's markers and checksums."""
    return sorted(file for file in folder.iterdir() if file.is_file() and file.name[0] not in "._")


def count_records(files: Iterable[Path], file_format: str) -> dict[Path, int]:
    """Records in each file: from Parquet's footers, or by counting lines."""
    if file_format == "parquet":
        from pyarrow.parquet import read_metadata

        return {file: read_metadata(file).num_rows for file in files}
    return {file: file.read_bytes().count(b"\n") for file in files}


def write_batch(
    records: DataFrame, scratch: Path, folders: Sequence[Path], batch_id: int, file_format: str
) -> int:
    """Write one micro-batch once and publish it to every folder; gives back how many records it had.

    Says nothing and does nothing for folders that have the batch already.
    """
    wanted = [folder for folder in folders if last_batch(folder) < batch_id]
    if not wanted:
        return 0
    written = scratch / f"_writing-{batch_id:09d}"
    writer = records.write.mode("overwrite").format(file_format).option("compression", "none")
    if file_format == "json":
        writer = writer.option("timestampFormat", TIMESTAMP_FORMAT)
    writer.save(str(written))
    counts = count_records(data_files(written), file_format)
    filled = [file for file, count in counts.items() if count]
    if not filled:
        shutil.rmtree(written, ignore_errors=True)
        return 0
    total = sum(counts.values())
    publish(written, filled, total, wanted, batch_id)
    return total


class FilesChannel:
    """Batches of Parquet (or JSON) files below one root, one folder a producer and consumer."""

    kind: ClassVar[str] = "files"
    exactly_once: ClassVar[bool] = True

    def __init__(self, root: Path, format: str = "parquet", max_files_per_batch: int = 100) -> None:
        """`max_files_per_batch` bounds a micro-batch, so that a backlog is worked off in bites.

        A bite is cut for the slots there are when it starts; those added meanwhile wait for the next one.
        """
        if format not in FORMATS:
            raise ConfigurationError(f"channel files: expected a format out of {FORMATS}, got {format!r}")
        if max_files_per_batch < 1:
            raise ConfigurationError(
                f"channel files: expected max_files_per_batch of at least 1, got {max_files_per_batch}"
            )
        self.root = Path(root)
        self.format = format
        self.max_files_per_batch = max_files_per_batch

    def folder(self, stream: Stream) -> Path:
        """Where the records of a stream lie."""
        return self.root / stream.producer / stream.consumer

    def prepare(self, spark: SparkSession, streams: Sequence[Stream]) -> None:
        """Make the streams' folders."""
        for stream in streams:
            self.folder(stream).mkdir(parents=True, exist_ok=True)

    def read(self, spark: SparkSession, stream: Stream) -> DataFrame:
        """The stream's records as they arrive; when they did is in the source's log (`FilesConsumption`)."""
        self.folder(stream).mkdir(parents=True, exist_ok=True)
        return read_folder(spark, self.folder(stream), stream, self.format, self.max_files_per_batch)

    def read_batch(self, spark: SparkSession, stream: Stream, checkpoint: Path, batch_id: int) -> DataFrame:
        """The records of one micro-batch again."""
        schema = carried_schema(stream.schema, stream.producer)
        files = self.consumption(stream, checkpoint).files_of(batch_id)
        if not files:
            return spark.createDataFrame([], schema)
        reader = spark.read.format(self.format).schema(schema)
        if self.format == "json":
            reader = reader.option("timestampFormat", TIMESTAMP_FORMAT)
        return reader.load([str(file) for file in files])

    def append(self, records: DataFrame, streams: Sequence[Stream], batch_id: int) -> None:
        """Write the batch once and publish it to every stream."""
        if not streams:
            return
        first = streams[0]
        fitting = fitted(records, first.schema, f"operator {first.producer}")
        folders = [self.folder(stream) for stream in streams]
        write_batch(fitting, self.root / first.producer, folders, batch_id, self.format)

    def consumption(
        self, stream: Stream, checkpoint: Path, source_index: int | None = None
    ) -> FilesConsumption:
        """What a query has started and finished of a stream."""
        return FilesConsumption(self.folder(stream), checkpoint, source_index)


def read_folder(
    spark: SparkSession, folder: Path, stream: Stream, file_format: str, max_files_per_batch: int
) -> DataFrame:
    """A streaming DataFrame over a folder of batches."""
    reader = (
        spark.readStream.format(file_format)
        .schema(carried_schema(stream.schema, stream.producer))
        .option("maxFilesPerTrigger", max_files_per_batch)
    )
    if file_format == "json":
        reader = reader.option("timestampFormat", TIMESTAMP_FORMAT)
    return reader.load(f"{folder}/batch-*")


class FilesConsumption:
    """What one query's checkpoint says of one folder: which files it has started, which it has finished.

    Spark's file source logs the files of each batch before it runs (`sources/<index>/`), the query logs
    the offsets it started (`offsets/`) and finished (`commits/`). Reading them costs no Spark job.
    """

    def __init__(self, folder: Path, checkpoint: Path, source_index: int | None = None) -> None:
        """`source_index` is the folder's place among the query's sources; None means: find it in the logs."""
        self._folder = folder
        self._checkpoint = Path(checkpoint)
        self._index = source_index
        self._line: int | None = None
        self._started: dict[str, dict[str, int]] = {}
        """Log batch by batch folder and file name, without files already deleted."""
        self._present: dict[str, int] = {}
        """How many files each batch folder has: they come all at once, and only `clean` takes them away."""
        self._arrivals: dict[int, list[ArrivedFile]] = {}
        """When the files of a log batch arrived."""
        self._offsets: dict[int, int] = {}
        """Log batch at which micro-batches of the query ended."""
        self._read_until = -1
        # The agent asks how much waits while the cleaner works.
        self._lock = threading.Lock()

    def waiting(self) -> int:
        """Records that lie in the folder and belong to no started micro-batch."""
        return self.counted()[0]

    def counted(self) -> tuple[int, int]:
        """Records of no started micro-batch, and records of one that is started and not finished."""
        with self._lock:
            # Before the log: a file that is started between the two looks is then in service, not both.
            names = [name for name in _names(self._folder) if name.startswith("batch-")]
            self._read_log()
            finished = self._finished_log_batch()
            waiting = in_service = 0.0
            for name in names:
                match = _BATCH.match(name)
                if match is None or not int(match[3]):
                    continue
                if name not in self._present:
                    self._present[name] = len(_names(self._folder / name))
                share = int(match[2]) / int(match[3])
                started = self._started.get(name, {})
                waiting += share * max(0, self._present[name] - len(started))
                in_service += share * sum(log_batch > finished for log_batch in started.values())
            return round(waiting), round(in_service)

    def taken(self) -> int:
        """Records of every micro-batch the query has finished since its first start, each counted once.

        The source's log keeps every file it ever took, deleted or not: this is exact whoever was killed
        meanwhile. It reads the whole log, so ask at the end of a run, not in every tick of it.
        """
        with self._lock:
            if self._index is None:
                self._index = source_index_of(self._checkpoint, f"{self._folder}/batch-")
            if self._index is None:
                return 0
            finished, total = self._finished_log_batch(), 0.0
            for file in _log_files_after(self._checkpoint / "sources" / str(self._index), -1):
                for entry in log_entries_after(file, -1):
                    batch = BatchFolder.of(Path(unquote(entry["path"])).parent)
                    if batch is not None and int(entry["batchId"]) <= finished:
                        total += batch.records / max(1, batch.files)
            return round(total)

    def clean(self) -> int:
        """Delete the files of finished micro-batches; gives back how many."""
        with self._lock:
            self._read_log()
            finished = self._finished_log_batch()
            deleted = 0
            for folder, files in self._started.items():
                for file in [file for file, log_batch in files.items() if log_batch <= finished]:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(self._folder / folder / file)
                        deleted += 1
                    del files[file]
                    if folder in self._present:
                        self._present[folder] -= 1
            self._started = {folder: files for folder, files in self._started.items() if files}
            # The newest folder stays, empty or not: its number tells a restarted producer what is done.
            for batch in batches_in(self._folder)[:-1]:
                if self._present.get(batch.path.name, 0) <= 0:
                    with contextlib.suppress(OSError):
                        os.rmdir(batch.path)
                        self._present.pop(batch.path.name, None)
            return deleted

    def arrivals(self, batch_id: int) -> list[ArrivedFile]:
        """When the files of one micro-batch of the query arrived, and what their names tell."""
        with self._lock:
            until, after = self._log_offset(batch_id), self._log_offset(batch_id - 1)
            if until > self._read_until or self._index is None:
                self._read_log()
                until, after = self._log_offset(batch_id), self._log_offset(batch_id - 1)
            return [
                arrival
                for log_batch in range(max(after + 1, until - _ARRIVALS_KEPT), until + 1)
                for arrival in self._arrivals.get(log_batch, ())
            ]

    def files_of(self, batch_id: int) -> list[Path]:
        """The files of one micro-batch of the query."""
        with self._lock:
            self._read_log()
            until, after = self._log_offset(batch_id), self._log_offset(batch_id - 1)
            return sorted(
                file
                for folder, files in self._started.items()
                for name, log_batch in files.items()
                if after < log_batch <= until and (file := self._folder / folder / name).exists()
            )

    def _read_log(self) -> None:
        if self._index is None:
            self._index = source_index_of(self._checkpoint, f"{self._folder}/batch-")
        if self._index is None:
            return
        log = self._checkpoint / "sources" / str(self._index)
        for file in _log_files_after(log, self._read_until):
            for entry in log_entries_after(file, self._read_until):
                number = int(entry["batchId"])
                folder, name = unquote(entry["path"]).rsplit("/", 2)[1:]
                batch = BatchFolder.of(Path(folder))
                if batch is not None:
                    share = batch.records / max(1, batch.files)
                    arrival = ArrivedFile(entry["timestamp"] / 1000, share, batch.span_s)
                    self._arrivals.setdefault(number, []).append(arrival)
                if os.path.exists(f"{self._folder}/{folder}/{name}"):
                    self._started.setdefault(folder, {})[name] = number
            self._read_until = int(file.name.removesuffix(".compact"))
        if len(self._arrivals) > 2 * _ARRIVALS_KEPT:
            for old in sorted(self._arrivals)[:-_ARRIVALS_KEPT]:
                del self._arrivals[old]

    def _finished_log_batch(self) -> int:
        commits = [int(name) for name in _names(self._checkpoint / "commits") if name.isdigit()]
        return self._log_offset(max(commits)) if commits else -1

    def _log_offset(self, batch_id: int) -> int:
        if batch_id in self._offsets:
            return self._offsets[batch_id]
        if self._line is None:
            self._line = _offset_line_of(self._checkpoint, f"{self._folder}/batch-")
        line = self._line if self._line is not None else self._index
        offsets = offsets_of(self._checkpoint, batch_id)
        offset = offsets[line] if line is not None and line < len(offsets) else None
        if offset is None:
            return -1
        if len(self._offsets) > 2 * _ARRIVALS_KEPT:
            self._offsets.clear()
        self._offsets[batch_id] = int(offset["logOffset"])
        return self._offsets[batch_id]


def _log_files_after(log: Path, number: int) -> list[Path]:
    """The files of a file source's log behind a number, in order; every tenth is a compacted one.

    From the second time on without listing the folder: Spark keeps thousands of old ones in it.
    """
    if number < 0:
        found: dict[int, str] = {}
        for name in _names(log):
            digits = name.removesuffix(".compact")
            if digits.isdigit():
                # A compacted file repeats every older entry; both forms of a number may exist.
                found[int(digits)] = max(found.get(int(digits), ""), name, key=len)
        compacted = max((n for n, name in found.items() if name.endswith(".compact")), default=-1)
        return [log / found[n] for n in sorted(found) if n >= compacted]
    files = []
    while True:
        number += 1
        for name in (f"{number}.compact", str(number)):
            if os.path.exists(f"{log}/{name}"):
                files.append(log / name)
                break
        else:
            return files


def log_entries_after(file: Path, number: int) -> list[dict[str, Any]]:
    """The entries of one file of a file source's log that are of batches behind a number.

    A compacted file repeats the whole history, oldest first: it is read from its end, as far as needed.
    """
    try:
        with file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            length = _LONGEST_LINE
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
    return [json.loads(line) for line in lines if line and (_batch_of(line) or 0) > number]


def _batch_of(line: bytes) -> int | None:
    """The batch number at the end of a log's line, without reading the rest of it."""
    match = _LOGGED_BATCH.search(line)
    return int(match[1]) if match else None


def source_index_of(checkpoint: Path, marker: str) -> int | None:
    """Which of a query's sources is the one whose log speaks of a folder or a topic; None while none does."""
    for name in sorted(_names(checkpoint / "sources")):
        for entry in _names(checkpoint / "sources" / name):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                if marker in unquote((checkpoint / "sources" / name / entry).read_text()):
                    return int(name)
                # One entry tells: a source has one folder or one topic.
                break
    return None


def offsets_of(checkpoint: Path, batch_id: int) -> list[dict[str, Any] | None]:
    """The end offsets of one micro-batch, one for each place a source is read at; empty where not known."""
    try:
        # Line 1 is the version, line 2 the batch's metadata, then one line a place ("-" for none).
        lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[2:]
    except FileNotFoundError:
        return []
    return [None if line == "-" else json.loads(line) for line in lines]


def note_offset_lines(checkpoint: Path, sources: Sequence[str]) -> None:
    """Write down beside a checkpoint which source each line of its offsets is about.

    A query that reads a source in several branches has a line for each, so that the number of a source's
    log (`sources/<index>/`) is not the number of its line.
    """
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    file, text = _offset_lines_file(checkpoint), json.dumps(list(sources))
    # By a rename: a full disk must not leave half of it.
    if not file.exists() or file.read_text() != text:
        part = file.with_suffix(".part")
        part.write_text(text)
        part.replace(file)


def _offset_line_of(checkpoint: Path, marker: str) -> int | None:
    """The first line of the offsets that is about a folder; None where nothing was written down."""
    try:
        sources = json.loads(_offset_lines_file(checkpoint).read_text())
    except (OSError, ValueError):
        return None
    return next((line for line, source in enumerate(sources) if marker in source), None)


def _offset_lines_file(checkpoint: Path) -> Path:
    return checkpoint.with_name(f"{checkpoint.name}-sources.json")


def _names(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name[0] not in "._"]
    except (FileNotFoundError, NotADirectoryError):
        return []
