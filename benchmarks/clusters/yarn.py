"""A real YARN without installing Hadoop: ResourceManager and NodeManagers by their main classes, from Maven.

Every daemon is a process of its own on loopback with ports of its own. The NodeManagers run containers as
ordinary processes, so a node is lost by killing its NodeManager and the containers it started.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from penstock.spark.installation import spark_home
from penstock.spark.launching import spark_archive, spark_java
from penstock.topology.model import Site

from .hadoop import FAST, start_daemon, write_conf
from .ports import free_port
from .started import Started

SERVER = "org.apache.hadoop.yarn.server"
MANAGER, NODE = f"{SERVER}.resourcemanager.ResourceManager", f"{SERVER}.nodemanager.NodeManager"
EXECUTOR, APPLICATION_MASTER = (
    "YarnCoarseGrainedExecutorBackend",
    "org.apache.spark.deploy.yarn.ExecutorLauncher",
)


class YarnCluster(Started):
    """A ResourceManager and NodeManagers; as a context manager everything is stopped on leaving."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 2,
        cores: int = 8,
        memory_mib: int = 8192,
        files: str = "file:///",
        client: Mapping[str, str] | None = None,
    ) -> None:
        """`files` is the file system the cluster shares, `client` settings of those that use it."""
        super().__init__(folder)
        self._files, self._client = files, client or {}
        self.conf = folder / "conf"
        self._nodes, self._cores, self._memory_mib = nodes, cores, memory_mib
        self._ports = {name: free_port() for name in ("address", "scheduler", "tracker", "admin", "web")}

    @property
    def jars(self) -> str:
        """Where containers find Spark's jars: on this machine's disk."""
        return f"local:{spark_home()}/jars/*"

    def start(self) -> None:
        """Start all daemons and wait until every node has registered."""
        self._write_conf(self.conf, {})
        self._daemon("resourcemanager", MANAGER, self.conf)
        for number in range(1, self._nodes + 1):
            self.add_node(f"node-{number}")
        for name in self._children.records:
            self._wait_for(name, lambda: len(self.nodes()) == self._nodes)

    def stop(self) -> None:
        """Stop everything, containers too; calling it again does nothing."""
        for name in [name for name in self._children.records if name.startswith("node-")]:
            self.kill_node(name)
        super().stop()

    def add_node(self, name: str) -> None:
        """Start one more NodeManager."""
        conf, ports = self.folder / f"conf-{name}", [free_port() for _ in range(4)]
        work = self.folder / name
        prefix = "yarn.nodemanager"
        self._write_conf(
            conf,
            {
                f"{prefix}.address": f"127.0.0.1:{ports[0]}",
                f"{prefix}.localizer.address": f"127.0.0.1:{ports[1]}",
                f"{prefix}.webapp.address": f"127.0.0.1:{ports[2]}",
                f"{prefix}.collector-service.address": f"127.0.0.1:{ports[3]}",
                f"{prefix}.local-dirs": str(work / "local"),
                f"{prefix}.log-dirs": str(work / "logs"),
            },
        )
        self._daemon(name, NODE, conf)

    def kill_node(self, name: str) -> list[int]:
        """A node is lost with all that runs on it, as by a power cut; the pids that were killed."""
        record = self._children.records.get(name)
        if record is None or not record.alive:
            return []
        node = psutil.Process(record.pid)
        node.suspend()
        # Containers are started in sessions of their own, and all of them below the node's folder.
        mine = [node, *node.children(recursive=True), *self._in_folder(self.folder / name)]
        pids = []
        for process in mine:
            try:
                os.kill(process.pid, signal.SIGKILL)
                pids.append(process.pid)
            except ProcessLookupError:
                continue
        return pids

    def nodes(self) -> list[str]:
        """Addresses of the nodes that run, as the ResourceManager says."""
        found = (self._ask("nodes").get("nodes") or {}).get("node", [])
        return sorted(node["id"] for node in found if node["state"] == "RUNNING")

    def applications(self) -> dict[str, str]:
        """The state of every application by its id."""
        found = (self._ask("apps").get("apps") or {}).get("app", [])
        return {app["id"]: app["state"] for app in found}

    def containers(self) -> int:
        """Containers that run now."""
        return int(self._ask("metrics")["clusterMetrics"]["containersAllocated"])

    def kill_executor(self) -> int | None:
        """Kill one executor's process, as a fault would; its pid."""
        for _, process in self.processes(EXECUTOR)[-1:]:
            process.kill()
            return process.pid
        return None

    def lose_node(self) -> str | None:
        """Lose a node that executors are on, one without the application master where there is such a one."""
        held = {name for name, _ in self.processes(EXECUTOR)}
        leading = {name for name, _ in self.processes(APPLICATION_MASTER)}
        for name in [*sorted(held - leading), *sorted(held)][:1]:
            self.kill_node(name)
            return f"{name}{' with the application master' if name in leading else ''}"
        return None

    def remains(self) -> list[str]:
        """What applications have left behind: those not ended, containers, processes."""
        open_states = ("NEW", "SUBMITTED", "ACCEPTED", "RUNNING")
        found = [f"{name} {state}" for name, state in self.applications().items() if state in open_states]
        found += [str(process) for _, process in self.processes("org.apache.spark")]
        return found

    def site(self, storage: Path | str) -> Site:
        """The cluster as a topology names it."""
        cluster = {"conf_folder": str(self.conf), "jars": self.jars, "driver_address": "127.0.0.1"}
        # All is on this machine: its archive of classes serves the containers too.
        flags = (*FAST, *spark_archive(spark_java()).use())
        settings = {"spark.executor.extraJavaOptions": " ".join(flags)}
        return Site("theirs", master="yarn", cluster=cluster, settings=settings, storage=str(storage))

    def processes(self, marked: str) -> list[tuple[str, psutil.Process]]:
        """Processes of containers whose command says `marked`, each with its node."""
        found = []
        for name in self._children.records:
            for process in self._in_folder(self.folder / name):
                try:
                    if marked in " ".join(process.cmdline()) and process.name() == "java":
                        found.append((name, process))
                except psutil.Error:
                    continue
        return found

    def _in_folder(self, folder: Path) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if Path(process.cwd()).is_relative_to(folder):
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def _ask(self, what: str) -> dict[str, Any]:
        address = f"http://127.0.0.1:{self._ports['web']}/ws/v1/cluster/{what}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            request = urllib.request.Request(address, headers={"Accept": "application/json"})
            with opener.open(request, timeout=3.0) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError):
            return {}

    def _daemon(self, name: str, main_class: str, conf: Path) -> None:
        start_daemon(self._children, name, main_class, conf=conf, folder=self.folder)

    def _write_conf(self, conf: Path, more: dict[str, str]) -> None:
        manager = "yarn.resourcemanager"
        ports = {name: f"127.0.0.1:{port}" for name, port in self._ports.items()}
        yarn = {
            f"{manager}.hostname": "127.0.0.1",
            f"{manager}.address": ports["address"],
            f"{manager}.scheduler.address": ports["scheduler"],
            f"{manager}.resource-tracker.address": ports["tracker"],
            f"{manager}.admin.address": ports["admin"],
            f"{manager}.webapp.address": ports["web"],
            f"{manager}.scheduler.class": f"{SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
            # A node that is silent for ten seconds is lost; ten minutes are the default.
            "yarn.nm.liveness-monitor.expiry-interval-ms": "10000",
            f"{manager}.nodemanagers.heartbeat-interval-ms": "250",
            f"{manager}.am.max-attempts": "10",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.nodemanager.resource.memory-mb": str(self._memory_mib),
            "yarn.nodemanager.resource.cpu-vcores": str(self._cores),
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.nodemanager.hostname": "127.0.0.1",
            "yarn.nodemanager.delete.debug-delay-sec": "0",
            **more,
        }
        core = {"fs.defaultFS": self._files, "hadoop.tmp.dir": str(self.folder / "hadoop")}
        write_conf(conf, {"yarn-site.xml": yarn, "core-site.xml": core, "hdfs-site.xml": self._client})
