"""A single Kafka broker for tests and demos, from Maven's jars: no Docker, nothing to install.

KRaft (no ZooKeeper), bound to the loopback address on free ports, storage formatted by Kafka's own tool.
It stays up until told to go; a record with its pid and start time says which process it is. Started again
on the same folder it has the same records and the same address.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from penstock.errors import ClusterError

STOPPED = "stopped"
"""A file in the broker's folder that says it was told to stop."""
START_S = 60.0
"""A broker starts in about 3 s; a loaded machine takes its time."""


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """What is written down about a broker."""

    pid: int
    started_s: float
    port: int
    controller_port: int
    folder: str

    @property
    def bootstrap(self) -> str:
        """Its address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        try:
            process = psutil.Process(self.pid)
            return (
                abs(process.create_time() - self.started_s) < 0.05
                and process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.NoSuchProcess:
            return False


class Broker:
    """The broker of one folder. `start` and `stop` may be said again without harm."""

    def __init__(self, folder: Path, java: Path, jars: Sequence[Path], memory_mib: int = 256) -> None:
        """`java` is the program, `jars` what `maven.broker_jars` gives."""
        self.folder = Path(folder)
        self._java = java
        self._class_path = os.pathsep.join(str(jar) for jar in jars)
        self._memory_mib = memory_mib
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """Where the broker writes what it does."""
        return self.folder / "broker.log"

    def record(self) -> BrokerRecord | None:
        """What was written down about the broker last started here; None where there is none."""
        return read_record(self.folder)

    @property
    def told_to_stop(self) -> bool:
        """Whether it does not run because somebody stopped it; one that died by itself was not told to."""
        return (self.folder / STOPPED).exists()

    def start(self, wait_s: float = START_S) -> BrokerRecord:
        """Start it where it does not run, and wait until it takes connections."""
        record = self.launch()
        deadline_s = time.monotonic() + wait_s
        while not listens(record.port):
            gone = self._child is not None and self._child.poll() is not None
            if gone or time.monotonic() > deadline_s:
                self.stop()
                raise ClusterError(
                    f"the broker did not come up on port {record.port} within {wait_s:.0f} s; its last words "
                    f"({self.log}):\n{_last_lines(self.log)}"
                )
            time.sleep(0.1)
        return record

    def launch(self) -> BrokerRecord:
        """Start it where it does not run, without waiting until it takes connections."""
        found = self.record()
        if found is not None and found.alive:
            return found
        command, port, controller_port = self.prepared()
        with self.log.open("ab") as output:
            self._child = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self.note(self._child.pid, port, controller_port)

    def note(self, pid: int, port: int, controller_port: int) -> BrokerRecord:
        """Write down which process is the broker."""
        record = BrokerRecord(pid, psutil.Process(pid).create_time(), port, controller_port, str(self.folder))
        temporary = self.folder / "broker.json.part"
        temporary.write_text(json.dumps(asdict(record)))
        temporary.replace(self.folder / "broker.json")
        return record

    def prepared(self) -> tuple[list[str], int, int]:
        """The command that starts it, its port and its controller's, with everything it needs in place."""
        found = self.record()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / STOPPED).unlink(missing_ok=True)
        # The same ports as before where they are free: clients that wait for the broker find it again.
        ports = (found.port, found.controller_port) if found is not None else (0, 0)
        port, controller_port = (_free_port(wanted) for wanted in ports)
        settings = self.folder / "server.properties"
        settings.write_text(_settings(port, controller_port, self.folder / "data"))
        logging = self.folder / "log4j2.yaml"
        logging.write_text(_LOGGING)
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(settings)
        command = [
            str(self._java), f"-Xmx{self._memory_mib}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={logging}", "-cp", self._class_path, "kafka.Kafka", str(settings),
        ]  # fmt: skip
        return command, port, controller_port

    def stop(self, grace_s: float = 15.0) -> bool:
        """Stop it; whether there was one to stop."""
        found = self.record()
        if found is None:
            return False
        (self.folder / STOPPED).touch()
        if not found.alive:
            return False
        process = psutil.Process(found.pid)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(grace_s)
        except psutil.TimeoutExpired:
            process.kill()
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(5)
        if self._child is not None:
            self._child.wait(5)
        return True

    def _format(self, settings: Path) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = subprocess.run(
            [str(self._java), "-XX:TieredStopAtLevel=1", "-cp", self._class_path, "kafka.tools.StorageTool",
             "format", "-t", cluster, "-c", str(settings)],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        if done.returncode != 0:
            raise ClusterError(
                f"the broker's storage at {self.folder} could not be formatted: {done.stdout}{done.stderr}"
            )


def read_record(folder: Path) -> BrokerRecord | None:
    """What was written down about the broker of a folder; None where there is none."""
    try:
        return BrokerRecord(**json.loads((folder / "broker.json").read_text()))
    except (FileNotFoundError, json.JSONDecodeError, TypeError):
        return None


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Whether something takes connections on a port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((host, port)) == 0


def _free_port(wanted: int = 0) -> int:
    """The wanted port where it is free, else one the system picks."""
    for candidate in (wanted, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", candidate))
                return int(probe.getsockname()[1])
    raise ClusterError("no free port on the loopback address")


def _last_lines(file: Path, count: int = 12) -> str:
    try:
        return "\n".join(file.read_text(errors="replace").splitlines()[-count:])
    except FileNotFoundError:
        return "(nothing)"


def _settings(port: int, controller_port: int, data: Path) -> str:
    return f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.check.interval.ms=30000
"""


_LOGGING = """Configuration:
  status: error
  Appenders:
    Console:
      name: out
      PatternLayout:
        pattern: "%d %p %c{1} %m%n"
  Loggers:
    Root:
      level: warn
      AppenderRef:
        ref: out
"""
