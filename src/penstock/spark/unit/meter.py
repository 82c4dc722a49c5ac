"""Measures a unit: what the session meter counts, with durations from the records' own times.

All records of a micro-batch are finished when it is, so their processing durations are its end minus when
they lay in the channel, and their latencies its end minus when they left their source. Channels know both
without a look at a record, so measuring costs nothing a record. (Records of a source's own function are the
exception: the query reports their times.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.channels.model import Arrival, Backlog, FinishedBatch
from penstock.clock import TimesOfDay
from penstock.monitoring import Counted, DurationStatistics, Measurement
from penstock.spark.gateway.executors import ExecutorControl
from penstock.spark.gateway.session import setting
from penstock.spark.session.meter import SessionMeter
from penstock.spark.session.progress import Batch
from penstock.spark.unit import batch_log
from penstock.spark.unit.composition import BEHIND, OBSERVED_INPUT, OBSERVED_OUTPUT
from penstock.spark.unit.plan import is_fed
from penstock.spark.unit.query import UnitQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ALL = ""
"""Stands for all inputs together where each has its own."""
_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where in a file's span its records are taken to be: a batch has many files."""
_SPREAD = tuple((step + 0.5) / 40 for step in range(40))
"""The same for a whole batch of which only mean and first instant are known."""


@dataclass(frozen=True, slots=True)
class Ages:
    """How old the records of some batches were when they were finished; None where nothing is known."""

    mean_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None


class UnitMeter:
    """One measurement a call for one unit. Use it from one thread."""

    def __init__(
        self,
        spark: SparkSession,
        executors: ExecutorControl,
        query: UnitQuery,
        times: TimesOfDay | None = None,
    ) -> None:
        """`times` tells what times of day are by the run's clock, whose instants `measure` is given; without
        it they are that clock's."""
        self._query = query
        self._at_s: Callable[[float], float] = float if times is None else times.at_s
        self._of_day = {g.name for g in query.plan.inputs if not is_fed(query.topology, g.name)}
        """Inputs whose records' source times are times of day."""
        self._published = 0
        self._tells_outlets = False
        """Whether the query observes what leaves behind each operator."""
        self._backlogs: dict[str, Backlog] = {}
        """What waits, by input."""
        self._unseen: dict[str, int] = {}
        """Records that have left the backlog and are not told of as processed yet: of an input, or of all."""
        self._told: dict[int, dict[str, list[Arrival]]] = {}
        """When the records of the last measurement's batches arrived, by input."""
        self.meter = SessionMeter(spark, query.plan.unit, executors, waiting=self._count_waiting, times=times)
        asked = setting(spark, batch_log.SETTING, "false") == "true"
        self._log = batch_log.BatchLog(query.folders.unit(query.plan.unit)) if asked else None

    def measure(self, now_s: float) -> Measurement | None:
        """What happened since the last call; None the first time and where no query runs."""
        before = self._backlogs
        measurement = self.meter.measure(now_s)
        batches = self.meter.batches
        if self._log is not None:
            self._log.add(batches)
        arrivals = {
            number: [a for some in told.values() for a in some] for number, told in self._told.items()
        }
        if measurement is None:
            return None
        durations = ages_of(batches, "arrived", arrivals)
        latencies = ages_of(batches, "source", arrivals, self._at_s)
        processed = sum(self._rows(batch, arrivals[batch.number]) for batch in batches if batch.rows)
        grown = sum(map(sum, self._backlogs.values())) - sum(map(sum, before.values()))
        emitted, emitted_by = self._emitted(batches)
        changes: dict[str, Any] = {
            "processed": processed,
            "arrived": self._came_in(_ALL, processed, grown),
            "in_service": sum(each.in_service for each in self._backlogs.values()),
            "emitted": emitted,
            "emitted_by": emitted_by,
            "arrived_from": self._arrived_from(batches, before),
        }
        if durations.mean_s is not None:
            changes.update(
                duration_s=durations.mean_s, duration_p95_s=durations.p95_s, duration_p99_s=durations.p99_s
            )
        if latencies.mean_s is not None:
            changes.update(latency_s=latencies.mean_s, latency_p95_s=latencies.p95_s)
        return replace(measurement, **changes)

    def _rows(self, batch: Batch, arrivals: Sequence[Arrival]) -> int:
        """Records of a batch as its channels know them: in Spark a task that ran twice counts twice."""
        told = round(sum(some.records for some in arrivals))
        return batch.rows if self._query.plan.reads_a_function or not told else told

    def _came_in(self, name: str, processed: int, grown: int) -> int:
        arrived, self._unseen[name] = came_in(processed, grown, self._unseen.get(name, 0))
        return arrived

    def _arrived_from(self, batches: Sequence[Batch], before: Mapping[str, Backlog]) -> tuple[Counted, ...]:
        """What came in by each input, as its channel knows it; nothing of one alone, it has all.

        A source's own function has what Spark read beside the channels; with several it is not known whose.
        """
        functions = [given.name for given in self._query.plan.inputs if given.stream is None]
        if len(self._query.plan.inputs) < 2 or len(functions) > 1:
            return ()
        finished = [(batch, self._told[batch.number]) for batch in batches if batch.rows]
        found, read = [], 0
        for name, backlog in self._backlogs.items():
            processed = round(sum(some.records for _, told in finished for some in told.get(name, ())))
            read += processed
            grown = sum(backlog) - sum(before.get(name, Backlog()))
            found.append(Counted(name, self._came_in(name, processed, grown)))
        rows = sum(batch.rows for batch, _ in finished)
        return (*found, *(Counted(name, max(0, rows - read)) for name in functions))

    def _arrivals(self, batch: Batch) -> dict[str, list[Arrival]]:
        """When a batch's records arrived, as its channels know it."""
        sources = batch.event.get("sources") or ()
        self._query.note(FinishedBatch(batch.number, batch.started_s, batch.ended_s, sources))
        found = self._query.arrivals(batch.number, self._at_s) if batch.rows else {}
        return by_the_clock(found, self._of_day, self._at_s)

    def _emitted(self, batches: Sequence[Batch]) -> tuple[int, tuple[Counted, ...]]:
        """Records sent on: as Spark's sink counts them, as the publisher does, or as the query observes.

        And by operator: those of one that is alone are all, those of several the query may observe.
        """
        published, self._published = self._published, self._query.published
        emitted = self._published - published
        outlets = self._query.plan.outlets
        behind = {outlet.operator: 0 for outlet in outlets}
        for batch in batches:
            emitted += batch.rows_out or 0
            observed = (batch.event.get("observedMetrics") or {}).get(OBSERVED_OUTPUT, {})
            emitted += int(observed.get("records") or 0)
            for operator in behind:
                self._tells_outlets |= BEHIND + operator in observed
                behind[operator] += int(observed.get(BEHIND + operator) or 0)
        if len(outlets) == 1:
            takers = len(outlets[0].streams) + len(outlets[0].sinks)
            return emitted, (Counted(outlets[0].operator, emitted),) if takers > 1 else ()
        return emitted, tuple(Counted(*one) for one in behind.items()) if self._tells_outlets else ()

    def _count_waiting(self, batches: Sequence[Batch]) -> int:
        # Channels are told of the batches first: what waits behind them is in their events.
        self._told = {batch.number: self._arrivals(batch) for batch in batches}
        self._backlogs = self._query.backlogs()
        return sum(each.waiting for each in self._backlogs.values())


