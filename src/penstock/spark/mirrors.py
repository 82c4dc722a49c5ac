"""A checkpoint on a distributed file system, and beside it on this machine what has to be read of it.

Spark writes and reads the checkpoint where it is. What a unit measures itself by (which micro-batches were
started and finished, with which offsets) are a few small files: they are copied here as they appear, so that
all else reads them as it reads any checkpoint (`checkpoints`).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Protocol

from penstock.machine.files import written

LOG = logging.getLogger(__name__)


class Files(Protocol):
    """What is asked of a file system."""

    def names(self, folder: str) -> list[str]:
        """Names in a folder; none where it does not exist."""
        ...

    def text(self, file: str) -> str:
        """The content of a file."""
        ...


class Mirror:
    """A copy of a remote checkpoint's logs in a local folder. Not thread-safe."""

    def __init__(self, files: Files, location: str, folder: Path) -> None:
        self.location = location
        self._files = files
        self._folder = folder

    def refresh(self) -> None:
        """Copy what is new and drop what is gone; a file system that does not answer changes nothing."""
        try:
            # Finished ones first: what is seen as finished was started, also while batches go on.
            for part in ("commits", "offsets"):
                self._copy(part)
            for source in self._numbers("sources"):
                self._copy(f"sources/{source}")
        except Exception as error:
            LOG.warning("the checkpoint at %s cannot be read now: %s", self.location, error)

    def _copy(self, part: str) -> None:
        folder = self._folder / part
        folder.mkdir(parents=True, exist_ok=True)
        there, here = set(self._numbers(part)), {path.name for path in folder.iterdir()}
        for name in sorted(there - here, key=int):
            written(folder / name, self._files.text(f"{self.location}/{part}/{name}"))
        for name in here - there:
            (folder / name).unlink(missing_ok=True)

    def _numbers(self, part: str) -> list[str]:
        return [name for name in self._files.names(f"{self.location}/{part}") if name.isdigit()]
