"""Spark's own cluster manager on this machine: the standalone master.

It keeps what it knows of hosts and applications in a folder of its own. A master that died or hangs is
started again on the same port and reads that folder: executors run on meanwhile, and hosts and applications
are told of the new one.
"""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import ClusterError
from penstock.machine.asking import DIRECT, NO_ANSWER
from penstock.machine.files import PRIVATE, written
from penstock.machine.java import Java
from penstock.machine.processes import ChildProcesses, log_tail, wait_until
from penstock.providers.joining import Join, Joined, Membership
from penstock.spark.access import Access, forget, properties
from penstock.spark.launching import spark_archive, spark_class, spark_java
from penstock.spark.managers.manager import ExecutorPlace

MASTER = "master"
"""The name of its process."""
MASTER_FILE = "master.json"
"""Where its ports are written, in its folder, from its start to its end."""
SETTINGS_FILE = "daemon.properties"
"""Settings of the master or of a worker that are nobody else's business: a file for its owner alone."""
MASTER_CLASS = "org.apache.spark.deploy.master.Master"
WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
MASTER_ADDRESS = "127.0.0.1"
START_TIMEOUT_S = 60.0
"""A daemon takes 2 to 5 s; on a busy machine several times that."""
ANSWER_S = 2.0
"""How long a loop's question may take; an answer takes milliseconds."""
HUNG_AFTER_S = 15.0
"""A master that runs and does not answer for so long hangs; collecting its little heap takes far less."""

DAEMON_SETTINGS = (
    # A port that is taken is an error, not a reason to listen silently on the next one.
    "-Dspark.port.maxRetries=0",
    # SIGPWR on a worker tells the applications to leave it.
    "-Dspark.decommission.enabled=true",
    # Executors lost on purpose or by faults must never end an application that runs for weeks.
    "-Dspark.deploy.maxExecutorRetries=-1",
    # A worker that died is noticed by its closed connection; this is for one that hangs.
    "-Dspark.worker.timeout=20",
    # Folders of ended applications are removed after ten minutes: disk stays bounded.
    "-Dspark.worker.cleanup.enabled=true",
    "-Dspark.worker.cleanup.interval=120",
    "-Dspark.worker.cleanup.appDataTtl=600",
    # A worker keeps what its executors write: four files of 512 KiB instead of one for weeks. The worker
    # goes by its own settings; an application's are not looked at.
    "-Dspark.executor.logs.rolling.strategy=size",
    f"-Dspark.executor.logs.rolling.maxSize={512 * 1024}",
    "-Dspark.executor.logs.rolling.maxRetainedFiles=3",
    # A master that is started again knows its applications and workers. Without it a worker comes back by
    # itself, but an application waits for ever: it is the master that has to speak first.
    "-Dspark.deploy.recoveryMode=FILESYSTEM",
    # Nothing new is started until all that was known has answered, or for so long where something is gone.
    "-Dspark.deploy.recoveryTimeout=10",
)

