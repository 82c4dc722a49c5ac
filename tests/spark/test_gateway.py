"""The gateway: plain values from a real driver, and no private name of Spark's outside of it."""

from __future__ import annotations

import ast
import json
import re
import types
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ClusterError
from penstock.machine.processes import wait_until
from penstock.spark.gateway.capabilities import Capabilities, capabilities
from penstock.spark.gateway.errors import cause_of
from penstock.spark.gateway.events import QueryEvents
from penstock.spark.gateway.executors import DriverExecutors
from penstock.spark.gateway.plans import aggregates, lets_through, output_mode, sources_read, widened
from penstock.spark.gateway.queries import (
    Seen,
    checkpoint_of,
    events_since,
    is_active,
    source_descriptions,
    trigger_of,
)
from penstock.spark.gateway.session import (
    REPEATED,
    driver_is_active,
    has,
    is_local,
    is_stopped,
    java_class,
    java_context,
    session_facts,
    warn_less,
)
from penstock.spark.settings import start_session

SOURCE = Path(__file__).parents[2] / "src" / "penstock"
PRIVATE = {
    # PySpark's ways into Java
    "_jsc", "_jvm", "_jsq", "_jdf", "_sc", "_jsparkSession", "_jrdd", "_jconf", "_jwrite", "_jreader", "_jc",
    "_gateway", "_active_spark_context", "java_exception", "_origin", "java_gateway",
    # Spark's own objects behind them
    "statusStore", "schedulerBackend", "executorAllocationManager", "requestTotalExecutors", "killExecutors",
    "decommissionExecutor", "queryExecution", "streamingQuery", "PythonUtils", "sparkContext_jvm",
}  # fmt: skip


