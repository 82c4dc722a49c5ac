"""An application's executors, seen and changed from Python through Spark's own driver.

The calls are those of Spark's dynamic allocation, so they serve every cluster manager that has it
(standalone, YARN, Kubernetes). The target is absolute and said again as often as one likes; lowering
it stops nothing, so executors are retired by id: decommissioned (they finish their tasks), then
killed after a grace period. Where executors cannot be changed, `scalability` says why.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.errors import ClusterError
from penstock.spark.gateway.session import (
    counts_executors,
    java,
    java_class,
    java_context,
    session_facts,
    setting,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALLOCATION_CLIENT = "org.apache.spark.ExecutorAllocationClient"
DECOMMISSION_INFO = "org.apache.spark.scheduler.ExecutorDecommissionInfo"
DEFAULT_INSTANCES = "2"
"""What YARN and Kubernetes start where `spark.executor.instances` is not set."""
SUMMARY_PRINTER = "org.apache.spark.status.api.v1.JacksonMessageWriter"
SAY_AGAIN_S = 5.0
"""How often a target is said again that nothing has changed: each time asks the cluster manager."""


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


class DriverExecutors:
    """The executors of one session, by calls into its driver (milliseconds each). Not thread-safe."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._printer: Any = None
        self._no_preferences: Any = None
        self._held: tuple[Any, Any, Any] | None = None
        """The session's Java context, and the driver's context and backend behind it: asked for once."""

    def listed(self) -> tuple[Executor, ...]:
        """Registered executors that live, oldest first; the driver is not one."""
        if self._printer is None:
            # What Spark's REST API prints with: one call for all executors, not ten for each.
            self._printer = self._java.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()
        printed = self._printer.writeValueAsString(self._context.statusStore().executorList(True))
        found = [_executor(summary) for summary in json.loads(printed) if summary["id"] != "driver"]
        return tuple(sorted(found, key=lambda executor: (executor.added_s, executor.id)))

    def ids(self) -> frozenset[str]:
        """Ids of the registered executors: quicker than the whole list."""
        printed = self._backend.getExecutorIds().mkString(",")
        return frozenset(printed.split(",")) if printed else frozenset()

    def answers_to_targets(self) -> bool:
        """Whether the cluster manager lets an application ask for executors."""
        return bool(self._java.java.lang.Class.forName(ALLOCATION_CLIENT).isInstance(self._backend))

    def set_target(self, number: int) -> None:
        """Ask for so many executors in all; lowering it stops none."""
        if self._no_preferences is None:
            self._no_preferences = self._java.PythonUtils.toScalaMap({})
        self._context.requestTotalExecutors(number, 0, self._no_preferences)

    def decommission(self, executor: str, why: str) -> bool:
        """Let an executor finish its tasks and go; False where it, or Spark, will not.

        The target is not lowered by it.
        """
        information = java_class(self._spark, DECOMMISSION_INFO)
        if information is None:
            return False
        told = information(why, self._java.scala.Option.empty())
        return bool(self._backend.decommissionExecutor(executor, told, False, False))

    def kill(self, executors: Collection[str]) -> None:
        """Kill executors at once; their tasks run again elsewhere and count as no failure.

        The backend lowers its own target by what it kills: say the target again.
        """
        ids = self._java.PythonUtils.toSeq(list(executors))
        # The context's own killExecutors refuses where dynamic allocation is on; the backend's does not.
        self._backend.killExecutors(ids, False, False, True)

    def stop_allocation_manager(self) -> bool:
        """Stop Spark's own dynamic allocation; False where there is none. Doing so twice is harmless.

        Its timer is stopped, its listener stays and only counts.
        """
        manager = self._context.executorAllocationManager()
        if manager.isEmpty():
            return False
        manager.get().stop()
        return True

    @property
    def _java(self) -> Any:
        return java(self._spark)

    @property
    def _context(self) -> Any:
        return self._behind()[1]

    @property
    def _backend(self) -> Any:
        return self._behind()[2]

    def _behind(self) -> tuple[Any, Any, Any]:
        session: Any = self._spark.sparkContext._jsc
        if self._held is None or self._held[0] is not session:
            context = java_context(self._spark)
            self._held = (session, context, context.schedulerBackend())
        return self._held


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
    """The wanted number of executors, said at once or at the next `tick`; None before the first time."""
    further_cores: Mapping[str, int] = field(default_factory=dict)
    """Cores that executors have beyond those Spark knows of, by id (`ExecutorSlots.cores`)."""
    _retiring: dict[str, _Retirement] = field(default_factory=dict)
    _last: tuple[frozenset[str], tuple[Executor, ...]] | None = None
    _said_s: float = -SAY_AGAIN_S
    _driver: DriverExecutors = field(init=False)

    @property
    def tells_tasks(self) -> bool:
        """Whether executors say how long their tasks took."""
        return True

    def __post_init__(self) -> None:
        self._driver = DriverExecutors(self.spark)

    def scalability(self) -> Scalability:
        """Whether the executors of the session can be changed, and the reason."""
        return scalability(self.spark)

    def take_over(self) -> str | None:
        """Stop Spark's own dynamic allocation where it is on; says so, or gives None where it was off.

        The target stays what Spark's manager started with. Calling it again changes nothing. It waits for no
        cluster manager: the target is noted here, and said at the next `tick`.
        """
        if self._setting("spark.dynamicAllocation.enabled", "false") != "true":
            if self.target is None and counts_executors(self.spark.sparkContext.master):
                started = int(self._setting("spark.executor.instances", DEFAULT_INSTANCES))
                self.target = max(started, len(self.executors()))
            return None
        if not self._driver.stop_allocation_manager():
            return None
        if self.target is None:
            initial = int(self._setting("spark.dynamicAllocation.initialExecutors", "0") or 0)
            least = int(self._setting("spark.dynamicAllocation.minExecutors", "0") or 0)
            started = len(self.executors())
            # To be said once more: the manager may have been stopped before it had asked.
            self.target = max(initial, least, started)
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
        further = self.further_cores
        return tuple(
            replace(executor, cores=executor.cores + further.get(executor.id, 0))
            for executor in self._driver.listed()
        )

    def present(self) -> tuple[Executor, ...]:
        """The same executors as at the last look, where none came or went: quick; else a new look."""
        ids = self._driver.ids()
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
        decommission = self._setting("spark.decommission.enabled", "false") == "true"
        for executor in ids:
            if executor in self._retiring:
                continue
            wait_s = self.grace_s if grace_s is None else grace_s
            accepted = (
                decommission and wait_s > 0 and self._driver.decommission(executor, "retired by Penstock")
            )
            self._retiring[executor] = _Retirement(time.monotonic() + (wait_s if accepted else 0.0))
        self.tick()

    def tick(self) -> None:
        """Kill what did not retire in time, forget what is gone, and say the target again now and then."""
        if not self._retiring:
            if time.monotonic() - self._said_s >= SAY_AGAIN_S:
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
        self._driver.kill(ids)
        # The backend lowers its own target by what it killed: put ours back.
        self._say_target()

    def _say_target(self) -> None:
        if self.target is not None:
            self._driver.set_target(self.target)
            self._said_s = time.monotonic()

    def _require_possible(self) -> None:
        found = self.scalability()
        if not found.possible:
            raise ClusterError(found.reason)

    def _setting(self, name: str, default: str) -> str:
        return setting(self.spark, name, default)


