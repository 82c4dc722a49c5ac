"""How busy executors are: CPU and memory of those on this machine, slot time of those elsewhere.

On this machine the operating system counts. CPU is a share of what an executor can have: its cores, or its
part of what the control group around it may use. An executor that has all of a host of half a core is at
100 %.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence

import psutil

from penstock.machine.quota import cores_allowed
from penstock.monitoring import InstanceReading
from penstock.spark.gateway.executors import Executor

LOOK_AGAIN_S = 30.0
"""How often executors' process trees are looked up anew."""
LOOK_AGAIN_YOUNG_S, YOUNG_S = 2.0, 60.0
"""How often while an executor is young: its Python workers are born with its first tasks, and until they are
found what they use is missing from its CPU."""
LARGEST_SHARE = 0.005
"""Looking takes no more than this share of a core: where it takes long, it is done less often."""


class ExecutorProcesses:
    """CPU and memory of the executor processes that run on this machine, with their Python workers."""

    def __init__(self, application: str, memory_mib: int) -> None:
        self._application = application
        self._memory_mib = memory_mib
        self._processes: dict[str, psutil.Process] = {}
        self._unseen: set[str] = set()
        self._cpu_s: dict[str, tuple[float, dict[int, float]]] = {}
        self._trees: dict[int, list[psutil.Process]] = {}
        self._looked_s = 0.0
        self._look_cost_s = 0.0
        self._found_s: dict[str, float] = {}
        self._allowed: dict[str, float] = {}
        """What the control groups around executors leave to each, as of the last look at their trees."""

    def readings(self, executors: Sequence[Executor]) -> dict[str, tuple[float, float]]:
        """(CPU ratio, memory ratio) since the last call, by executor id; only those visible here."""
        known = set(self._processes)
        cores = {executor.id: max(1, executor.cores) for executor in executors}
        self._find(set(cores))
        if not self._processes:
            return {}
        now_s = time.monotonic()
        new = set(self._processes) - known
        self._found_s.update(dict.fromkeys(new, now_s))
        if new or now_s - self._looked_s > self._rest_s(now_s):
            # Going through all processes costs some milliseconds; Python workers come and go rarely.
            begun_s = time.thread_time()
            self._trees = process_trees([process.pid for process in self._processes.values()])
            self._allowed = self._shares_of_hosts()
            self._looked_s, self._look_cost_s = now_s, time.thread_time() - begun_s
        found = {}
        for executor, process in self._processes.items():
            tree = self._trees.get(process.pid, [])
            times_s, memory_mib = _tree_times(tree)
            before = self._cpu_s.get(executor)
            self._cpu_s[executor] = (now_s, times_s)
            if before is not None and now_s > before[0]:
                # A process first seen now is counted from now on: when it used its time is not known.
                used_s = sum(t - before[1][pid] for pid, t in times_s.items() if pid in before[1])
                most = min(float(cores[executor]), self._allowed.get(executor, math.inf))
                share = used_s / ((now_s - before[0]) * most)
                memory_ratio = memory_mib / self._memory_mib
                found[executor] = (min(1.0, max(0.0, share)), min(1.0, memory_ratio))
        return found

    def _rest_s(self, now_s: float) -> float:
        """How long a look at the trees is good for."""
        if any(now_s - found_s < YOUNG_S for found_s in self._found_s.values()):
            return min(LOOK_AGAIN_S, max(LOOK_AGAIN_YOUNG_S, self._look_cost_s / LARGEST_SHARE))
        return LOOK_AGAIN_S

    def _shares_of_hosts(self) -> dict[str, float]:
        """The cores that limits leave to each executor; those inside one limit share it evenly."""
        limits = {name: cores_allowed(process.pid) for name, process in self._processes.items()}
        groups = [limit[0] for limit in limits.values() if limit is not None]
        return {
            name: limit[1] / groups.count(limit[0]) for name, limit in limits.items() if limit is not None
        }

    def _find(self, executors: set[str]) -> None:
        for gone in [
            name for name, p in self._processes.items() if name not in executors or not p.is_running()
        ]:
            del self._processes[gone]
            self._cpu_s.pop(gone, None)
            self._found_s.pop(gone, None)
        missing = executors - self._processes.keys()
        # Looking through all processes costs milliseconds: only when there is somebody new to find.
        if not missing or missing <= self._unseen:
            return
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if "--executor-id" not in words or "--app-id" not in words:
                    continue
                if words[words.index("--app-id") + 1] == self._application:
                    name = words[words.index("--executor-id") + 1]
                    if name in missing:
                        self._processes[name] = process
        self._unseen = missing - self._processes.keys()


def process_trees(roots: Sequence[int]) -> dict[int, list[psutil.Process]]:
    """Each root with all its descendants, in one pass over the processes."""
    children: dict[int, list[psutil.Process]] = {}
    own: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            children.setdefault(process.ppid(), []).append(process)
            own[process.pid] = process
    found = {}
    for root in roots:
        members = [own[root]] if root in own else []
        for member in members:
            members.extend(children.get(member.pid, ()))
        found[root] = members
    return found


def _tree_times(tree: Sequence[psutil.Process]) -> tuple[dict[int, float], float]:
    """CPU seconds by pid (children that ended count with their parent), and resident MiB of them all."""
    times_s, memory_mib = {}, 0.0
    for process in tree:
        with contextlib.suppress(psutil.Error), process.oneshot():
            times_s[process.pid] = float(sum(process.cpu_times()[:4]))
            memory_mib += process.memory_info().rss / 2**20
    return times_s, memory_mib


def tree_usage(tree: Sequence[psutil.Process]) -> tuple[float, float]:
    """CPU seconds and resident MiB of a process tree."""
    times_s, memory_mib = _tree_times(tree)
    return sum(times_s.values()), memory_mib


def size_mib(text: str) -> int:
    """MiB of a size as Spark's settings have it, such as `512m`, `2g`, or plain bytes."""
    units = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2}
    lower = text.strip().lower().removesuffix("b")
    return int(float(lower[:-1]) * units[lower[-1]]) if lower[-1:] in units else int(lower) >> 20


def busy_ratio(before: Executor, now: Executor, interval_s: float) -> float:
    """The share of an interval in which an executor's slots were busy.

    Spark adds a task's time when the task ends. Of tasks that ended, what falls into the interval is taken;
    those that ran before it and have not ended kept their slots busy all through it.
    """
    ended = max(0, now.tasks_done - before.tasks_done)
    ended_s = min(max(0.0, now.task_time_s - before.task_time_s), ended * interval_s)
    lasting_s = max(0, before.tasks_active - ended) * interval_s
    return min(1.0, (ended_s + lasting_s) / (interval_s * max(1, now.cores)))


def with_records(
    readings: Sequence[InstanceReading], worked_s: Mapping[str, float], records: int
) -> tuple[InstanceReading, ...]:
    """The readings with the records that each executor finished: by the time its tasks took.

    Spark counts no records by executor, and task time is told anyway. Who worked at all did one at least.
    """
    total_s = sum(worked_s.get(reading.instance, 0.0) for reading in readings)
    if total_s <= 0.0 or records <= 0:
        return tuple(readings)
    return tuple(
        reading._replace(executed=max(1, round(records * own_s / total_s)))
        if (own_s := worked_s.get(reading.instance, 0.0)) > 0.0
        else reading
        for reading in readings
    )
