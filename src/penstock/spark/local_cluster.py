"""An elastic Spark cluster on this machine: a standalone master, and a worker for every host.

Hosts have loopback addresses of their own (127.0.0.11, 127.0.0.12, …), declared cores and memory, and
a start delay like a real machine's; they join and leave while applications run. As a context manager
everything is stopped on leaving; with a name and `persistent` it stays until `penstock cluster down`.
Asking again for what exists changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.errors import ClusterError
from penstock.infrastructure import HostState
from penstock.spark.folders import cache_folder
from penstock.spark.java import ClassArchive, Java, find_java, spark_class
from penstock.spark.processes import ChildProcesses, ProcessRecord, end_orphans, log_tail, wait_until

LOG = logging.getLogger(__name__)

MASTER_CLASS = "org.apache.spark.deploy.master.Master"
WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
MASTER_ADDRESS = "127.0.0.1"
START_TIMEOUT_S = 60.0
"""A daemon takes 2 to 5 s; on a busy machine several times that."""

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
    "-Dspark.master.rest.enabled=false",
)


@dataclass(frozen=True, slots=True)
class LocalHost:
    """A host of the local cluster."""

    id: str
    address: str
    cores: int
    memory_mib: int
    state: HostState = HostState.REQUESTED
    requested_s: float = 0.0
    """When it was asked for, in seconds since 1970."""
    up_s: float | None = None
    """When it was first seen to take work."""
    cores_used: int = 0
    memory_used_mib: int = 0
    web: str | None = None
    """Its worker's page."""
    problem: str | None = None
    """Why it failed, where it did."""


@dataclass(frozen=True, slots=True)
class ExecutorPlace:
    """Where an executor runs, as its worker says."""

    application: str
    executor: str
    host: str
    """The host's id."""


@dataclass(frozen=True, slots=True)
class Application:
    """An application as the master sees it."""

    id: str
    name: str
    state: str
    cores: int


