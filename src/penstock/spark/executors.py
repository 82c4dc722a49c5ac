"""An application's executors, seen and changed from Python through Spark's own driver.

The calls are those of Spark's dynamic allocation, so they serve every cluster manager that has it
(standalone, YARN, Kubernetes). The target is absolute and said again as often as one likes; lowering
it stops nothing, so executors are retired by id: decommissioned (they finish their tasks), then
killed after a grace period. Where executors cannot be changed, `scalability` says why.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.errors import ClusterError
from penstock.spark.settings import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Executor:
    """One registered executor."""

    id: str
    host: str
    """Its address, such as `127.0.0.11`; hosts of a local cluster have one each."""
    cores: int
    added_s: float
    """When it registered, in seconds since 1970."""
    tasks_done: int
    tasks_active: int
    task_time_s: float
    """Time its task slots were busy since it registered."""
    storage_mib: int
    """Memory for cached blocks: a known share of its heap."""


@dataclass(frozen=True, slots=True)
class Scalability:
    """Whether a session's executors can be changed, and why (not)."""

    possible: bool
    reason: str


@dataclass(slots=True)
class _Retirement:
    deadline_s: float
    killed: bool = False


@dataclass(slots=True)
class ExecutorControl:
    """Counts, adds and retires the executors of one session. Not thread-safe; made once a session.

    Nothing here blocks longer than a call into the driver (milliseconds). `tick` has to be called now
    and then (every second or so): it kills what did not retire in time and says the target again.
    """

    spark: SparkSession
    grace_s: float = 10.0
    """How long a retiring executor may finish its tasks before it is killed."""
    target: int | None = None
    """The wanted number of executors, as last said; None before the first time."""
    _retiring: dict[str, _Retirement] = field(default_factory=dict)
    _printer: Any = None
    _no_preferences: Any = None
    _last: tuple[str, tuple[Executor, ...]] | None = None

    def scalability(self) -> Scalability:
        """Whether the executors of the session can be changed, and the reason."""
        return scalability(self.spark)

    def take_over(self) -> str | None:
        """Stop Spark's own dynamic allocation where it is on; says so, or gives None where it was off.

        The target stays what Spark's manager started with. Calling it again changes nothing.
        """
        conf = self._context.getConf()
        if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
            return None
        manager = self._java_context.executorAllocationManager()
        if manager.isEmpty():
            return None
        # Its timer is stopped, its listener stays and only counts; stopping it twice is harmless.
        manager.get().stop()
        if self.target is None:
            initial = int(conf.get("spark.dynamicAllocation.initialExecutors", "0") or 0)
            least = int(conf.get("spark.dynamicAllocation.minExecutors", "0") or 0)
            started = len(self.executors())
            # Say it once more: the manager may have been stopped before it had asked.
            self.set_target(max(initial, least, started))
        return "stopped Spark's own dynamic allocation: executors are now added and retired by Penstock alone"

    def set_target(self, number: int) -> None:
        """Ask for so many executors in all. Lowering it stops none: use `retire` for that."""
        if number < 0:
            raise ValueError(f"expected a number of executors of at least 0, got {number}")
        self._require_possible()
        self.target = number
        self._say_target()

    def executors(self) -> tuple[Executor, ...]:
        """Registered executors that live, retiring ones too, oldest first; the driver is not one."""
        if self._printer is None:
            # What Spark's REST API prints with: one call for all executors, not ten for each.
            self._printer = self._jvm.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()
        printed = self._printer.writeValueAsString(self._java_context.statusStore().executorList(True))
        found = [_executor(summary) for summary in json.loads(printed) if summary["id"] != "driver"]
        return tuple(sorted(found, key=lambda executor: (executor.added_s, executor.id)))

    def present(self) -> tuple[Executor, ...]:
        """The same executors as at the last look, where none came or went: quick; else a new look."""
        ids = self._java_context.schedulerBackend().getExecutorIds().mkString(",")
        if self._last is None or self._last[0] != ids:
            self._last = (ids, self.executors())
        return self._last[1]

    @property
    def retiring(self) -> frozenset[str]:
        """Ids of executors that were told to go and may still finish tasks."""
        return frozenset(self._retiring)

    def retire(self, ids: Collection[str], *, grace_s: float | None = None) -> None:
        """Retire executors by id: they take no more tasks, finish theirs, and are killed after the grace.

        Lower the target first, or Spark replaces them. Ids already retiring are left to it.
        """
        self._require_possible()
        backend = self._java_context.schedulerBackend()
        decommission = self._context.getConf().get("spark.decommission.enabled", "false") == "true"
        for executor in ids:
            if executor in self._retiring:
                continue
            wait_s = self.grace_s if grace_s is None else grace_s
            accepted = False
            if decommission and wait_s > 0:
                info = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
                    "retired by Penstock", self._jvm.scala.Option.empty()
                )
                accepted = bool(backend.decommissionExecutor(executor, info, False, False))
            self._retiring[executor] = _Retirement(time.monotonic() + (wait_s if accepted else 0.0))
        self.tick()

    def tick(self) -> None:
        """Kill what did not retire in time, forget what is gone, and say the target again."""
        if not self._retiring:
            self._say_target()
            return
        alive = {executor.id for executor in self.executors()}
        now_s = time.monotonic()
        for executor in [name for name in self._retiring if name not in alive]:
            del self._retiring[executor]
        late = [name for name, r in self._retiring.items() if r.deadline_s <= now_s and not r.killed]
        if late:
            self.kill(late)
            for executor in late:
                self._retiring[executor].killed = True
        self._say_target()

    def kill(self, ids: Collection[str]) -> None:
        """Kill executors at once; their running tasks run again elsewhere and count as no failure."""
        self._require_possible()
        sequence = self._jvm.PythonUtils.toSeq(list(ids))
        # The context's own killExecutors refuses where dynamic allocation is on; the backend's does not.
        self._java_context.schedulerBackend().killExecutors(sequence, False, False, True)
        # The backend lowers its own target by what it killed: put ours back.
        self._say_target()

    def _say_target(self) -> None:
        if self.target is not None:
            if self._no_preferences is None:
                self._no_preferences = self._jvm.PythonUtils.toScalaMap({})
            self._java_context.requestTotalExecutors(self.target, 0, self._no_preferences)

    def _require_possible(self) -> None:
        found = self.scalability()
        if not found.possible:
            raise ClusterError(found.reason)

    @property
    def _context(self) -> Any:
        return self.spark.sparkContext

    @property
    def _java_context(self) -> Any:
        return self._context._jsc.sc()

    @property
    def _jvm(self) -> Any:
        return self._context._jvm


