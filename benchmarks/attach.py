"""What attaching costs a job, and what it saves: beside no scaling, and beside Spark's dynamic allocation.

Cost: processor time of the loop's thread and of the Java thread that serves it, as a share of the job's, with
ten queries in the session; and the same work with and without, in interleaved pairs. Saving: the word count
of `examples/attach` under a load of 1×, 4× and 1×, three times on the same cluster with the same bounds.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import penstock
from benchmarks.pairs import Comparison, Run, compare, job_cpu_s, watched
from penstock.controller import Journal
from penstock.machine.processes import wait_until
from penstock.report.figures import Figure
from penstock.spark.gateway.executors import ExecutorControl
from penstock.spark.launching import spark_java
from penstock.spark.managers.local_cluster import LocalCluster
from penstock.spark.settings import end_session, prepare_environment, start_session
from penstock.spark.training import ensure_archive

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "attach"))

import demo
import word_count

QUERIES = 10
COST_S = 60.0
PAIRS = 5
WORK_BATCHES = 60
PHASE_S = 30.0
MOST = 4
SLO_S = 4.0
LOADS = (("1×", 80), ("4×", 320), ("1×", 80))


def figures() -> list[Figure]:
    """Every claim about attaching."""
    ensure_archive()
    found: list[Figure] = []
    with LocalCluster(1, cores=2, memory_mib=4096) as cluster:
        spark = start_session("cost", cluster.master_url, log_level="OFF")
        try:
            wait_until(lambda: len(ExecutorControl(spark).executors()) == 1, 120)
            found += cost(spark)
            found += throughput(spark)
        finally:
            end_session()
    return found + side_by_side()


def cost(spark: Any) -> list[Figure]:
    """The share of the job's processor time, with ten queries that run ten batches a second in all."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, contextlib.ExitStack() as stack:
        for number in range(QUERIES):
            stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
            writer = stream.writeStream.format("noop").trigger(processingTime="1 second")
            query = writer.queryName(f"q{number}").option("checkpointLocation", f"{folder}/{number}").start()
            stack.callback(query.stop)
        with attached(spark, Path(folder) / "journal.db", interval="10 s") as handle:
            spent = thread_cpu(spark, handle)
            wait_until(lambda: len(handle.status().queries) == QUERIES, 60)
            time.sleep(15)  # what is done for the first time compiles
            application = str(spark.sparkContext.applicationId)
            job_s, own_s, began_s = job_cpu_s(application), spent(), time.monotonic()
            memory = [psutil.Process().memory_info().rss]
            while time.monotonic() - began_s < COST_S:
                time.sleep(5)
                memory.append(psutil.Process().memory_info().rss)
            job_s, own_s = job_cpu_s(application) - job_s, spent() - own_s
            measured = len([query for query in handle.status().queries if query.processed])
    share = own_s / job_s
    half = len(memory) // 2
    grown_mib = (max(memory[half:]) - max(memory[:half])) / 2**20
    return [
        Figure("attach, queries measured", float(measured), f"{QUERIES}", holds=measured == QUERIES),
        Figure("attach, share of the job's CPU", share * 100, "< 1 %", holds=share < 0.01, unit="%"),
        Figure("attach, processor time a second", own_s / COST_S * 1000, unit="ms"),
        Figure(f"attach, memory grown in the second half of {COST_S:g} s", grown_mib, unit="MiB"),
    ]  # fmt: skip


@contextlib.contextmanager
def attached(spark: Any, journal: Path, **options: Any) -> Iterator[Any]:
    """Attached to a session with one executor, which stays one."""
    with penstock.attach(spark, max_instances=1, journal=journal, **options) as handle:
        yield handle


def thread_cpu(spark: Any, handle: Any) -> Callable[[], float]:
    """Tells the processor time of an attachment: its two threads, and the Java threads that serve them."""
    java = spark.sparkContext._jvm.java.lang
    bean = java.management.ManagementFactory.getThreadMXBean()
    served_by: list[int] = []

    def note_thread(owner: Any, name: str) -> None:
        """Have a method tell which Java thread serves it: once, for asking is work too."""
        method = getattr(owner, name)

        def first(*given: Any) -> Any:
            served_by.append(int(java.Thread.currentThread().getId()))
            setattr(owner, name, method)
            return method(*given)

        setattr(owner, name, first)

    obeying = handle._plane.obeying
    note_thread(handle._plane, "pulse")
    note_thread(obeying, "_bring")
    wait_until(lambda: len(served_by) == 2, 30)
    clocks = [time.pthread_getcpuclockid(thread.ident) for thread in (handle._thread, obeying.thread)]

    def spent_s() -> float:
        own_s = sum(time.clock_gettime(clock) for clock in clocks)
        return own_s + sum(float(bean.getThreadCpuTime(thread)) for thread in served_by) / 1e9

    return spent_s


