"""Files that are never seen half written: all of the new content is there, or all of the old.

A crash, a full disk or a reader at the wrong moment must not meet half a file. So content is written
beside its place under a name of its own and moved there by a rename, which the system does at once.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

PRIVATE = 0o600
"""The mode of a file that only its owner may read."""


def written(path: Path, content: str | bytes, *, durable: bool = False, mode: int | None = None) -> None:
    """Write a file by a rename; it has the old content or the new one at every instant.

    With `durable` it has reached the disk when the call is back, so that a power cut does not undo it
    (milliseconds; a killed process needs no such care). `mode` sets its permissions; else they are the
    system's usual ones. The folder must exist. OSError where it cannot be written; nothing is left then.
    """
    data = content.encode() if isinstance(content, str) else content
    # A hidden name that no two writers share: neither listings nor another writer stumble over it.
    part = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename in a folder last: the name is the folder's content, not the file's."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
