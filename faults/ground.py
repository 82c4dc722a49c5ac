"""The run under fault: a real local cluster in a folder of its own, under load, looked at from outside."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import psutil

from penstock.channels.batches import batches_in, data_files, last_batch
from penstock.channels.feeder import FINISHED, TICK_S
from penstock.machine.folders import cache_folder
from penstock.machine.processes import ProcessRecord, read_records
from penstock.runs.folder import RunFolder
from penstock.topology.file import dump_topology
from penstock.topology.model import (
    Channel,
    Choice,
    HostFlavour,
    LoopSettings,
    Operator,
    Sink,
    Site,
    Source,
    Topology,
    Unit,
)

HERE = Path(__file__).parent
UNITS = ("first", "second")
RATE_PER_S = 4.0
"""Of single records: each is a file of its own, and a micro-batch takes fifty, so a backlog is soon gone."""
TRIGGER_S = 0.5
"""Two batches of a unit a second: a fault is what the campaign is about, and the machine has to heal it."""
BTU_S = 30.0
PRICE = Decimal("0.01")
SILENCE_S = 10.0
"""The campaign's limit of silence; the product's own is longer, and a campaign would only wait for it."""
FRESH_S = 4.0
"""Whatever is told of less often than this is not well."""
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.driver.extraJavaOptions": FAST_START,
    "spark.executor.extraJavaOptions": FAST_START,
    # Spark's own limit of an executor's silence is 2 min: nothing of the campaign but waiting hangs on it.
    "spark.network.timeout": "15s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "3s",
}
_CHANNELS = {
    "files": Channel("between", "files"),
    "kafka": Channel("between", "kafka", {"partitions": 2, "deduplicate": "1 h"}),
}


LOOP = LoopSettings(monitoring_s=1.0, provisioning_s=2.0, silence_s=SILENCE_S)


def topology(
    channel: str,
    loop: LoopSettings = LOOP,
    rate_per_s: float = RATE_PER_S,
    trigger_s: tuple[float, float] = (TRIGGER_S, TRIGGER_S),
) -> Topology:
    """Two units with a channel between them, on hosts that are leased by the half minute.

    `trigger_s` is the least time between two batches of each unit.
    """
    return Topology(
        "faults",
        (Source("numbers", workload=Choice("constant", {"level_per_s": rate_per_s}), schema="number long"),),
        (
            Operator("work", ("numbers",), "functions:work", schema="number long, twice long"),
            Operator("kept", ("work",), "sql:SELECT number, twice FROM {work}"),
        ),
        (Sink("out", ("kept",), "jsonl:out"),),
        tuple(
            Unit(name, (operator,), policy=Choice("fixed"), max_instances=2, trigger_s=least_s)
            for name, operator, least_s in zip(UNITS, ("work", "kept"), trigger_s, strict=True)
        ),
        sites=(
            Site(
                "here",
                Choice("local"),
                btu_s=BTU_S,
                flavours=(HostFlavour("small", 2.0, 2048, PRICE),),
                max_hosts=2,
            ),
        ),
        channels=(_CHANNELS[channel],),
        loop=loop,
    )


@dataclass
class GivenHost:
    """One host by the provider's own records, as they were seen from outside."""

    given_s: float
    ending_s: float | None = None
    """When it was first seen failed, draining or gone."""
    gone_s: float | None = None


@dataclass
class Results:
    """What has come out, read on batch by batch."""

    folder: Path
    seen: dict[int, int] = field(default_factory=dict)
    """How often each record's number was seen."""
    greatest: int = -1
    last_s: float = 0.0
    _batch: int = -1

    def look(self) -> None:
        """Read the batches that are new."""
        for batch in batches_in(self.folder):
            if batch.batch_id <= self._batch:
                continue
            for file in data_files(batch.path):
                for line in file.read_text().splitlines():
                    number = int(json.loads(line)["record_id"].rpartition("-")[2])
                    self.seen[number] = self.seen.get(number, 0) + 1
                    self.greatest = max(self.greatest, number)
            self._batch = batch.batch_id
            self.last_s = time.monotonic()

    @property
    def doubled(self) -> int:
        """Records that came out more than once."""
        return sum(count > 1 for count in self.seen.values())