def throughput(spark: Any) -> list[Figure]:
    """The same batches with and without, in turns."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:

        def work(name: str) -> Run:
            stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50_000).load()
            counted = stream.selectExpr("value % 100 as key").groupBy("key").count()
            writer = counted.writeStream.format("noop").outputMode("update")
            query = writer.option("checkpointLocation", f"{folder}/{name}").start()
            try:
                wait_until(lambda: _done(query) >= 5, 120)
                first = _done(query)
                with watched() as watch:
                    wait_until(lambda: _done(query) >= first + WORK_BATCHES, 300)
                batches = _done(query) - first
            finally:
                query.stop()
            return Run(watch.spent.wall_s / batches, watch.spent)

        def alone(name: str) -> Run:
            return work(f"alone-{name}")

        def with_it(name: str) -> Run:
            with attached(spark, Path(folder) / f"{name}.db", interval="5 s"):
                return work(f"attached-{name}")

        found: Comparison = compare(
            "throughput", ("alone", "attached"), alone, with_it, pairs=PAIRS, warm_ups=1, limit_s=400
        )
    name = f"throughput attached, of the same alone ({found.words()})"
    holds = found.ratio >= 0.98 if found.judged else None
    return [Figure(name, found.ratio, ">= 0.98", holds=holds), found.cpu_figure("work alone over attached")]


def _done(query: Any) -> int:
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])


@dataclass(frozen=True, slots=True)
class Side:
    """What one way of scaling came to."""

    executor_minutes: float
    kept_ratio: float
    """Share of the lines that were counted within the SLO."""
    rescales: int
    lines: int
    words: int


def side_by_side() -> list[Figure]:
    """The word count three times: at peak size, with dynamic allocation, attached."""
    sides: dict[str, Side] = {}
    for name in ("at peak size", "dynamic allocation", "attach"):
        print(f"side by side: {name}", file=sys.stderr, flush=True)
        with LocalCluster(2, cores=2, memory_mib=4096) as cluster:
            sides[name] = one_side(name, cluster)
        print(f"side by side: {sides[name]}", file=sys.stderr, flush=True)
    found = []
    for name, side in sides.items():
        whole = side.words == demo.WORDS * side.lines
        found += [
            Figure(f"{name}: executor-minutes", side.executor_minutes, unit="min"),
            Figure(f"{name}: lines within {SLO_S:g} s", side.kept_ratio * 100, unit="%"),
            Figure(f"{name}: changes of the number of executors", float(side.rescales)),
            Figure(f"{name}: every word counted once", str(whole).lower(), "true", holds=whole),
        ]
    ours, theirs = sides["attach"], sides["dynamic allocation"]
    ratio = ours.executor_minutes / theirs.executor_minutes
    found.append(
        Figure("attach: executor-minutes, of dynamic allocation's", ratio, "<= 0.6", holds=ratio <= 0.6)
    )
    kept = (ours.kept_ratio - theirs.kept_ratio) * 100
    name = "attach: SLO kept, above dynamic allocation's"
    found.append(Figure(name, kept, ">= 0", holds=kept >= 0, unit="points"))
    return found


def one_side(name: str, cluster: LocalCluster) -> Side:
    """One run of the three phases."""
    master = cluster.master_url
    # The cluster lets in who knows its secret: a plain session reads it from this folder.
    os.environ["SPARK_CONF_DIR"] = str(cluster.conf)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as temporary:
        folder = Path(temporary)
        (folder / "lines").mkdir()
        importlib.reload(word_count)  # a function that was registered belongs to one driver
        prepare_environment(spark_java(), master)
        spark = _session(name, master)
        feeder = demo.Feeder(folder / "lines")
        try:
            spark.sparkContext.addPyFile(word_count.__file__)
            control = ExecutorControl(spark)
            handle = penstock.attach(
                spark, slo=SLO_S, max_instances=MOST, interval="5 s", advise_only=name != "attach",
                journal=folder / "journal.db", name="job",
            )  # fmt: skip
            query = word_count.start(spark, str(folder / "lines"), str(folder / "checkpoint"))
            feeder.start()
            feeder.lines_per_s = 20
            rows = demo.Rows(query)
            wait_until(lambda: rows.read() > 0, 240)
            executor_s, rescales, before = 0.0, 0, len(control.executors())
            last_s = time.monotonic()
            for _, lines_per_s in LOADS:
                feeder.lines_per_s = lines_per_s
                until_s = time.monotonic() + PHASE_S
                while time.monotonic() < until_s:
                    time.sleep(0.5)
                    rows.read()
                    number, now_s = len(control.executors()), time.monotonic()
                    executor_s += number * (now_s - last_s)
                    rescales += number != before
                    before, last_s = number, now_s
            feeder.ending.set()
            feeder.join(5)
            query.processAllAvailable()
            words = demo.counted(spark)
            handle.stop()
        finally:
            feeder.ending.set()
            end_session()
        return Side(executor_s / 60, _kept(folder / "journal.db"), rescales, feeder.written, words)


def _session(name: str, master: str) -> Any:
    """A session with the number of executors fixed, or left to Spark, within the same bounds."""
    from pyspark.sql import SparkSession

    dynamic = name != "at peak size"
    settings = {
        "spark.dynamicAllocation.enabled": str(dynamic).lower(),
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.initialExecutors": "1",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": str(MOST),
        "spark.decommission.enabled": "true",
        "spark.cores.max": str(MOST),
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder: Any = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _kept(journal: Path) -> float:
    """Share of the records in measurements whose mean duration kept the SLO, the first batch apart."""
    with Journal(journal, run="job") as record:
        rows = [
            row for row in record.rows("observation") if row["processed"] and row["duration_s"] is not None
        ][1:]
    total = sum(row["processed"] for row in rows)
    return sum(row["processed"] for row in rows if row["duration_s"] <= SLO_S) / total if total else 0.0
