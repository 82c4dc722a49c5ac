"""A node that runs the containers of its pods as processes: it stands in for kubelet, runtime and scheduler.

It registers a Node, binds pods that fit into its capacity, and does of a kubelet what Spark sees: an address
for each pod, the downward API, configMap and emptyDir volumes, the preStop hook (as SIGPWR, which is what
Spark's script sends), grace periods, phases and exit codes. It has no images, no mount or network namespaces
and no limits: the image's name is ignored, and paths of mounts are rewritten to folders of this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .api import Api, RefusedError

LOG = logging.getLogger("node")

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
JAVA_OPTION = "SPARK_JAVA_OPT_"
FAST = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
FACTORS = {"m": 1e-3, "": 1.0, "k": 1e3, "Ki": 2**10, "M": 1e6, "Mi": 2**20, "G": 1e9, "Gi": 2**30}
POLL_S = 0.05


def quantity(text: object) -> float:
    """A number as Kubernetes writes it: `500m`, `896Mi`."""
    match = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text))
    if match is None:
        raise ValueError(f"expected a quantity such as 500m or 1Gi, got {text!r}")
    return float(match[1]) * FACTORS[match[2]]


def now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Pod(threading.Thread):
    """One pod on this node: its first container as a process, from its start to its deletion."""

    def __init__(self, node: Node, pod: dict[str, Any], address: str) -> None:
        super().__init__(daemon=True)
        self.node, self.pod, self.address = node, pod, address
        meta = pod["metadata"]
        self.uid = meta["uid"]
        self.folder = node.folder / f"{meta['name']}-{self.uid[:8]}"
        self.path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        self.container = pod["spec"]["containers"][0]
        self.process: subprocess.Popen[bytes] | None = None
        self.grace_s = 30
        self.told_to_go, self.gone = threading.Event(), threading.Event()
        self._since = now()

    def run(self) -> None:
        """Start the container, wait for its end or for the pod's deletion, and say what came of it."""
        try:
            if not self.told_to_go.is_set():
                self._start()
                self._report("Running")
            while self._runs() and not self.told_to_go.wait(POLL_S):
                pass
            if self._runs():
                self._terminate()
            if not self.gone.is_set():
                self._report("Succeeded" if self._code() == 0 else "Failed")
                self.told_to_go.wait()
                if not self.gone.is_set():
                    self.node.api.delete(self.path, 0)
        except Exception:
            LOG.exception("pod %s", self.path)
        finally:
            self.kill()
            self.node.forget(self)

    def kill(self) -> None:
        """End its process at once, with all it started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def asked(self, what: str) -> float:
        """How much of a resource it asks for."""
        return quantity(self.container.get("resources", {}).get("requests", {}).get(what, 0))

    def _runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _code(self) -> int:
        code = self.process.poll() if self.process is not None else 1
        return 1 if code is None else code if code >= 0 else 128 - code

    def _start(self) -> None:
        places = self._volumes()
        mounts = sorted(
            ((m["mountPath"], places[m["name"]]) for m in self.container.get("volumeMounts", [])),
            key=lambda mount: -len(mount[0]),
        )

        def here(value: str) -> str:
            for path, folder in mounts:
                value = re.sub(rf"(?<![\w/]){re.escape(path)}(?![\w-])", str(folder), value)
            return value

        environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environment |= {"JAVA_HOME": self.node.java_home, "SPARK_HOME": self.node.spark_home}
        for variable in self.container.get("env", []):
            environment[variable["name"]] = here(self._value(variable))
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as output:
            self.process = subprocess.Popen(
                self._command(environment), env=environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def _command(self, environment: dict[str, str]) -> list[str]:
        """What the entry point of Spark's image makes of an executor's arguments."""
        arguments = self.container.get("args", [])
        if arguments[:1] != ["executor"]:
            return [*self.container.get("command", []), *arguments]
        home, memory = environment["SPARK_HOME"], environment["SPARK_EXECUTOR_MEMORY"]
        options = sorted(
            (name for name in environment if name.startswith(JAVA_OPTION)),
            key=lambda name: int(name.removeprefix(JAVA_OPTION)),
        )
        path = [environment.get("SPARK_CONF_DIR"), environment.get("SPARK_CLASSPATH"), f"{home}/jars/*"]
        return [
            f"{self.node.java_home}/bin/java", *(environment[name] for name in options), *FAST,
            f"-Xms{memory}", f"-Xmx{memory}", "-cp", ":".join(part for part in path if part), BACKEND,
            "--driver-url", environment["SPARK_DRIVER_URL"],
            "--executor-id", environment["SPARK_EXECUTOR_ID"],
            "--cores", environment["SPARK_EXECUTOR_CORES"],
            "--app-id", environment["SPARK_APPLICATION_ID"],
            "--hostname", environment["SPARK_EXECUTOR_POD_IP"],
            "--resourceProfileId", environment["SPARK_RESOURCE_PROFILE_ID"],
            "--podName", environment["SPARK_EXECUTOR_POD_NAME"],
        ]  # fmt: skip

    def _value(self, variable: dict[str, Any]) -> str:
        if "valueFrom" not in variable:
            return str(variable.get("value", ""))
        field = variable["valueFrom"].get("fieldRef", {}).get("fieldPath", "")
        known = {"status.podIP": self.address, "status.hostIP": "127.0.0.1", "spec.nodeName": self.node.name}
        if field in known:
            return str(known[field])
        found: Any = self.pod
        for part in field.split("."):
            found = found.get(part, "") if isinstance(found, dict) else ""
        return str(found)

    def _volumes(self) -> dict[str, Path]:
        places: dict[str, Path] = {}
        for volume in self.pod["spec"].get("volumes", []):
            folder = places[volume["name"]] = self.folder / "volumes" / volume["name"]
            if "hostPath" in volume:
                places[volume["name"]] = Path(volume["hostPath"]["path"])
                continue
            folder.mkdir(parents=True, exist_ok=True)
            if "configMap" in volume:
                self._fill(folder, volume["configMap"])
        return places

    def _fill(self, folder: Path, volume: dict[str, Any]) -> None:
        namespace = self.pod["metadata"]["namespace"]
        try:
            found = self.node.api.get(f"/api/v1/namespaces/{namespace}/configmaps/{volume['name']}")
        except RefusedError as error:
            if error.status != 404:
                raise
            return
        data = found.get("data") or {}
        for item in volume.get("items") or [{"key": key, "path": key} for key in data]:
            if item["key"] in data:
                (folder / item["path"]).write_text(data[item["key"]])

    def _terminate(self) -> None:
        process = self.process
        assert process is not None
        deadline_s = time.monotonic() + self.grace_s
        if self.container.get("lifecycle", {}).get("preStop"):
            # Spark's hook sends this signal and waits: the executor finishes its tasks and ends.
            process.send_signal(signal.SIGPWR)
            while self._runs() and time.monotonic() < deadline_s and not self.gone.is_set():
                time.sleep(POLL_S)
        if self._runs():
            process.terminate()
        try:
            process.wait(max(POLL_S, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            process.wait()

    def _report(self, phase: str) -> None:
        running = phase == "Running"
        state: dict[str, Any] = {"running": {"startedAt": self._since}}
        if not running:
            reason = "Completed" if phase == "Succeeded" else "Error"
            ended = {"exitCode": self._code(), "reason": reason, "finishedAt": now()}
            state = {"terminated": {"startedAt": self._since, **ended}}
        conditions = [
            {"type": kind, "status": str(running or kind in ("Initialized", "PodScheduled"))}
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ]
        container = {
            "name": self.container["name"], "image": self.container.get("image", ""), "imageID": "",
            "ready": running, "started": running, "restartCount": 0, "state": state,
            "containerID": f"process://{self.process.pid if self.process is not None else 0}",
        }  # fmt: skip
        status = {
            "phase": phase, "hostIP": "127.0.0.1", "podIP": self.address, "podIPs": [{"ip": self.address}],
            "startTime": self._since, "conditions": conditions, "containerStatuses": [container],
        }  # fmt: skip
        try:
            self.node.api.patch(f"{self.path}/status", {"metadata": {"uid": self.uid}, "status": status})
        except RefusedError as error:
            if error.status not in (404, 409):
                raise


class Node:
    """The node: its place at the API server, and the pods it runs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.api = Api(options.port, options.authority, options.certificate, options.key)
        self.name, self.folder = options.name, options.folder
        self.java_home, self.spark_home = options.java_home, options.spark_home
        self._network = options.network
        self._capacity = {"cpu": options.cpu, "memory": options.memory, "pods": "110"}
        self._pods: dict[str, Pod] = {}
        self._waiting: dict[str, dict[str, Any]] = {}
        self._lock = threading.RLock()
        self._count = 0

    def register(self) -> None:
        """Say that there is such a node, and that it is ready."""
        labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux"}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": labels}}
        self.api.ensure("/api/v1/nodes", body)
        ready = {"type": "Ready", "status": "True", "reason": "Ready", "lastHeartbeatTime": now()}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {
            "capacity": self._capacity, "allocatable": self._capacity, "addresses": addresses,
            "conditions": [{**ready, "lastTransitionTime": now()}],
        }  # fmt: skip
        self.api.patch(f"/api/v1/nodes/{self.name}/status", {"status": status})
        # The controller manager would take away the taint of a node that is not ready; there is none.
        self.api.patch(f"/api/v1/nodes/{self.name}", {"spec": {"taints": None}})

    def serve(self) -> None:
        """Follow every pod of the cluster, for ever."""
        for kind, pod in self.api.watch("/api/v1/pods"):
            meta, bound = pod["metadata"], pod["spec"].get("nodeName")
            with self._lock:
                known = self._pods.get(meta["uid"])
                if kind == "DELETED":
                    self._waiting.pop(meta["uid"], None)
                elif known is None and not bound and not meta.get("deletionTimestamp"):
                    self._waiting[meta["uid"]] = pod
            if kind == "DELETED" and known is not None:
                known.gone.set()
                known.told_to_go.set()
            elif known is not None and meta.get("deletionTimestamp"):
                known.grace_s = meta.get("deletionGracePeriodSeconds", 30)
                known.told_to_go.set()
            elif bound and bound != self.name:
                with self._lock:
                    self._waiting.pop(meta["uid"], None)
            self.place()

    def place(self) -> None:
        """Take the pods that wait for a node, as far as there is room here."""
        with self._lock:
            waiting = sorted(self._waiting.values(), key=lambda pod: pod["metadata"]["creationTimestamp"])
        for pod in waiting:
            with self._lock:
                self._count += 1
                taken = Pod(self, pod, f"{self._network}.{self._count // 250}.{self._count % 250 + 1}")
                full = any(
                    sum(other.asked(what) for other in self._pods.values()) + taken.asked(what)
                    > quantity(self._capacity[what])
                    for what in ("cpu", "memory")
                )
                if full or self._waiting.pop(taken.uid, None) is None:
                    continue
                self._pods[taken.uid] = taken
            target = {"apiVersion": "v1", "kind": "Node", "name": self.name}
            meta = {"name": pod["metadata"]["name"]}
            try:
                self.api.post(
                    f"{taken.path}/binding",
                    {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target},
                )
            except RefusedError:
                # Another node was quicker, or the pod is gone.
                with self._lock:
                    self._pods.pop(taken.uid, None)
                continue
            taken.start()

    def forget(self, pod: Pod) -> None:
        """A pod is over: its room is free."""
        with self._lock:
            self._pods.pop(pod.uid, None)
        self.place()

    def stop(self) -> None:
        """End everything at once."""
        for pod in list(self._pods.values()):
            pod.kill()


def main() -> int:
    """Run a node until it is told to end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    for name in ("--authority", "--certificate", "--key", "--folder"):
        parser.add_argument(name, type=Path, required=True)
    for name in ("--name", "--java-home", "--spark-home", "--cpu", "--memory", "--network"):
        parser.add_argument(name, required=True)
    node = Node(parser.parse_args())

    def leave(*_: object) -> None:
        node.stop()
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    node.register()
    node.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
