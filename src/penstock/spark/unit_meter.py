"""Measures a unit: what the session meter counts, with durations from the records' own times.

A unit's query reports with every progress event when its records left their source and when they lay in
the channel (`unit_plan`). All records of a micro-batch are finished when it is, so end-to-end latency and
processing duration are its end minus those instants: measured, not guessed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.channels.kafka import waiting_of
from penstock.monitoring import Measurement
from penstock.spark.agent import SessionMeter
from penstock.spark.executors import ExecutorControl
from penstock.spark.unit_faults import failed_batch
from penstock.spark.unit_plan import OBSERVED_INPUT, OBSERVED_OUTPUT, UnitQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SPREAD = tuple((2 * step + 1) / 40 - 1 for step in range(40))
"""Even shares between -1 and 1 of the distance from the first instant to the mean."""


@dataclass(frozen=True, slots=True)
class Ages:
    """How old the records of some batches were when they were finished; None where nothing is known."""

    mean_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None


class UnitMeter:
    """One measurement a call for one unit. Use it from one thread."""

    def __init__(self, spark: SparkSession, executors: ExecutorControl, query: UnitQuery) -> None:
        self._spark = spark
        self._query = query
        self._seen: dict[str, tuple[int, str]] = {}
        self._behind = 0
        self._published = 0
        self._waiting = (0, 0)
        """Records waiting, and records of a started micro-batch."""
        self.meter = SessionMeter(spark, query.plan.unit, executors, waiting=self._count_waiting)

    def measure(self, now_s: float) -> Measurement | None:
        """What happened since the last call; None the first time and where no query runs."""
        events = [
            event
            for running in self._spark.streams.active
            if running.name == self._query.plan.unit
            for event in self._new_events(running)
        ]
        if events:
            self._behind = sum(
                waiting_of(source)
                for source in events[-1].get("sources", ())
                if str(source.get("description", "")).startswith("Kafka")
            )
        before = self._waiting
        measurement = self.meter.measure(now_s)
        if measurement is None:
            return None
        durations = ages_of(events, "arrived", self._query.arrivals)
        latencies = ages_of(events, "source")
        processed = sum(int(event.get("numInputRows") or 0) for event in events)
        changes: dict[str, Any] = {
            "processed": processed,
            # What came in was either processed, is being processed, or waits now.
            "arrived": max(0, processed + sum(self._waiting) - sum(before)),
            "in_service": self._waiting[1],
            "emitted": self._emitted(events),
        }
        if durations.mean_s is not None:
            changes.update(
                duration_s=durations.mean_s, duration_p95_s=durations.p95_s, duration_p99_s=durations.p99_s
            )
        if latencies.mean_s is not None:
            changes.update(latency_s=latencies.mean_s, latency_p95_s=latencies.p95_s)
        return replace(measurement, **changes)

    def _emitted(self, events: Sequence[Mapping[str, Any]]) -> int:
        """Records sent on: as Kafka's sink counts them, as the publisher does, or as the query observes."""
        published, self._published = self._published, self._query.published
        emitted = self._published - published
        for event in events:
            emitted += max(0, int((event.get("sink") or {}).get("numOutputRows") or 0))
            emitted += int((event.get("observedMetrics") or {}).get(OBSERVED_OUTPUT, {}).get("records") or 0)
        return emitted

    def _count_waiting(self) -> int:
        in_files = self._query.counted()
        if in_files is None:
            # Kafka says what waits; of a running micro-batch only that there is one is known.
            self._waiting = (self._behind, int(failed_batch(self._query.checkpoint) is not None))
        else:
            self._waiting = (self._behind + in_files[0], in_files[1])
        return self._waiting[0]

    def _new_events(self, running: Any) -> list[dict[str, Any]]:
        last = running._jsq.lastProgress()
        if last is None:
            return []
        run = str(running.runId)
        newest = (int(last.batchId()), str(last.timestamp()))
        seen = self._seen.get(run)
        if newest == seen:
            return []
        self._seen[run] = newest
        recent = running._jsq.recentProgress()
        # An idle report carries the number of the batch to come, so the same number may come twice.
        wanted = len(recent) if seen is None else min(len(recent), newest[0] - seen[0] + 2)
        events = [json.loads(recent[index].json()) for index in range(len(recent) - wanted, len(recent))]
        return events if seen is None else [event for event in events if event["timestamp"] > seen[1]]


def ages_of(
    events: Sequence[Mapping[str, Any]],
    kind: str,
    arrivals: Callable[[int], Sequence[tuple[float, float]]] = lambda batch_id: (),
) -> Ages:
    """Ages from an instant of a kind (`arrived` or `source`) to the end of each batch, over all records.

    `arrivals` gives the instants (in seconds) and numbers of records of a batch, where they are known. Where
    only mean and first instant are, records are taken to be spread evenly around the mean.
    """
    ages_s: list[float] = []
    weights: list[float] = []
    for event in events:
        rows = int(event.get("numInputRows") or 0)
        if not rows:
            continue
        end_s = _end_s(event)
        known = arrivals(int(event["batchId"])) if kind == "arrived" else ()
        if known:
            ages_s += [end_s - instant_s for instant_s, _ in known]
            weights += [records for _, records in known]
            continue
        for name, metrics in (event.get("observedMetrics") or {}).items():
            mean_ms, first_ms = metrics.get(f"{kind}_mean_ms"), metrics.get(f"{kind}_first_ms")
            if name.startswith(OBSERVED_INPUT) and mean_ms is not None and first_ms is not None:
                spread_s = (mean_ms - first_ms) / 1000
                ages_s += [end_s - mean_ms / 1000 + spread_s * share for share in _SPREAD]
                weights += [rows / len(_SPREAD)] * len(_SPREAD)
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


def _end_s(event: Mapping[str, Any]) -> float:
    started_s = datetime.fromisoformat(str(event["timestamp"]).replace("Z", "+00:00")).timestamp()
    return started_s + float((event.get("durationMs") or {}).get("triggerExecution", 0)) / 1000
