"""Publishes what Spark's own file sink has finished: the quickest way out of a unit into folders of batches.

Spark's sink writes a micro-batch's files into a staging folder and then notes them down in its log, once,
also after a crash. Nothing else stands in the batch's way; a thread beside it sees the note and puts the
files into every consumer's folder by one rename (`batches.link_into`). A batch that is there already is left
alone, so whoever dies when, every batch is published once. The thread never ends by an error: it tells it,
waits a little longer each time, and tries again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.channels.batches import TIMESTAMP_FORMAT, claim, count_records, data_files, link_into
from penstock.channels.model import Leaving
from penstock.channels.schemas import fitted
from penstock.channels.subscriptions import publish_to_subscribers
from penstock.errors import ClusterError, ConfigurationError
from penstock.spark.checkpoints import SinkLog
from penstock.spark.gateway.plans import output_mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LOG = logging.getLogger(__name__)

POLL_S = 0.02
"""How often the sink's log is looked at: one listing of a small folder."""
LONGEST_PAUSE_S = 5.0
"""How long is waited at most before it is tried again."""
LONGEST_BUSY_S = 30.0
"""How long one look and what it finds may take; longer, and it is told that it hangs."""
TRIES_OF_A_TORN_FILE = 5
"""How often a file that cannot be read is tried before it is set aside: a disk may be slow, not broken."""
LONGEST_STUCK_S = 900.0
"""Records that cannot be published for so long stop the query: it would fill the disk they are staged on."""
TORN = "torn"
"""Below the staging folder: files that could not be read, kept for a person."""


