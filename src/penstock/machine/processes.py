"""Child processes with a durable record, so that none outlives its purpose.

Every child is started in a session of its own, carries a token in its environment, and is written
down with its identity before anything else happens. Its owner stops it on exit; what a crashed owner
left behind is found at the next start by that record (identity, or the token), never by name. A record
whose owner lives is left alone. Identities hold through any step of the machine's clock.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from penstock.errors import ClusterError
from penstock.machine.files import PRIVATE, written
from penstock.machine.folders import cache_folder, private_folder
from penstock.machine.secrets import redacted

TOKEN_VARIABLE = "PENSTOCK_PROCESS"
"""The environment variable a child and all its descendants carry."""
LARGEST_LOG = 8 * 2**20
"""Bytes of a process's log; a larger one is cut, and its last eighth kept beside it."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Which process it is, for ever: a pid is given anew after a while, and the clock may be set.

    The kernel counts a process's start in ticks since the machine booted, and each boot has an id; neither
    follows the clock. Where a system has no such count (macOS), the start is the kernel's own note of it.
    """

    pid: int
    start_ticks: int
    """When it started, in the system's own count since boot."""
    boot: str
    """Which boot that counts from; empty where the system does not tell."""

    @property
    def alive(self) -> bool:
        """Whether this very process still runs, and is no zombie."""
        if self.boot != boot_id():
            return False
        found = _state_and_start(self.pid)
        return found is not None and found[0] not in "ZXx" and found[1] == self.start_ticks

    @staticmethod
    def of(pid: int) -> ProcessIdentity:
        """The identity of a living process; ClusterError where there is none with that pid."""
        found = _state_and_start(pid)
        if found is None:
            raise ClusterError(f"expected a living process with the pid {pid}, found none")
        return ProcessIdentity(pid, found[1], boot_id())

    @staticmethod
    def read(values: Mapping[str, Any]) -> ProcessIdentity:
        """The identity that was written down with `dataclasses.asdict`."""
        return ProcessIdentity(int(values["pid"]), int(values["start_ticks"]), str(values["boot"]))


@cache
def boot_id() -> str:
    """A name for the time since the machine last booted; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _state_and_start(pid: int) -> tuple[str, int] | None:
    """A process's state letter and its start ticks; None where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return None
    else:
        # The program's name is in brackets and may hold spaces and brackets: the fields follow the last.
        fields = text[text.rindex(")") + 2 :].split()
        return fields[0], int(fields[19])
    try:
        process = psutil.Process(pid)
        zombie = process.status() == psutil.STATUS_ZOMBIE
        return ("Z" if zombie else "S"), round(process.create_time() * 1000)
    except psutil.Error:
        return None


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """What is written down about a child."""

    name: str
    group: str
    """What it belongs to, for example one local cluster or one run."""
    process: ProcessIdentity
    token: str
    log: str | None = None
    owner: ProcessIdentity | None = None
    """The process that must stop it; None means that it stays until it is told to go."""
    keeper: ProcessIdentity | None = None
    """Who starts the owner again where it dies: as long as that one lives, the child is waited for."""

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return self.process.alive

    @property
    def orphaned(self) -> bool:
        """Whether its owner is gone, and nobody is there who starts it again."""
        if self.owner is None or self.owner.alive:
            return False
        return self.keeper is None or not self.keeper.alive

    @staticmethod
    def read(values: Mapping[str, Any]) -> ProcessRecord:
        """The record that was written down with `dataclasses.asdict`."""
        owner, keeper = values.get("owner"), values.get("keeper")
        return ProcessRecord(
            name=values["name"],
            group=values["group"],
            process=ProcessIdentity.read(values["process"]),
            token=values["token"],
            log=values.get("log"),
            owner=None if owner is None else ProcessIdentity.read(owner),
            keeper=None if keeper is None else ProcessIdentity.read(keeper),
        )


_KEEPER: list[ProcessIdentity] = []


def kept_by(pid: int) -> None:
    """Say who starts this process again where it dies; what it starts from now on is left for that."""
    _KEEPER[:] = [ProcessIdentity.of(pid)]


def log_tail(log: Path | str | None, lines: int = 15) -> str:
    """The last telling lines of a log file, for an error message; empty where there is none.

    Frames of Java's stack traces are left out: the cause stands above them and would be cut off.
    """
    if log is None or not Path(log).exists():
        return ""
    text = redacted(_end_of(Path(log), 2**18).decode(errors="replace")).splitlines()
    telling = [line for line in text if not line.startswith(("\tat ", "\t... "))]
    return "\n".join(f"    {line}" for line in telling[-lines:])


