"""An elastic Spark cluster on this machine: a standalone master, and a worker for every host.

It joins the two halves: hosts are the provider's (`penstock.providers.local`), the master is the manager's
(`standalone`). As a context manager everything is stopped on leaving; with a name and `persistent` it stays
until `penstock cluster down`. Asking again for what exists changes nothing.
"""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.clock import Clock
from penstock.errors import ClusterError
from penstock.fleet.deployment import HostState
from penstock.fleet.ports import Provider
from penstock.machine.files import written
from penstock.machine.folders import cache_folder
from penstock.machine.java import Java
from penstock.machine.locks import Lock, LockHeldError
from penstock.machine.processes import ChildProcesses, ProcessRecord, end_orphans, log_tail, wait_until
from penstock.providers.local import LocalParameters, LocalProvider
from penstock.providers.local_hosts import LocalHost, LocalHosts
from penstock.providers.registry import HERE, make_provider, provider_parameters
from penstock.providers.surroundings import Surroundings
from penstock.spark.managers.join_script import JoinScriptOf
from penstock.spark.managers.manager import ExecutorPlace
from penstock.spark.managers.standalone import (
    MASTER_ADDRESS,
    MASTER_FILE,
    START_TIMEOUT_S,
    Application,
    Standalone,
)
from penstock.topology.model import Site

LOG = logging.getLogger(__name__)

__all__ = ["Application", "ExecutorPlace", "LocalCluster", "LocalHost"]


