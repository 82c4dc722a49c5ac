"""Two sites of the rig for Table III in small: a host each, a distance between them, and Kafka with TLS.

Each site has a run of its own of the same topology: master, workers, driver and controller are on its host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from penstock.channels.batches import batches_in
from penstock.channels.kafka_access import CLIENT_FILE
from penstock.channels.kafka_jars import broker_jars, connector_jars
from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder
from penstock.machine.processes import log_tail, wait_until
from penstock.rig.rig import Rig, RigHost
from penstock.runs.folder import RunFolder
from penstock.spark.installation import spark_version
from penstock.spark.training import ensure_archive
from penstock.topology.file import dump_topology
from penstock.topology.model import Channel, Topology

DELAY_MS = 20.0
"""One way between the two sites."""
ROOT = "/srv/penstock"
"""Where everything of a site lies, on the disk of its host."""
LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A dozen Javas start in two minutes: without this, compiling takes the processors from what is measured."""
PATIENCE_S = 600.0
"""Far beyond what anything takes, for machines that do much else."""


def play(
    topology: Topology, folder: Path, code: Path, *, duration_s: float, settle_s: float, records: int
) -> list[Path]:
    """Run a topology over its two sites, a chain of one unit each, until so many results are there.

    The source is at the first site. Gives back the folders of both runs, copied off the hosts' disks.
    """
    first, second = (site.name for site in topology.sites)
    ensure_archive()  # once, and not on every host
    broker_jars(cache_folder("jars"))  # a host of the rig reaches nothing but the rig
    connector_jars(cache_folder("jars"), spark_version())
    folder.mkdir(parents=True, exist_ok=True)
    with Rig((first, second)) as rig:
        rig.link(first, second, delay_ms=DELAY_MS)
        hosts = {site: _host(rig, site) for site in (first, second)}
        topology = _over_kafka(topology, _broker(hosts[second]))
        client = host_file(hosts[second], f"broker/{CLIENT_FILE}").read_text()
        for host in hosts.values():
            for name, text in ((f"etc/{CLIENT_FILE}", client), ("topology.yaml", dump_topology(topology))):
                host_file(host, name).parent.mkdir(parents=True, exist_ok=True)
                host_file(host, name).write_text(text)
        running: dict[str, subprocess.Popen[bytes]] = {}
        environment = {**os.environ, "JDK_JAVA_OPTIONS": LIGHT_JAVA}

        def begin(site: str, *more: str) -> None:
            given = ["run", f"{ROOT}/topology.yaml", "--site", site, "--code", str(code), "-o", f"{ROOT}/run"]
            running[site] = hosts[site].start(
                *_penstock(*given, *more), log=folder / f"{site}.log", environment=environment
            )

        try:
            begin(second)  # who reads is there before who writes: no report waits for a Java that starts
            _serving(running[second], hosts[second], folder / f"{second}.log")
            begin(first, "-d", f"{duration_s:g} s")
            _to_the_end(running, hosts, folder, settle_s, records)
            return [_kept(host, folder / site) for site, host in hosts.items()]
        finally:
            for process in running.values():
                process.kill()
                process.wait()


def host_file(host: RigHost, name: str) -> Path:
    """A file of a site."""
    return host.file(f"{ROOT}/{name}")


def _host(rig: Rig, site: str) -> RigHost:
    found = rig.host(f"{site}-1", site, disk_mib=4096)
    assert found is not None, "it is switched on"
    return found


def _penstock(*given: str) -> list[str]:
    return [sys.executable, "-m", "penstock.cli.main", *given]


def _said(host: RigHost, *given: str) -> None:
    done = host.run(*_penstock(*given), timeout_s=PATIENCE_S)
    if done.returncode:
        raise ClusterError(f"{host.site}: {' '.join(given)}: {done.stdout}{done.stderr}")


def _broker(host: RigHost) -> str:
    """Start a broker with TLS on a host; its address."""
    _said(host, "broker", "up", "--folder", f"{ROOT}/broker", "--address", host.address, "--port", "9092")
    return f"{host.address}:9092"


def _over_kafka(topology: Topology, bootstrap: str) -> Topology:
    options = {"bootstrap": bootstrap, "client_file": f"{ROOT}/etc/{CLIENT_FILE}", "partitions": 2}
    return replace(topology, channels=(Channel("across", "kafka", options),))


def _serving(process: subprocess.Popen[bytes], host: RigHost, log: Path) -> None:
    """Wait until every unit of a site's run works."""
    place = RunFolder(host_file(host, "run"))

    def works() -> bool:
        status = place.status()
        return status is not None and bool(status.units) and all(unit.running for unit in status.units)

    wait_until(lambda: works() or process.poll() is not None, PATIENCE_S, poll_s=0.5)
    if not works():
        raise ClusterError(f"the run at {host.site} did not come up:\n{log_tail(log, 12)}")


def _to_the_end(
    running: dict[str, subprocess.Popen[bytes]],
    hosts: dict[str, RigHost],
    folder: Path,
    settle_s: float,
    records: int,
) -> None:
    """Wait until the first site's run is over and all came out at the second, or nothing more does."""
    first, second = hosts
    results = host_file(hosts[second], "run/results/reports")

    def came_out() -> int:
        return sum(batch.records for batch in batches_in(results))

    if not wait_until(lambda: running[first].poll() is not None, PATIENCE_S + settle_s, poll_s=0.5):
        raise ClusterError(f"the run at {first} did not end; see {folder / first}.log")
    if running[first].returncode:
        raise ClusterError(f"the run at {first} failed:\n{log_tail(folder / f'{first}.log', 12)}")
    wait_until(lambda: came_out() >= records, settle_s, poll_s=0.5)
    _said(hosts[second], "tell", f"{ROOT}/run", "stop", "--reason", "all came out")
    wait_until(lambda: running[second].poll() is not None, PATIENCE_S, poll_s=0.5)


def _kept(host: RigHost, target: Path) -> Path:
    """What a run leaves, but for its checkpoints and its cluster."""
    shutil.rmtree(target, ignore_errors=True)
    ignored = shutil.ignore_patterns("cluster", "clusters", "checkpoint", "lookups")
    shutil.copytree(host_file(host, "run"), target, ignore=ignored)  # with times: they say when a report was
    return target