def scalability(spark: SparkSession) -> Scalability:
    """Whether a session's executors can be changed, and why (not)."""
    try:
        context = spark.sparkContext
        java_context = context._jsc.sc()
    except Exception:
        return Scalability(
            False,
            "this is a Spark Connect session: executors belong to the server and cannot be changed "
            "from here; attach in the server's driver, or start a classic session",
        )
    master = context.master
    if is_local(master):
        return Scalability(
            False,
            f"the master is {master}: driver and tasks share one process and there are no executors to add; "
            "start the application on a cluster, for example one of `penstock cluster up`",
        )
    backend = java_context.schedulerBackend()
    allocation_client = context._jvm.java.lang.Class.forName("org.apache.spark.ExecutorAllocationClient")
    if not allocation_client.isInstance(backend):
        return Scalability(
            False, f"the cluster manager behind {master} does not let an application ask for executors"
        )
    if not context.getConf().get("spark.executor.cores") and master.startswith("spark://"):
        return Scalability(
            False,
            "spark.executor.cores is not set: an executor takes all cores of its worker, so there is "
            "never room for another; set it (for example to 1) before the session starts",
        )
    limit = context.getConf().get("spark.cores.max")
    note = f"; spark.cores.max={limit} stays a hard limit" if limit else ""
    return Scalability(True, f"executors at {master} can be added and retired{note}")


def _executor(summary: Mapping[str, Any]) -> Executor:
    added = datetime.fromisoformat(summary["addTime"].replace("GMT", "+00:00"))
    return Executor(
        id=summary["id"],
        host=summary["hostPort"].rsplit(":", 1)[0],
        cores=summary["totalCores"],
        added_s=added.timestamp(),
        tasks_done=summary["completedTasks"],
        tasks_active=summary["activeTasks"],
        task_time_s=summary["totalDuration"] / 1000,
        storage_mib=summary["maxMemory"] >> 20,
    )