class Ground:
    """A run in a process of its own, as `penstock run` is, with all that the campaign has to know of it."""

    def __init__(
        self,
        folder: Path,
        channel: str,
        name: str,
        clock: tuple[Path, Path] | None = None,
        run: Topology | None = None,
        settings: Mapping[str, str] = SETTINGS,
    ) -> None:
        """`clock` is the faked clock's library and the file of its step, where there is one."""
        self.channel = channel
        self.topology = run or topology(channel)
        self.settings = dict(settings)
        self.name = name
        self.place = RunFolder(folder)
        self.folder = folder
        self.clock = clock
        self.cache = _own_cache(folder.with_name(f"{folder.name}-cache"))
        self.results = Results(folder / "results" / "out")
        self.hosts: dict[str, GivenHost] = {}
        self.watcher: subprocess.Popen[bytes] | None = None
        self._arguments = folder.with_name(f"{folder.name}-arguments.json")
        self.log = folder.with_name(f"{folder.name}-watcher.log")
        self._stop = threading.Event()
        self._status_at = (0.0, time.monotonic())
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    # --- life --------------------------------------------------------------------------------------

    def start(self, *, feed: bool = True) -> None:
        """Start the run, or take it up again."""
        self.watcher = self.second_start(feed=feed)

    def second_start(self, *, feed: bool = True) -> subprocess.Popen[bytes]:
        """One more process that runs the same folder."""
        given = {
            "topology": dump_topology(self.topology),
            "folder": str(self.folder),
            "name": self.name,
            "code": str(HERE / "job"),
            "feed": feed,
            "own_broker": self.channel == "kafka",
            "settings": self.settings,
        }
        self._arguments.write_text(json.dumps(given))
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "faults.watcher", str(self._arguments)],
                stdout=output,
                stderr=output,
                env=self.environment(),
                start_new_session=True,
            )

    def environment(self) -> dict[str, str]:
        """The environment of the run: its own records of processes, and a clock that can be stepped."""
        found = {**os.environ, "PENSTOCK_CACHE": str(self.cache)}
        if self.clock is not None:
            found |= {"LD_PRELOAD": str(self.clock[0]), "FAULTS_CLOCK": str(self.clock[1])}
        return found

    def stop(self) -> int:
        """End the run as Ctrl-C does; its exit code."""
        assert self.watcher is not None
        if self.watcher.poll() is None:
            self.watcher.send_signal(signal.SIGINT)
        return self.watcher.wait(300)

    def close(self) -> None:
        """End whatever is left, and all threads."""
        self._stop.set()
        self._thread.join()
        for process in self.left():
            with contextlib.suppress(psutil.Error):
                process.kill()
        if self.watcher is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.watcher.wait(10)

    def left(self) -> list[psutil.Process]:
        """Every process that belongs to the run, however deep: each has its cache in its environment."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get("PENSTOCK_CACHE") == str(self.cache) and process.pid != os.getpid():
                    found.append(process)
        return found

    # --- processes ---------------------------------------------------------------------------------

    def records(self) -> list[ProcessRecord]:
        """The living recorded processes of the run."""
        return [r for r in read_records(self.cache / "processes") if r.alive]

    def pid(self, role: str) -> int | None:
        """The process of a role: controller, first, second, master, a host's name, numbers, broker."""
        group = {
            "controller": "-controller", "first": "-units", "second": "-units", "numbers": "-feeders",
            "broker": "-broker",
        }.get(role, "")  # fmt: skip
        for record in self.records():
            if record.group == self.name + group and record.name == role:
                return record.pid
        return None

    def workers(self) -> dict[str, int]:
        """The workers by host."""
        return {r.name: r.pid for r in self.records() if r.group == self.name and r.name != "master"}

    def executors(self) -> list[int]:
        """Executor processes: descendants of the workers."""
        return sorted(self._below(self.workers().values(), "--executor-id"))

    def java_of(self, unit: str) -> int | None:
        """The Java process of a unit's driver."""
        pid = self.pid(unit)
        return next(iter(self._below([pid] if pid else [], "SparkSubmit")), None)

    def _below(self, pids: object, word: str) -> list[int]:
        found = []
        for pid in pids:  # type: ignore[attr-defined]
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(pid).children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        if any(word in part for part in child.cmdline()):
                            found.append(child.pid)
        return found

    def roles(self) -> dict[str, int]:
        """Every process that has to be there, by what it is."""
        named = ["controller", *UNITS, "master", "numbers", *(["broker"] if self.channel == "kafka" else [])]
        found = {role: pid for role in named if (pid := self.pid(role)) is not None}
        found |= {f"worker of {host}": pid for host, pid in self.workers().items()}
        return found

    # --- what it says of itself --------------------------------------------------------------------

    def fed(self) -> int:
        """How many records were written into the source, by the raster of its batches."""
        batch = last_batch(self.folder / "sources" / "numbers" / "first")
        return round((batch + 1) * TICK_S * RATE_PER_S)

    def fed_in_all(self) -> int | None:
        """What the feeder itself said at its end."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(json.loads((self.folder / "sources" / "numbers" / FINISHED).read_text())["records"])
        return None

    def rows(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """What the journal answers; nothing where it cannot be read now."""
        with contextlib.suppress(sqlite3.Error, OSError):
            connection = sqlite3.connect(f"file:{self.place.journal}?mode=ro", uri=True, timeout=1.0)
            try:
                return connection.execute(statement, values).fetchall()
            finally:
                connection.close()
        return []

    def news_after(self, notice: int, life: int) -> list[tuple[float, str]]:
        """Notices and lost lives behind some numbers, as (time, words); of one time as they came."""
        told = [
            (float(str(r[0])), str(r[1]))
            for r in self.rows("SELECT at_s, text FROM notice WHERE id > ? ORDER BY id", notice)
        ]
        lives = self.rows(
            "SELECT at_s, what, name, state FROM life WHERE id > ? AND state IN ('failed', 'down')", life
        )
        told += [(float(r[0]), f"{r[1]} {r[2]} is {r[3]}") for r in lives]  # type: ignore[arg-type]
        return sorted(told, key=lambda news: news[0])

    def newest(self, table: str) -> int:
        """The number of a journal table's newest row."""
        found = self.rows(f"SELECT max(id) FROM {table}")
        return int(str(found[0][0] or 0)) if found else 0

    def open_leases(self) -> set[str]:
        """Hosts that are paid for now."""
        return {str(row[0]) for row in self.rows("SELECT host FROM lease WHERE ended_s IS NULL")}

    def provider_hosts(self) -> dict[str, dict[str, object]]:
        """The provider's own file of hosts; ValueError where it is torn just now."""
        with contextlib.suppress(FileNotFoundError):
            return {h["id"]: h for h in json.loads((self.folder / "cluster" / "hosts.json").read_text())}
        return {}

    def what_is_wrong(self) -> str | None:
        """Why the run is not whole; None where it is."""
        if self.watcher is None or self.watcher.poll() is not None:
            return "the run has ended"
        status = self.place.status()
        if status is None:
            return "it has no status"
        at_s, seen_s = self._status_at
        if status.at_s != at_s:
            self._status_at = (status.at_s, time.monotonic())
        elif time.monotonic() - seen_s > FRESH_S:
            return "its status is old"
        for unit in UNITS:
            told = status.unit(unit)
            if told.state.value != "running" or told.running < 1:
                return f"unit {unit} is {told.state} with {told.running} instances"
            if told.silent_s > FRESH_S:
                return f"unit {unit} is silent for {told.silent_s:.0f} s"
        if not self._controller_has_told():
            return "its controller has not told anything yet"
        missing = {"controller", *UNITS, "master", "numbers"} - self.roles().keys()
        if self.channel == "kafka" and self.pid("broker") is None:
            missing.add("broker")
        if missing:
            return f"{', '.join(sorted(missing))} does not run"
        if time.monotonic() - self.results.last_s > FRESH_S:
            return "nothing comes out"
        try:
            leases, hosts = self.open_leases(), self.provider_hosts()
        except ValueError:
            return "the provider's file is torn"
        up = {name for name, host in hosts.items() if host["state"] == "up"}
        if leases != set(hosts) or leases != up:
            return f"leases {sorted(leases)}, hosts {sorted(hosts)}, up {sorted(up)}"
        return None

    def _controller_has_told(self) -> bool:
        """Whether the status is of the controller that runs now, and not of one before it."""
        pid = self.pid("controller")
        with contextlib.suppress(psutil.Error, OSError):
            written_s = (self.folder / "status.json").stat().st_mtime
            return pid is not None and written_s > psutil.Process(pid).create_time() + 0.1
        return False

    def _sample(self) -> None:
        """Note from the provider's records when each host was there."""
        readable_s = time.time()
        while not self._stop.wait(0.25):
            now_s = time.time()
            try:
                hosts = self.provider_hosts()
            except ValueError:
                continue
            # Of a host that went while the records were torn, nobody can say when in that time it did.
            ended_s, readable_s = (readable_s if now_s - readable_s > 1.0 else now_s), now_s
            for name, host in hosts.items():
                known = self.hosts.setdefault(name, GivenHost(float(str(host["requested_s"]))))
                if host["state"] in ("failed", "draining") and known.ending_s is None:
                    known.ending_s = now_s
            for name, known in self.hosts.items():
                if name not in hosts and known.gone_s is None:
                    known.gone_s = now_s
                    known.ending_s = known.ending_s or ended_s

    def step_clock(self, by_s: float) -> None:
        """Set the processes' clock forward or back from the true time."""
        assert self.clock is not None
        with self.clock[1].open("r+b") as file:
            file.write(struct.pack("<q", int(by_s * 1e9)))


def _own_cache(folder: Path) -> Path:
    """A cache with records of processes of its own; what is costly to make is the user's."""
    folder.mkdir(parents=True, mode=0o700)
    for entry in cache_folder().iterdir():
        if entry.is_dir() and entry.name in ("java", "archives", "jars"):
            (folder / entry.name).symlink_to(entry)
    (folder / "processes").mkdir(mode=0o700)
    return folder


def make_clock(folder: Path) -> tuple[Path, Path] | str:
    """The faked clock's library and step file; in words why there is none."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return "a faked clock needs Linux and a C compiler"
    library, step = folder / "clock_shim.so", folder / "clock.step"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(HERE / "clock_shim.c"), "-ldl"]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode != 0:
        return f"the faked clock cannot be compiled: {made.stderr[-200:]}"
    step.write_bytes(struct.pack("<q", 0))
    return library, step
