"""What attaching costs a job; `attach_sides` says what it saves, `attach_memory` whether its memory is flat.

Processor time of the loop's thread and of the Java thread that serves it, as a share of the job's, with ten
queries in the session; and the same work with and without, in interleaved pairs.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

import penstock
from benchmarks.pairs import Comparison, Run, compare, job_cpu_s, watched
from penstock.machine.processes import wait_until
from penstock.report.figures import Figure
from penstock.spark.gateway.executors import ExecutorControl
from penstock.spark.managers.local_cluster import LocalCluster
from penstock.spark.settings import end_session, start_session
from penstock.spark.training import ensure_archive

QUERIES = 10
COST_S = 60.0
PAIRS = 5
WORK_BATCHES = 60


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
    return found


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
            "throughput", ("alone", "attached"), alone, with_it,
            # Java gets faster for minutes: each pair is run there and back, so that neither side gains by it.
            pairs=PAIRS, warm_ups=2, limit_s=600, balanced=True,
        )  # fmt: skip
    name = f"throughput attached, of the same alone ({found.words()})"
    holds = found.ratio >= 0.98 if found.judged else None
    return [Figure(name, found.ratio, ">= 0.98", holds=holds), found.cpu_figure("work alone over attached")]


def _done(query: Any) -> int:
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])
