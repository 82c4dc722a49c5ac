"""The faults: each is done to a running ground, and says what it did, how long it holds, how it is undone."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from faults.ground import SILENCE_S, UNITS, Ground
from faults.proxy import between
from faults.telling import EVERYTHING, host, unit
from penstock.machine.processes import wait_until
from penstock.spark.checkpoints import Checkpoint
from penstock.spark.unit.heartbeat import HEARTBEAT_S, TIMEOUT_S


@dataclass
class Injected:
    """A fault that was done."""

    text: str
    about: tuple[str, ...]
    """Whom it was done to, as `faults.telling` knows them."""
    hold_s: float = 0.0
    """How long it lasts by itself."""
    undo: Callable[[], None] | None = None
    """What ends it."""
    until: Callable[[], bool] | None = None
    """It lasts until this is so and the run is whole (or `hold_s` is over)."""
    refused: subprocess.Popen[bytes] | None = None
    """A process that must end by itself with an error."""


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    name: str
    do: Callable[[Ground, random.Random], Injected]
    channels: tuple[str, ...] = ("files", "kafka")
    needs: str = ""
    """What the machine must allow: `mount`, `clock`, `cut`, `delay`."""


class NotNowError(Exception):
    """What the fault is about does not exist at present."""


SHORT_S = 3.0
"""Below every limit of silence."""
LONG_S = 45.0
"""Above every limit of silence of the campaign; a frozen process that was replaced is woken before."""
ROLES = ("executor", "worker", "driver", "driver's Java", "master", "controller", "feeder", "broker")


def _pid(ground: Ground, role: str, rng: random.Random) -> tuple[str, int, str]:
    """The process of a role in words, its id, and whom a notice of it is about."""
    name = rng.choice(UNITS)
    place, worker = next(iter(sorted(ground.workers().items())), ("", None))
    found: dict[str, tuple[str, Callable[[], int | None], str]] = {
        "executor": ("an executor", lambda: next(iter(rng.sample(ground.executors(), 1)), None), "executor"),
        "worker": (f"the worker of {place}", lambda: worker, host(place)),
        "driver": (f"the driver of {name}", lambda: ground.pid(name), unit(name)),
        "driver's Java": (f"the Java of {name}'s driver", lambda: ground.java_of(name), unit(name)),
        "master": ("the master", lambda: ground.pid("master"), "master"),
        "controller": ("the controller", lambda: ground.pid("controller"), "controller"),
        "feeder": ("the feeder", lambda: ground.pid("numbers"), "feeder"),
        "broker": ("the broker", lambda: ground.pid("broker"), "broker"),
    }
    text, of, about = found[role]
    with contextlib.suppress(ValueError):
        pid = of()
        if pid is not None:
            return text, pid, about
    raise NotNowError(text)


def _kill(role: str) -> Callable[[Ground, random.Random], Injected]:
    def do(ground: Ground, rng: random.Random) -> Injected:
        text, pid, about = _pid(ground, role, rng)
        os.kill(pid, signal.SIGKILL)
        return Injected(f"kill -9 of {text}", (about,))

    return do


def _freeze(role: str, *, long: bool) -> Callable[[Ground, random.Random], Injected]:
    def do(ground: Ground, rng: random.Random) -> Injected:
        text, pid, about = _pid(ground, role, rng)
        return _frozen([psutil.Process(pid)], text, (about,), long=long)

    return do


def _frozen(
    processes: Iterable[psutil.Process], text: str, about: tuple[str, ...], *, long: bool
) -> Injected:
    stopped = list(processes)
    for process in stopped:
        with contextlib.suppress(psutil.Error):
            process.suspend()

    def wake() -> None:
        for process in stopped:
            # psutil knows a pid that was given anew and leaves it alone.
            with contextlib.suppress(psutil.Error):
                process.resume()

    how = "until it was replaced" if long else f"for {SHORT_S:g} s"
    replaced = (lambda: not any(_alive(process) for process in stopped)) if long else None
    return Injected(f"SIGSTOP of {text} {how}", about, LONG_S if long else SHORT_S, wake, replaced)


def _alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _freeze_all(ground: Ground, rng: random.Random) -> Injected:
    return _frozen(ground.left(), "everything, as of a suspended machine,", EVERYTHING, long=False)


def _kill_run(ground: Ground, rng: random.Random) -> Injected:
    assert ground.watcher is not None
    ground.watcher.kill()
    ground.watcher.wait()
    ground.start()
    return Injected("kill -9 of the run's first process, and the run started again", EVERYTHING)


def _second_start(ground: Ground, rng: random.Random) -> Injected:
    second = ground.second_start()
    return Injected("a second start on the same folder", (), refused=second)


def _locked_journal(ground: Ground, rng: random.Random) -> Injected:
    hold_s = rng.uniform(4.0, 10.0)
    connection = sqlite3.connect(ground.place.journal, timeout=20.0, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")

    def unlock() -> None:
        connection.execute("ROLLBACK")
        connection.close()

    return Injected(f"the journal locked for {hold_s:.0f} s", ("journal",), hold_s, unlock)


def _locked_journal_and_a_kill(ground: Ground, rng: random.Random) -> Injected:
    text, pid, about = _pid(ground, rng.choice(("worker", "driver")), rng)
    injected = _locked_journal(ground, rng)
    os.kill(pid, signal.SIGKILL)
    injected.text += f", and kill -9 of {text} meanwhile"
    injected.about += (about,)
    return injected


def _fill(file: Path) -> None:
    """Write until the disk is full."""
    with file.open("wb", buffering=0) as ballast:
        for size in (1 << 20, 65_536, 512, 1):
            with contextlib.suppress(OSError):
                while ballast.write(b"x" * size):
                    pass


def _full_disk(where: str) -> Callable[[Ground, random.Random], Injected]:
    def do(ground: Ground, rng: random.Random) -> Injected:
        place = ground.folder if where == "run" else ground.folder / "units" / "first" / "checkpoint"
        hold_s = rng.uniform(4.0, 10.0)
        _fill(place / ".ballast")
        text = "run's folder" if where == "run" else "checkpoint of first"
        told = f"no room on the disk of the {text} for {hold_s:.0f} s"
        return Injected(told, ("disk",), hold_s, (place / ".ballast").unlink)

    return do


def _clock_step(ground: Ground, rng: random.Random) -> Injected:
    by_s = rng.choice((-3600.0, -60.0, -2.0, 2.0, 60.0, 3600.0, 86_400.0))
    hold_s = 8.0
    ground.step_clock(by_s)
    told = f"the clock set by {by_s:+.0f} s for {hold_s:g} s"
    return Injected(told, ("clock",), hold_s, lambda: ground.step_clock(0.0))


def _clock_step_and_a_kill(ground: Ground, rng: random.Random) -> Injected:
    text, pid, about = _pid(ground, rng.choice(("controller", "feeder", "driver")), rng)
    injected = _clock_step(ground, rng)
    os.kill(pid, signal.SIGKILL)
    injected.text += f", and kill -9 of {text} meanwhile"
    injected.about += (about,)
    injected.hold_s = 20.0
    return injected


def _cut(ground: Ground, rng: random.Random) -> Injected:
    hold_s = rng.uniform(2.0, 8.0)
    subprocess.run(["ip", "link", "set", "lo", "down"], check=True)

    def mend() -> None:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

    return Injected(f"every connection cut for {hold_s:.0f} s", EVERYTHING, hold_s, mend)


NARROW = [
    "tc",
    "qdisc",
    "add",
    "dev",
    "lo",
    "root",
    "tbf",
    "rate",
    "256kbit",
    "burst",
    "70kb",
    "latency",
    "2s",
]
"""What makes every connection late: 70 kB pass at once, then 32 kB a second, after a wait of up to 2 s."""
WIDE = ["tc", "qdisc", "del", "dev", "lo", "root"]


def _delayed(ground: Ground, rng: random.Random) -> Injected:
    hold_s = rng.uniform(4.0, 10.0)
    subprocess.run(NARROW, check=True)

    def widen() -> None:
        subprocess.run(WIDE, check=True)

    return Injected(f"every connection delayed for {hold_s:.0f} s", EVERYTHING, hold_s, widen)


def _heartbeats(how: str, hold_s: float) -> Callable[[Ground, random.Random], Injected]:
    def do(ground: Ground, rng: random.Random) -> Injected:
        pid = ground.pid("controller")
        if pid is None:
            raise NotNowError("the controller")
        came: list[None] = []
        undo = between(ground.folder, how, rng, lambda: came.append(None))
        # Drivers ask for the address anew once the controller did not answer: no beat of theirs may pass.
        controller = psutil.Process(pid)
        controller.suspend()
        wait_until(lambda: len(came) >= len(UNITS), TIMEOUT_S + 2 * HEARTBEAT_S, poll_s=0.05)
        controller.resume()
        if not came:
            undo()
            raise NotNowError("heartbeat that could be kept back")
        return Injected(f"heartbeats {how} for {hold_s:g} s", ("heartbeats",), hold_s, undo)

    return do


def newest(folder: Path) -> Path:
    """The newest entry of a log of Spark's."""
    files = [f for f in folder.iterdir() if f.name.removesuffix(".compact").isdigit()]
    if not files:
        raise NotNowError(str(folder))
    return max(files, key=lambda f: int(f.name.removesuffix(".compact")))


