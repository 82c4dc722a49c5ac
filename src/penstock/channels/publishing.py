"""Publishes what Spark's own file sink has finished: the quickest way out of a unit into folders of batches.

Spark's sink writes a micro-batch's files into a staging folder and then notes them down in its log, once,
also after a crash. Nothing else stands in the batch's way; a thread beside it sees the note and puts the
files into every consumer's folder by one rename (`files.publish`). A batch that is there already is left
alone, so whoever dies when, every batch is published once.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from penstock.channels.files import count_records, link_into

POLL_S = 0.02
"""How often the sink's log is looked at: one listing of a small folder."""


class Publisher:
    """Moves finished batches from a staging folder to the folders of those who take them."""

    def __init__(self, staging: Path, folders: Sequence[Path], file_format: str) -> None:
        self.staging = staging
        self._folders = tuple(folders)
        self._format = file_format
        self._log = staging / "_spark_metadata"
        self._lock = threading.Lock()
        self._next = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.published = 0
        """Records published by this process."""
        self.problem: OSError | None = None
        """Why the last try failed, such as a full disk; None where it did not. It is tried again."""

    def start(self) -> None:
        """Publish what an earlier process left, and from now on whatever is finished."""
        for folder in self._folders:
            folder.mkdir(parents=True, exist_ok=True)
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Publish what is finished and stop looking; calling it again does nothing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10)
            self._thread = None
        with contextlib.suppress(OSError):
            self.publish()

    def publish(self) -> int:
        """Publish every finished batch that is not published yet, in order; gives back how many."""
        with self._lock:
            done = 0
            for number, name in self._finished():
                done += self._publish(number, self._log / name)
                self._next = number + 1
            return done

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                self.publish()
                self.problem = None
            except OSError as error:
                self.problem = error

    def _finished(self) -> list[tuple[int, str]]:
        """Noted batches from the next one on, by number; a compacted note is one too."""
        try:
            names = os.listdir(self._log)
        except FileNotFoundError:
            return []
        numbers = {}
        for name in names:
            digits = name.removesuffix(".compact")
            if digits.isdigit() and int(digits) >= self._next:
                numbers[int(digits)] = name
        return sorted(numbers.items())

    def _publish(self, number: int, note: Path) -> int:
        try:
            lines = note.read_text().splitlines()[1:]
        except FileNotFoundError:
            return 0
        files = [Path(unquote(urlparse(json.loads(line)["path"]).path)) for line in lines]
        # A compacted note repeats older ones; their files were deleted when they were published.
        present = [file for file in files if file.exists()]
        counts = count_records(present, self._format)
        filled = [file for file, count in counts.items() if count]
        if filled:
            link_into(filled, sum(counts.values()), self._folders, number)
            self.published += sum(counts.values())
        for file in present:
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
                file.with_name(f".{file.name}.crc").unlink()
        return bool(filled)
