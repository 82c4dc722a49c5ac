"""The queries of an application and their new progress events, by two calls however many there are.

Every call into Java costs tenths of a millisecond on both sides, and a session may have many queries. What is
asked of each of them is therefore put together from Java's own method handles once, and runs there as one:
all queries, their events, those not handed out before, printed and joined. Only public methods of Spark are
called by it. Where that cannot be put together (Spark Connect, or a Spark that is otherwise), queries are
asked one by one (`queries`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.spark.gateway.queries import Seen, active_queries, events_since, is_active
from penstock.spark.gateway.session import is_connect, java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger(__name__)

STREAMS = "org.apache.spark.sql.streaming"


class Known(NamedTuple):
    """A query of the application; who it is was asked once."""

    query: Any
    id: str
    """Survives restarts."""
    run: str
    """Changes with every start."""
    name: str | None


def reads_at_once(spark: SparkSession) -> bool:
    """Whether the events of all queries can be had by one call."""
    return _AtOnce(spark).read([]) == []


class QueryEvents:
    """Reads the active queries of a session's application, and each progress event once. For one thread."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._active: list[Known] = []
        self._listed: Any = None
        """Java's own map of the application's queries; False where there is none to be had."""
        self._said = ""
        """What it said of itself when it was last looked through."""
        self._at_once: _AtOnce | None = None
        self._one_by_one = is_connect(spark)
        self._seen: dict[str, Seen] = {}

    def read(self) -> tuple[list[Known], list[dict[str, Any]]]:
        """The active queries, and the events of all queries since the last call, also of those that ended."""
        before, active = self._active, self._look()
        running = {known.run for known in active}
        # One that ended since the last call has left its last events behind: its last batches count too.
        ended = [known for known in before if known.run not in running]
        self._active = active
        watched = [*ended, *active]
        if not self._one_by_one:
            try:
                return active, self._read_at_once(watched)
            except Exception as error:
                LOG.info("queries are asked one by one: %s", error)
                self._one_by_one = True
        return active, self._read_one_by_one(watched)

    @property
    def at_once(self) -> bool:
        """Whether queries are asked all at once; known after the first `read`."""
        return not self._one_by_one

    def _look(self) -> list[Known]:
        """The active queries; asked for anew only where something about them has changed."""
        said = self._listing()
        if said and said == self._said:
            return self._active
        known = {one.run: one for one in self._active}
        found = []
        for query in active_queries(self._spark):
            run = str(query.runId)
            found.append(known.get(run) or Known(query, str(query.id), run, query.name))
        self._said = said
        return found

    def _listing(self) -> str:
        """What the application's map of queries says of itself: runs, names, states; empty without one."""
        if self._listed is None:
            try:
                self._listed = self._spark._jsparkSession.sharedState().activeStreamingQueries()
            except Exception:
                self._listed = False
        return str(self._listed.toString()) if self._listed else ""

    def _read_at_once(self, watched: list[Known]) -> list[dict[str, Any]]:
        if self._at_once is None:
            self._at_once = _AtOnce(self._spark)
        return self._at_once.read(watched)

    def _read_one_by_one(self, watched: list[Known]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for known in watched:
            try:
                fresh = events_since(self._spark, known.query, self._seen.get(known.run))
            except Exception:
                if is_active(known.query):
                    raise
                # It ended between the two calls; there is nothing more to read.
                continue
            if fresh:
                self._seen[known.run] = Seen(int(fresh[-1]["batchId"]), str(fresh[-1]["timestamp"]))
            found.extend(fresh)
        running = {known.run for known in self._active}
        self._seen = {run: seen for run, seen in self._seen.items() if run in running}
        return found


class _AtOnce:
    """The one call: a chain of method handles from a list of queries to the text of their new events."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = jvm = java(spark)
        self._runs: list[str] = []
        self._queries = self._list([])
        self._arguments = self._list([self._queries])
        # Events are kept by Spark for a while and by nobody else: forgotten there, they are forgotten here.
        seen = jvm.java.util.Collections.newSetFromMap(jvm.java.util.WeakHashMap())
        text, thing = self._class("java.lang.String"), self._class("java.lang.Object")
        stream = self._class("java.util.stream.Stream")
        event = self._class(f"{STREAMS}.StreamingQueryProgress")
        events = jvm.java.lang.reflect.Array.newInstance(event, 0).getClass()
        things = jvm.java.lang.reflect.Array.newInstance(thing, 0).getClass()
        function = self._class("java.util.function.Function")
        predicate = self._class("java.util.function.Predicate")

        recent = self._method(self._class(f"{STREAMS}.StreamingQuery"), "recentProgress", events)
        spread = self._handles.publicLookup().findStatic(
            self._class("java.util.Arrays"), "stream", self._type(stream, things)
        )
        each = self._then(recent, spread.asType(self._type(stream, events)))
        added = self._method(self._class("java.util.Set"), "add", jvm.java.lang.Boolean.TYPE, thing)
        printed = self._method(event, "json", text)
        joined = jvm.java.util.stream.Collectors.joining(",")

        chain = self._method(self._class("java.util.Collection"), "stream", stream)
        for name, kind, given in (
            ("flatMap", function, self._as(function, each)),
            ("filter", predicate, self._as(predicate, added.bindTo(seen))),
            ("map", function, self._as(function, printed)),
        ):
            chain = self._then(chain, self._with(self._method(stream, name, stream, kind), given))
        collector = self._class("java.util.stream.Collector")
        self._chain = self._then(chain, self._with(self._method(stream, "collect", thing, collector), joined))

    def read(self, watched: list[Known]) -> list[dict[str, Any]]:
        """The new events of these queries, oldest first for each."""
        runs = [known.run for known in watched]
        if runs != self._runs:
            self._queries = self._list([known.query._jsq for known in watched])
            self._arguments = self._list([self._queries])
            self._runs = runs
        found: list[dict[str, Any]] = json.loads(f"[{self._chain.invokeWithArguments(self._arguments)}]")
        return found

    @property
    def _handles(self) -> Any:
        return self._jvm.java.lang.invoke.MethodHandles

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(name)

    def _type(self, gives: Any, *takes: Any) -> Any:
        return self._jvm.java.lang.invoke.MethodType.methodType(gives, *takes)

    def _method(self, owner: Any, name: str, gives: Any, *takes: Any) -> Any:
        return self._handles.publicLookup().findVirtual(owner, name, self._type(gives, *takes))

    def _then(self, first: Any, second: Any) -> Any:
        return self._handles.filterReturnValue(first, second)

    def _with(self, method: Any, argument: Any) -> Any:
        """A method of one parameter with it given: a function of its object alone."""
        return self._handles.insertArguments(method, 1, self._list([argument]).toArray())

    def _list(self, items: Sequence[Any]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return found

    def _as(self, interface: Any, handle: Any) -> Any:
        return self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(interface, handle)