def bound_logs(folder: Path | None = None, most: int = LARGEST_LOG) -> int:
    """Cut the logs of all recorded processes of this user to a bounded size; how many were cut.

    What a process wrote last is kept beside its log, in a file that ends in `.1`. Processes append to their
    logs, so they go on in the emptied file; a line that is written just then may be lost.
    """
    logs = {record.log for record in read_records(folder) if record.log is not None}
    return sum(bound_log(Path(log), most) for log in logs)


def bound_log(log: Path, most: int = LARGEST_LOG) -> bool:
    """Empty a log that is larger than this, its last part kept beside it; whether it was."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > most:
            written(log.with_name(f"{log.name}.1"), _end_of(log, most // 8), mode=PRIVATE)
            os.truncate(log, 0)
            return True
    return False


def _end_of(log: Path, most: int) -> bytes:
    """The last bytes of a file."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most))
        return file.read(most)


class ChildProcesses:
    """The children of one group; stopped when this process exits, unless `persistent`.

    `group` names them in the records, so that a restarted owner can `adopt` them. Thread-safe as far
    as names do not clash: two threads must not start or stop the same name at once.
    """

    def __init__(self, group: str, *, persistent: bool = False, folder: Path | None = None) -> None:
        self.group = group
        self.persistent = persistent
        self._folder = private_folder(folder) if folder is not None else cache_folder("processes")
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
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            bound_log(log)
            with open(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE), "ab") as output:
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
        # Not waited for yet, so the pid is its own even where it has ended already.
        process = ProcessIdentity.of(handle.pid)
        record = ProcessRecord(name, self.group, process, token, str(log), self._owner(), self._keeper())
        try:
            self._write(record)
        except OSError as error:
            # A full disk: what is not written down would not be found again, so it must not run.
            handle.kill()
            handle.wait()
            raise ClusterError(f"could not start {name}: its record cannot be written: {error}") from error
        self._records[name] = record
        self._handles[name] = handle
        return record

    def adopt(self) -> dict[str, ProcessRecord]:
        """Take over the group's living children from their records, as a restarted owner does."""
        for record in read_records(self._folder):
            if record.group == self.group and record.name not in self._records:
                if record.alive:
                    mine = replace(record, owner=self._owner(), keeper=self._keeper())
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

    def rename(self, name: str, new: str) -> None:
        """Know a child by another name, under which none may run."""
        renamed = replace(self._records.pop(name), name=new)
        self._write(renamed)
        self._records[new] = renamed
        if name in self._handles:
            self._handles[new] = self._handles.pop(name)

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

    def _owner(self) -> ProcessIdentity | None:
        return None if self.persistent else ProcessIdentity.of(os.getpid())

    def _keeper(self) -> ProcessIdentity | None:
        return None if self.persistent or not _KEEPER else _KEEPER[0]

    def _path(self, record: ProcessRecord) -> Path:
        return self._folder / f"{record.pid}-{record.token}.json"

    def _write(self, record: ProcessRecord) -> None:
        written(self._path(record), json.dumps(asdict(record)), mode=PRIVATE)

    def _forget(self, record: ProcessRecord) -> None:
        self._path(record).unlink(missing_ok=True)


def read_records(folder: Path | None = None) -> list[ProcessRecord]:
    """Every record there is, of all groups and owners; unreadable ones are skipped."""
    found = []
    for path in sorted((folder or cache_folder("processes")).glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            found.append(ProcessRecord.read(json.loads(path.read_text())))
    return found


def end_orphans(folder: Path | None = None, *, keep: Collection[str] = ()) -> list[ProcessRecord]:
    """End what crashed owners left behind and clear its records; gives back those that still ran.

    Groups in `keep` are left for an owner that is about to adopt them.
    """
    place = folder or cache_folder("processes")
    left = [r for r in read_records(place) if r.group not in keep and (r.orphaned or not r.alive)]
    # A record whose owner lives and whose process died belongs to that owner: it will clear it.
    left = [record for record in left if record.owner is None or record.orphaned]
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
        # A leader between fork and exec has not got its token yet; its identity is enough.
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


def interrupt_on_signals() -> None:
    """Make SIGINT and SIGTERM end this process as Ctrl-C does, whatever it was started with.

    A shell starts what runs in its background with SIGINT ignored. Elsewhere than in the main thread nothing
    can be set, and nothing is.
    """

    def leave(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, leave)


def wait_until(condition: Callable[[], bool], timeout_s: float, *, poll_s: float = 0.1) -> bool:
    """Whether a condition came true in time; polls it."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(poll_s)
    return True
