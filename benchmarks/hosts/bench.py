"""A rig with a control host, a host that stores, and a cloud: `penstock run` on hosts that are leased there.

The control host runs the controller, the master and the drivers, beside the hosts with executors. Every host
has a disk of its own; what they share is a network. Instances of the cloud become hosts of the rig.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.channels.kafka_access import USER
from penstock.channels.kafka_jars import broker_jars, connector_jars
from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder
from penstock.machine.processes import wait_until
from penstock.rig.cloud import RigCloud, serve
from penstock.rig.rig import Rig, RigHost
from penstock.spark.training import ensure_archive
from penstock.topology.file import dump_topology
from penstock.topology.model import Channel, Choice, HostFlavour, Site, Topology

from ..clusters.hadoop import daemon_jars
from . import feeding, store

LOG = logging.getLogger(__name__)

ROOT = Path(__file__).parents[2]
STORED = Path("/var/lib/penstock-store")
"""Where the storing host keeps what it stores."""
START_S, ENDING_S, ANSWER_S = 240.0, 120.0, 240.0


@dataclass
class Bench:
    """The rig, its hosts and its cloud, for one topology at a time."""

    rig: Rig
    control: RigHost
    cloud: RigCloud
    code: Path
    """A folder that every host has, as the machine's own disk is below all of theirs: its image."""
    stored: dict[str, Any] = field(default_factory=dict)
    """What the storing host says of itself."""

    # --- a run ------------------------------------------------------------------------------------

    def site(self, *flavours: HostFlavour, max_hosts: int, settings: Mapping[str, str] | None = None) -> Site:
        """The cloud as a site; checkpoints lie where every host reaches them."""
        parameters = {
            "region": "eu-west-1",
            "image": self.cloud.image,
            "subnet": self.cloud.subnets["a"],
            "python": str(self.code / "bin" / "python"),
        }
        return Site(
            "cloud",
            Choice("aws", parameters),
            flavours=flavours,
            max_hosts=max_hosts,
            minimum_s=60.0,
            increment_s=1.0,
            storage=f"{self.stored['hdfs']}/penstock" if self.stored else None,
            settings={**self.stored.get("settings", {}), **(settings or {})},
        )

    def channel(self, remembered: str | None) -> Channel:
        """Topics of the storing host's broker; ids are remembered for so long, and each is taken once."""
        options = {"bootstrap": self.stored["bootstrap"], "client_file": str(self.code / "client.properties")}
        if remembered is not None:
            options["deduplicate"] = remembered
        return Channel("between", "kafka", options)

    def put(self, name: str, text: str) -> None:
        """Write a file of the control host alone, beside the functions."""
        self.control.file(self.code / name).write_text(text)

    @contextlib.contextmanager
    def running(self, topology: Topology, **variables: str) -> Iterator[Callable[[str], Path]]:
        """`penstock run` on the control host; gives where files of the run's folder are seen from here."""
        out = self.code / "run"
        self.put("topology.yaml", dump_topology(topology))
        run = f"{sys.executable} -m penstock.cli.main run topology.yaml --out {out}"
        command = f"echo $$ > {self.code}/pid; exec {run}"
        process = self.control.start(
            "bash",
            "-c",
            f"cd {self.code}; {command}",
            log=self.log("run"),
            environment=self.environment(variables),
        )
        try:
            yield lambda name: self.control.file(out / name)
        finally:
            with contextlib.suppress(OSError):
                number = self.control.file(self.code / "pid").read_text().strip()
                self.control.run("kill", "-TERM", number)
            with contextlib.suppress(Exception):
                process.wait(ENDING_S)
            process.kill()
            process.wait()

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Variables of what runs on the control host: this checkout's code, and the cloud's address."""
        own = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        paths = f"{ROOT / 'src'}:{ROOT}"
        return {**own, "PYTHONPATH": paths, **self.cloud.environment, **(more or {})}

    def feed(self, what: str, **how: Any) -> None:
        """Start to put an example's records on the broker."""
        client = self.stored["client"]
        given = {
            "what": what,
            "bootstrap": self.stored["bootstrap"],
            "user": USER,
            "password": client["sasl.jaas.config"].split('password="')[1].split('"')[0],
            "certificate": client["ssl.truststore.certificates"],
        }
        self.put("feed.json", json.dumps({**given, **how}))
        command = (sys.executable, "-m", "benchmarks.hosts.feeding", str(self.code / "feed.json"))
        if how.get("only_topics"):
            done = self.control.run(*command, environment=self.environment(), timeout_s=ANSWER_S)
            if done.returncode != 0:
                raise ClusterError(f"topics could not be made:\n{done.stderr[-2000:]}")
        else:
            self.control.start(*command, log=self.log("feed"), environment=self.environment())

    def fed(self) -> dict[str, int] | None:
        """How many records were put on each topic, once all are there."""
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, int] = json.loads(self.control.file(self.code / feeding.DONE).read_text())
            return found
        return None

    # --- the cloud --------------------------------------------------------------------------------

    def instances(self) -> list[str]:
        """The instances that are hosts now."""
        hosts = self.rig.status()["hosts"]
        return [host["name"] for host in hosts if host["name"].startswith("i-") and host["pid"] is not None]

    def recorded(self) -> list[dict[str, Any]]:
        """What the cloud itself says of every instance there was."""
        script = (
            "import json, boto3\n"
            "groups = boto3.client('ec2').describe_instances()['Reservations']\n"
            "found = [instance for group in groups for instance in group['Instances']]\n"
            "print(json.dumps([{'id': i['InstanceId'], 'state': i['State']['Name'],\n"
            "    'tags': {t['Key']: t['Value'] for t in i.get('Tags', ())}} for i in found]))"
        )
        done = self.control.run(
            sys.executable, "-c", script, environment=self.environment(), timeout_s=ANSWER_S
        )
        if done.returncode != 0:
            raise ClusterError(f"the cloud does not answer:\n{done.stderr[-2000:]}")
        answer: list[dict[str, Any]] = json.loads(done.stdout)
        return answer

    def log(self, name: str) -> Path:
        """What something on a host wrote."""
        return self.code / f"{name}.log"

    def said(self) -> str:
        """The last words of everything, for whoever has to find out what went wrong."""
        logs = [self.log("run"), self.log("feed"), self.log("store")]
        with contextlib.suppress(OSError):
            logs += sorted(self.control.file(self.code / "run" / "units").rglob("*.log"))
            logs += sorted((self.rig.folder / "logs").glob("i-*.log"))
        return "\n".join(
            f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs if log.exists()
        )


