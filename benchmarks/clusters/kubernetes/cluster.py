"""A Kubernetes on loopback: etcd, kube-apiserver, certificates, an account for Spark, and process nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from penstock.errors import ClusterError
from penstock.spark.installation import spark_home
from penstock.spark.launching import spark_java
from penstock.topology.model import Site

from ..ports import free_port, listens
from ..started import Started
from .api import Api, RefusedError
from .build import programs
from .process_node import BACKEND

NAMESPACE, ACCOUNT = "penstock", "spark"
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30")
SERVER_NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc"
RULES = [
    {
        "apiGroups": [""],
        "resources": ["pods", "services", "configmaps", "persistentvolumeclaims"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"],
    }
]


class KubernetesCluster(Started):
    """An API server and nodes that run pods as processes; as a context manager all is stopped on leaving."""

    def __init__(self, folder: Path, nodes: int = 2, cores: int = 4, memory: str = "6Gi") -> None:
        super().__init__(folder)
        self._keys = folder / "keys"
        self._nodes, self._cores, self._memory = nodes, cores, memory
        self._port, self._etcd_port = free_port(), free_port()

    def start(self) -> None:
        """Start everything and wait until the nodes are registered."""
        self._make_keys()
        self._start_servers()
        self.api = Api(self._port, self._key("ca.crt"), self._key("admin.crt"), self._key("admin.key"))
        self._wait_for("etcd", lambda: listens(self._etcd_port))
        self._wait_for("kube-apiserver", self._answers)
        self._make_objects()
        for number in range(1, self._nodes + 1):
            self._start_node(number)
        self._wait_for("node-1", lambda: len(self.api.get("/api/v1/nodes")["items"]) == self._nodes)

    def stop(self) -> None:
        """Stop everything, executors too; calling it again does nothing."""
        super().stop()
        for process in self._executors():
            process.kill()

    def site(self, storage: Path) -> Site:
        """The cluster as a topology names it."""
        cluster = {
            "image": "penstock/ignored-by-process-nodes",
            "namespace": NAMESPACE,
            "service_account": ACCOUNT,
            "ca_file": str(self._key("ca.crt")),
            "token_file": str(self._key("spark.token")),
        }
        return Site(
            "theirs", master=f"k8s://https://127.0.0.1:{self._port}", cluster=cluster, storage=str(storage)
        )

    def kill_executor(self) -> int | None:
        """Kill the process of one executor's pod, as a fault would; its pid."""
        for process in self._executors()[-1:]:
            process.kill()
            return process.pid
        return None

    def lose_node(self) -> str | None:
        """Lose a node with executors on it: its agent and its pods' processes die, then it is taken away.

        Taking the node's pods away after a while is the controller manager's task, which is not here.
        """
        held = [pod for pod in self._pods() if pod["spec"].get("nodeName")]
        for name in sorted({pod["spec"]["nodeName"] for pod in held})[-1:]:
            record = self._children.records[name]
            mine = [p for p in self._executors() if Path(p.cwd()).is_relative_to(self.folder / name)]
            for pid in (record.pid, *(process.pid for process in mine)):
                os.kill(pid, signal.SIGKILL)
            self.api.delete(f"/api/v1/nodes/{name}")
            for pod in held:
                if pod["spec"]["nodeName"] == name:
                    self.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}", 0)
            return str(name)
        return None

    def remains(self) -> list[str]:
        """What applications have left behind: pods, configuration maps of theirs, processes."""
        found = [pod["metadata"]["name"] for pod in self._pods()]
        maps = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps")["items"]
        found += [one["metadata"]["name"] for one in maps if one["metadata"]["name"].startswith("spark-")]
        return found + [str(process) for process in self._executors()]

    def _pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return found

    def _executors(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if BACKEND in process.cmdline() and Path(process.cwd()).is_relative_to(self.folder):
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def _key(self, name: str) -> Path:
        return self._keys / name

    def _answers(self) -> bool:
        try:
            self.api.get("/readyz")
        except (OSError, RefusedError):
            return False
        return True

    def _make_keys(self) -> None:
        self._keys.mkdir(parents=True, exist_ok=True)
        _openssl(
            "req", "-x509", *CURVE, "-subj", "/CN=authority", "-keyout", str(self._key("ca.key")),
            "-out", str(self._key("ca.crt")),
        )  # fmt: skip
        for name, subject, extension in (
            ("server", "/CN=kube-apiserver", f"{SERVER_NAMES}\nextendedKeyUsage=serverAuth"),
            ("admin", "/O=system:masters/CN=admin", "extendedKeyUsage=clientAuth"),
        ):
            (self._keys / f"{name}.ext").write_text(f"{extension}\n")
            request = ("-keyout", str(self._key(f"{name}.key")), "-out", str(self._key(f"{name}.csr")))
            _openssl("req", *CURVE[:-2], "-subj", subject, *request)
            _openssl(
                "x509", "-req", "-in", str(self._key(f"{name}.csr")), "-CA", str(self._key("ca.crt")),
                "-CAkey", str(self._key("ca.key")), "-CAcreateserial", "-days", "30",
                "-extfile", str(self._key(f"{name}.ext")), "-out", str(self._key(f"{name}.crt")),
            )  # fmt: skip
        _openssl("genrsa", "-out", str(self._key("accounts.key")), "2048")

    def _start_servers(self) -> None:
        peers, folder = free_port(), programs()
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{peers}"
        self._start(
            "etcd", str(folder / "etcd"), "--data-dir", str(self.folder / "etcd"),
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}", "--unsafe-no-fsync", "--log-level", "warn",
        )  # fmt: skip
        self._start(
            "kube-apiserver", str(folder / "kube-apiserver"), f"--etcd-servers={client}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={self._port}",
            f"--tls-cert-file={self._key('server.crt')}", f"--client-ca-file={self._key('ca.crt')}",
            f"--tls-private-key-file={self._key('server.key')}", f"--cert-dir={self._keys}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={self._key('accounts.key')}",
            f"--service-account-key-file={self._key('accounts.key')}",
            "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none", "--profiling=false",
        )  # fmt: skip

    def _make_objects(self) -> None:
        """What the controller manager would make, and an account that may do what Spark needs and no more."""
        within = f"/api/v1/namespaces/{NAMESPACE}"
        rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
        self.api.ensure("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for name in ("default", ACCOUNT):
            self.api.ensure(f"{within}/serviceaccounts", {"metadata": {"name": name}})
        authority = {"ca.crt": self._key("ca.crt").read_text()}
        named = {"metadata": {"name": "kube-root-ca.crt"}, "data": authority}
        self.api.ensure(f"{within}/configmaps", named)
        self.api.ensure(f"{rights}/roles", {"metadata": {"name": ACCOUNT}, "rules": RULES})
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
        binding = {"metadata": {"name": ACCOUNT}, "subjects": [subject], "roleRef": role}
        self.api.ensure(f"{rights}/rolebindings", binding)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        spec = {"expirationSeconds": 86400}
        given = self.api.post(f"{within}/serviceaccounts/{ACCOUNT}/token", {**request, "spec": spec})
        token = self._key("spark.token")
        token.touch(mode=0o600)
        token.write_text(given["status"]["token"])

    def _start_node(self, number: int) -> None:
        name = f"node-{number}"
        java = spark_java()
        self._start(
            name, sys.executable, "-m", f"{__package__}.process_node", "--port", str(self._port),
            "--authority", str(self._key("ca.crt")), "--certificate", str(self._key("admin.crt")),
            "--key", str(self._key("admin.key")), "--folder", str(self.folder / name), "--name", name,
            "--java-home", str(java.home), "--spark-home", str(spark_home()), "--cpu", str(self._cores),
            "--memory", self._memory, "--network", f"127.{77 + number}",
        )  # fmt: skip

    def _start(self, name: str, *command: str) -> None:
        self._children.start(name, command, log=self._log(name), environment=dict(os.environ))


def _openssl(*arguments: str) -> None:
    try:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ClusterError(f"openssl could not make the keys: {getattr(error, 'stderr', error)}") from None
