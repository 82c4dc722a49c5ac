"""Exclusive locks between processes: one run folder, one controller; one archive, one training run.

The lock is the operating system's own on an open file. It ends with the process that holds it, however
that ends, so no stale lock is ever left behind and no age has to be guessed. The file itself stays: to
delete it would let two processes hold "the same" lock on two files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import ClusterError
from penstock.machine.files import PRIVATE


class LockHeldError(ClusterError):
    """Another process has the lock; `pid` says which one, where it is known."""

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid


class Lock:
    """An exclusive lock on a file. Also excludes a second `Lock` on the same file in this process."""

    def __init__(self, path: Path, purpose: str) -> None:
        """`purpose` names in the error what is locked, such as `the run in runs/shop`."""
        self.path = Path(path)
        self.purpose = purpose
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock or raise LockHeldError at once; taking it again changes nothing."""
        if self._descriptor is not None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Programs this process starts do not inherit the descriptor: they would go on holding the lock.
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            who = f"process {holder}" if holder is not None else "another process"
            raise LockHeldError(
                f"{self.purpose} is in use by {who} (lock {self.path}); wait for it, or stop it", holder
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def in_use(self) -> bool:
        """Whether anybody holds it, without taking it.

        Who holds it is written in the file, so an empty one is not touched: whoever takes the lock at this
        moment is not disturbed. A number that a killed process left is told from a holder by the lock itself.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if _holder(descriptor) is None:
                return False
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def release(self) -> None:
        """Give the lock back; doing so again changes nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # Emptied first: a pid in the file always means somebody holds it or was killed.
            os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@contextlib.contextmanager
def taken(path: Path, purpose: str) -> Iterator[bool]:
    """True inside where the lock could be had, False where another has it: for work that one does."""
    lock = Lock(path, purpose)
    try:
        lock.acquire()
    except LockHeldError:
        yield False
        return
    with lock:
        yield True


def _holder(descriptor: int) -> int | None:
    """The pid in a lock file; None in the moment before its holder has written it."""
    text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return int(text) if text.isdigit() else None
