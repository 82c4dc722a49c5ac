"""Measures a unit: what the session meter counts, with durations from the records' own times.

All records of a micro-batch are finished when it is, so their processing durations are its end minus when
they lay in the channel, and their latencies its end minus when they left their source. Channels know both
without a look at a record: from files' names and times, and from Kafka's offsets. So measuring costs nothing
a record. (Records of a source's own function are the exception: the query reports their times.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.channels.files import ArrivedFile
from penstock.channels.kafka import OffsetHistory, waiting_of
from penstock.monitoring import Measurement
from penstock.spark.agent import Batch, SessionMeter
from penstock.spark.executors import ExecutorControl
from penstock.spark.unit_faults import failed_batch
from penstock.spark.unit_plan import OBSERVED_INPUT, OBSERVED_OUTPUT, UnitQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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

    def __init__(self, spark: SparkSession, executors: ExecutorControl, query: UnitQuery) -> None:
        self._query = query
        self._behind = 0
        self._published = 0
        self._waiting = (0, 0)
        """Records waiting, and records of a started micro-batch."""
        self._histories: dict[str, OffsetHistory] = {}
        self.meter = SessionMeter(spark, query.plan.unit, executors, waiting=self._count_waiting)

    def measure(self, now_s: float) -> Measurement | None:
        """What happened since the last call; None the first time and where no query runs."""
        before = self._waiting
        measurement = self.meter.measure(now_s)
        batches = self.meter.batches
        arrivals = {batch.number: self._arrivals(batch) for batch in batches}
        if measurement is None:
            return None
        durations = ages_of(batches, "arrived", arrivals)
        latencies = ages_of(batches, "source", arrivals)
        processed = sum(self._rows(batch, arrivals[batch.number]) for batch in batches)
        changes: dict[str, Any] = {
            "processed": processed,
            # What came in was either processed, is being processed, or waits now.
            "arrived": max(0, processed + sum(self._waiting) - sum(before)),
            "in_service": self._waiting[1],
            "emitted": self._emitted(batches),
        }
        if durations.mean_s is not None:
            changes.update(
                duration_s=durations.mean_s, duration_p95_s=durations.p95_s, duration_p99_s=durations.p99_s
            )
        if latencies.mean_s is not None:
            changes.update(latency_s=latencies.mean_s, latency_p95_s=latencies.p95_s)
        return replace(measurement, **changes)

    def _rows(self, batch: Batch, arrivals: Sequence[ArrivedFile]) -> int:
        """Records of a batch as its channels know them: in Spark a task that ran twice counts twice."""
        told = round(sum(file.records for file in arrivals))
        return batch.rows if self._query.plan.reads_a_function or not told else told

    def _arrivals(self, batch: Batch) -> list[ArrivedFile]:
        """When a batch's records arrived: files by the source's log, Kafka's by their offsets."""
        found = self._query.arrivals(batch.number) if batch.rows else []
        for source in _kafka_sources(batch):
            history = self._histories.setdefault(str(source["description"]), OffsetHistory())
            found += [ArrivedFile(*at) for at in history.note(batch.started_s, batch.ended_s, source)]
        return found

    def _emitted(self, batches: Sequence[Batch]) -> int:
        """Records sent on: as Kafka's sink counts them, as the publisher does, or as the query observes."""
        published, self._published = self._published, self._query.published
        emitted = self._published - published
        for batch in batches:
            emitted += batch.rows_out or 0
            observed = (batch.event.get("observedMetrics") or {}).get(OBSERVED_OUTPUT, {})
            emitted += int(observed.get("records") or 0)
        return emitted

    def _count_waiting(self, batches: Sequence[Batch]) -> int:
        if batches:
            self._behind = sum(waiting_of(source) for source in _kafka_sources(batches[-1]))
        in_files = self._query.counted()
        if in_files is None:
            # Kafka says what waits; of a running micro-batch only that there is one is known.
            self._waiting = (self._behind, int(failed_batch(self._query.checkpoint) is not None))
        else:
            self._waiting = (self._behind + in_files[0], in_files[1])
        return self._waiting[0]


def _kafka_sources(batch: Batch) -> list[dict[str, Any]]:
    sources = batch.event.get("sources") or ()
    return [source for source in sources if str(source.get("description", "")).startswith("Kafka")]


def ages_of(batches: Sequence[Batch], kind: str, arrivals: Mapping[int, Sequence[ArrivedFile]]) -> Ages:
    """Ages from an instant of a kind (`arrived` or `source`) to the end of each batch, over all records.

    `arrivals` says by batch number when its records arrived. Source times are spread evenly over what is
    known: a file's first and last, or the mean and first one that a source's own query reports.
    """
    ages_s: list[float] = []
    weights: list[float] = []
    for batch in batches:
        if not batch.rows:
            continue
        for file in arrivals.get(batch.number, ()):
            if kind == "arrived":
                ages_s.append(batch.ended_s - file.at_s)
                weights.append(file.records)
            elif file.span_s is not None:
                first_s, last_s = file.span_s
                ages_s += [batch.ended_s - first_s - (last_s - first_s) * share for share in _SHARES]
                weights += [file.records / len(_SHARES)] * len(_SHARES)
        for name, metrics in (batch.event.get("observedMetrics") or {}).items():
            mean_ms, first_ms = metrics.get(f"{kind}_mean_ms"), metrics.get(f"{kind}_first_ms")
            if name.startswith(OBSERVED_INPUT) and mean_ms is not None and first_ms is not None:
                spread_s = (mean_ms - first_ms) / 1000
                ages_s += [batch.ended_s - first_ms / 1000 - 2 * spread_s * share for share in _SPREAD]
                weights += [batch.rows / len(_SPREAD)] * len(_SPREAD)
    if not ages_s:
        return Ages()
    values, counts = np.maximum(np.array(ages_s), 0.0), np.array(weights)
    order = np.argsort(values)
    share = np.cumsum(counts[order]) / counts.sum()
    p95_s, p99_s = (
        float(values[order][min(int(np.searchsorted(share, level)), len(values) - 1)])
        for level in (0.95, 0.99)
    )
    return Ages(float(np.average(values, weights=counts)), p95_s, p99_s)