class LocalCluster:
    """A standalone master and its hosts. Methods may be called from several threads.

    Who starts one that is not persistent holds its lock for as long as it lives, so that no other takes it
    over; a persistent one is locked while it is started or stopped.
    """

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
        address: str = MASTER_ADDRESS,
        network: int = 0,
        siblings: Collection[str] = (),
    ) -> None:
        """`hosts` is a number of hosts of `cores` and `memory_mib`, or (cores, MiB) by host id.

        `name` makes it findable again (`open`); `folder` keeps its logs; both are chosen where not given.
        `address` is where its master is reached, by hosts elsewhere too where it is not the loopback.
        `network` is the third number of its hosts' addresses. `siblings` are the names of clusters of the
        same owner: what a crashed owner left of them is not ended here.
        """
        self.name = name or f"cluster-{uuid.uuid4().hex[:8]}"
        if not re.fullmatch(r"[^/\0]+", self.name) or self.name in (".", ".."):
            raise ClusterError(f"expected a cluster's name without `/`, got {self.name!r}")
        self._first = (
            {f"host-{number + 1}": (cores, memory_mib) for number in range(hosts)}
            if isinstance(hosts, int)
            else dict(hosts)
        )
        self.persistent = persistent
        self._temporary = folder is None and not persistent
        self.folder = folder or (
            cache_folder("clusters", self.name)
            if persistent
            else Path(tempfile.mkdtemp(prefix=f"penstock-{self.name}-"))
        )
        self._lock = Lock(self.folder / "cluster.lock", f"the cluster {self.name}")
        self._children = ChildProcesses(self.name, persistent=persistent)
        self.manager = Standalone(
            self.folder, self._children, port=port, web_port=web_port, java=java, address=address
        )
        """Its master, as a manager of a Spark plane."""
        self._keep = (self.name, *siblings)
        self.local_hosts = LocalHosts(
            self.folder,
            self._children,
            self.manager.join,
            self.manager.joined,
            start_delay_s=start_delay_s,
            network=network,
        )
        """Its hosts, for the providers of sites."""
        self._ours = False
        """Whether it was started or found here: another's is not stopped."""
        self.adopted = False
        """Whether it ran already when it was started here."""

    # --- life -------------------------------------------------------------------------------------

    def check(self) -> None:
        """ClusterError where it cannot be started as asked; starts nothing."""
        if not (self.folder / MASTER_FILE).exists():
            self.manager.require_free_ports()

    def start(self, *, wait: bool = True) -> LocalCluster:
        """Start the master and the first hosts; ends orphans of crashed owners first.

        With `wait` it returns when the hosts take work. A cluster of the same name that still runs
        is adopted instead (a restarted owner goes on with it), its master revived where it died.
        """
        self._acquire()
        self._ours = True
        try:
            ended = end_orphans(keep=self._keep)
            if ended:
                LOG.info("ended %d processes a crashed owner had left behind", len(ended))
            self.adopted = self._adopt()
            if self.adopted:
                # One that is just dying is there still and does not answer any more.
                wait_until(lambda: self.manager.revive() or self.manager.answers(), START_TIMEOUT_S)
            else:
                self.manager.start()
            self.local_hosts.resume()
            for host, (cores, memory_mib) in self._first.items():
                self.add_host(host, cores, memory_mib)
            if wait:
                self.wait_for_hosts()
        finally:
            if self.persistent:
                self._lock.release()
        return self

    def stop(self, grace_s: float = 8.0) -> None:
        """Stop everything and wait until it is gone; calling it again does nothing."""
        if self._ours:
            self._stop(grace_s)
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _stop(self, grace_s: float) -> None:
        self._acquire()
        try:
            self.local_hosts.close()
            # Workers and the master at once: none of them has anything left to tell the others.
            self._children.stop_all(grace_s)
            self.manager.forget()
            shutil.rmtree(self.folder / "work", ignore_errors=True)
            self._ours = False
        finally:
            self._lock.release()

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
        return sorted(path.parent.name for path in cache_folder("clusters").glob(f"*/{MASTER_FILE}"))

    # --- what there is ----------------------------------------------------------------------------

    @property
    def was_started(self) -> bool:
        """Whether it was started in its folder, by whomever, and not stopped since."""
        return (self.folder / MASTER_FILE).exists()

    @property
    def start_delay_s(self) -> float:
        """How long a host that is added from now on waits before its worker starts."""
        return self.local_hosts.start_delay_s

    @start_delay_s.setter
    def start_delay_s(self, delay_s: float) -> None:
        self.local_hosts.start_delay_s = delay_s

    @property
    def master_url(self) -> str:
        """The URL applications connect to."""
        return self.manager.master_url

    @property
    def web(self) -> str:
        """The master's page."""
        return self.manager.web

    @property
    def conf(self) -> Path:
        """The folder for SPARK_CONF_DIR with which a job of this user is let in, however it is started."""
        return self.folder / "conf"

    @property
    def processes(self) -> dict[str, ProcessRecord]:
        """The recorded processes: `master`, and one for each host by its id."""
        return self._children.records

    def provider(self, site: Site, clock: Clock | None = None) -> Provider:
        """The provider of a site whose hosts join this cluster, wherever they are; `clock` is the run's."""
        parameters = provider_parameters(site.provider)
        if not isinstance(parameters, HERE):
            script = JoinScriptOf(self.manager, getattr(parameters, "python", None))
            owner, joined = self._owner(), self.manager.joined
            return make_provider(
                site, Surroundings(owner=owner, join_script=script, joined=joined, clock=clock)
            )
        delay_s = parameters.host_start_delay_s if isinstance(parameters, LocalParameters) else None
        return LocalProvider(site, self.local_hosts, delay_s)

    def _owner(self) -> str:
        """Whose leased machines are: this name and a word that no other cluster of the name has.

        It is kept in the folder, so that the next controller knows them for its own. A cluster of the same
        name elsewhere must not: to it they would be orphans, and it would give them back.
        """
        file = self.folder / "owner"
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            written(file, f"{self.name}-{uuid.uuid4().hex[:8]}")
        return file.read_text()

    def alive(self) -> bool:
        """Whether the master runs and answers."""
        return self.manager.alive()

    def master_state(self) -> dict[str, Any]:
        """The master's own account, as it says it; ClusterError where it does not answer."""
        return self.manager.state()

    def applications(self) -> tuple[Application, ...]:
        """Applications that run now."""
        return self.manager.applications()

    def hosts(self) -> dict[str, LocalHost]:
        """Every host not yet released, by id, in its present state."""
        return self.local_hosts.observed()

    def executors(self) -> tuple[ExecutorPlace, ...]:
        """Every executor with the host it runs on, from the workers' own accounts."""
        return tuple(replace(place, host=self.host_at(place.address)) for place in self.manager.places())

    def host_at(self, address: str) -> str | None:
        """The id of the host with this address; None where it is not one of ours."""
        known = self.local_hosts.known().values()
        return next((host.id for host in known if host.address == address), None)

    def wait_for_hosts(self, ids: Iterable[str] | None = None, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when the hosts (by default all) take work; ClusterError with the log where one does not."""
        wanted = set(self.local_hosts.known() if ids is None else ids)
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
                    + log_tail(self.local_hosts.log(missing[0]))
                )
            time.sleep(0.1)

    # --- hosts come and go ------------------------------------------------------------------------

    def add_host(
        self, host_id: str, cores: int = 2, memory_mib: int = 2048, *, wait: bool = False
    ) -> LocalHost:
        """Add a host: its worker starts after the start delay. Idempotent by id.

        Returns at once unless `wait`. Asking again for one that failed starts it anew.
        """
        self.hosts()  # one that has just died is one that failed
        self.local_hosts.add(host_id, cores, memory_mib, anew=True)
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
        leaving = self.local_hosts.give_back(host_id, grace_s=grace_s if graceful else 0.0)
        if wait and leaving is not None:
            leaving.join()

    def kill_host(self, host_id: str) -> None:
        """Make a host die at once with all that runs on it, as a power cut would (for tests)."""
        self.local_hosts.kill(host_id)

    # --- inside -----------------------------------------------------------------------------------

    def _acquire(self) -> None:
        """Take the lock; a persistent cluster that another one starts or stops just now is waited for."""
        deadline_s = time.monotonic() + 2 * START_TIMEOUT_S
        while True:
            try:
                return self._lock.acquire()
            except LockHeldError:
                if not self.persistent or time.monotonic() > deadline_s:
                    raise
            time.sleep(0.2)

    def _adopt(self) -> bool:
        """Go on with a cluster of this name of which something still runs; False where there is none."""
        if not (self.folder / MASTER_FILE).exists():
            return False
        if not any(record.alive for record in self._children.adopt().values()):
            self._children.stop_all()
            self.local_hosts.forget()
            self.manager.forget()
            return False
        self.manager.adopt()
        self.local_hosts.adopt()
        self._ours = True
        return True
