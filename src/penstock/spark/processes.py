"""Child processes with a durable record, so that none outlives its purpose.

Every child is started in a session of its own, carries a token in its environment, and is written
down with its pid and start time before anything else happens. Its owner stops it on exit; what a
crashed owner left behind is found at the next start by that record (pid and start time, or the
token), never by name. A record whose owner lives is left alone.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from penstock.errors import ClusterError
from penstock.spark.folders import cache_folder

TOKEN_VARIABLE = "PENSTOCK_PROCESS"
"""The environment variable a child and all its descendants carry."""

START_TIME_TOLERANCE_S = 0.05
"""psutil derives start times from clock ticks since boot; two readings agree far better than this."""


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """What is written down about a child."""

    name: str
    group: str
    """What it belongs to, for example one local cluster or one run."""
    pid: int
    started_s: float
    token: str
    log: str | None = None
    owner_pid: int | None = None
    """The process that must stop it; None means that it stays until it is told to go."""
    owner_started_s: float | None = None

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return is_running(self.pid, self.started_s)

    @property
    def orphaned(self) -> bool:
        """Whether its owner is gone."""
        if self.owner_pid is None or self.owner_started_s is None:
            return False
        return not is_running(self.owner_pid, self.owner_started_s)


def is_running(pid: int, started_s: float) -> bool:
    """Whether the process with this pid is the one that started then, and is no zombie."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started_s) < START_TIME_TOLERANCE_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def log_tail(log: Path | str | None, lines: int = 15) -> str:
    """The last telling lines of a log file, for an error message; empty where there is none.

    Frames of Java's stack traces are left out: the cause stands above them and would be cut off.
    """
    if log is None or not Path(log).exists():
        return ""
    text = Path(log).read_text(errors="replace").splitlines()
    telling = [line for line in text if not line.startswith(("\tat ", "\t... "))]
    return "\n".join(f"    {line}" for line in telling[-lines:])