class LocalCluster:
    """A standalone master and its hosts. Methods may be called from several threads."""

    def __init__(
        self,
        hosts: int | Mapping[str, tuple[int, int]] = 0,
        *,
        name: str | None = None,
        cores: int = 2,
        memory_mib: int = 2048,
        start_delay_s: float = 0.0,
        persistent: bool = False,
        folder: Path | None = None,
        port: int | None = None,
        web_port: int | None = None,
        java: Java | None = None,
    ) -> None:
        """`hosts` is a number of hosts of `cores` and `memory_mib`, or (cores, MiB) by host id.

        `name` makes it findable again (`open`); `folder` keeps its logs; both are chosen where not given.
        """
        self.name = name or f"cluster-{uuid.uuid4().hex[:8]}"
        self._first = (
            {f"host-{number + 1}": (cores, memory_mib) for number in range(hosts)}
            if isinstance(hosts, int)
            else dict(hosts)
        )
        self.start_delay_s = start_delay_s
        self.persistent = persistent
        self._temporary = folder is None and not persistent
        self.folder = folder or (
            cache_folder("clusters", self.name)
            if persistent
            else Path(tempfile.mkdtemp(prefix=f"penstock-{self.name}-"))
        )
        self._port = port
        self._web_port = web_port
        self._java = java
        self._children = ChildProcesses(self.name, persistent=persistent)
        self._lock = threading.RLock()
        self._hosts: dict[str, LocalHost] = {}
        self._timers: dict[str, threading.Timer] = {}
        self._drains: dict[str, threading.Thread] = {}
        self._stopped = False
        self.adopted = False
        """Whether it ran already when it was started here."""

    # --- life -------------------------------------------------------------------------------------

    def start(self, *, wait: bool = True) -> LocalCluster:
        """Start the master and the first hosts; ends orphans of crashed owners first.

        With `wait` it returns when the hosts take work. A cluster of the same name that still runs
        is adopted instead (a restarted owner goes on with it).
        """
        ended = end_orphans(keep=(self.name,))
        if ended:
            LOG.info("ended %d processes a crashed owner had left behind", len(ended))
        self.adopted = self._adopt()
        if not self.adopted:
            self._java = self._java or find_java()
            self._start_master()
        for host, (cores, memory_mib) in self._first.items():
            self.add_host(host, cores, memory_mib)
        if wait:
            self.wait_for_hosts()
        return self

    def stop(self, grace_s: float = 8.0) -> None:
        """Stop everything and wait until it is gone; calling it again does nothing."""
        with self._lock:
            self._stopped = True
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()
            self._hosts.clear()
        # Workers and the master at once: none of them has anything left to tell the others.
        self._children.stop_all(grace_s)
        (self.folder / "cluster.json").unlink(missing_ok=True)
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> LocalCluster:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @staticmethod
    def open(name: str) -> LocalCluster:
        """The persistent cluster of this name; ClusterError where none runs."""
        folder = cache_folder("clusters") / name
        cluster = LocalCluster(name=name, persistent=True, folder=folder)
        if not cluster._adopt():
            raise ClusterError(f"no cluster named {name!r} runs here; start it with `penstock cluster up`")
        return cluster

    @staticmethod
    def names() -> list[str]:
        """The names of persistent clusters that were started and not taken down."""
        return sorted(path.parent.name for path in cache_folder("clusters").glob("*/cluster.json"))

    # --- what there is ----------------------------------------------------------------------------

    @property
    def master_url(self) -> str:
        """The URL applications connect to."""
        return f"spark://{MASTER_ADDRESS}:{self._port}"

    @property
    def web(self) -> str:
        """The master's page."""
        return f"http://{MASTER_ADDRESS}:{self._web_port}"

    @property
    def processes(self) -> dict[str, ProcessRecord]:
        """The recorded processes: `master`, and one for each host by its id."""
        return self._children.records

    def alive(self) -> bool:
        """Whether the master runs."""
        return self._children.alive("master")

    def master_state(self) -> dict[str, Any]:
        """The master's own account, as it says it; ClusterError where it does not answer."""
        return _read_json(f"{self.web}/json/")

    def applications(self) -> tuple[Application, ...]:
        """Applications that run now."""
        return tuple(
            Application(app["id"], app["name"], app["state"], int(app.get("cores") or 0))
            for app in self.master_state()["activeapps"]
        )

    def hosts(self) -> dict[str, LocalHost]:
        """Every host not yet released, by id, in its present state."""
        try:
            workers = {
                worker["host"]: worker
                for worker in self.master_state()["workers"]
                if worker["state"] in {"ALIVE", "DECOMMISSIONED"}
            }
        except ClusterError:
            workers = {}
        with self._lock:
            for host in list(self._hosts.values()):
                self._hosts[host.id] = self._observed(host, workers.get(host.address))
            return dict(self._hosts)

    def executors(self) -> tuple[ExecutorPlace, ...]:
        """Every executor with the host it runs on, from the workers' own accounts."""
        found = []
        for host in self.hosts().values():
            if host.web is None:
                continue
            try:
                state = _read_json(f"{host.web}/json/")
            except ClusterError:
                continue  # it left between the two questions
            for executor in state["executors"]:
                found.append(ExecutorPlace(executor["appid"], str(executor["id"]), host.id))
        return tuple(found)

    def host_at(self, address: str) -> str | None:
        """The id of the host with this address; None where it is not one of ours."""
        with self._lock:
            return next((host.id for host in self._hosts.values() if host.address == address), None)

    def wait_for_hosts(self, ids: Iterable[str] | None = None, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when the hosts (by default all) take work; ClusterError with the log where one does not."""
        wanted = set(self._hosts if ids is None else ids)
        deadline_s = time.monotonic() + timeout_s + self.start_delay_s
        while True:
            found = self.hosts()
            for host in (found[name] for name in wanted if name in found):
                if host.state == HostState.FAILED:
                    raise ClusterError(host.problem or f"host {host.id} failed")
            missing = [n for n in wanted if n not in found or found[n].state != HostState.UP]
            if not missing:
                return
            if time.monotonic() > deadline_s:
                raise ClusterError(
                    f"{', '.join(sorted(missing))} did not join {self.master_url} within {timeout_s:g} s\n"
                    f"  likely cause: the machine is short of memory or very busy; last lines of the log:\n"
                    + log_tail(self._log(missing[0]))
                )
            time.sleep(0.1)

    # --- hosts come and go ------------------------------------------------------------------------

    def add_host(
        self, host_id: str, cores: int = 2, memory_mib: int = 2048, *, wait: bool = False
    ) -> LocalHost:
        """Lease a host: its worker starts after the start delay. Idempotent by id.

        Returns at once unless `wait`. Asking again for one that failed starts it anew.
        """
        if not re.fullmatch(r"[A-Za-z0-9._-]+", host_id):
            raise ClusterError(f"expected a host id of letters, digits, `.`, `_` and `-`, got {host_id!r}")
        if cores < 1 or memory_mib < 1:
            raise ClusterError(
                f"expected at least one core and one MiB of memory for host {host_id}, "
                f"got {cores} cores and {memory_mib} MiB"
            )
        with self._lock:
            if self._stopped:
                raise ClusterError(f"cluster {self.name} is stopped")
            present = self._hosts.get(host_id)
            if present is None or present.state == HostState.FAILED:
                self._children.stop(host_id)
                address = present.address if present else self._free_address()
                host = LocalHost(host_id, address, cores, memory_mib, HostState.STARTING, time.time())
                self._hosts[host_id] = host
                self._save()
                if self.start_delay_s > 0:
                    timer = threading.Timer(self.start_delay_s, self._start_worker_later, [host])
                    timer.daemon = True
                    self._timers[host_id] = timer
                    timer.start()
                else:
                    self._start_worker(host)
        if wait:
            self.wait_for_hosts([host_id])
        return self.hosts()[host_id]

    def remove_host(
        self, host_id: str, *, graceful: bool = True, grace_s: float = 10.0, wait: bool = True
    ) -> None:
        """Give a host back. Graceful: its executors may finish their tasks for `grace_s` first.

        Removing one that is gone does nothing. Without `wait` it drains in the background, and `hosts`
        shows it as draining until it is gone.
        """
        with self._lock:
            host = self._hosts.get(host_id)
            if host is None:
                return
            timer = self._timers.pop(host_id, None)
            if timer is not None:
                timer.cancel()
            drain = self._drains.get(host_id)
            if drain is None:
                was_up = host.state == HostState.UP
                if host.state != HostState.FAILED:
                    self._hosts[host_id] = replace(host, state=HostState.DRAINING)
                drain = threading.Thread(
                    target=self._drain, args=(host_id, grace_s if graceful and was_up else 0.0), daemon=True
                )
                self._drains[host_id] = drain
                drain.start()
        if wait:
            drain.join()

    def kill_host(self, host_id: str) -> None:
        """Make a host die at once with all that runs on it, as a power cut would (for tests)."""
        self._children.stop(host_id, grace_s=0.0)

    # --- inside -----------------------------------------------------------------------------------

    def _start_master(self) -> None:
        assert self._java is not None
        for name, number in (("port", self._port), ("web_port", self._web_port)):
            if number is not None and not _is_free(MASTER_ADDRESS, number):
                raise ClusterError(
                    f"{name} {number} on {MASTER_ADDRESS} is taken by another process (perhaps another "
                    f"Spark master); choose another one, or none to have a free one chosen"
                )
        chosen_port, chosen_web = self._port, self._web_port
        for attempt in (1, 2, 3):
            self._port = chosen_port or _free_port(MASTER_ADDRESS)
            self._web_port = chosen_web or _free_port(MASTER_ADDRESS)
            log = self._log("master")
            command, environment = spark_class(
                self._java, MASTER_CLASS, "--host", MASTER_ADDRESS, "--port", str(self._port),
                "--webui-port", str(self._web_port), flags=self._flags(),
            )  # fmt: skip
            environment["SPARK_LOCAL_IP"] = MASTER_ADDRESS
            self._children.start("master", command, log=log, environment=environment, folder=self.folder)
            wait_until(lambda: self._answers() or not self._children.alive("master"), START_TIMEOUT_S)
            if self._answers():
                self._save()
                return
            self._children.stop("master")
            # Somebody took the free port between our look and Spark's: look again.
            if attempt == 3 or "BindException" not in log.read_text(errors="replace"):
                raise ClusterError(
                    f"the Spark master did not start on {MASTER_ADDRESS}:{self._port} with Java "
                    f"{self._java.version} ({self._java.home}); last lines of its log:\n" + log_tail(log)
                )

    def _start_worker_later(self, host: LocalHost) -> None:
        with self._lock:
            self._timers.pop(host.id, None)
            present = self._hosts.get(host.id)
            if self._stopped or present is None or present.state != HostState.STARTING:
                return
            try:
                self._start_worker(host)
            except ClusterError as error:
                self._hosts[host.id] = replace(host, state=HostState.FAILED, problem=str(error))

    def _start_worker(self, host: LocalHost) -> None:
        self._java = self._java or find_java()
        command, environment = spark_class(
            self._java, WORKER_CLASS, "--host", host.address, "--port", "0", "--webui-port", "0",
            "--cores", str(host.cores), "--memory", f"{host.memory_mib}m",
            "--work-dir", str(self.folder / "work" / host.id), self.master_url,
            flags=self._flags(),
        )  # fmt: skip
        # Executors inherit the address, so that everything of a host is at the host's address.
        environment["SPARK_LOCAL_IP"] = host.address
        self._children.start(
            host.id, command, log=self._log(host.id), environment=environment, folder=self.folder
        )

    def _drain(self, host_id: str, grace_s: float) -> None:
        power_failure = getattr(signal, "SIGPWR", None)  # Linux only; elsewhere a host leaves at once
        if grace_s > 0 and power_failure is not None and self._children.alive(host_id):
            self._children.signal(host_id, power_failure)
            wait_until(lambda: not any(place.host == host_id for place in self.executors()), grace_s)
        self._children.stop(host_id, grace_s=3.0)
        with self._lock:
            self._hosts.pop(host_id, None)
            self._drains.pop(host_id, None)
            if not self._stopped:
                self._save()

    def _observed(self, host: LocalHost, worker: Mapping[str, Any] | None) -> LocalHost:
        if host.id in self._timers or host.state == HostState.FAILED:
            return host
        if not self._children.alive(host.id) and host.state != HostState.DRAINING:
            problem = f"host {host.id} died; last lines of its log:\n" + log_tail(self._log(host.id))
            return replace(host, state=HostState.FAILED, problem=problem, web=None, cores_used=0)
        if worker is None:
            return host
        seen = replace(
            host,
            cores_used=worker["coresused"],
            memory_used_mib=worker["memoryused"],
            web=worker["webuiaddress"],
        )
        if host.state == HostState.STARTING and worker["state"] == "ALIVE":
            return replace(seen, state=HostState.UP, up_s=time.time())
        return seen

    def _adopt(self) -> bool:
        """Go on with a cluster of this name that still runs; False where there is none."""
        path = self.folder / "cluster.json"
        if not path.exists():
            return False
        known = json.loads(path.read_text())
        self._children.adopt()
        if not self._children.alive("master"):
            self._children.stop_all()
            path.unlink(missing_ok=True)
            return False
        self._port, self._web_port = known["port"], known["web_port"]
        self.start_delay_s = known["start_delay_s"]
        for entry in known["hosts"]:
            host = LocalHost(**{**entry, "state": HostState(entry["state"])})
            if host.state == HostState.DRAINING:
                self._children.stop(host.id)
            else:
                self._hosts[host.id] = replace(host, state=HostState.STARTING)
        return True

    def _save(self) -> None:
        state = {
            "name": self.name,
            "port": self._port,
            "web_port": self._web_port,
            "start_delay_s": self.start_delay_s,
            "hosts": [asdict(host) for host in self._hosts.values()],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / "cluster.json.part"
        temporary.write_text(json.dumps(state))
        temporary.replace(self.folder / "cluster.json")

    def _flags(self) -> tuple[str, ...]:
        assert self._java is not None
        return (*DAEMON_SETTINGS, *ClassArchive(self._java).use())

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def _answers(self) -> bool:
        with contextlib.suppress(ClusterError):
            return "workers" in self.master_state()
        return False

    def _free_address(self) -> str:
        taken = {host.address for host in self._hosts.values()}
        for number in range(11, 250):
            address = f"127.0.0.{number}"
            if address not in taken:
                _require_address(address)
                return address
        raise ClusterError("a local cluster has at most 239 hosts")


def _require_address(address: str) -> None:
    try:
        with socket.socket() as probe:
            probe.bind((address, 0))
    except OSError as error:
        raise ClusterError(
            f"the loopback address {address} cannot be used ({error}); on macOS add it once with "
            f"`sudo ifconfig lo0 alias {address} up`"
        ) from error


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


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Loopback is never reached through a proxy, whatever the environment says."""


def _read_json(url: str) -> dict[str, Any]:
    try:
        with _DIRECT.open(url, timeout=5) as answer:
            return json.load(answer)
    except (OSError, ValueError) as error:
        raise ClusterError(f"{url} did not answer: {error}") from error