def scalability(spark: SparkSession) -> Scalability:
    """Whether a session's executors can be changed, and why (not)."""
    facts = session_facts(spark)
    if facts.connect:
        return Scalability(
            False,
            "this is a Spark Connect session: executors belong to the server and can be neither seen nor "
            "changed from here, so it measures the queries and advises; attach in the server for more",
        )
    if facts.stopped:
        return Scalability(False, "the Spark session is stopped: it has no executors any more")
    master = facts.master
    if facts.local:
        return Scalability(
            False,
            f"the master is {master}: driver and tasks share one process and there are no executors to add; "
            "start the application on a cluster, for example one of `penstock cluster up`",
        )
    if not DriverExecutors(spark).answers_to_targets():
        return Scalability(
            False, f"the cluster manager behind {master} does not let an application ask for executors"
        )
    conf = spark.sparkContext.getConf()
    if not conf.get("spark.executor.cores") and master.startswith("spark://"):
        return Scalability(
            False,
            "spark.executor.cores is not set: an executor takes all cores of its worker, so there is "
            "never room for another; set it (for example to 1) before the session starts",
        )
    limit = conf.get("spark.cores.max")
    note = f"; spark.cores.max={limit} stays a hard limit" if limit else ""
    return Scalability(True, f"executors at {master} can be added and retired{note}")