def _torn_checkpoint(part: str) -> Callable[[Ground, random.Random], Injected]:
    def do(ground: Ground, rng: random.Random) -> Injected:
        name = rng.choice(UNITS)
        folder = ground.folder / "units" / name / "checkpoint" / part
        if not folder.is_dir():
            raise NotNowError(str(folder))
        text, pid = f"the driver of {name}", ground.pid(name)
        java = ground.java_of(name)
        for each in (pid, java):
            if each is None:
                raise NotNowError(text)
        checkpoint = Checkpoint(folder.parent if part != "sources/0" else folder.parents[1])
        # As a power cut would: in the midst of a batch, before its results.
        if part != "commits" and not wait_until(
            lambda: checkpoint.unfinished() is not None, 10, poll_s=0.005
        ):
            raise NotNowError("an unfinished batch")
        os.kill(int(java or 0), signal.SIGKILL)
        os.kill(int(pid or 0), signal.SIGKILL)
        with contextlib.suppress(psutil.Error):
            psutil.Process(int(java or 0)).wait(5)
        if part != "commits" and checkpoint.unfinished() is None:
            return Injected(f"kill -9 of {text} (its batch had ended: nothing is torn)", (unit(name),))
        file = newest(folder)
        size = file.stat().st_size
        os.truncate(file, rng.choice((0, size // 2, max(0, size - 1))))
        told = f"kill -9 of {text}, and {part}/{file.name} torn at {file.stat().st_size} of {size} bytes"
        return Injected(told, (unit(name),))

    return do


def _torn_batch(ground: Ground, rng: random.Random) -> Injected:
    from penstock.channels.batches import last_batch

    text, pid, about = _pid(ground, "feeder", rng)
    os.kill(pid, signal.SIGKILL)
    folder = ground.folder / "sources" / "numbers"
    number = last_batch(folder / "first") + 1
    for half in (folder / f"_writing-{number:09d}", folder / "first" / f"_staged-{number:09d}"):
        half.mkdir(exist_ok=True)
        (half / "records.json").write_text('{"record_id": "numbers-0000')
    return Injected(f"kill -9 of {text}, and batch {number} half written", (about,))


def _torn_file(name: str) -> Callable[[Ground, random.Random], Injected]:
    def do(ground: Ground, rng: random.Random) -> Injected:
        text, pid, about = _pid(ground, "controller", rng)
        os.kill(pid, signal.SIGKILL)
        file = ground.folder / name
        size = file.stat().st_size
        os.truncate(file, size // 2)
        return Injected(f"kill -9 of {text}, and {name} torn at {size // 2} of {size} bytes", (about,))

    return do


def _where(role: str) -> tuple[str, ...]:
    return ("kafka",) if role == "broker" else ("files", "kafka")


KINDS = (
    *(Kind(f"kill {role}", _kill(role), _where(role)) for role in ROLES),
    *(
        Kind(f"freeze {role} {how}", _freeze(role, long=how == "long"), _where(role))
        for role in ROLES
        for how in ("short", "long")
    ),
    Kind("freeze everything", _freeze_all),
    Kind("kill run", _kill_run),
    Kind("second start", _second_start),
    Kind("journal locked", _locked_journal),
    Kind("journal locked and a kill", _locked_journal_and_a_kill),
    Kind("disk full, run", _full_disk("run"), needs="mount"),
    Kind("disk full, checkpoint", _full_disk("checkpoint"), needs="mount"),
    Kind("clock step", _clock_step, needs="clock"),
    Kind("clock step and a kill", _clock_step_and_a_kill, needs="clock"),
    Kind("connections cut", _cut, needs="cut"),
    Kind("connections delayed", _delayed, needs="delay"),
    Kind("heartbeats lost", _heartbeats("lost", 10.0)),
    Kind("heartbeats doubled", _heartbeats("doubled", 10.0)),
    Kind("heartbeats delayed", _heartbeats("delayed", 10.0)),
    Kind("heartbeats cut", _heartbeats("cut", SILENCE_S + 8.0)),
    Kind("torn offsets", _torn_checkpoint("offsets")),
    Kind("torn commits", _torn_checkpoint("commits")),
    Kind("torn source log", _torn_checkpoint("sources/0")),
    Kind("torn batch", _torn_batch),
    Kind("torn status", _torn_file("status.json")),
    Kind("torn feed", _torn_file("feed.json")),
    Kind("torn hosts", _torn_file("cluster/hosts.json")),
    Kind("torn address", _torn_file("controller.json")),
)  # fmt: skip
"""Every kind of fault, in the order they are named in."""