@contextlib.contextmanager
def bench(sizes: dict[str, tuple[float, int]], *, stores: bool = True) -> Iterator[Bench]:
    """Bring all of it up; `sizes` are cores and MiB of each instance type. Nothing is left afterwards."""
    _fetch(stores)
    code = Path(tempfile.mkdtemp(prefix="penstock-hosts-"))
    try:
        python = code / "bin" / "python"
        python.parent.mkdir()
        # As an image would have it: this Python with this checkout's code.
        python.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "src"}:{ROOT} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        for name in ("reading.py", "busy.py"):
            shutil.copy(ROOT / "benchmarks" / "hosts" / name, code / name)
        shutil.copy(ROOT / "examples" / "quickstart" / "shop.py", code / "shop.py")
        shutil.copytree(
            ROOT / "examples" / "factory", code / "factory", ignore=shutil.ignore_patterns("__pycache__")
        )
        with Rig(("a",)) as rig:
            control = rig.host("control")
            assert control is not None
            made = Bench(rig, control, serve(rig, sizes), code)
            if stores:
                made.stored = _store(made)
                client = made.stored["client"]
                made.put("client.properties", "".join(f"{name}={value}\n" for name, value in client.items()))
            yield made
    finally:
        shutil.rmtree(code, ignore_errors=True)


def _fetch(stores: bool) -> None:
    """Get what hosts need from elsewhere, and they cannot reach: jars, and Java's archive of classes."""
    ensure_archive()
    if stores:
        import pyspark

        daemon_jars()
        broker_jars(cache_folder("jars"))
        connector_jars(cache_folder("jars"), pyspark.__version__)


def _store(made: Bench) -> dict[str, Any]:
    host = made.rig.host("store", disk_mib=4096)
    assert host is not None
    environment = made.environment()
    command = (sys.executable, "-m", "benchmarks.hosts.store", host.address, str(STORED))
    process = host.start(*command, log=made.log("store"), environment=environment)
    ready = host.file(STORED / store.READY)
    wait_until(lambda: ready.exists() or process.poll() is not None, START_S)
    if not ready.exists():
        raise ClusterError(f"the storing host did not come up:\n{made.said()}")
    found: dict[str, Any] = json.loads(ready.read_text())
    return found


def awaited(bench: Bench, ready: Callable[[], object], most_s: float, what: str) -> float:
    """Wait for something; how long it took. ClusterError with last words where it does not come."""
    began_s = time.monotonic()
    LOG.info("waiting for %s", what)
    if not wait_until(lambda: bool(ready()), most_s):
        raise ClusterError(f"{what} did not come within {most_s:.0f} s:\n{bench.said()}")
    return time.monotonic() - began_s


def small(name: str = "t3.small", memory_mib: int = 1024, **more: Any) -> HostFlavour:
    """A flavour of one core."""
    from decimal import Decimal

    return replace(HostFlavour(name, 1.0, memory_mib, Decimal("0.02")), **more)
