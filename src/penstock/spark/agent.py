"""Measures a session's streaming queries: what the control loop sees of a unit on Spark.

Everything comes from what Spark and the operating system count anyway: progress events (rows, duration
parts, offsets), task times, and the CPU and memory of executor processes that are visible here. New
events are fetched in one call a poll, never one by one, so that measuring stays below 1 % of a unit's
CPU. Used by `attach` and by the driver of every unit.

Exact durations: give a query `df.observe("penstock", …)` columns named like the fields of `OBSERVED`
(for example `avg(...) as latency_s`); where they are present they replace the estimates below.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import numpy as np
import psutil

from penstock.channels.files import log_entries_after
from penstock.monitoring import InstanceReading, Measurement
from penstock.spark.executors import Executor, ExecutorControl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger(__name__)

OBSERVED = ("duration_s", "duration_p95_s", "duration_p99_s", "latency_s", "latency_p95_s")
"""Names of observed columns that are taken as they are (see the module's docstring)."""

_ROWS_REMEMBERED = 100_000
"""How many rows tell the size of a record."""

LOOK_AGAIN_S = 30.0
"""How often executors' process trees are looked up anew."""

POLL_DELAY_S = 0.1
"""How long Spark waits before it looks for new data again, as our settings have it."""


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """What one source of a query did in one batch."""

    description: str
    rows: int
    end_offset: Any = None
    latest_offset: Any = None


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch (or, with no rows, one idle report) of one query."""

    query: str
    """The query's id; it survives restarts."""
    number: int
    started_s: float
    duration_s: float
    rows: int
    rows_out: int | None
    parts_s: Mapping[str, float]
    """Duration parts as Spark names them: `addBatch`, `getBatch`, `queryPlanning`, `walCommit`, …"""
    sources: tuple[SourceProgress, ...] = ()
    observed: Mapping[str, float] = field(default_factory=dict)
    state_rows: int = 0
    event: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The progress event itself, for what has no field here."""

    @property
    def ended_s(self) -> float:
        """When it was done."""
        return self.started_s + self.duration_s


@dataclass(frozen=True, slots=True)
class Details:
    """What a measurement has no place for: the duration parts, the queries, where instances run."""

    batches: int = 0
    batch_s: float | None = None
    """Mean duration of a batch with rows."""
    parts_s: Mapping[str, float] = field(default_factory=dict)
    """Mean of each duration part."""
    queries: tuple[str, ...] = ()
    instances_by_host: Mapping[str, int] = field(default_factory=dict)
    state_rows: int = 0


class ProgressReader:
    """Reads the new progress events of every query of a session, each once."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._seen: dict[str, tuple[int, str]] = {}
        self._triggers: dict[str, float] = {}
        self.missed = 0
        """Events that had left Spark's ring before they were read; poll more often where it grows."""

    def queries(self) -> list[Any]:
        """The active streaming queries of the session."""
        return list(self._spark.streams.active)

    def read(self, queries: Iterable[Any]) -> list[Batch]:
        """The events of these queries since the last call, oldest first."""
        found: list[Batch] = []
        for query in queries:
            try:
                found.extend(self._new(query))
            except Exception:
                if _is_active(query):
                    raise
                # It ended between the two calls; there is nothing more to read.
        return sorted(found, key=lambda batch: batch.started_s)

    def trigger_s(self, query: Any) -> float:
        """The interval of the query's trigger; 0 where it starts batches as soon as it can."""
        run = str(query.runId)
        if run not in self._triggers:
            interval_s = 0.0
            with contextlib.suppress(Exception):
                interval_s = execution(query).trigger().intervalMs() / 1000
            self._triggers[run] = interval_s
        return self._triggers[run]

    def _new(self, query: Any) -> list[Batch]:
        run = str(query.runId)
        last = query._jsq.lastProgress()
        if last is None:
            return []
        newest = (int(last.batchId()), str(last.timestamp()))
        seen = self._seen.get(run)
        if newest == seen:
            return []
        events = query._jsq.recentProgress()
        size = len(events)
        # An idle report carries the number of the batch to come, so the same number may come twice.
        wanted = size if seen is None else min(size, newest[0] - seen[0] + 2)
        # Events print as JSON, and Scala prints an array of them as `Array({…}, {…})`: one call for all.
        printed = self._spark.sparkContext._jvm.scala.runtime.ScalaRunTime.stringOf(
            events[size - wanted : size]
        )
        found = json.loads(f"[{printed.removeprefix('Array(').removesuffix(')')}]")
        self._seen[run] = newest
        if seen is None:
            return [parse_progress(event) for event in found]
        fresh = [parse_progress(event) for event in found if event["timestamp"] > seen[1]]
        if fresh and fresh[0].number > seen[0] + 1:
            self.missed += fresh[0].number - seen[0] - 1
        return fresh


def _is_active(query: Any) -> bool:
    with contextlib.suppress(Exception):
        return bool(query.isActive)
    return False


def execution(query: Any) -> Any:
    """The Java object that runs a query, behind the wrapper Spark hands out."""
    return query._jsq.streamingQuery()


def parse_progress(event: Mapping[str, Any]) -> Batch:
    """A progress event, as Spark prints it in JSON, as a batch."""
    sources = tuple(
        SourceProgress(
            source["description"],
            int(source.get("numInputRows") or 0),
            source.get("endOffset"),
            source.get("latestOffset"),
        )
        for source in event.get("sources", ())
    )
    parts_s = {name: value / 1000 for name, value in (event.get("durationMs") or {}).items()}
    rows_out = (event.get("sink") or {}).get("numOutputRows", -1)
    observed = {
        name: float(value)
        for metrics in (event.get("observedMetrics") or {}).values()
        for name, value in metrics.items()
        if name in OBSERVED and value is not None
    }
    started = datetime.fromisoformat(event["timestamp"].replace("Z", "+00:00"))
    return Batch(
        query=event["id"],
        number=int(event["batchId"]),
        started_s=started.timestamp(),
        duration_s=parts_s.get("triggerExecution", 0.0),
        rows=sum(source.rows for source in sources) if sources else int(event.get("numInputRows") or 0),
        rows_out=None if rows_out is None or rows_out < 0 else int(rows_out),
        parts_s=parts_s,
        sources=sources,
        observed=observed,
        state_rows=sum(int(s.get("numRowsTotal") or 0) for s in event.get("stateOperators") or ()),
        event=event,
    )


# --- waiting records -----------------------------------------------------------------------------------


def offsets_behind(source: SourceProgress) -> int | None:
    """Records between the end of the last batch and the newest one there is, by the source's offsets.

    Sums over topics and partitions (Kafka) or takes the difference of plain counters; None where the
    offsets do not count records (files, the `rate` source).
    """
    if (
        source.latest_offset is None
        or source.end_offset is None
        or source.description.startswith("RateStreamV2")
    ):
        return None
    latest, end = _numbers(source.latest_offset), _numbers(source.end_offset)
    if latest is None or end is None:
        return None
    return max(0, sum(value - end.get(place, 0) for place, value in latest.items()))


def _numbers(offset: Any) -> dict[str, int] | None:
    """The counters of an offset by topic and partition; None where it has none."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if isinstance(offset, bool):
        return None
    if isinstance(offset, int):
        return {"": offset}
    if not isinstance(offset, dict):
        return None
    if set(offset) == {"offset", "timestamp"}:  # the rate-micro-batch source
        return {"": int(offset["offset"])}
    found = {}
    for topic, partitions in offset.items():
        if not isinstance(partitions, dict):
            return None
        for partition, number in partitions.items():
            found[f"{topic}/{partition}"] = int(number)
    return found


class WaitingFiles:
    """Counts records in files a file source has not taken yet, in local folders.

    Spark takes files in the order of their modification times and logs those it took; a file younger
    than the youngest taken one waits. Its records are told by its size: files taken lately say how many
    bytes a record has, so that a load that has risen shows before the first of its files is read.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self._folder = folder
        self._log = log
        self._taken_ms = -1
        self._taken_then: set[str] = set()
        self._last_entry = -1
        self._unfinished: dict[int, list[int]] = {}
        """Sizes of the files of each log entry whose batch is not known to be done."""
        self._bytes = 0
        self._rows = 0

    def finish(self, rows: int, end_offset: Any) -> None:
        """A batch that ended at this offset read so many rows: its files are done, their average learnt."""
        numbers = json.loads(end_offset) if isinstance(end_offset, str) else end_offset
        last = int(numbers["logOffset"]) if isinstance(numbers, dict) and "logOffset" in numbers else -1
        with contextlib.suppress(OSError):
            self._read_log()
        done = [number for number in self._unfinished if number <= last]
        self._bytes += sum(sum(self._unfinished.pop(number)) for number in done)
        self._rows += rows
        if self._rows > _ROWS_REMEMBERED:  # forget slowly: records may change their size
            self._bytes //= 2
            self._rows //= 2

    def count(self) -> tuple[int, int] | None:
        """Records in files not yet taken, and in files taken by the running batch.

        None where the folder cannot be read here.
        """
        try:
            self._read_log()
            waiting = files = 0
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.startswith((".", "_")) or not entry.is_file():
                        continue
                    status = entry.stat()
                    modified_ms = status.st_mtime_ns // 1_000_000
                    if modified_ms > self._taken_ms or (
                        modified_ms == self._taken_ms and entry.name not in self._taken_then
                    ):
                        waiting += status.st_size
                        files += 1
        except OSError:
            return None
        if not self._bytes or not self._rows:
            # Before the first batch is done a file counts as one record: more is not known.
            return files, sum(len(sizes) for sizes in self._unfinished.values())
        each = self._rows / self._bytes
        return round(waiting * each), round(sum(map(sum, self._unfinished.values())) * each)

    def _read_log(self) -> None:
        """Read the source's log entries since the last call: one small file a batch."""
        if not self._log.is_dir():
            return
        present = {int(path.split(".")[0]): path for path in os.listdir(self._log) if path[0].isdigit()}
        for number in sorted(entry for entry in present if entry > self._last_entry):
            for taken in log_entries_after(self._log / present[number], self._last_entry):
                path = unquote(urlparse(taken["path"]).path)
                size = 0
                with contextlib.suppress(OSError):  # deleted already
                    size = os.path.getsize(path)
                self._unfinished.setdefault(number, []).append(size)
                if taken["timestamp"] > self._taken_ms:
                    self._taken_ms = taken["timestamp"]
                    self._taken_then = set()
                if taken["timestamp"] == self._taken_ms:
                    self._taken_then.add(os.path.basename(path))
            self._last_entry = number


# --- executors' processes ------------------------------------------------------------------------------


class ExecutorProcesses:
    """CPU and memory of the executor processes that run on this machine, with their Python workers."""

    def __init__(self, application: str, cores: int, memory_mib: int) -> None:
        self._application = application
        self._cores = cores
        self._memory_mib = memory_mib
        self._processes: dict[str, psutil.Process] = {}
        self._unseen: set[str] = set()
        self._cpu_s: dict[str, tuple[float, dict[int, float]]] = {}
        self._trees: dict[int, list[psutil.Process]] = {}
        self._looked_s = 0.0

    def readings(self, executors: Sequence[Executor]) -> dict[str, tuple[float, float]]:
        """(CPU ratio, memory ratio) since the last call, by executor id; only those visible here."""
        known = set(self._processes)
        self._find({executor.id for executor in executors})
        if not self._processes:
            return {}
        now_s = time.monotonic()
        if set(self._processes) - known or now_s - self._looked_s > LOOK_AGAIN_S:
            # Going through all processes costs ten milliseconds; Python workers come and go rarely.
            self._trees = process_trees([process.pid for process in self._processes.values()])
            self._looked_s = now_s
        found = {}
        for executor, process in self._processes.items():
            tree = self._trees.get(process.pid, [])
            times_s, memory_mib = _tree_times(tree)
            before = self._cpu_s.get(executor)
            self._cpu_s[executor] = (now_s, times_s)
            if before is not None and now_s > before[0]:
                # A process first seen now is counted from now on: when it used its time is not known.
                used_s = sum(t - before[1][pid] for pid, t in times_s.items() if pid in before[1])
                share = used_s / ((now_s - before[0]) * self._cores)
                memory_ratio = memory_mib / self._memory_mib
                found[executor] = (min(1.0, max(0.0, share)), min(1.0, memory_ratio))
        return found

    def _find(self, executors: set[str]) -> None:
        for gone in [
            name for name, p in self._processes.items() if name not in executors or not p.is_running()
        ]:
            del self._processes[gone]
            self._cpu_s.pop(gone, None)
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


# --- the meter -----------------------------------------------------------------------------------------


class SessionMeter:
    """Turns what a session did into one measurement a call. Use it from one thread."""

    def __init__(
        self,
        spark: SparkSession,
        unit: str,
        executors: ExecutorControl,
        *,
        waiting: Callable[[Sequence[Batch]], int | None] | None = None,
    ) -> None:
        """`waiting` replaces the count of waiting records, where somebody (a channel) knows better; it is
        given the batches since the last measurement."""
        self.unit = unit
        self.details = Details()
        self.batches: tuple[Batch, ...] = ()
        """The batches the last measurement is about."""
        self.executors: tuple[Executor, ...] = ()
        """The executors there were at the last measurement."""
        self._spark = spark
        self._executors = executors
        self._waiting_known = waiting
        self._progress = ProgressReader(spark)
        self._last_s: float | None = None
        self._waiting = 0
        self._in_service = 0
        self._service_s: float | None = None
        self._busy_s = 0.0
        """Slot time used since the last measurement with a finished batch."""
        self._batches: list[Batch] = []
        self._triggers: dict[str, float] = {}
        self._previous: dict[str, Batch] = {}
        self._behind: dict[str, int] = {}
        self._files: dict[tuple[str, int], WaitingFiles] = {}
        self._sourced: set[str] = set()
        self._task_time_s: dict[str, float] = {}
        conf = spark.sparkContext.getConf()
        self._cores = int(conf.get("spark.executor.cores", "1") or 1)
        heap_mib = _memory_mib(conf.get("spark.executor.memory", "1g") or "1g")
        self._processes = ExecutorProcesses(
            # Spark's own allowance for what is outside the heap: a tenth, at least 384 MiB.
            str(spark.sparkContext.applicationId), self._cores, heap_mib + max(384, heap_mib // 10)
        )  # fmt: skip

    def poll(self) -> None:
        """Fetch new events. `measure` does it too; call it in between where intervals are long
        (Spark keeps the last 400 events with our settings, 100 without).
        """
        queries = self._progress.queries()
        for query in queries:
            self._triggers[str(query.id)] = self._progress.trigger_s(query)
            if self._waiting_known is None and str(query.id) not in self._sourced:
                self._learn_sources(query)
        for batch in self._progress.read(queries):
            self._batches.append(batch)
            for index, source in enumerate(batch.sources):
                if (batch.query, index) in self._files:
                    self._files[batch.query, index].finish(source.rows, source.end_offset)
        alive = {str(query.id) for query in queries}
        for key in [key for key in self._files if key[0] not in alive]:
            del self._files[key]
        self._sourced &= alive
        for name in [name for name in self._behind if name not in alive]:
            del self._behind[name]

    def _learn_sources(self, query: Any) -> None:
        """Find a query's file sources before its first batch ends: what waits then counts already."""
        with contextlib.suppress(Exception):
            sources = execution(query).sources()
            for index in range(sources.size()):
                description = sources.apply(index).toString()
                if description.startswith("FileStreamSource["):
                    self._files[str(query.id), index] = _waiting_files(description, query, index)
            if sources.size():
                self._sourced.add(str(query.id))

    def measure(self, now_s: float) -> Measurement | None:
        """What happened since the last call; None the first time and where no query runs."""
        self.poll()
        queries = self._progress.queries()
        batches, self._batches = self._batches, []
        self.batches = tuple(batches)
        executors = self.executors = self._executors.executors()
        usage = self._processes.readings(executors)
        busy_s, readings = self._readings(executors, usage, now_s)
        previous_s, self._last_s = self._last_s, now_s
        waiting, in_service = self._count_waiting(batches)
        waiting_before, there_before = self._waiting, self._waiting + self._in_service
        self._waiting, self._in_service = waiting, in_service
        self._note_details(batches, queries, executors)
        if not queries or previous_s is None or now_s <= previous_s:
            self._previous.update({batch.query: batch for batch in batches if batch.rows})
            return None
        processed = sum(batch.rows for batch in batches)
        emitted = [batch.rows_out for batch in batches if batch.rows_out is not None]
        # A query's first batch starts Python workers and compiles: it says nothing of a record's work.
        beginning = any(batch.rows and batch.query not in self._previous for batch in batches)
        mean_s, p95_s, p99_s = self._durations(batches, waiting_before)
        observed = _observed(batches)
        self._busy_s += busy_s
        if processed:
            # A batch may last longer than an interval: all that was worked since the last one is its work.
            # Kept while nothing is processed: an idle unit must still be seen to be too large.
            if self._busy_s > 0 and not beginning:
                self._service_s = self._busy_s / processed
            self._busy_s = 0.0
        return Measurement(
            unit=self.unit,
            at_s=now_s,
            interval_s=now_s - previous_s,
            # What came in was processed, is being processed, or waits.
            arrived=max(0, processed + waiting + in_service - there_before),
            processed=processed,
            emitted=sum(emitted),
            waiting=waiting,
            in_service=in_service,
            duration_s=observed.get("duration_s", mean_s),
            duration_p95_s=observed.get("duration_p95_s", p95_s),
            duration_p99_s=observed.get("duration_p99_s", p99_s),
            service_s=self._service_s,
            latency_s=observed.get("latency_s"),
            latency_p95_s=observed.get("latency_p95_s"),
            readings=readings,
        )

    def _readings(
        self, executors: Sequence[Executor], usage: Mapping[str, tuple[float, float]], now_s: float
    ) -> tuple[float, tuple[InstanceReading, ...]]:
        """Slot time used since the last call, and a reading for each executor."""
        busy_s, readings = 0.0, []
        interval_s = now_s - self._last_s if self._last_s is not None else 0.0
        for executor in executors:
            used_s = max(0.0, executor.task_time_s - self._task_time_s.get(executor.id, executor.task_time_s))
            busy_s += used_s
            cpu_ratio, memory_ratio = usage.get(executor.id, (None, None))
            if cpu_ratio is None and interval_s > 0:
                # A process we cannot see: the share of time its slots were busy stands in.
                cpu_ratio = min(1.0, used_s / (interval_s * max(1, executor.cores)))
            readings.append(InstanceReading(executor.id, cpu_ratio, memory_ratio))
        self._task_time_s = {executor.id: executor.task_time_s for executor in executors}
        return busy_s, tuple(readings)

    def _count_waiting(self, batches: Sequence[Batch]) -> tuple[int, int]:
        """Records that wait, and records in the running batch as far as the source tells."""
        if self._waiting_known is not None:
            known = self._waiting_known(batches)
            return (self._waiting if known is None else known), 0
        for batch in batches:
            counts = [offsets_behind(source) for source in batch.sources]
            self._behind[batch.query] = sum(count for count in counts if count is not None)
        in_files = [found for files in self._files.values() if (found := files.count()) is not None]
        waiting = sum(self._behind.values()) + sum(count for count, _ in in_files)
        return waiting, sum(count for _, count in in_files)

    def _durations(
        self, batches: Sequence[Batch], waiting_before: int
    ) -> tuple[float | None, float | None, float | None]:
        """Mean, p95 and p99 of the time from a record's arrival to its batch's end, estimated.

        A record waits for the backlog before it (backlog over rate) and for the running batch: those of
        one batch arrived evenly since the batch before began, or since the trigger last looked.
        """
        points: list[tuple[float, float]] = []
        backlog = float(waiting_before)
        for batch in batches:
            if batch.rows == 0:
                continue
            before = self._previous.get(batch.query)
            self._previous[batch.query] = batch
            span_s = batch.duration_s if before is None else batch.started_s - before.started_s
            longest_s = max((before or batch).duration_s, self._triggers.get(batch.query, 0.0)) + POLL_DELAY_S
            span_s = min(max(0.0, span_s), longest_s)
            rate_per_s = batch.rows / batch.duration_s if batch.duration_s > 0 else 0.0
            queued_s = backlog / rate_per_s if rate_per_s > 0 else 0.0
            points.extend(
                (queued_s + batch.duration_s + span_s * share, batch.rows / 5)
                for share in (0.1, 0.3, 0.5, 0.7, 0.9)
            )
            behind = [offsets_behind(source) for source in batch.sources]
            backlog = float(sum(count for count in behind if count is not None))
        if not points:
            return None, None, None
        values = np.array([value for value, _ in points])
        weights = np.array([weight for _, weight in points])
        order = np.argsort(values)
        share = np.cumsum(weights[order]) / weights.sum()
        ranks = [min(int(np.searchsorted(share, level)), len(values) - 1) for level in (0.95, 0.99)]
        mean_s = float(np.average(values, weights=weights))
        return mean_s, float(values[order][ranks[0]]), float(values[order][ranks[1]])

    def _note_details(
        self, batches: Sequence[Batch], queries: Sequence[Any], executors: Sequence[Executor]
    ) -> None:
        full = [batch for batch in batches if batch.rows > 0]
        names = {name for batch in full for name in batch.parts_s}
        by_host: dict[str, int] = {}
        for executor in executors:
            by_host[executor.host] = by_host.get(executor.host, 0) + 1
        self.details = Details(
            batches=len(full),
            batch_s=sum(batch.duration_s for batch in full) / len(full) if full else None,
            parts_s={n: sum(b.parts_s.get(n, 0.0) for b in full) / len(full) for n in sorted(names)},
            queries=tuple(str(query.name or query.id) for query in queries),
            instances_by_host=by_host,
            state_rows=max((batch.state_rows for batch in batches), default=self.details.state_rows),
        )


def _observed(batches: Sequence[Batch]) -> dict[str, float]:
    """Observed columns over several batches: means weighted by rows (for percentiles, a close stand-in)."""
    found = {}
    for name in OBSERVED:
        having = [
            (batch.observed[name], batch.rows) for batch in batches if name in batch.observed and batch.rows
        ]
        if having:
            found[name] = sum(value * rows for value, rows in having) / sum(rows for _, rows in having)
    return found


def _waiting_files(description: str, query: Any, index: int) -> WaitingFiles:
    """The counter for a file source, from its description and its query's checkpoint."""
    folder = _local_path(description.removeprefix("FileStreamSource[").removesuffix("]"))
    checkpoint = _local_path(str(execution(query).resolvedCheckpointRoot()))
    return WaitingFiles(folder, checkpoint / "sources" / str(index))


def _local_path(location: str) -> Path:
    parsed = urlparse(location)
    return Path(unquote(parsed.path) if parsed.scheme else location)


def _memory_mib(text: str) -> int:
    units = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2}
    lower = text.strip().lower().removesuffix("b")
    return int(float(lower[:-1]) * units[lower[-1]]) if lower[-1:] in units else int(lower) >> 20
