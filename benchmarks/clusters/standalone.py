"""A standalone master and a worker, started by Spark's own classes and by none of Penstock's managers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil

from penstock.spark.launching import spark_class, spark_java
from penstock.topology.model import Site

from .ports import free_port, listens
from .started import Started

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


class StandaloneCluster(Started):
    """A master and workers with Spark's defaults; as a context manager everything is stopped on leaving."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 4, memory_mib: int = 8192) -> None:
        super().__init__(folder)
        self._workers, self._cores, self._memory_mib = workers, cores, memory_mib
        self._port, self._web_port = free_port(), free_port()

    @property
    def master_url(self) -> str:
        """The URL applications connect to."""
        return f"spark://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the master, then its workers."""
        self._start("master", MASTER, "--port", str(self._port), "--webui-port", str(self._web_port))
        self._wait_for("master", lambda: listens(self._port))
        for name in [f"worker-{number + 1}" for number in range(self._workers)]:
            self._start(
                name, WORKER, "--cores", str(self._cores), "--memory", f"{self._memory_mib}m",
                "--webui-port", "0", "--work-dir", str(self.folder / "work" / name), self.master_url,
            )  # fmt: skip

    def site(self, storage: Path) -> Site:
        """The cluster as a topology names it."""
        return Site("theirs", master=self.master_url, storage=str(storage))

    def kill_executor(self) -> int | None:
        """Kill one executor's process, as a fault would; its pid."""
        for _, process in self._executors()[-1:]:
            process.kill()
            return process.pid
        return None

    def lose_node(self) -> str | None:
        """Lose a worker that executors are on, as by a power cut."""
        held = self._executors()
        for name, _ in held[-1:]:
            os.kill(self._children.records[name].pid, signal.SIGKILL)
            for process in [process for worker, process in held if worker == name]:
                process.kill()
            return name
        return None

    def remains(self) -> list[str]:
        """What applications have left behind: executors that run."""
        return [str(process) for _, process in self._executors()]

    def _executors(self) -> list[tuple[str, psutil.Process]]:
        found = []
        for process in psutil.process_iter():
            try:
                place, command = Path(process.cwd()), process.cmdline()
            except (psutil.Error, OSError):
                continue
            if "--executor-id" in command and place.is_relative_to(self.folder):
                found.append((place.relative_to(self.folder).parts[1], process))
        return found

    def _start(self, name: str, main_class: str, *arguments: str) -> None:
        command, environment = spark_class(spark_java(), main_class, "--host", "127.0.0.1", *arguments)
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        self._children.start(name, command, log=self._log(name), environment=environment)
