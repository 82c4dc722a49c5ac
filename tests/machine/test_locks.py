"""Locks: one holder, named in the error, and none left when its process ends."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.machine.locks import Lock, LockHeldError, taken

HOLDER = """
import sys
from pathlib import Path
from penstock.machine.locks import Lock
Lock(Path(sys.argv[1]), "the run").acquire()
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def another_holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has taken the lock."""
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield other
    finally:
        other.kill()
        other.communicate()


def test_the_error_names_what_is_locked_and_the_process_that_has_it(tmp_path: Path) -> None:
    with another_holder(tmp_path / "lock") as other:
        with pytest.raises(LockHeldError, match=f"the run in shop is in use by process {other.pid}") as told:
            Lock(tmp_path / "lock", "the run in shop").acquire()
        assert told.value.pid == other.pid


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock", "the run")
    with another_holder(tmp_path / "lock") as other:
        other.kill()
        other.wait()
        lock.acquire()
        assert lock.held
    lock.release()


def test_a_program_the_holder_started_does_not_keep_the_lock(tmp_path: Path) -> None:
    child = None
    try:
        with Lock(tmp_path / "lock", "the run"):
            child = subprocess.Popen(["sleep", "600"], close_fds=False)
        with Lock(tmp_path / "lock", "the run") as again:
            assert again.held
    finally:
        if child is not None:
            child.kill()
            child.wait()


def test_one_process_cannot_hold_it_twice_and_giving_it_back_twice_is_harmless(tmp_path: Path) -> None:
    first, second = (Lock(tmp_path / "new" / "lock", "the run") for _ in range(2))
    first.acquire()
    first.acquire()
    with pytest.raises(LockHeldError):
        second.acquire()
    first.release()
    first.release()
    second.acquire()
    assert (first.held, second.held) == (False, True)
    second.release()


def test_work_that_one_does_is_left_to_the_one(tmp_path: Path) -> None:
    with taken(tmp_path / "lock", "training") as mine, taken(tmp_path / "lock", "training") as other:
        assert (mine, other) == (True, False)
    with taken(tmp_path / "lock", "training") as again:
        assert again


def test_whether_anybody_holds_it_is_seen_without_taking_it(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock", "the run")
    assert not lock.in_use()
    assert not lock.path.exists()
    with another_holder(lock.path):
        assert lock.in_use()
    # It was killed: its number is still in the file.
    assert lock.path.read_text().strip().isdigit()
    assert not lock.in_use()
    with lock:
        assert lock.in_use()
    assert not lock.in_use()
