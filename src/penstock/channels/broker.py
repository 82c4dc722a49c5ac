"""A single Kafka broker for tests and demos, from Maven's jars: no Docker, nothing to install.

KRaft (no ZooKeeper), on free ports of the loopback address or of one that others reach, storage formatted by
Kafka's own tool. It lets nobody in without its password (`kafka_access`), and off the loopback address it
speaks TLS with a certificate of its own.
It stays up until told to go; a record with its pid and start time says which process it is. Started again
on the same folder it has the same records and the same address.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.channels.kafka_access import forget, make_known, password_of, server_settings, with_tls
from penstock.errors import ClusterError
from penstock.machine.files import PRIVATE, written
from penstock.machine.folders import private_folder
from penstock.machine.processes import ChildProcesses, ProcessIdentity, log_tail, wait_until
from penstock.machine.secrets import redacted

STOPPED = "stopped"
"""A file in the broker's folder that says it was told to stop."""
START_S = 60.0
"""A broker starts in about 3 s; a loaded machine takes its time."""
LOOPBACK = "127.0.0.1"
_CHILD = "broker"
_CLIENTS, _CONTROLLER = "CLIENTS", "CONTROLLER"
"""Its listeners: for clients, and for itself. Both ask for the password."""


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """What is written down about a broker."""

    process: ProcessIdentity
    port: int
    controller_port: int
    folder: str
    address: str = LOOPBACK

    @property
    def bootstrap(self) -> str:
        """Its address for clients."""
        return f"{self.address}:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return self.process.alive


class Broker:
    """The broker of one folder. `start` and `stop` may be said again without harm."""

    def __init__(
        self,
        folder: Path,
        java: Path,
        jars: Sequence[Path],
        memory_mib: int = 256,
        children: ChildProcesses | None = None,
        address: str = LOOPBACK,
        port: int = 0,
    ) -> None:
        """`java` is the program, `jars` what `kafka_jars.broker_jars` gives.

        `children` are those of the run it ends with; without them it stays until it is told to go. `address`
        is where its clients reach it, `port` the first port it tries there.
        """
        self._address, self._port = address, port
        self.folder = Path(folder)
        self._java = java
        self._class_path = os.pathsep.join(str(jar) for jar in jars)
        self._memory_mib = memory_mib
        self._children = children or ChildProcesses(f"broker {self.folder.resolve()}", persistent=True)

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
        here = (record.port, record.address)
        wait_until(lambda: listens(*here) or not self._children.alive(_CHILD), wait_s)
        if not listens(*here):
            self.stop()
            raise ClusterError(
                f"the broker did not come up on port {record.port} within {wait_s:.0f} s; its last words "
                f"({self.log}):\n{log_tail(self.log)}"
            )
        return record

    def launch(self) -> BrokerRecord:
        """Start it where it does not run, without waiting until it takes connections."""
        self._children.adopt()
        found = self.record()
        if found is not None and self._children.alive(_CHILD):
            return found
        self._children.stop(_CHILD, grace_s=0.0)
        command, port, controller_port = self._prepared()
        child = self._children.start(_CHILD, command, log=self.log)
        record = BrokerRecord(child.process, port, controller_port, str(self.folder), self._address)
        written(self.folder / "broker.json", json.dumps(asdict(record)), mode=PRIVATE)
        if self._address == LOOPBACK:
            make_known(self.folder, port)
        return record

    def _prepared(self) -> tuple[list[str], int, int]:
        """The command that starts it, its port and its controller's, with everything it needs in place."""
        found = self.record()
        private_folder(self.folder)
        (self.folder / STOPPED).unlink(missing_ok=True)
        # The same ports as before where they are free: clients that wait for the broker find it again.
        ports = (found.port, found.controller_port) if found is not None else (self._port, 0)
        port, controller_port = _free_port(ports[0], self._address), _free_port(ports[1])
        settings = self.folder / "server.properties"
        password = password_of(self.folder)
        chosen = _settings(self._address, port, controller_port, self.folder / "data", password)
        if self._address != LOOPBACK:
            chosen |= with_tls(self.folder, self._java, self._address, password, _CLIENTS)
        written(settings, "".join(f"{name}={value}\n" for name, value in chosen.items()), mode=PRIVATE)
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
        alive = found.alive
        self._children.adopt()
        self._children.stop(_CHILD, grace_s=grace_s)
        forget(self.folder, found.port)
        return alive and not found.alive

    def _format(self, settings: Path) -> None:
        # An id that began with a dash would be taken for an option.
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        done = subprocess.run(
            [str(self._java), "-XX:TieredStopAtLevel=1", "-cp", self._class_path, "kafka.tools.StorageTool",
             "format", "-t", cluster, "-c", str(settings)],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        if done.returncode != 0:
            raise ClusterError(
                f"the broker's storage at {self.folder} could not be formatted: "
                f"{redacted(done.stdout + done.stderr)}"
            )


def read_record(folder: Path) -> BrokerRecord | None:
    """What was written down about the broker of a folder; None where there is none."""
    try:
        known = json.loads((folder / "broker.json").read_text())
        return BrokerRecord(**{**known, "process": ProcessIdentity.read(known["process"])})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Whether something takes connections on a port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((host, port)) == 0


def _free_port(wanted: int = 0, address: str = LOOPBACK) -> int:
    """The wanted port where it is free, else one the system picks."""
    for candidate in (wanted, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((address, candidate))
                return int(probe.getsockname()[1])
    raise ClusterError(f"no free port on the address {address}")


def _settings(address: str, port: int, controller_port: int, data: Path, password: str) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"{_CLIENTS}://{address}:{port},{_CONTROLLER}://127.0.0.1:{controller_port}",
        "advertised.listeners": f"{_CLIENTS}://{address}:{port}",
        "controller.listener.names": _CONTROLLER,
        "inter.broker.listener.name": _CLIENTS,
        **server_settings(password, _CLIENTS, _CONTROLLER),
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.retention.check.interval.ms": "30000",
    }


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
