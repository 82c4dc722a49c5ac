"""The Spark plane without units: micro-batches, starting times, and what measuring costs.

With and without our settings are measured in turns, so that the machine's mood does not decide. Processor
times are exact (thread and process clocks); waiting times depend on the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyspark

from benchmarks import spark_units as units
from benchmarks.pairs import job_cpu_s
from penstock.channels import batches
from penstock.channels.broker import Broker
from penstock.channels.kafka_jars import broker_jars, connector_jars
from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder
from penstock.machine.java import find_java
from penstock.machine.processes import wait_until
from penstock.report.figures import Figure
from penstock.spark.gateway.executors import ExecutorControl
from penstock.spark.launching import spark_archive
from penstock.spark.managers.local_cluster import LocalCluster
from penstock.spark.session.meter import SessionMeter
from penstock.spark.settings import end_session, start_session
from penstock.spark.training import ensure_archive
from penstock.spark.unit.driver import measuring_s
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.heartbeat import HEARTBEAT_S
from penstock.spark.unit.meter import UnitMeter
from penstock.spark.unit.query import UnitQuery
from penstock.topology.model import Channel, Topology, Unit

BATCHES = 25
BATCH_TURNS = 5
WARM_UP_TURNS = 4
"""The first hundred batches of a session compile: what counts is how it is from then on."""
TURNS = 3
WINDOW_S = 25.0
INTERVAL_S = 5.0
"""The shortest interval anybody would measure in; the usual one is three times as long."""


def figures() -> list[Figure]:
    """Every claim about the Spark plane that needs no units."""
    ensure_archive()
    found: list[Figure] = []
    with LocalCluster(1, cores=4, memory_mib=6144) as cluster:
        found += micro_batches(cluster.master_url)
        began_s = time.monotonic()
        # Stopping a query in the middle of a batch is told as an error; here it is the rule.
        spark = start_session("benchmark", cluster.master_url, log_level="OFF")
        found.append(Figure("session start with the class archive", time.monotonic() - began_s, unit="s"))
        try:
            control = ExecutorControl(spark, grace_s=5.0)
            wait_until(lambda: len(control.executors()) == 1, 120)
            found += measuring(spark, control)
            found += measuring_units(spark, control, units.topology((Unit("all", ("weigh", "heavy")),)))
            found += scaling(control, cluster)
        finally:
            end_session()
        found += measuring_over_kafka(cluster.master_url)
    found.append(archive_gain())
    return found


def micro_batches(master: str) -> list[Figure]:
    """A trivial batch in a session of Spark's own making and in one of ours, in turns."""
    command = [sys.executable, "-m", "benchmarks.micro_batch"]
    sides = {
        kind: subprocess.Popen(
            [*command, kind, master],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for kind in ("plain", "ours")
    }  # fmt: skip
    found_ms: dict[str, list[float]] = {kind: [] for kind in sides}
    try:
        for side in sides.values():
            _answer(side, "ready")
        for turn in range(WARM_UP_TURNS + BATCH_TURNS):
            for kind, side in sides.items():
                assert side.stdin is not None
                side.stdin.write(f"{BATCHES}\n")
                side.stdin.flush()
                told_ms = json.loads(_answer(side))
                if turn >= WARM_UP_TURNS:
                    found_ms[kind] += told_ms
    finally:
        for side in sides.values():
            assert side.stdin is not None
            side.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                side.wait(30)
            side.kill()
    before_ms, after_ms = (statistics.median(found_ms[kind]) for kind in ("plain", "ours"))
    times = before_ms / after_ms
    return [
        Figure("trivial micro-batch, Spark's defaults (median)", before_ms, unit="ms"),
        Figure("trivial micro-batch, our settings (median)", after_ms, unit="ms"),
        Figure("trivial micro-batch, times faster", times, ">= 2", holds=times >= 2),
    ]


def _answer(side: subprocess.Popen[str], wanted: str | None = None) -> str:
    """The next line a side says (or the wanted one); RuntimeError where it ended instead."""
    assert side.stdout is not None
    while line := side.stdout.readline():
        if wanted is None or line.strip() == wanted:
            return line
    raise RuntimeError("one side of the comparison ended too early")


def _stream(spark: Any, rows: int) -> Any:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()


def measuring(spark: Any, control: ExecutorControl) -> list[Figure]:
    """Processor time spent on measuring, as a share of all the unit's: driver, executors, Python."""
    bean = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        query = _stream(spark, 1000).writeStream.format("noop").option("checkpointLocation", folder).start()
        try:
            meter = SessionMeter(spark, "benchmark", control)
            meter.measure(time.time())
            wait_until(lambda: query.lastProgress is not None, 60)
            unit_s = job_cpu_s(str(spark.sparkContext.applicationId))
            cost_s, measured, until_s = 0.0, 0, time.monotonic() + WINDOW_S
            while time.monotonic() < until_s:
                time.sleep(INTERVAL_S)
                cost_s += _cost_s(bean, lambda: meter.measure(time.time()))
                measured += 1
            spent_s = job_cpu_s(str(spark.sparkContext.applicationId)) - unit_s
            missed = meter._progress.missed
        finally:
            query.stop()
    share = cost_s / spent_s
    return [
        Figure(
            "measuring, share of the unit's processor time",
            share * 100,
            "< 1 %",
            holds=share < 0.01,
            unit="%",
        ),
        Figure("measuring, processor time a measurement", cost_s / measured * 1000, unit="ms"),
        Figure("measuring, progress events missed", float(missed), "0", holds=missed == 0),
    ]


def measuring_units(
    spark: Any, control: ExecutorControl, topology: Topology, bootstrap: str | None = None
) -> list[Figure]:
    """The same for units at a steady rate, at a driver's own pace, with what naming their batches costs."""
    bean = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
    every = round(measuring_s(topology) / HEARTBEAT_S)
    named_s: list[float] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, contextlib.ExitStack() as stack:
        folders = RunFolders(Path(folder))
        queries = [UnitQuery(spark, topology, unit.name, folders, bootstrap) for unit in topology.units]
        (Path(folder) / "sources" / "numbers" / "all").mkdir(parents=True)
        stack.enter_context(units.fed(Path(folder)))
        stack.enter_context(_span_cost(named_s))
        meters, started = [], []
        for query in queries:
            started.append(query.start())
            stack.callback(query.stop_publishing)
            stack.callback(started[-1].stop)
            meters.append(UnitMeter(spark, control, query))
            meters[-1].measure(time.time())
        for running in started:
            wait_until(lambda q=running: (q.lastProgress or {"batchId": 0})["batchId"] >= 20, 120)  # type: ignore[misc]

        def measure() -> None:
            for meter in meters:
                meter.measure(time.time())

        _cost_s(bean, measure)  # the first time compiles
        unit_s, cost_s, named_before_s = job_cpu_s(str(spark.sparkContext.applicationId)), 0.0, sum(named_s)
        for beat in range(round(WINDOW_S / HEARTBEAT_S)):
            time.sleep(HEARTBEAT_S)
            due = beat % every == every - 1
            cost_s += _cost_s(bean, measure if due else control.present)
            if beat % 3 == 2:
                for query in queries:
                    query.clean()  # as a driver does; deleting is no measuring
        spent_s = job_cpu_s(str(spark.sparkContext.applicationId)) - unit_s
        cost_s += sum(named_s) - named_before_s
    share = cost_s / spent_s
    what = "a unit" if bootstrap is None else "two units and Kafka between them"
    name = f"measuring {what}, share of processor time"
    return [
        Figure(name, share * 100, "< 1 %", holds=share < 0.01, unit="%"),
        Figure(f"processor time of {what} meanwhile", spent_s / WINDOW_S, unit="cores"),
    ]


def measuring_over_kafka(master: str) -> list[Figure]:
    """What measuring costs where units meet in a topic."""
    try:
        jars = connector_jars(cache_folder("jars"), pyspark.__version__)
        broker_classes = broker_jars(cache_folder("jars"))
    except ClusterError:
        return [Figure("measuring over Kafka, share of processor time", "Maven Central is out of reach")]
    settings = {"spark.jars": ",".join(str(jar) for jar in jars)}
    topology = units.topology(
        (Unit("all", ("weigh",)), Unit("second", ("heavy",))), Channel("kafka", "kafka", {"partitions": 2})
    )
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        broker = Broker(Path(folder), find_java().executable, broker_classes)
        try:
            bootstrap = broker.start().bootstrap
            spark = start_session("benchmark-kafka", master, settings=settings, log_level="OFF")
            control = ExecutorControl(spark, grace_s=5.0)
            wait_until(lambda: len(control.executors()) == 1, 120)
            return measuring_units(spark, control, topology, bootstrap)
        finally:
            end_session()
            broker.stop()


@contextlib.contextmanager
def _span_cost(spent_s: list[float]) -> Iterator[None]:
    """Notes down what finding out from when a batch's records are costs, wherever it is called."""
    original = batches.source_span_s

    def timed(given: Iterable[Path]) -> tuple[float, float] | None:
        began_s = time.thread_time()
        try:
            return original(given)
        finally:
            if threading.current_thread().name != units.FEEDER:  # the load is not the unit
                spent_s.append(time.thread_time() - began_s)

    batches.source_span_s = timed  # type: ignore[assignment]
    try:
        yield
    finally:
        batches.source_span_s = original


def _cost_s(bean: Any, call: Callable[[], object]) -> float:
    """Processor time of a call: this thread's, and that of the Java thread which serves it."""
    java_ns, python_s = bean.getCurrentThreadCpuTime(), time.thread_time()
    call()
    java_s = float(bean.getCurrentThreadCpuTime() - java_ns) / 1e9
    return java_s + time.thread_time() - python_s


def scaling(control: ExecutorControl, cluster: LocalCluster) -> list[Figure]:
    """From a decision to a registered executor, and from a lease to a host that takes work."""
    executors_s, hosts_s = [], []
    for turn in range(TURNS):
        began_s = time.monotonic()
        control.set_target(2)
        wait_until(lambda: len(control.executors()) == 2, 120, poll_s=0.05)
        executors_s.append(time.monotonic() - began_s)
        control.set_target(1)
        control.retire([control.executors()[-1].id], grace_s=0.0)
        wait_until(lambda: len(control.executors()) == 1, 60)
        began_s = time.monotonic()
        cluster.add_host(f"lease-{turn}", 1, 1024, wait=True)
        hosts_s.append(time.monotonic() - began_s)
        cluster.remove_host(f"lease-{turn}", graceful=False)
    return [
        Figure("decision to a registered executor (median)", statistics.median(executors_s), unit="s"),
        Figure("lease to a usable host, no start delay (median)", statistics.median(hosts_s), unit="s"),
    ]


def archive_gain() -> Figure:
    """How much sooner a session is up and has run a job with the class archive than without."""
    script = (
        "import time; from penstock.spark.settings import start_session, end_session; t = time.monotonic();"
        "s = start_session('start', 'local[1]', log_level='ERROR'); s.range(10).count();"
        "print(time.monotonic() - t); end_session()"
    )
    times_s = {}
    for archive in ("off", "on"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True, text=True, timeout=300, env={**os.environ, "PENSTOCK_ARCHIVE": archive},
        )  # fmt: skip
        times_s[archive] = float(done.stdout.split()[-1])
    made = spark_archive(find_java()).exists
    name = "session and first job, times faster with the class archive"
    return Figure(name if made else f"{name} (none was made)", times_s["off"] / times_s["on"])


if __name__ == "__main__":
    from penstock.report.figures import print_figures

    print_figures(figures(), str(Path(__file__).name))
