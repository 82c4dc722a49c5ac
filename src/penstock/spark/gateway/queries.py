"""Streaming queries: their progress events, their trigger, their sources, their checkpoint."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import ClusterError
from penstock.spark.gateway.session import is_connect, java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


REAL_TIME_TRIGGER = "org.apache.spark.sql.execution.streaming.RealTimeTrigger"


def repartition_state(spark: SparkSession, checkpoint: str, number: int) -> None:
    """Cut the state in the checkpoint of a query that does not run into so many pieces; waits for it.

    ClusterError where this Spark cannot. Where it fails midway no query starts from that checkpoint.
    """
    manager = getattr(spark, "_streamingCheckpointManager", None)
    if manager is None:
        raise ClusterError("this Spark cannot cut state anew; 4.2 and later can")
    # Whoever ends by a finished batch has nothing to skip: exactly once stays so.
    manager.repartition(checkpoint, number, True)


class Seen(NamedTuple):
    """The newest progress event that was read of a query's run."""

    number: int
    at: str
    """Its time, as Spark prints it: later ones compare greater."""


def active_queries(spark: SparkSession) -> list[Any]:
    """The active queries of an application: of the given SparkSession, and of others where it tells them.

    Other sessions are those of `newSession`, or of Spark Connect's clients where this is their server.
    """
    own = list(spark.streams.active)
    if is_connect(spark):
        return own
    with contextlib.suppress(Exception):
        known = spark._jsparkSession.sharedState().activeStreamingQueries()
        if known.size() > len(own):
            from pyspark.sql.streaming import StreamingQuery

            here = {str(query.runId) for query in own}
            others = (StreamingQuery(found) for found in list(known.values()))
            own += [query for query in others if str(query.runId) not in here]
    return own


def events_since(spark: SparkSession, query: Any, seen: Seen | None) -> list[dict[str, Any]]:
    """A query's progress events after `seen` as Spark prints them in JSON, oldest first.

    All that Spark still keeps where `seen` is None. At most four short calls, however many events there
    are, where this Spark allows it; else by its public list.
    """
    found = _printed_events(spark, query, seen) if hasattr(query, "_jsq") else None
    if found is None:
        found = [_as_read(event) for event in query.recentProgress]
    return [event for event in found if seen is None or event["timestamp"] > seen.at]


def _printed_events(spark: SparkSession, query: Any, seen: Seen | None) -> list[dict[str, Any]] | None:
    """The newest events by one printing call; None where this Spark does not print them so."""
    last = query._jsq.lastProgress()
    if last is None:
        return []
    newest = Seen(int(last.batchId()), str(last.timestamp()))
    if newest == seen:
        return []
    events = query._jsq.recentProgress()
    size = len(events)
    # An idle report carries the number of the batch to come, so the same number may come twice.
    wanted = size if seen is None else min(size, newest.number - seen.number + 2)
    try:
        return printed_array(spark, events[size - wanted : size])
    except (TypeError, ValueError):
        # No such printer, or it prints otherwise.
        return None


def printed_array(spark: SparkSession, objects: Any) -> list[dict[str, Any]]:
    """Java objects that print as JSON, by one call for all of them.

    Scala prints an array as `Array({…}, {…})`. TypeError or ValueError where it does not.
    """
    printed = java(spark).scala.runtime.ScalaRunTime.stringOf(objects)
    found: list[dict[str, Any]] = json.loads(f"[{printed.removeprefix('Array(').removesuffix(')')}]")
    return found


def _as_read(event: Any) -> dict[str, Any]:
    """An event of PySpark's public list: a dictionary, or an object that has its JSON, by version."""
    text = getattr(event, "json", None)
    found: dict[str, Any] = json.loads(text) if isinstance(text, str) else dict(event)
    return found


class Trigger(NamedTuple):
    """When a query starts a batch."""

    kind: str = ""
    """`interval`, `available now`, `once`, `real time`, `continuous`; empty where it is not told."""
    seconds: float = 0.0
    """The interval; of a query in real time, how long one of its batches is."""

    @property
    def interval_s(self) -> float:
        """The least time between two batches; 0 where they start as soon as they can."""
        return self.seconds if self.kind in ("interval", "continuous") else 0.0

    def __str__(self) -> str:
        if self.kind == "interval":
            return f"every {self.seconds:g} s" if self.seconds else "as soon as it can"
        if self.kind == "real time":
            return f"real time, batches of {self.seconds:g} s"
        return self.kind


def trigger_of(query: Any) -> Trigger:
    """A query's trigger; where it does not tell (Spark Connect), one that is nothing."""
    with contextlib.suppress(Exception):
        found = _execution(query).trigger()
        name = str(found.toString())
        for kind, word in (("AvailableNow", "available now"), ("OneTime", "once")):
            if name.startswith(kind):
                return Trigger(word)
        if name.startswith("RealTime"):
            return Trigger("real time", float(found.batchDurationMs()) / 1000)
        kind = "continuous" if name.startswith("Continuous") else "interval"
        return Trigger(kind, float(found.intervalMs()) / 1000)
    return Trigger()


def source_descriptions(query: Any) -> tuple[str, ...]:
    """A running query's sources in their own words, in the order of its offsets; empty before its start."""
    with contextlib.suppress(Exception):
        sources = _execution(query).sources()
        return tuple(str(sources.apply(index).toString()) for index in range(sources.size()))
    return ()


def checkpoint_of(query: Any) -> str | None:
    """Where a query keeps its checkpoint, as a URL; None where it does not tell."""
    with contextlib.suppress(Exception):
        return str(_execution(query).resolvedCheckpointRoot())
    return None


def is_active(query: Any) -> bool:
    """Whether a query runs; one whose driver is gone does not."""
    with contextlib.suppress(Exception):
        return bool(query.isActive)
    return False


def _execution(query: Any) -> Any:
    """The Java object that runs a query, behind the wrapper Spark hands out, if there is one."""
    given = query._jsq
    # Among all queries of the application they stand without it.
    return given.streamingQuery() if "Wrapper" in str(given.getClass().getName()) else given
