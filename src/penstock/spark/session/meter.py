"""Measures a session's streaming queries: what the control loop sees of a unit on Spark.

Everything comes from what Spark and the operating system count anyway: progress events (rows, duration
parts, offsets), task times, and the CPU and memory of executor processes that are visible here. Used by
`attach` and by the driver of every unit.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.clock import TimesOfDay
from penstock.monitoring import DurationStatistics, InstanceReading, Measurement
from penstock.spark.gateway.connect import Executors
from penstock.spark.gateway.executors import Executor
from penstock.spark.gateway.queries import Trigger
from penstock.spark.gateway.session import session_facts, setting
from penstock.spark.session.arrivals import Arrivals
from penstock.spark.session.backlog import Backlogs, Waiting
from penstock.spark.session.book import QueryBook
from penstock.spark.session.goals import Goals
from penstock.spark.session.progress import Batch, ProgressReader, observed_values
from penstock.spark.session.readings import ExecutorProcesses, busy_ratio, size_mib, with_records
from penstock.spark.session.waiting import offsets_behind
from penstock.spark.session.work import Beginnings, KeptSlots, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_DELAY_S = 0.1
"""How long Spark waits before it looks for new data again, as our settings have it."""
SHARES = tuple((step + 0.5) / 20 for step in range(20))
"""Where in the time in which a batch's records came each of them is taken to have come."""
LONGEST_BATCH = 0.4
"""Batches may take this share of the SLO: a record waits for one, is in the next, and some time is left."""


ENDED_S = 120.0
"""So long after its last query ended a session is taken to have no load: it needs no more than the least."""


class MeterState(enum.Enum):
    """Whether a session has anything to measure."""

    WAITING = "no query has run yet"
    MEASURING = "queries run"
    ENDED = "every query has ended"


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


