"""Two units whose checkpoints lie on HDFS or in an object store: a driver is killed, no number is lost.

What the cluster's machines share is `storage: hdfs://…` (YARN) or `s3a://…` (standalone) and nothing else: a
Kafka channel is between the units, the second one has state, and numbers are read and results written by
functions, as a person's own source and sink would be.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil

from penstock.errors import ClusterError
from penstock.machine.processes import read_records, wait_until
from penstock.report.figures import Figure
from penstock.runs.folder import RunFolder
from penstock.topology.file import dump_topology, parse_topology
from penstock.topology.model import Site

from .campaign import Cluster
from .hdfs import CLIENT, Hdfs
from .s3 import ObjectStore
from .standalone import StandaloneCluster
from .yarn import YarnCluster

Ground = Callable[[Path], contextlib.AbstractContextManager[tuple[Cluster, Site]]]
"""Starts a cluster with a file system, and names the site that a topology has for it."""

FUNCTIONS = """
from pathlib import Path
from pyspark.sql import functions as sql

HERE = Path(__file__).parent

def numbers(spark):
    return spark.readStream.option("maxFilesPerTrigger", 2).text(f"file://{HERE}/numbers")

def trimmed(numbers):
    return numbers.select(sql.trim("value").alias("value"))

def count(trimmed):
    return trimmed.groupBy((sql.col("value") % 10).alias("digit")).agg(sql.count("*").alias("numbers"))

def keep(batch, batch_id):
    counts = batch.toJSON().collect()
    (HERE / "kept" / str(batch_id)).write_text("\\n".join(counts))
"""
TOPOLOGY = """
name: stored
sources: {numbers: {function: "stored:numbers"}}
operators:
  trimmed: {inputs: numbers, function: "stored:trimmed", schema: "value STRING", slo: 5 s}
  count: {inputs: trimmed, function: "stored:count", stateful: yes, slo: 5 s}
sinks: {kept: {inputs: count, function: "stored:keep"}}
channels: {between: {kind: kafka}}
units:
  reading: {operators: [trimmed], max_instances: 1, channel: between}
  counting: {operators: [count], max_instances: 2}
loop: {monitoring: 3 s, provisioning: 6 s}
"""
KILLED = "counting"
"""The unit whose driver is killed: the one with state."""
FILES, EACH = 40, 25
PATIENCE_S = 240.0


@contextlib.contextmanager
def on_hdfs(folder: Path) -> Iterator[tuple[Cluster, Site]]:
    """YARN, with HDFS below it."""
    with contextlib.ExitStack() as started:
        hdfs = started.enter_context(Hdfs(folder / "hdfs"))
        cluster = started.enter_context(YarnCluster(folder / "yarn", files=hdfs.url, client=CLIENT))
        yield cluster, cluster.site(f"{hdfs.url}/penstock")


@contextlib.contextmanager
def on_s3(folder: Path) -> Iterator[tuple[Cluster, Site]]:
    """A standalone master, with S3Proxy beside it."""
    with contextlib.ExitStack() as started:
        store = started.enter_context(ObjectStore(folder / "s3"))
        cluster = started.enter_context(StandaloneCluster(folder / "theirs"))
        site = replace(cluster.site(folder), storage=f"{store.url}/runs")
        yield cluster, replace(site, settings={**site.settings, **store.settings})


def figures(folder: Path, title: str, ground: Ground) -> list[Figure]:
    """Run it, kill a driver half way, and count."""
    began_s = time.monotonic()
    with ground(folder) as (cluster, site):
        up_s = time.monotonic() - began_s
        job = folder / "job"
        for name in ("numbers", "kept"):
            (job / name).mkdir(parents=True)
        (job / "stored.py").write_text(FUNCTIONS)
        topology = replace(parse_topology(TOPOLOGY), sites=(site,))
        (job / "stored.yaml").write_text(dump_topology(topology))
        run = RunFolder.at(job / "run")
        with (job / "output").open("wb") as output:
            command = [
                sys.executable, "-m", "penstock.cli.main", "run", str(job / "stored.yaml"),
                "--out", str(run.root),
            ]  # fmt: skip
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            _write(job, range(FILES // 2))
            _await(job, process, FILES // 2 * EACH)
            killed = _kill_driver(run)
            _write(job, range(FILES // 2, FILES))
            _await(job, process, FILES * EACH)
        finally:
            process.terminate()
            process.wait(60)
        wait_until(lambda: not cluster.remains(), 30.0)
        remains = cluster.remains()
    counts = _counts(job)
    right = counts == dict.fromkeys(range(10), FILES * EACH // 10)
    return [
        Figure(f"{title}: up after", up_s, unit="s"),
        Figure(
            f"{title}: numbers counted through a killed driver", sum(counts.values()),
            f"= {FILES * EACH}, each once", holds=right and killed,
        ),
        Figure(
            f"{title}: left behind", ", ".join(remains) or "nothing", "nothing",
            holds=not remains,
        ),
        Figure(f"{title}: whole run", time.monotonic() - began_s, unit="s"),
    ]  # fmt: skip


def _write(job: Path, files: range) -> None:
    for number in files:
        lines = "".join(f"{n}\n" for n in range(number * EACH, (number + 1) * EACH))
        part = job / "numbers" / f".{number:04d}.part"
        part.write_text(lines)
        part.rename(job / "numbers" / f"{number:04d}.txt")


def _counts(job: Path) -> dict[int, int]:
    """The last word on each digit."""
    found: dict[int, int] = {}
    for file in sorted((job / "kept").iterdir(), key=lambda path: int(path.name)):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            found[int(record["digit"])] = int(record["numbers"])
    return found


def _await(job: Path, process: subprocess.Popen[bytes], total: int) -> None:
    wait_until(lambda: process.poll() is not None or sum(_counts(job).values()) >= total, PATIENCE_S)
    if sum(_counts(job).values()) < total:
        log = "\n".join((job / "output").read_text(errors="replace").splitlines()[-20:])
        raise ClusterError(f"{sum(_counts(job).values())} of {total} numbers were counted:\n{log}")


def _kill_driver(run: RunFolder) -> bool:
    """Kill a unit's driver with its Java, as a fault would."""
    plan = run.plan()
    for record in read_records():
        if record.group == f"{plan.name}-units" and record.name == KILLED and record.alive:
            for process in (psutil.Process(record.pid), *psutil.Process(record.pid).children(recursive=True)):
                process.kill()
            return True
    return False
