"""Streams for whoever comes: somebody outside subscribes to an operator's records, and leaves again.

A subscriber has a folder beside those of the units that read the stream; whoever writes the stream looks for
such folders at every batch, so nobody is started again. What a subscriber has not read waits for it, up to
the number of records it asked for: beyond that the oldest batches are dropped, and counted. Each subscriber
reads at its own pace, and says how far it is; what it has had is deleted. Of a stream on Kafka the records
wait in its topic, and the subscriber reads them by a client of its own (`kafka_offsets`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.channels.batches import BatchFolder, batches_in, data_files, link_into
from penstock.errors import ConfigurationError
from penstock.machine.files import written
from penstock.machine.folders import FOLDER_NAME

LOG = logging.getLogger(__name__)

PREFIX = "~"
"""What the folders of subscribers begin with; no unit's name does."""
_TERMS = "_subscription.json"
_DROPPED = "_dropped.json"
_WAITING = "_waiting.json"
MOST_RECORDS = 100_000
"""How many records wait for a subscriber that says nothing else."""
LARGEST = 100_000_000
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class Terms:
    """What a subscriber asked for."""

    name: str
    most_records: int = MOST_RECORDS
    """So many records wait at most; older batches are dropped, and counted."""

    def __post_init__(self) -> None:
        if not FOLDER_NAME.fullmatch(self.name):
            raise ConfigurationError(f"expected a name of letters, digits, - and _, got {self.name!r}")
        if not 1 <= self.most_records <= LARGEST:
            raise ConfigurationError(
                f"most_records: expected a number from 1 to {LARGEST}, got {self.most_records}"
            )


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a subscriber is."""

    name: str
    most_records: int
    waiting: int
    """Records it has not read."""
    dropped: int
    """Records it will never see: more than it asked for waited."""


class Subscription:
    """One subscriber's part of a stream, in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def terms(self) -> Terms | None:
        """What was asked for; None where nobody subscribes here."""
        try:
            return Terms(**json.loads((self.folder / _TERMS).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def waiting(self) -> list[BatchFolder]:
        """The batches it has not read, in order."""
        return [batch for batch in batches_in(self.folder) if _has_records(batch)]

    def standing(self) -> Standing:
        """How far it is; ConfigurationError where nobody subscribes here."""
        terms = self.terms()
        if terms is None:
            raise ConfigurationError(f"nobody subscribes at {self.folder.name}")
        noted = self._noted(_WAITING)
        waiting = sum(batch.records for batch in self.waiting()) if noted is None else noted
        return Standing(terms.name, terms.most_records, waiting, self._dropped())

    def note(self, waiting: int, dropped: int) -> None:
        """Write down how many records wait at a server, and how many more were dropped there."""
        written(self.folder / _WAITING, json.dumps({"records": waiting}))
        if dropped:
            written(self.folder / _DROPPED, json.dumps({"records": self._dropped() + dropped}))

    def read(self, most_records: int = 1000) -> tuple[list[dict[str, Any]], int]:
        """The next records, whole batches of them, and the number to say to `done` when they are dealt with.

        At least one batch where one waits, however large. Without `done` the same ones come again.
        """
        records: list[dict[str, Any]] = []
        number = -1
        for batch in self.waiting():
            if records and len(records) + batch.records > most_records:
                break
            records += _records(batch)
            number = batch.batch_id
        return records, number

    def done(self, number: int) -> int:
        """Everything up to a batch is dealt with, and deleted; how many records that were."""
        return self._delete([batch for batch in self.waiting() if batch.batch_id <= number])

    def bound(self) -> int:
        """Drop the oldest batches where more waits than was asked for; how many records."""
        terms = self.terms()
        waiting = self.waiting()
        kept = sum(batch.records for batch in waiting)
        too_old = []
        for batch in waiting[:-1] if terms is not None else ():
            if terms is None or kept <= terms.most_records:
                break
            too_old.append(batch)
            kept -= batch.records
        dropped = self._delete(too_old)
        if dropped:
            written(self.folder / _DROPPED, json.dumps({"records": self._dropped() + dropped}))
        return dropped

    def _delete(self, batches: list[BatchFolder]) -> int:
        """Delete batches; the newest folder of all stays, empty: its number tells the writer what is done."""
        deleted = 0
        newest = max((batch.batch_id for batch in batches_in(self.folder)), default=-1)
        for batch in batches:
            for file in data_files(batch.path):
                file.unlink(missing_ok=True)
            deleted += batch.records
        for batch in batches_in(self.folder):
            if batch.batch_id < newest and not _has_records(batch):
                shutil.rmtree(batch.path, ignore_errors=True)
        return deleted

    def _dropped(self) -> int:
        return self._noted(_DROPPED) or 0

    def _noted(self, name: str) -> int | None:
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(json.loads((self.folder / name).read_text())["records"])
        return None


def subscribe(stream: Path, terms: Terms) -> Subscription:
    """Subscribe to the stream in a folder from its next batch on; again it changes what was asked for."""
    folder = stream / f"{PREFIX}{terms.name}"
    with _LOCK:
        folder.mkdir(parents=True, exist_ok=True)
        written(folder / _TERMS, json.dumps(asdict(terms)), durable=True)
    return Subscription(folder)


def unsubscribe(stream: Path, name: str) -> bool:
    """Leave a stream; what waited is gone. Whether somebody of that name had subscribed."""
    found = subscription(stream, name)
    if found is None:
        return False
    # First the terms: from then on nobody writes to it.
    (found.folder / _TERMS).unlink(missing_ok=True)
    shutil.rmtree(found.folder, ignore_errors=True)
    return True


def subscription(stream: Path, name: str) -> Subscription | None:
    """The subscription of this name; None where there is none."""
    found = Subscription(stream / f"{PREFIX}{name}") if FOLDER_NAME.fullmatch(name) else None
    return found if found is not None and found.terms() is not None else None


def subscriptions(stream: Path) -> Iterator[Subscription]:
    """All who subscribe to the stream in a folder."""
    try:
        names = sorted(name for name in os.listdir(stream) if name.startswith(PREFIX))
    except FileNotFoundError:
        return
    for name in names:
        found = Subscription(stream / name)
        if found.terms() is not None:
            yield found


def publish_to_subscribers(
    stream: Path | None,
    files: Sequence[Path],
    records: int,
    batch_id: int,
    writer: str,
    *,
    durable: bool = False,
) -> None:
    """Put a batch into the folder of everybody who subscribes to the stream in a folder.

    A subscriber that leaves at this moment, or whose folder is another writer's, holds up nobody else. Raises
    only what the writer's fence does.
    """
    for each in subscriptions(stream) if stream is not None else ():
        try:
            link_into(files, records, [each.folder], batch_id, writer, durable=durable)
            each.bound()
        except (OSError, ConfigurationError) as error:
            LOG.warning("a batch could not be given to %s: %s", each.folder.name, error)


def _has_records(batch: BatchFolder) -> bool:
    try:
        return any(name[0] not in "._" for name in os.listdir(batch.path))
    except FileNotFoundError:
        return False


def _records(batch: BatchFolder) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in data_files(batch.path):
        if file.suffix == ".parquet":
            from pyarrow.parquet import read_table

            found += read_table(file).to_pylist()
        else:
            found += [json.loads(line) for line in file.read_text().splitlines()]
    return found
