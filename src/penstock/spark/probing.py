"""One session on a local cluster whose slots, instances and hosts are changed and measured one at a time.

It answers what a study of the platform asks: how many records a second a streaming query takes in a given
shape, what memory that costs, and how long one more slot, instance or host takes until it works.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

import psutil

from penstock.errors import ClusterError
from penstock.machine.processes import wait_until
from penstock.spark.gateway.executors import ExecutorControl
from penstock.spark.gateway.slots import ExecutorSlots
from penstock.spark.managers.local_cluster import LocalCluster
from penstock.spark.session.readings import process_trees, tree_usage
from penstock.spark.settings import end_session, start_session

QUERIES = ("jvm", "python", "stateful")
"""A query of Spark's own expressions, one with a Python function on Arrow batches, one that keeps state."""
START_S = 60.0
MEMORY_S = 0.5
"""How often memory is read while a shape is measured."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What was measured of one shape."""

    records_per_s: float
    memory_mib: float
    """Of all executors with their Python processes."""
    cpu_cores: float
    """Cores that they used."""


class SparkProbe:
    """A cluster of one host of so many cores and a session of one executor with one slot."""

    def __init__(self, cores: int = 2) -> None:
        self._cores = cores
        self._cluster = LocalCluster({"host-1": (cores, 4096)})
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-probe-"))
        self._slots = 1
        self._spark: Any = None
        self._control: ExecutorControl | None = None
        self._extra: ExecutorSlots | None = None

    def __enter__(self) -> SparkProbe:
        try:
            self._cluster.start()
            self._spark = start_session("study", self._cluster.master_url, log_level="OFF")
            self._control, self._extra = ExecutorControl(self._spark), ExecutorSlots(self._spark)
            self.instances(1)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        end_session()
        self._cluster.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- shapes ----------------------------------------------------------------------------------

    def slots(self, number: int) -> float:
        """Give every executor so many slots, in place; seconds until tasks run in all of them."""
        assert self._extra is not None
        began_s = time.monotonic()
        self._slots = number
        ids = self._ids()
        self._extra.bring_to(dict.fromkeys(ids, number - 1), ids)
        self._all_work(number * len(ids))
        return time.monotonic() - began_s

    def instances(self, number: int) -> float:
        """Have so many executors; seconds until tasks run in all of them."""
        assert self._control is not None
        began_s = time.monotonic()
        self._control.set_target(number)
        surplus = [e.id for e in self._control.executors()][number:]
        if surplus:
            self._control.retire(surplus, grace_s=0.0)
        if not wait_until(lambda: len(self._ids()) == number, START_S, poll_s=0.05):
            raise ClusterError(f"expected {number} executors within {START_S:.0f} s, got {len(self._ids())}")
        self._all_work(number * self._slots)
        return time.monotonic() - began_s

    def host(self) -> float:
        """Add a host and an executor on it; seconds until tasks run there."""
        began_s = time.monotonic()
        self._cluster.add_host("host-2", self._cores, 4096)
        self._cluster.wait_for_hosts(["host-2"])
        self.instances(len(self._ids()) + 1)
        return time.monotonic() - began_s

    def _ids(self) -> frozenset[str]:
        assert self._control is not None
        return frozenset(executor.id for executor in self._control.executors())

    def _all_work(self, slots: int) -> None:
        """Run a short task in every slot: from here on all of them work."""
        jobs = self._spark.sparkContext.parallelize(range(slots), slots)
        jobs.foreach(lambda number: __import__("time").sleep(0.2))

    # -- measuring -------------------------------------------------------------------------------

    def capacity(self, query: str, *, rows: int, span_s: float, partitions: int) -> Probe:
        """Records a second that a query takes when there is always more; batches of so many rows."""
        source = (
            self._spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", str(rows))
            .option("numPartitions", str(partitions))
            .load()
        )
        self._spark.conf.set("spark.sql.shuffle.partitions", str(min(partitions, 8)))
        frame, mode = _QUERIES[query](source)
        place = self._folder / f"{query}-{time.monotonic_ns()}"
        running = (
            frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(place)).start()
        )
        try:
            # Its first batches start Python and compile: they say nothing of a record's work.
            if not wait_until(lambda: len(self._batches(running)) >= 2, START_S, poll_s=0.1):
                raise ClusterError(f"the {query} query did not finish two batches within {START_S:.0f} s")
            skipped = len(self._batches(running))
            cpu_s, began_s = self._cpu_s(), time.monotonic()
            enough = began_s + span_s
            memory_mib: list[float] = []

            def done() -> bool:
                memory_mib.append(self.memory_mib())
                return time.monotonic() >= enough and len(self._batches(running)) > skipped

            wait_until(done, START_S, poll_s=MEMORY_S)
            took_s = time.monotonic() - began_s
            used = (self._cpu_s() - cpu_s) / took_s
            batches = self._batches(running)[skipped:]
        finally:
            running.stop()
        if not batches:
            raise ClusterError(f"the {query} query finished no batch within {START_S:.0f} s")
        work_s = sum(batch["durationMs"]["triggerExecution"] for batch in batches) / 1000
        records = sum(batch["numInputRows"] for batch in batches)
        # The median: while Java starts a Python it is there twice for a moment.
        return Probe(records / max(work_s, 1e-9), median(memory_mib), used)

    def memory_mib(self) -> float:
        """Resident memory of all executors, with the Python processes behind them."""
        return sum(tree_usage(tree)[1] for tree in self._executor_trees())

    def host_memory_mib(self) -> float:
        """Resident memory of a host's own process, without what runs on it."""
        workers = [r.pid for name, r in self._cluster.processes.items() if "master" not in name]
        sizes = [psutil.Process(pid).memory_info().rss / 2**20 for pid in workers if psutil.pid_exists(pid)]
        return max(sizes, default=0.0)

    def _cpu_s(self) -> float:
        return sum(tree_usage(tree)[0] for tree in self._executor_trees())

    def _executor_trees(self) -> list[list[psutil.Process]]:
        application = str(self._spark.sparkContext.applicationId)
        roots = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                words = process.cmdline()
                if application in words and "--executor-id" in words:
                    roots.append(process.pid)
        return list(process_trees(roots).values())

    @staticmethod
    def _batches(running: Any) -> list[dict[str, Any]]:
        return [event for event in running.recentProgress if event["numInputRows"] > 0]


def _jvm(source: Any) -> tuple[Any, str]:
    from pyspark.sql import functions as sql

    text = sql.col("value").cast("string")
    for _ in range(24):
        text = sql.sha2(text, 512)
    return source.select(text.alias("digest")), "append"


def _python(source: Any) -> tuple[Any, str]:
    from pyspark.sql import functions as sql

    @sql.pandas_udf("double")
    def work(values):  # type: ignore[no-untyped-def]
        return values.apply(lambda value: sum(k * k % 7 for k in range(120)) + value * 0.5)

    return source.select(work("value").alias("result")), "append"


def _stateful(source: Any) -> tuple[Any, str]:
    from pyspark.sql import functions as sql

    key = sql.sha2((sql.col("value") % 500).cast("string"), 512)
    return source.groupBy(key.alias("key")).agg(sql.count("*").alias("number")), "update"


_QUERIES = {"jvm": _jvm, "python": _python, "stateful": _stateful}