class SessionMeter:
    """Turns what a session did into one measurement a call. Use it from one thread."""

    def __init__(
        self,
        spark: SparkSession,
        unit: str,
        executors: Executors,
        *,
        waiting: Callable[[Sequence[Batch]], int | None] | None = None,
        goals: Goals | None = None,
        times: TimesOfDay | None = None,
    ) -> None:
        """`waiting` replaces the count of waiting records, where somebody (a channel) knows better; it is
        given the batches since the last measurement. `goals` are those of the queries; where they are known,
        so is how long batches may take, and with it what a record costs in them. `times` tells what Spark's
        times of day are by the clock whose instants `measure` is given; without it they are that clock's."""
        self.unit = unit
        self.state = MeterState.WAITING
        """Whether there are queries to measure, as of the last look."""
        self.details = Details()
        self.batches: tuple[Batch, ...] = ()
        """The batches the last measurement is about."""
        self.executors: tuple[Executor, ...] = ()
        """The executors there were at the last measurement."""
        self._spark = spark
        self._executors = executors
        self._waiting_known = waiting
        self._progress = ProgressReader(spark, times)
        self._times = times
        self._since_s: dict[str, float] = {}
        """Since when executors are there."""
        self._goals = goals or Goals(1.0)
        self._goals_known = goals is not None
        self._work, self._work_of = Work(), set[str]()
        """What batches cost, and of which query that was learnt."""
        self._beginnings = Beginnings()
        self.book = QueryBook(self._goals)
        """The queries one by one."""
        self._backlogs = Backlogs()
        self._waiting_of: dict[str, Waiting] = {}
        self._last_s: float | None = None
        self._waiting = 0
        self._in_service = 0
        self._service_s: float | None = None
        self._busy_s = 0.0
        """Slot time used since the last measurement with a finished batch."""
        self._worked_s: dict[str, float] = {}
        """The same of each executor."""
        self._batches: list[Batch] = []
        self._triggers: dict[str, Trigger] = {}
        self._real_time: set[str] = set()
        """Queries in real time, also those that ended: their last batches are read later."""
        self._kept = KeptSlots()
        self._previous: dict[str, Batch] = {}
        self._arrivals: dict[str, Arrivals] = {}
        """When records of queries whose sources tell what waits came."""
        self._before: dict[str, Executor] = {}
        self._slots = 0
        self._ran_s: float | None = None
        """When a query last ran."""
        heap_mib = size_mib(setting(spark, "spark.executor.memory", "1g"))
        self._processes = ExecutorProcesses(
            # Spark's own allowance for what is outside the heap: a tenth, at least 384 MiB.
            session_facts(spark).application_id, heap_mib + max(384, heap_mib // 10)
        )  # fmt: skip

    def poll(self) -> None:
        """Fetch new events. `measure` does it too; call it in between where intervals are long
        (Spark keeps the last 400 events with our settings, 100 without).
        """
        batches = self._progress.read()
        active = {}
        for run, known in self._progress.running().items():
            trigger = self._progress.trigger(run)
            active[run] = (known.query, known.id, known.name, trigger)
            self._triggers[known.id] = trigger
            (self._real_time.add if trigger.kind == "real time" else self._real_time.discard)(known.id)
            if self._waiting_known is None:
                self._backlogs.learn(known.query, known.id)
        self.book.see(active)
        for batch in batches:
            self._batches.append(batch)
            self._backlogs.finish(batch)
        alive = {name for _, name, _, _ in active.values()}
        self._triggers = {name: trigger for name, trigger in self._triggers.items() if name in alive}
        self._backlogs.keep(alive)
        if active:
            self.state = MeterState.MEASURING
        elif self.state is MeterState.MEASURING or batches:
            self.state = MeterState.ENDED

    def measure(self, now_s: float) -> Measurement | None:
        """What happened since the last call; None the first time and where no query ran (see `state`).

        A session whose queries have all ended has no load after a while.
        """
        self.poll()
        queries = tuple(known.name or known.id for known in self._progress.running().values())
        batches, self._batches = self._batches, []
        self.batches = tuple(batches)
        executors = self.executors = self._executors.executors()
        self._since_s = {executor.id: self.since_s(executor) for executor in executors}
        usage = self._processes.readings(executors)
        busy_s, readings = self._readings(executors, usage, now_s)
        previous_s, self._last_s = self._last_s, now_s
        before, there_before = self._waiting_of, self._waiting + self._in_service
        interval_s = None if previous_s is None else now_s - previous_s
        waiting, in_service = self._count_waiting(batches, interval_s)
        self._waiting, self._in_service = waiting, in_service
        left_behind = self._left_behind(batches, now_s)
        self._note_details(batches, queries, executors)
        ran = bool(queries) or any(batch.rows for batch in batches)
        if not ran or previous_s is None or now_s <= previous_s:
            full = [batch for batch in batches if batch.rows]
            self._previous.update({batch.query: batch for batch in full})
            self._beginnings.finish(full, 0)
            return self._nothing(now_s, previous_s, readings)
        self._ran_s = now_s
        processed = sum(batch.rows for batch in batches)
        emitted = [batch.rows_out for batch in batches if batch.rows_out is not None]
        arrived = self._arrived(batches, before, processed + waiting + in_service - there_before)
        self._work.arrive(now_s - previous_s, arrived)
        observed = observed_values(batches)
        points = self._points(batches, left_behind)
        durations = self._durations(batches, points)
        self.book.note(batches, {name: found[0] for name, found in durations.items()}, self._waiting_of)
        mean_s, p95_s, p99_s = self._worst(durations)
        # Tasks beside the batches (a batch job in the same session) are nobody's work here: a batch cannot
        # have kept more than every slot busy.
        slots, self._slots = (
            max(self._slots, sum(e.cores for e in executors)),
            sum(e.cores for e in executors),
        )
        # A batch in real time lasts as long as it was told to, and its tasks as long as it: that is no work.
        timed = [batch for batch in batches if batch.rows and batch.query not in self._real_time]
        beginning = self._beginnings.finish(timed, waiting + in_service)
        most_s = slots * sum(batch.duration_s for batch in timed)
        self._busy_s = self._busy_s + busy_s if self._executors.tells_tasks else most_s
        if timed:
            self._busy_s = min(self._busy_s, most_s)
            # A batch may last longer than an interval: all that was worked since the last one is its work.
            # Kept while nothing is processed: an idle unit must still be seen to be too large.
            if self._busy_s > 0 and not beginning:
                self._service_s = self._record_s(timed)
            self._busy_s = 0.0
            readings = with_records(readings, self._worked_s, sum(batch.rows for batch in timed))
            self._worked_s = {}
        return Measurement(
            unit=self.unit,
            at_s=now_s,
            interval_s=now_s - previous_s,
            arrived=arrived,
            processed=processed,
            emitted=sum(emitted),
            waiting=self._weighed(waiting),
            in_service=in_service,
            duration_s=mean_s,
            duration_p95_s=p95_s,
            duration_p99_s=p99_s,
            service_s=self._service_s,
            latency_s=observed.get("latency_s"),
            latency_p95_s=observed.get("latency_p95_s"),
            readings=readings,
            on_time=self._on_time(batches, points),
            beginning=beginning,
            kept_slots=self._kept.look(
                self._real_time & self._triggers.keys(), executors, tells_tasks=self._executors.tells_tasks
            ),
        )

    def _nothing(
        self, now_s: float, previous_s: float | None, readings: tuple[InstanceReading, ...]
    ) -> Measurement | None:
        """No load, once every query ended long enough ago; before, a query may only be started again."""
        if self.state is not MeterState.ENDED or self._ran_s is None or previous_s is None:
            return None
        if now_s - self._ran_s < ENDED_S or now_s <= previous_s:
            return None
        return Measurement(
            self.unit, now_s, now_s - previous_s, arrived=0, processed=0,
            service_s=self._service_s, readings=readings,
        )  # fmt: skip

    def since_s(self, executor: Executor) -> float:
        """Since when an executor is there, by the clock of the measurements: found out once and kept."""
        told_s = executor.added_s
        return self._since_s.setdefault(executor.id, self._times.at_s(told_s) if self._times else told_s)

    def _longest_s(self, query: str) -> float:
        """How long a query's batches may take; 0 where nobody said what is wanted of it."""
        if not self._goals_known:
            return 0.0
        interval_s = self._triggers.get(query, Trigger()).interval_s
        return max(interval_s, LONGEST_BATCH * self._goals.of(self.book.key(query)).slo_s)

    def _record_s(self, batches: Sequence[Batch]) -> float:
        """The slot time a record takes: in batches as long as they may be, where that can be said."""
        rows, queries = sum(batch.rows for batch in batches), {batch.query for batch in batches}
        if not self._goals_known or len(queries | self._triggers.keys()) > 1:
            return self._busy_s / rows  # whose work it was is not told where there are several
        if queries != self._work_of:
            self._work.forget()
            self._work_of = queries
        longest_s = self._longest_s(batches[0].query)
        return self._work.record_s(len(batches), rows, self._busy_s, longest_s)

    def _readings(
        self, executors: Sequence[Executor], usage: Mapping[str, tuple[float, float]], now_s: float
    ) -> tuple[float, tuple[InstanceReading, ...]]:
        """Slot time used since the last call, and a reading for each executor."""
        busy_s, readings = 0.0, []
        interval_s = now_s - self._last_s if self._last_s is not None else 0.0
        for executor in executors:
            before = self._before.get(executor.id, executor)
            worked_s = max(0.0, executor.task_time_s - before.task_time_s)
            self._worked_s[executor.id] = self._worked_s.get(executor.id, 0.0) + worked_s
            busy_s += worked_s
            cpu_ratio, memory_ratio = usage.get(executor.id, (None, None))
            if cpu_ratio is None and interval_s > 0 and not self._real_time:
                # A process we cannot see: the share of time its slots were busy stands in. Tasks of a query
                # in real time keep theirs all the time.
                cpu_ratio = busy_ratio(before, executor, interval_s)
            readings.append(InstanceReading(executor.id, cpu_ratio, memory_ratio))
        self._before = {executor.id: executor for executor in executors}
        return busy_s, tuple(readings)

    def _count_waiting(self, batches: Sequence[Batch], interval_s: float | None) -> tuple[int, int]:
        """Records that wait, and records in the running batch as far as the source tells."""
        if self._waiting_known is not None:
            known = self._waiting_known(batches)
            known = self._waiting if known is None else known
            # Whoever knows of what waits has one query.
            self._waiting_of = {name: Waiting(known, told_by="channels") for name in self._triggers}
            return known, 0
        allowed_s = {name: self._allowed_s(name) for name in self._triggers}
        self._waiting_of = self._backlogs.counted(allowed_s, interval_s)
        counts = self._waiting_of.values()
        return sum(there.records for there in counts), sum(there.in_service for there in counts)

    def _allowed_s(self, query: str) -> float:
        """How long a query's batch may take before what came meanwhile counts as waiting."""
        if query in self._real_time:
            return math.inf  # it lasts as long as it was told to: that says nothing of what waits
        return self._triggers[query].seconds or self._goals.of(self.book.key(query)).slo_s

    def _arrived(self, batches: Sequence[Batch], before: Mapping[str, Waiting], difference: int) -> int:
        """What came in: it was processed, is being processed, or waits.

        Files tell it themselves: what waits in them is an estimate, and its corrections are no arrivals.
        """
        told = {name: there for name, there in self._waiting_of.items() if there.came is not None}
        for name, there in told.items():
            earlier = before.get(name, Waiting(0))
            rows = sum(batch.rows for batch in batches if batch.query == name)
            difference -= rows + there.records + there.in_service - earlier.records - earlier.in_service
        return max(0, difference) + sum(there.came or 0 for there in told.values())

    def _weighed(self, waiting: int) -> int:
        """What waits, each query's by its weight."""
        if not self._goals.own:
            return waiting
        weight = self._goals.weight
        return round(sum(there.records * weight(self.book.key(n)) for n, there in self._waiting_of.items()))

    def _left_behind(self, batches: Sequence[Batch], now_s: float) -> list[tuple[float, float] | None]:
        """Of each batch that left records behind: how old its youngest was, and within what time all came.

        Offsets tell what is left behind as a batch begins. Files are looked at now, so that batches since the
        last look are told by what came in between.
        """
        self._arrivals = {name: self._arrivals.get(name, Arrivals()) for name in self._waiting_of}
        for name, there in self._waiting_of.items():
            if there.told_by in ("files", "files, batch time"):
                rows = sum(batch.rows for batch in batches if batch.query == name)
                self._arrivals[name].look(now_s, rows + there.records + there.in_service)
        found = []
        for batch in batches:
            arrivals = self._arrivals.get(batch.query, Arrivals())
            behind = [offsets_behind(source) for source in batch.sources]
            if behind and None not in behind:
                arrivals.look(batch.started_s, batch.rows + sum(count or 0 for count in behind))
            found.append(arrivals.take(batch.rows, batch.started_s))
        return found

    def _points(
        self, batches: Sequence[Batch], left_behind: Sequence[tuple[float, float] | None]
    ) -> dict[str, list[tuple[float, float]]]:
        """Estimates of the time from records' arrival to their batch's end, with how many records, by query.

        A record waits until its batch begins, and is done when that ends. Those of a batch that left none
        behind came evenly since the batch before began, or since the trigger last looked. A batch of a query
        in real time says nothing of it.
        """
        points: dict[str, list[tuple[float, float]]] = {}
        for batch, behind in zip(batches, left_behind, strict=True):
            trigger = self._triggers.get(batch.query, Trigger())
            if batch.rows == 0 or batch.query in self._real_time:
                continue
            earlier = self._previous.get(batch.query)
            self._previous[batch.query] = batch
            span_s = batch.duration_s if earlier is None else batch.started_s - earlier.started_s
            longest_s = max((earlier or batch).duration_s, trigger.interval_s) + POLL_DELAY_S
            waited_s, span_s = behind or (0.0, min(max(0.0, span_s), longest_s))
            points.setdefault(batch.query, []).extend(
                (waited_s + batch.duration_s + span_s * share, batch.rows / len(SHARES)) for share in SHARES
            )
        return points

    def _on_time(
        self, batches: Sequence[Batch], points: Mapping[str, Sequence[tuple[float, float]]]
    ) -> int | None:
        """Records that kept their query's SLO; None where nobody said what that is, or it cannot be told."""
        full = [batch for batch in batches if batch.rows]
        if not self._goals_known or any(batch.query not in points or batch.observed for batch in full):
            return None
        late = 0.0
        for name, found in points.items():
            weight = self._goals.weight(self.book.key(name))
            late += sum(rows for age_s, rows in found if age_s * weight > self._goals.slo_s)
        return max(0, sum(batch.rows for batch in full) - round(late))

    def _durations(
        self, batches: Sequence[Batch], points: Mapping[str, Sequence[tuple[float, float]]]
    ) -> dict[str, tuple[float, float, float]]:
        """Mean, p95 and p99 of the time from a record's arrival to its batch's end, by query.

        What a query observes itself goes first; else it is estimated.
        """
        found = {}
        for name in {batch.query for batch in batches}:
            observed = observed_values([batch for batch in batches if batch.query == name])
            if name in points:
                estimated = DurationStatistics.weighted(points[name])
                mean_s, p95_s, p99_s = estimated.mean_s, estimated.p95_s, estimated.p99_s
            elif "duration_s" in observed:
                mean_s = p95_s = p99_s = observed["duration_s"]
            else:
                continue
            found[name] = (
                observed.get("duration_s", mean_s),
                observed.get("duration_p95_s", p95_s),
                observed.get("duration_p99_s", p99_s),
            )
        return found

    def _worst(
        self, durations: Mapping[str, tuple[float, float, float]]
    ) -> tuple[float | None, float | None, float | None]:
        """The session's durations: those of the query that is furthest from its own goal."""
        weighed = [
            tuple(value * self._goals.weight(self.book.key(name)) for value in found)
            for name, found in durations.items()
        ]
        if not weighed:
            return None, None, None
        return max(d[0] for d in weighed), max(d[1] for d in weighed), max(d[2] for d in weighed)

    def _note_details(
        self, batches: Sequence[Batch], queries: tuple[str, ...], executors: Sequence[Executor]
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
            queries=queries,
            instances_by_host=by_host,
            state_rows=max((batch.state_rows for batch in batches), default=self.details.state_rows),
        )