class Publisher:
    """Moves finished batches from a staging folder to the folders of those who take them."""

    def __init__(
        self,
        staging: Path,
        folders: Sequence[Path],
        file_format: str,
        writer: str,
        *,
        durable: bool = False,
        stream: Path | None = None,
    ) -> None:
        """`stream` is the folder in which those outside subscribe to the records, where they can."""
        self.staging = staging
        self._stream = stream
        self._folders = tuple(folders)
        self._format = file_format
        self._writer = writer
        self._durable = durable
        self.log = SinkLog(staging)
        """What Spark's sink has finished. It has no `retention`: by that it forgets what is old by the clock,
        and where the clock is set forward amid a batch, the files of that batch as well."""
        self._lock = threading.Lock()
        self._next = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failing: Exception | None = None
        self._failing_since_s: float | None = None
        self._busy_since_s: float | None = None
        self._unreadable: dict[Path, int] = {}
        self._torn: list[str] = []
        self.published = 0
        """Records published by this process."""

    @property
    def problem(self) -> str | None:
        """Why batches are not published, or which files were set aside; None where all is well."""
        told = [str(self._failing)] if self._failing is not None else []
        if self._hung_s > LONGEST_BUSY_S:
            told.append(f"the disk does not answer for more than {LONGEST_BUSY_S:.0f} s")
        if self._torn:
            aside = self.staging / TORN
            told.append(f"{len(self._torn)} file(s) could not be read and lie in {aside}: {self._torn[-1]}")
        return "; ".join(told) or None

    @property
    def stuck_s(self) -> float:
        """For how long nothing could be published although there was something."""
        since_s = self._failing_since_s
        return self._hung_s if since_s is None else time.monotonic() - since_s

    @property
    def _hung_s(self) -> float:
        since_s = self._busy_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def start(self) -> None:
        """Publish what an earlier process left, and from now on whatever is finished.

        ClusterError where that cannot be done now, ConfigurationError where a folder is another writer's.
        """
        try:
            for folder in (self.staging, *self._folders):
                claim(folder, self._writer)
        except OSError as error:
            raise ClusterError(f"results cannot be published: {error}") from error
        while True:
            tries = dict(self._unreadable)
            try:
                self.publish()
                break
            except Exception as error:
                # A file that cannot be read is tried some times; anything else has to wait.
                if self._unreadable == tries:
                    raise ClusterError(f"results cannot be published: {error}") from error
        # A note that stays long costs room, and the next start tries again.
        with contextlib.suppress(OSError):
            self.log.forget_all()
        # What is left belongs to no finished batch: tasks that failed wrote it.
        for file in data_files(self.staging):
            _remove(file)
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"publish-{self.staging}")
        self._thread.start()

    def stop(self) -> None:
        """Publish what is finished and stop looking; calling it again does nothing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10)
            self._thread = None
        try:
            self.publish()
        except Exception as error:
            # The next start publishes it: the sink's log has it.
            LOG.warning("not published at the end: %s", error)

    def publish(self) -> int:
        """Publish every finished batch that is not published yet, in order; gives back how many."""
        with self._lock:
            done = 0
            for number in self.log.numbers_from(self._next):
                done += self._publish(number)
                self.log.forget(number)
                self._next = number + 1
            self._failing = self._failing_since_s = None
            return done

    def _run(self) -> None:
        pause_s = POLL_S
        while not self._stop.wait(pause_s):
            self._busy_since_s = time.monotonic()
            try:
                self.publish()
                pause_s = POLL_S
            except Exception as error:
                # Whatever it is, the records are still staged: they are tried again.
                self._failing = error
                if self._failing_since_s is None:
                    self._failing_since_s = time.monotonic()
                    LOG.warning("results cannot be published: %s", error)
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            finally:
                self._busy_since_s = None

    def _publish(self, number: int) -> int:
        # A compacted note repeats older ones; their files were deleted when they were published.
        present = [file for file in self.log.files(number) if file.exists()]
        counts = self._counted(present)
        filled = [file for file, count in counts.items() if count]
        records = sum(counts.values())
        if filled:
            mark, durable = self._writer, self._durable
            publish_to_subscribers(self._stream, filled, records, number, mark, durable=durable)
            link_into(filled, records, self._folders, number, mark, durable=durable)
            self.published += records
        for file in counts:
            _remove(file)
        return bool(filled)

    def _counted(self, files: Sequence[Path]) -> dict[Path, int]:
        """Records in each file; one that stays unreadable is set aside, so that it holds up nothing else."""
        counts: dict[Path, int] = {}
        trying: Exception | None = None
        for file in files:
            try:
                counts.update(count_records([file], self._format))
            except Exception as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # the disk's fault, not the file's; Parquet's reader has no number for its own
                self._unreadable[file] = self._unreadable.get(file, 0) + 1
                if self._unreadable[file] < TRIES_OF_A_TORN_FILE:
                    trying = error
                else:
                    self._set_aside(file, error)
        if trying is not None:
            raise trying
        return counts

    def _set_aside(self, file: Path, error: Exception) -> None:
        (self.staging / TORN).mkdir(exist_ok=True)
        file.replace(self.staging / TORN / file.name)
        self._torn.append(f"{file.name}: {error}")
        LOG.error("file %s cannot be read and is set aside: %s", file, error)


class FolderWriter:
    """Spark's file sink, and a publisher beside it."""

    def __init__(self, records: DataFrame, file_format: str, publisher: Publisher) -> None:
        self.records = records
        self._format = file_format
        self._publisher = publisher
        self.start = publisher.start
        self.stop = publisher.stop

    @property
    def published(self) -> int:
        """Records this process has published."""
        return self._publisher.published

    @property
    def problem(self) -> str | None:
        """Why finished records cannot be published at present."""
        return self._publisher.problem

    @property
    def has_to_stop(self) -> bool:
        """Whether nothing could be published for too long, or the sink's log has grown too long."""
        return self._publisher.stuck_s > LONGEST_STUCK_S or self._publisher.log.overgrown

    def publish(self) -> None:
        """Publish now whatever is finished."""
        self._publisher.publish()

    def writer(self) -> DataStreamWriter:
        """Spark's file sink into the staging folder."""
        writer = (
            self.records.writeStream.format(self._format)
            .option("path", str(self._publisher.staging))
            .option("compression", "none")
        )
        return writer.option("timestampFormat", TIMESTAMP_FORMAT) if self._format == "json" else writer


def folder_writer(
    leaving: Leaving,
    folders: Sequence[tuple[Path, str]],
    staging: Path,
    writer: str,
    *,
    durable: bool = False,
    stream: Path | None = None,
) -> FolderWriter | None:
    """Spark's file sink for an operator's records into folders; None where that is no way for them."""
    formats = {file_format for _, file_format in folders}
    if len(formats) != 1 or leaving.functions or output_mode(leaving.records) != "append":
        return None
    records, file_format = leaving.records, formats.pop()
    if leaving.streams:
        records = fitted(records, leaving.streams[0].schema, f"operator {leaving.operator}")
    places = [folder for folder, _ in folders]
    if len(set(places)) < len(places):
        raise ConfigurationError(f"operator {leaving.operator}: two of its takers have one folder")
    return FolderWriter(
        records,
        file_format,
        Publisher(staging, places, file_format, writer, durable=durable, stream=stream),
    )


def _remove(file: Path) -> None:
    for each in (file, file.with_name(f".{file.name}.crc")):
        with contextlib.suppress(FileNotFoundError):
            each.unlink()