def private_names(code: str) -> set[str]:
    """Spark's private names that a module uses, and py4j where it imports it."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute):
            found |= {node.attr} & PRIVATE
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr", "setattr"):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant)} & PRIVATE
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules = (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else [n.name for n in node.names]
            )
            found |= {"py4j" for module in modules if module.split(".")[0] == "py4j"}
    return found


def test_only_the_gateway_uses_what_is_private_of_spark() -> None:
    elsewhere = {}
    for path in SOURCE.rglob("*.py"):
        names = private_names(path.read_text())
        if names and not path.is_relative_to(SOURCE / "spark" / "gateway"):
            elsewhere[path.relative_to(SOURCE).as_posix()] = sorted(names)
    assert elsewhere == {}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("spark.sparkContext._jsc.sc().schedulerBackend()", {"_jsc", "schedulerBackend"}),
        ("getattr(query, '_jsq')", {"_jsq"}),
        ("from py4j.protocol import Py4JJavaError", {"py4j"}),
        ("import py4j.java_gateway", {"py4j"}),
        ("logging.getLogger('py4j')", set()),
        ("spark.streams.active", set()),
    ],
)
def test_private_names_are_found_in_any_form(code: str, names: set[str]) -> None:
    assert private_names(code) == names


# --- errors ----------------------------------------------------------------------------------------------


TASK_FAILED = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 8 times, most recent failure: \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1990, in main
    process()
  File "orders.py", line 7, in price
    return 1 / amount
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
NOT_STARTED = """An error occurred while calling o77.start.
: java.lang.reflect.InvocationTargetException
\tat java.base/jdk.internal.reflect.Something.invoke(Something.java:1)
Caused by: java.lang.IllegalStateException: the checkpoint is of another query
\tat org.apache.spark.sql.Something.start(Something.scala:1)
Caused by: java.lang.NullPointerException
\t... 12 more
"""


DIRECT = "An error occurred while calling o1.start.\n: java.lang.Error: no room\n\tat x"
OUTER = "org.apache.kafka.KafkaException: outer\n"
PYTHON = 'Traceback (most recent call last):\n  File "a", line 1\n'


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (TASK_FAILED, "ZeroDivisionError: division by zero"),
        (TASK_FAILED + "\nCaused by: java.io.IOException: later\n", "ZeroDivisionError: division by zero"),
        (NOT_STARTED, "java.lang.IllegalStateException: the checkpoint is of another query"),
        (DIRECT, "java.lang.Error: no room"),
        (OUTER + "Caused by: x.ConfigException: no servers\n", "x.ConfigException: no servers"),
        (PYTHON + "shop.OutOfStock: nothing left\n", "shop.OutOfStock: nothing left"),
        (PYTHON + "AssertionError\n", "AssertionError"),
        (PYTHON + "py4j.protocol.Py4JJavaError: " + DIRECT, "java.lang.Error: no room"),
        (ValueError("plain words"), "plain words"),
        (RuntimeError(), "RuntimeError"),
        ("", "str"),
    ],
)
def test_the_telling_line_of_an_error_is_found(error: BaseException | str, cause: str) -> None:
    assert cause_of(error) == cause


def test_the_reason_of_an_error_raised_from_another_is_told() -> None:
    error = RuntimeError("could not go on")
    error.__cause__ = ValueError("java.io.IOException: the disk is full")
    assert cause_of(error) == "java.io.IOException: the disk is full"


# --- a real driver ---------------------------------------------------------------------------------------


@pytest.mark.spark
def test_what_a_session_is_and_can_do_is_told(spark: Any) -> None:
    facts = session_facts(spark)
    assert (facts.connect, facts.stopped, facts.local) == (False, False, False)
    assert facts.master.startswith("spark://")
    assert facts.application_id == spark.sparkContext.applicationId
    assert facts.application_name == "spark-tests"
    assert driver_is_active()
    found = capabilities(spark)
    assert found == Capabilities(**{item.name: True for item in fields(Capabilities)})
    assert found.missing() == ()


@pytest.mark.spark
def test_what_spark_lacks_is_found_by_trying(spark: Any) -> None:
    context = java_context(spark)
    assert has(context, "requestTotalExecutors")
    assert not has(context, "requestAllTheExecutorsThereAre")
    assert java_class(spark, "org.apache.spark.NoSuchThing") is None
    assert java_class(spark, "org.apache.spark.NoSuchThing", "org.apache.spark.SparkConf") is not None


class ConnectSession:
    """A session as Spark Connect has it: without a driver."""

    is_stopped = False
    conf = types.SimpleNamespace(get=lambda name, default: {"spark.app.name": "shared"}.get(name, default))

    @property
    def sparkContext(self) -> Any:  # noqa: N802
        raise RuntimeError("JVM attribute is not supported in Spark Connect")


ConnectSession.__module__ = "pyspark.sql.connect.session"


def test_a_connect_session_has_no_driver_to_reach() -> None:
    session: Any = ConnectSession()
    facts = session_facts(session)
    assert (facts.connect, facts.stopped, facts.master) == (True, False, "")
    assert facts.application_name == "shared", "what the server is configured with is told"
    assert capabilities(session) == Capabilities()
    assert "executor target" in capabilities(session).missing()
    session.is_stopped = True
    assert is_stopped(session)


def test_a_stopped_session_is_told_from_one_of_spark_connect() -> None:
    stopped: Any = types.SimpleNamespace(sparkContext=types.SimpleNamespace(_jsc=None, _jvm=None))
    facts = session_facts(stopped)
    assert (facts.connect, facts.stopped) == (False, True)
    with pytest.raises(ClusterError, match="stopped"):
        java_context(stopped)


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[2]", True), ("local-cluster[1,1,512]", False), ("yarn", False)],
)
def test_local_means_without_executors(master: str, local: bool) -> None:
    assert is_local(master) == local


@pytest.mark.spark
def test_what_would_be_said_at_every_batch_for_weeks_is_not_logged(spark: Any) -> None:
    spark.sparkContext.setLogLevel("WARN")
    try:
        warn_less(spark)
        of_name = spark.sparkContext._jvm.org.apache.logging.log4j.LogManager.getLogger
        assert not any(of_name(name).isWarnEnabled() for name in REPEATED)
        assert all(of_name(name).isErrorEnabled() for name in REPEATED)
        assert of_name("org.apache.spark.sql").isWarnEnabled(), "everything else is told"
    finally:
        spark.sparkContext.setLogLevel("ERROR")
    late, listed = REPEATED[:2], REPEATED[2]
    assert java_class(spark, *late) is not None, "it is still called so"
    assert java_class(spark, listed) is not None


@pytest.mark.spark
def test_executors_are_listed_in_one_call_with_their_ids(spark: Any) -> None:
    driver = DriverExecutors(spark)
    assert driver.answers_to_targets()
    assert wait_until(lambda: len(driver.listed()) > 0, 60)
    listed = driver.listed()
    assert {executor.id for executor in listed} == driver.ids()
    assert all(executor.cores == 1 and executor.added_s > 1.7e9 for executor in listed)
    assert not driver.decommission("no such executor", "a test")


@pytest.fixture
def rates(spark: Any) -> Any:
    """A streaming DataFrame."""
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()


@pytest.fixture
def query(rates: Any, tmp_path: Path) -> Iterator[Any]:
    """A running query with a trigger of its own."""
    query = (
        rates.writeStream.format("noop")
        .trigger(processingTime="200 milliseconds")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        yield query
    finally:
        query.stop()


@pytest.mark.spark
def test_events_are_read_once_and_are_those_of_sparks_public_list(
    spark: Any, query: Any, tmp_path: Path
) -> None:
    assert wait_until(lambda: len(query.recentProgress) >= 3, 60)
    first = events_since(spark, query, None)
    assert len(first) >= 3
    assert wait_until(lambda: query.lastProgress["batchId"] > first[-1]["batchId"] + 1, 60)
    second = events_since(spark, query, Seen(first[-1]["batchId"], first[-1]["timestamp"]))
    query.stop()
    numbers = [event["batchId"] for event in (*first, *second)]
    assert numbers == list(range(len(numbers))), "none is lost and none is there twice"
    assert trigger_of(query).interval_s == 0.2
    (source,) = source_descriptions(query)
    assert source.startswith("RatePerMicroBatchStream")
    assert checkpoint_of(query) == tmp_path.as_uri().replace("///", "/")
    assert not is_active(query)

    class PublicOnly:
        """A query without its Java object, as Spark Connect has it."""

        recentProgress = query.recentProgress  # noqa: N815

    public = events_since(spark, PublicOnly(), None)
    private = events_since(spark, query, None)
    assert [event["timestamp"] for event in public] == [event["timestamp"] for event in private]
    assert public[-1]["sources"][0]["numInputRows"] == private[-1]["sources"][0]["numInputRows"]
    newest = Seen(private[-1]["batchId"], private[-1]["timestamp"])
    assert events_since(spark, query, newest) == []
    assert events_since(spark, PublicOnly(), newest) == []


@pytest.mark.spark
def test_events_of_all_queries_are_read_once_also_of_those_that_ended(
    spark: Any, rates: Any, query: Any, tmp_path: Path
) -> None:
    events = QueryEvents(spark)
    assert wait_until(lambda: len(query.recentProgress) >= 2, 60)
    active, first = events.read()
    assert [(known.id, known.run, known.name) for known in active] == [(query.id, query.runId, None)]
    assert [event["batchId"] for event in first] == list(range(len(first)))
    writer = rates.writeStream.format("noop").queryName("other")
    other = writer.option("checkpointLocation", str(tmp_path / "other")).start()
    assert wait_until(lambda: len(other.recentProgress) >= 3, 60)
    active, second = events.read()
    assert {known.name for known in active} == {None, "other"}
    other.stop()
    active, third = events.read()
    assert [known.run for known in active] == [query.runId]
    every = [*first, *second, *third]
    of_other = [event for event in every if event["runId"] == other.runId]
    assert of_other == [json.loads(progress.json) for progress in other.recentProgress]
    numbers = [event["batchId"] for event in every if event["runId"] == query.runId]
    assert numbers == list(range(len(numbers))), "none is lost and none is there twice"
    assert events.at_once, "and all that by one call for all queries"


@pytest.mark.spark
def test_a_plan_tells_what_it_reads(rates: Any, spark: Any) -> None:
    both = rates.unionByName(rates.filter("value > 3"))
    assert len(sources_read(both)) == 2
    assert all("rate-micro-batch" in source.lower() for source in sources_read(both))
    assert sources_read(spark.range(3)) == [], "a table has no place in a query's offsets"


@pytest.mark.spark
def test_new_records_are_made_by_an_aggregation_of_the_stream_alone(rates: Any, spark: Any) -> None:
    from pyspark.sql import functions as sql

    counted = rates.groupBy((sql.col("value") % 2).alias("odd")).count()
    above = counted.filter("count > 1").select("odd")
    table = spark.range(4).groupBy("id").count()
    joined = rates.join(table, rates.value == table.id)
    named = rates.withColumn("Aggregate ", sql.lit("TransformWithState "))
    assert [aggregates(f) for f in (rates, counted, above, joined, named)] == [
        False,
        True,
        True,
        False,
        False,
    ]
    modes = [output_mode(frame) for frame in (rates, counted, above, joined, named)]
    assert modes == ["append", "update", "update", "append", "append"]


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_state_function_says_its_own_output_mode(rates: Any, mode: str, tmp_path: Path) -> None:
    pytest.importorskip("pandas")

    def latest(key: Any, batches: Any, state: Any) -> Any:
        yield from batches

    states = rates.groupBy("value").applyInPandasWithState(
        latest, "timestamp timestamp, value long", "n long", mode, "NoTimeout"
    )
    assert aggregates(states)
    assert output_mode(states) == mode
    query = (
        states.writeStream.format("noop").outputMode(output_mode(states))
        .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )  # fmt: skip
    query.stop()
    assert query.exception() is None


@pytest.mark.spark
def test_dropped_columns_are_let_through_projections(spark: Any) -> None:
    frame = spark.range(3).selectExpr("id", "id * 2 AS double").filter("id > 0").select("double")
    complete = widened(frame, ["id"])
    assert complete is not None
    assert complete.columns == ["double", "id"]
    assert [tuple(row) for row in complete.collect()] == [(2, 1), (4, 2)]
    assert widened(frame.groupBy("double").count(), ["id"]) is None


@pytest.mark.spark
def test_a_column_is_let_through_where_nobody_makes_it_anew_or_joins(rates: Any, spark: Any) -> None:
    computed = rates.filter("value > 1").selectExpr("value", "value + 1 AS more").filter("more > 3")
    assert lets_through(computed, rates, "value")
    assert not lets_through(computed, rates, "timestamp"), "it was dropped"
    assert not lets_through(rates.selectExpr("value + 0 AS value"), rates, "value"), "it was made anew"
    table = spark.range(3)
    joined = table.join(rates, table["id"] == rates["value"], "left").drop("id")
    assert not lets_through(joined, rates, "value"), "it is null where the join found nothing"


@pytest.mark.spark
def test_an_error_of_sparks_is_told_with_its_cause(spark: Any, rates: Any, tmp_path: Path) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PythonException
    from pyspark.sql import functions as sql

    @sql.udf("long")
    def inverse(number: int) -> int:
        return 1 // number

    with pytest.raises(PythonException) as told:
        spark.range(1).select(inverse("id")).collect()
    assert re.fullmatch("ZeroDivisionError: .*by zero", cause_of(told.value))
    with pytest.raises(AnalysisException) as told:
        spark.read.json(str(tmp_path / "nowhere"))
    assert "nowhere" in cause_of(told.value)
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the checkpoint should be")
    with pytest.raises(Py4JJavaError) as told:
        rates.writeStream.format("noop").option("checkpointLocation", str(blocked)).start()
    cause = cause_of(told.value)
    assert "An error occurred while calling" not in cause
    assert str(blocked) in cause


@pytest.mark.spark
def test_a_process_has_one_driver(spark: Any) -> None:
    with pytest.raises(ClusterError, match="already active"):
        start_session("second", "local[1]")


class OnlyATrigger:
    """Stands in for a query of which only the trigger is asked."""

    def __init__(self, spark: Any, trigger: Any) -> None:
        self._jsq = types.SimpleNamespace(
            getClass=spark._jvm.java.lang.Object().getClass, trigger=lambda: trigger
        )


@pytest.mark.spark
def test_every_trigger_is_told_in_words(spark: Any) -> None:
    of = spark._jvm.org.apache.spark.sql.streaming.Trigger
    told = {
        str(trigger_of(OnlyATrigger(spark, trigger))): trigger_of(OnlyATrigger(spark, trigger)).interval_s
        for trigger in (
            of.ProcessingTime("5 seconds"), of.ProcessingTime(0), of.AvailableNow(), of.Once(),
            of.Continuous("1 second"), of.RealTime("5 minutes"),
        )
    }  # fmt: skip
    assert told == {
        "every 5 s": 5.0, "as soon as it can": 0.0, "available now": 0.0, "once": 0.0, "continuous": 1.0,
        "real time, batches of 300 s": 0.0,
    }  # fmt: skip
    assert str(trigger_of(object())) == "", "over Spark Connect nothing is told"