def by_the_clock(
    arrivals: Mapping[str, list[Arrival]], of_day: Collection[str], at_s: Callable[[float], float]
) -> dict[str, list[Arrival]]:
    """Arrivals by input; source times of those `of_day` are times of day, and `at_s` tells when one was."""

    def told(some: Arrival) -> Arrival:
        span_s = None if some.span_s is None else (at_s(some.span_s[0]), at_s(some.span_s[1]))
        return some._replace(span_s=span_s)

    return {name: [told(s) for s in some] if name in of_day else some for name, some in arrivals.items()}


def came_in(processed: int, grown: int, unseen: int) -> tuple[int, int]:
    """Records that came in, and those that left the backlog and were not told of as processed.

    What came in was processed, or the backlog has grown by it. A batch leaves the backlog when it is done,
    and Spark tells of it a moment later: until then its records are `unseen`, or they would count as come in
    a second time.
    """
    balance = processed + grown - unseen
    return max(0, balance), 0 if processed else max(0, -balance)


def ages_of(
    batches: Sequence[Batch],
    kind: str,
    arrivals: Mapping[int, Sequence[Arrival]],
    at_s: Callable[[float], float] = float,
) -> Ages:
    """Ages from an instant of a kind (`arrived` or `source`) to the end of each batch, over all records.

    `arrivals` says by batch number when its records arrived. Source times are spread evenly over what is
    known: a file's first and last, or the mean and first one that a source's own query reports. The latter
    are times of day; `at_s` tells when one was.
    """
    points: list[tuple[float, float]] = []
    for batch in batches:
        if not batch.rows:
            continue
        for some in arrivals.get(batch.number, ()):
            if kind == "arrived":
                points.append((batch.ended_s - some.at_s, some.records))
            elif some.span_s is not None:
                first_s, last_s = some.span_s
                points += [
                    (batch.ended_s - first_s - (last_s - first_s) * share, some.records / len(_SHARES))
                    for share in _SHARES
                ]
        for name, metrics in (batch.event.get("observedMetrics") or {}).items():
            mean_ms, first_ms = metrics.get(f"{kind}_mean_ms"), metrics.get(f"{kind}_first_ms")
            if name.startswith(OBSERVED_INPUT) and mean_ms is not None and first_ms is not None:
                first_s = at_s(first_ms / 1000)
                spread_s = at_s(mean_ms / 1000) - first_s
                points += [
                    (batch.ended_s - first_s - 2 * spread_s * share, batch.rows / len(_SPREAD))
                    for share in _SPREAD
                ]
    if not points:
        return Ages()
    found = DurationStatistics.weighted([(max(0.0, age_s), records) for age_s, records in points])
    return Ages(found.mean_s, found.p95_s, found.p99_s)
