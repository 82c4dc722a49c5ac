"""Progress events of streaming queries as batches: each event once, also the last ones of a query that ended.

New events are fetched in one call a poll, never one by one, so that measuring stays below 1 % of a unit's
CPU.

Exact durations: give a query `df.observe("penstock", …)` columns named like the fields of `OBSERVED`
(for example `avg(...) as latency_s`); where they are present they replace the meter's estimates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.clock import TimesOfDay
from penstock.spark.gateway.events import Known, QueryEvents
from penstock.spark.gateway.queries import Trigger, trigger_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OBSERVED = ("duration_s", "duration_p95_s", "duration_p99_s", "latency_s", "latency_p95_s")
"""Names of observed columns that are taken as they are (see the module's docstring)."""


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """What one source of a query did in one batch."""

    description: str
    rows: int
    end_offset: Any = None
    latest_offset: Any = None
    start_offset: Any = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    """What the source itself reports."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch (or, with no rows, one idle report) of one query."""

    query: str
    """The query's id; it survives restarts."""
    number: int
    started_s: float
    """By the run's clock, where the reader knows it."""
    duration_s: float
    rows: int
    rows_out: int | None
    parts_s: Mapping[str, float]
    """Duration parts as Spark names them: `addBatch`, `getBatch`, `queryPlanning`, `walCommit`, …"""
    sources: tuple[SourceProgress, ...] = ()
    observed: Mapping[str, float] = field(default_factory=dict)
    state_rows: int = 0
    state_bytes: int = 0
    """Memory its state takes."""
    state_s: Mapping[str, float] = field(default_factory=dict)
    """Time its tasks spent on state, all together: `update`, `remove` and `commit`."""
    event: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The progress event itself, for what has no field here."""

    @property
    def ended_s(self) -> float:
        """When it was done."""
        return self.started_s + self.duration_s


class ProgressReader:
    """Reads the new progress events of every query of a session, each once. Use it from one thread."""

    def __init__(self, spark: SparkSession, times: TimesOfDay | None = None) -> None:
        """`times` makes times of the run's clock of those of Spark, which are times of day of this machine;
        without it they are left as they are."""
        self._events = QueryEvents(spark)
        self._times = times
        self._triggers: dict[str, Trigger] = {}
        self._running: dict[str, Known] = {}
        self._last: dict[str, int] = {}
        """The number of the newest batch that was read, by run."""
        self.missed = 0
        """Events that had left Spark's ring before they were read; poll more often where it grows."""

    def read(self) -> list[Batch]:
        """What all queries did since the last call, oldest first, also those that have ended since."""
        if self._times is not None:
            self._times.look()  # so that a step of the clock is noticed soon also where no batch ends
        active, events = self._events.read()
        self._running = {known.run: known for known in active}
        for event in events:
            run, number = event["runId"], int(event["batchId"])
            before = self._last.get(run)
            if before is not None and number > before + 1:
                self.missed += number - before - 1
            self._last[run] = number
        for gone in [run for run in self._last if run not in self._running]:
            del self._last[gone]
            self._triggers.pop(gone, None)
        at_s = float if self._times is None else self._times.at_s
        return sorted((parse_progress(event, at_s) for event in events), key=lambda batch: batch.started_s)

    def running(self) -> dict[str, Known]:
        """The active queries as of the last read, by run."""
        return self._running

    def trigger(self, run: str) -> Trigger:
        """The trigger of a query that runs."""
        if run not in self._triggers:
            self._triggers[run] = trigger_of(self._running[run].query)
        return self._triggers[run]


def parse_progress(event: Mapping[str, Any], at_s: Callable[[float], float] = float) -> Batch:
    """A progress event, as Spark prints it in JSON, as a batch; `at_s` tells when a time of day was.

    Spark measures how long a batch took by the time of day, too. Of one within which the clock was set back
    by more than that it knows nothing: such a batch counts as one that took no time.
    """
    sources = tuple(
        SourceProgress(
            source["description"],
            int(source.get("numInputRows") or 0),
            source.get("endOffset"),
            source.get("latestOffset"),
            source.get("startOffset"),
            source.get("metrics") or {},
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
    started_s = datetime.fromisoformat(event["timestamp"].replace("Z", "+00:00")).timestamp()
    began_s, ended_s = at_s(started_s), at_s(started_s + parts_s.get("triggerExecution", 0.0))
    return Batch(
        query=event["id"],
        number=int(event["batchId"]),
        started_s=began_s,
        duration_s=round(max(0.0, ended_s - began_s), 3),
        rows=sum(source.rows for source in sources) if sources else int(event.get("numInputRows") or 0),
        rows_out=None if rows_out is None or rows_out < 0 else int(rows_out),
        parts_s=parts_s,
        sources=sources,
        observed=observed,
        state_rows=_of_states(event, "numRowsTotal"),
        state_bytes=_of_states(event, "memoryUsedBytes"),
        state_s={name: _of_states(event, told) / 1000 for name, told in _STATE_TIMES.items()}
        if event.get("stateOperators")
        else {},
        event=event,
    )


_STATE_TIMES = {"update": "allUpdatesTimeMs", "remove": "allRemovalsTimeMs", "commit": "commitTimeMs"}


def _of_states(event: Mapping[str, Any], name: str) -> int:
    """A number over all stateful operators of a query."""
    return sum(int(state.get(name) or 0) for state in event.get("stateOperators") or ())


def observed_values(batches: Sequence[Batch]) -> dict[str, float]:
    """Observed columns over several batches: means weighted by rows (for percentiles, a close stand-in)."""
    found = {}
    for name in OBSERVED:
        having = [
            (batch.observed[name], batch.rows) for batch in batches if name in batch.observed and batch.rows
        ]
        if having:
            found[name] = sum(value * rows for value, rows in having) / sum(rows for _, rows in having)
    return found