class ChildProcesses:
    """The children of one group; stopped when this process exits, unless `persistent`.

    `group` names them in the records, so that a restarted owner can `adopt` them. Thread-safe as far
    as names do not clash: two threads must not start or stop the same name at once.
    """

    def __init__(self, group: str, *, persistent: bool = False, folder: Path | None = None) -> None:
        self.group = group
        self.persistent = persistent
        self._folder = folder or cache_folder("processes")
        self._records: dict[str, ProcessRecord] = {}
        self._handles: dict[str, subprocess.Popen[bytes]] = {}
        if not persistent:
            atexit.register(self.stop_all)

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> ProcessRecord:
        """Start a child whose output goes to `log`; ClusterError where the program does not exist."""
        present = self._records.get(name)
        if present is not None and self.alive(name):
            return present
        token = uuid.uuid4().hex
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            try:
                handle = subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**(os.environ if environment is None else environment), TOKEN_VARIABLE: token},
                    cwd=folder,
                    # Its own session: Ctrl-C in the terminal reaches us alone, and we stop children in order.
                    start_new_session=True,
                )
            except OSError as error:
                raise ClusterError(f"could not start {name} ({command[0]}): {error}") from error
        started_s = psutil.Process(handle.pid).create_time()
        record = ProcessRecord(name, self.group, handle.pid, started_s, token, str(log), *self._owner())
        self._write(record)
        self._records[name] = record
        self._handles[name] = handle
        return record

    def adopt(self) -> dict[str, ProcessRecord]:
        """Take over the group's living children from their records, as a restarted owner does."""
        for record in read_records(self._folder):
            if record.group == self.group and record.name not in self._records:
                if record.alive:
                    owner_pid, owner_started_s = self._owner()
                    mine = replace(record, owner_pid=owner_pid, owner_started_s=owner_started_s)
                    self._write(mine)
                    self._records[record.name] = mine
                else:
                    _end([record], grace_s=2.0)
                    self._forget(record)
        return dict(self._records)

    @property
    def records(self) -> dict[str, ProcessRecord]:
        """The children started and not yet stopped, by name; some may have died meanwhile."""
        return dict(self._records)

    def alive(self, name: str) -> bool:
        """Whether the child of this name runs."""
        handle = self._handles.get(name)
        if handle is not None and handle.poll() is not None:
            return False
        record = self._records.get(name)
        return record is not None and record.alive

    def exit_code(self, name: str) -> int | None:
        """The exit code of a child this process started; None while it runs or where it is not known."""
        handle = self._handles.get(name)
        return None if handle is None else handle.poll()

    def signal(self, name: str, number: int) -> None:
        """Send a signal to the child alone, not to its descendants."""
        record = self._records.get(name)
        if record is not None and self.alive(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(record.pid, number)

    def stop(self, *names: str, grace_s: float = 5.0) -> None:
        """Stop children and all their descendants: SIGTERM, then SIGKILL after the grace period."""
        records = [self._records[name] for name in names if name in self._records]
        _end(records, grace_s)
        for record in records:
            handle = self._handles.pop(record.name, None)
            if handle is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    handle.wait(1.0)
            self._records.pop(record.name, None)
            self._forget(record)

    def stop_all(self, grace_s: float = 5.0) -> None:
        """Stop every child of the group; calling it again does nothing."""
        self.stop(*self._records, grace_s=grace_s)

    def _owner(self) -> tuple[int | None, float | None]:
        if self.persistent:
            return None, None
        return os.getpid(), psutil.Process().create_time()

    def _path(self, record: ProcessRecord) -> Path:
        return self._folder / f"{record.pid}-{record.token}.json"

    def _write(self, record: ProcessRecord) -> None:
        temporary = self._path(record).with_suffix(".part")
        temporary.write_text(json.dumps(asdict(record)))
        temporary.replace(self._path(record))

    def _forget(self, record: ProcessRecord) -> None:
        self._path(record).unlink(missing_ok=True)


def read_records(folder: Path | None = None) -> list[ProcessRecord]:
    """Every record there is, of all groups and owners; unreadable ones are skipped."""
    found = []
    for path in sorted((folder or cache_folder("processes")).glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.append(ProcessRecord(**json.loads(path.read_text())))
    return found


def end_orphans(folder: Path | None = None, *, keep: Collection[str] = ()) -> list[ProcessRecord]:
    """End what crashed owners left behind and clear its records; gives back those that still ran.

    Groups in `keep` are left for an owner that is about to adopt them.
    """
    place = folder or cache_folder("processes")
    left = [r for r in read_records(place) if r.group not in keep and (r.orphaned or not r.alive)]
    # A record whose owner lives and whose process died belongs to that owner: it will clear it.
    left = [record for record in left if record.owner_pid is None or record.orphaned]
    ended = _end(left, grace_s=5.0)
    for record in left:
        (place / f"{record.pid}-{record.token}.json").unlink(missing_ok=True)
    return ended


def _bearers(tokens: Collection[str]) -> list[psutil.Process]:
    """Living processes that carry one of the tokens in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(TOKEN_VARIABLE) in tokens:
                found.append(process)
    return found


def _end(records: Iterable[ProcessRecord], grace_s: float) -> list[ProcessRecord]:
    """End recorded processes with all their descendants; gives back the records that still ran."""
    wanted = list(records)
    if not wanted:
        return []
    tokens = {record.token for record in wanted}
    leaders = {record.pid for record in wanted if record.alive}
    members = {process.pid: process for process in _bearers(tokens)}
    for record in wanted:
        # A leader between fork and exec has not got its token yet; its pid and start time are enough.
        if record.pid in leaders and record.pid not in members:
            with contextlib.suppress(psutil.Error):
                members[record.pid] = psutil.Process(record.pid)
    for process in members.values():
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, remaining = psutil.wait_procs(members.values(), timeout=grace_s)
    # Descendants born during the grace period are found by the token as well.
    for process in {p.pid: p for p in [*remaining, *_bearers(tokens)]}.values():
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(remaining, timeout=2.0)
    return [record for record in wanted if record.pid in leaders]


def exit_on_sigterm() -> None:
    """Make SIGTERM end this process like Ctrl-C does: blocks are left, children are stopped.

    For the command line and for unit drivers; call it in the main thread.
    """

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def wait_until(condition: Callable[[], bool], timeout_s: float, *, poll_s: float = 0.1) -> bool:
    """Whether a condition came true in time; polls it."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(poll_s)
    return True