LOGGING = """\
# Warnings and errors only: at the usual level a master writes a kilobyte a second, for as long as it lives.
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""

_MEMBERSHIP = {
    "ALIVE": Membership.TAKES,
    "DECOMMISSIONED": Membership.LEAVES,
    "UNKNOWN": Membership.UNKNOWN,
    "DEAD": Membership.LOST,
}
_BEST_FIRST = tuple(_MEMBERSHIP.values())


@dataclass(frozen=True, slots=True)
class Application:
    """An application as the master sees it."""

    id: str
    name: str
    state: str
    cores: int


class Standalone:
    """A standalone master. Implements `HostManager`; methods may be called from several threads."""

    def __init__(
        self,
        folder: Path,
        children: ChildProcesses,
        *,
        port: int | None = None,
        web_port: int | None = None,
        java: Java | None = None,
        hung_after_s: float = HUNG_AFTER_S,
        address: str = MASTER_ADDRESS,
    ) -> None:
        """`folder` keeps its log and its memory; its process is started in `children`.

        Ports are chosen where not given. `address` is where it and drivers beside it are reached.
        """
        self.address = address
        self.folder = folder
        self.port = port
        self.web_port = web_port
        self._children = children
        self._java = java
        self._hung_after_s = hung_after_s
        self._lock = threading.RLock()
        self._access = Access.new()
        self._silent_since_s: float | None = None
        """When it first did not answer since it last did, by a clock that is never set."""

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a master that knows nothing yet; blocks until it answers."""
        with self._lock:
            self.require_free_ports()
            shutil.rmtree(self._memory, ignore_errors=True)
            self._memory.mkdir(parents=True)
            written(self._logging, LOGGING)
            port, web_port = self.port, self.web_port
            for attempt in (1, 2, 3):
                self.port = port or _free_port(self.address)
                self.web_port = web_port or _free_port(self.address)
                self._access.keep(self.folder, self.port, self._session_settings())
                if self._launch():
                    written(self._file, json.dumps({"port": self.port, "web_port": self.web_port}))
                    return
                # Somebody took the free port between our look and Spark's: look again.
                if attempt == 3 or "BindException" not in self.log.read_text(errors="replace"):
                    raise self._did_not_start()

    def adopt(self) -> None:
        """Go on with the master an earlier owner started, dead or alive.

        `children` must have adopted its process.
        """
        known = json.loads(self._file.read_text())
        self.port, self.web_port = known["port"], known["web_port"]
        self._access = Access.read(self.folder) or self._access

    def forget(self) -> None:
        """Clear away what it knew, once it is stopped for good."""
        self._file.unlink(missing_ok=True)
        forget(self.folder, self.port)
        shutil.rmtree(self._memory, ignore_errors=True)

    def alive(self) -> bool:
        """Whether its process runs and it answers, or has not for a short while only."""
        if not self._children.alive(MASTER):
            return False
        if self.answers():
            return True
        since_s = self._silent_since_s
        return since_s is None or time.monotonic() - since_s < self._hung_after_s

    def answers(self) -> bool:
        """Whether it answers now."""
        try:
            return "workers" in self.state(ANSWER_S)
        except ClusterError:
            return False

    def revive(self) -> bool:
        """Start it again on its port where it died or hangs; whether that was needed."""
        with self._lock:
            if self.alive():
                return False
            self._children.stop(MASTER, grace_s=0.0)
            self._silent_since_s = None
            if not self._launch():
                raise self._did_not_start()
            return True

    def require_free_ports(self) -> None:
        """ClusterError where a chosen port is taken; starts nothing."""
        for name, number in (("port", self.port), ("web_port", self.web_port)):
            if number is not None and not _is_free(self.address, number):
                raise ClusterError(
                    f"{name} {number} on {self.address} is taken by another process (perhaps another "
                    f"Spark master); choose another one, or none to have a free one chosen"
                )

    # --- what there is ----------------------------------------------------------------------------

    @property
    def master_url(self) -> str:
        """The URL applications connect to."""
        return f"spark://{self.address}:{self.port}"

    @property
    def web(self) -> str:
        """Its page."""
        return f"http://{self.address}:{self.web_port}"

    @property
    def log(self) -> Path:
        """What it writes: warnings and errors."""
        return self.folder / "logs" / f"{MASTER}.log"

    def state(self, timeout_s: float = 5.0) -> dict[str, Any]:
        """Its own account, as it says it; ClusterError where it does not answer."""
        try:
            found = _read_json(f"{self.web}/json/", timeout_s, self._access)
        except ClusterError:
            if self._silent_since_s is None:
                self._silent_since_s = time.monotonic()
            raise
        self._silent_since_s = None
        return found

    def applications(self) -> tuple[Application, ...]:
        """Applications that run now."""
        return tuple(
            Application(app["id"], app["name"], app["state"], int(app.get("cores") or 0))
            for app in self.state()["activeapps"]
        )

    def places(self) -> tuple[ExecutorPlace, ...]:
        """Every executor with the address of its host, from the workers' own accounts."""
        found = []
        for address, worker in (self.joined() or {}).items():
            if worker.web is None or worker.membership is Membership.LOST:
                continue
            try:
                executors = _read_json(f"{worker.web}/json/", ANSWER_S, self._access)["executors"]
            except ClusterError:
                continue  # it left between the two questions
            found += [ExecutorPlace(one["appid"], str(one["id"]), address) for one in executors]
        return tuple(found)

    def joined(self) -> Mapping[str, Joined] | None:
        """Every worker the master knows, by address; None where it does not answer."""
        try:
            workers = self.state(ANSWER_S)["workers"]
        except ClusterError:
            return None
        found: dict[str, Joined] = {}
        for worker in workers:
            seen = Joined(
                _MEMBERSHIP.get(worker["state"], Membership.UNKNOWN),
                worker["coresused"],
                worker["memoryused"],
                worker["webuiaddress"],
            )
            known = found.get(worker["host"])
            # Dead workers stay listed for a while beside a new one at their address.
            if known is None or _BEST_FIRST.index(seen.membership) < _BEST_FIRST.index(known.membership):
                found[worker["host"]] = seen
        return found

    # --- for those that work with it --------------------------------------------------------------

    def settings(self) -> Mapping[str, str]:
        """Settings of a session: let in, all at its own address, and executors' logs of bounded size."""
        return {**self._session_settings(), **self._access.session_settings()}

    def environment(self) -> Mapping[str, str]:
        """Nothing besides what every driver gets."""
        return {}

    def join(self, host: str, address: str, cores: int, memory_mib: int, folder: Path) -> Join:
        """A worker for a host: it joins the master and starts executors there."""
        command, environment = self._daemon(
            WORKER_CLASS, "--host", address, "--port", "0", "--webui-port", "0", "--cores", str(cores),
            "--memory", f"{memory_mib}m", "--work-dir", str(folder),
            "--properties-file", str(folder / SETTINGS_FILE), self.master_url,
        )  # fmt: skip
        # Executors inherit the address, so that everything of a host is at the host's address.
        return Join(
            tuple(command),
            {**environment, "SPARK_LOCAL_IP": address},
            {folder / SETTINGS_FILE: properties(self._access.daemon_settings())},
        )

    # --- inside -----------------------------------------------------------------------------------

    def _session_settings(self) -> dict[str, str]:
        return {"spark.driver.host": self.address, "spark.driver.bindAddress": self.address}

    @property
    def _file(self) -> Path:
        return self.folder / MASTER_FILE

    @property
    def _memory(self) -> Path:
        return self.folder / "recovery"

    @property
    def _logging(self) -> Path:
        return self.folder / "log4j2.properties"

    def _launch(self) -> bool:
        """Start its process on the ports chosen; whether it answered in time. One that did not is gone."""
        settings = self.folder / SETTINGS_FILE
        written(settings, properties(self._access.daemon_settings()), mode=PRIVATE)
        command, environment = self._daemon(
            MASTER_CLASS, "--host", self.address, "--port", str(self.port),
            "--webui-port", str(self.web_port), "--properties-file", str(settings),
        )  # fmt: skip
        self._children.start(
            MASTER,
            command,
            log=self.log,
            environment={**environment, "SPARK_LOCAL_IP": self.address},
            # Relative to here is where it remembers: a path in Java's options must hold no space.
            folder=self.folder,
        )
        wait_until(lambda: self.answers() or not self._children.alive(MASTER), START_TIMEOUT_S)
        if self.answers():
            return True
        self._children.stop(MASTER, grace_s=0.0)
        return False

    def _daemon(self, main_class: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
        self._java = self._java or spark_java()
        flags = (
            *DAEMON_SETTINGS,
            f"-Dspark.deploy.recoveryDirectory={self._memory.name}",
            f"-Dlog4j2.configurationFile={self._logging.absolute().as_uri()}",
            *spark_archive(self._java).use(),
        )
        return spark_class(self._java, main_class, *arguments, flags=flags)

    def _did_not_start(self) -> ClusterError:
        assert self._java is not None
        return ClusterError(
            f"the Spark master did not start on {self.address}:{self.port} with Java "
            f"{self._java.version} ({self._java.home}); last lines of its log:\n" + log_tail(self.log)
        )


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _read_json(url: str, timeout_s: float, access: Access) -> dict[str, Any]:
    request = urllib.request.Request(url, headers=access.page_header())
    try:
        with DIRECT.open(request, timeout=timeout_s) as answer:
            return json.load(answer)
    except (*NO_ANSWER, ValueError) as error:
        raise ClusterError(f"{url} did not answer: {error}") from error
