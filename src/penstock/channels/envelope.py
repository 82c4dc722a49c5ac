"""What every record carries through every hop: its id and the time it left its source.

`record_id` (string) and `source_time` (timestamp) are ordinary columns that operators may read. A
stateless operator that selects only its own columns gets them back: the projections that dropped them
are widened in the plan. What an aggregation emits is a new record: its id is derived from its content,
its source time is the one the operator gives (`max("source_time")` is right), else when it was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD_ID = "record_id"
SOURCE_TIME = "source_time"

_WIDENED = ("Project",)
_PASSED = ("Filter", "SubqueryAlias", "Sort", "Repartition", "RepartitionByExpression", "EventTimeWatermark")
"""Plan nodes that give out what their child gives out, so that a column can be let through them."""


def enveloped(records: DataFrame, source: str) -> DataFrame:
    """A source's records with both columns, in their types.

    Without an id, one is made of the record's content (so that a replay makes the same one; equal records
    then count as one). Without a source time, a `timestamp` column is taken, or the time of reading.
    """
    from pyspark.sql import functions as sql
    from pyspark.sql.types import NumericType, StringType, TimestampNTZType, TimestampType

    names = records.columns
    if not names:
        raise ConfigurationError(f"source {source}: expected a DataFrame with columns, got none")
    if RECORD_ID not in names:
        records = records.withColumn(RECORD_ID, _content_id(names))
    elif not isinstance(records.schema[RECORD_ID].dataType, StringType):
        records = records.withColumn(RECORD_ID, sql.col(RECORD_ID).cast("string"))
    if SOURCE_TIME not in names:
        origin = sql.col("timestamp") if "timestamp" in names else sql.current_timestamp()
        return records.withColumn(SOURCE_TIME, origin.cast("timestamp"))
    kind = records.schema[SOURCE_TIME].dataType
    if isinstance(kind, TimestampType):
        return records
    if isinstance(kind, NumericType):
        return records.withColumn(SOURCE_TIME, sql.timestamp_millis(sql.col(SOURCE_TIME).cast("long")))
    if isinstance(kind, (StringType, TimestampNTZType)):
        return records.withColumn(SOURCE_TIME, sql.col(SOURCE_TIME).cast("timestamp"))
    raise ConfigurationError(
        f"source {source}: expected {SOURCE_TIME} as a timestamp or as milliseconds since 1970, "
        f"got {kind.simpleString()}"
    )


def kept(result: DataFrame, operator: str, stateful: bool) -> DataFrame:
    """An operator's result with both columns, whatever the operator selected."""
    from pyspark.sql import functions as sql

    missing = [name for name in (RECORD_ID, SOURCE_TIME) if name not in result.columns]
    if not missing:
        return result
    if not stateful:
        widened = _widened(result, missing)
        if widened is not None:
            return widened
    if result.isStreaming and not (stateful or _aggregates(result)):
        raise ConfigurationError(
            f"operator {operator}: its function gives {', '.join(result.columns)} without "
            f"{' and '.join(missing)}, and they cannot be let through its plan (mapInPandas, joins and the "
            "like name their own columns): give them too, or declare the operator stateful if it makes "
            "new records"
        )
    names = result.columns
    if RECORD_ID in missing:
        result = result.withColumn(RECORD_ID, sql.concat(sql.lit(f"{operator}-"), _content_id(names)))
    if SOURCE_TIME in missing:
        result = result.withColumn(SOURCE_TIME, sql.current_timestamp())
    return result


def _content_id(names: list[str]) -> Any:
    from pyspark.sql import functions as sql

    return sql.sha1(sql.to_json(sql.struct(*(sql.col(f"`{name}`") for name in names))).cast("binary"))


def _aggregates(result: DataFrame) -> bool:
    """Whether the plan has a node that makes new records of several."""
    plan = result._jdf.queryExecution().analyzed()
    return any(f"{name} " in plan.toString() for name in ("Aggregate", "TransformWithState", "FlatMapGroups"))


def _widened(result: DataFrame, missing: list[str]) -> DataFrame | None:
    """The same result with the missing columns let through its projections; None where that cannot be."""
    from pyspark.sql import DataFrame as PySparkDataFrame

    session = result.sparkSession
    plan = _let_through(session._jvm, result._jdf.queryExecution().analyzed(), set(missing))
    if plan is None:
        return None
    # Spark's own way to make a DataFrame of a plan; the analysed plan is checked again by it.
    jvm: Any = session._jvm
    module = getattr(getattr(jvm.org.apache.spark.sql.classic, "Dataset$"), "MODULE$")
    widened = PySparkDataFrame(module.ofRows(session._jsparkSession, plan), session)
    return widened.select(*result.columns, *missing)


def _let_through(jvm: Any, plan: Any, missing: set[str]) -> Any | None:
    """The plan giving out the missing columns too; None where a node on the way cannot."""
    present = _outputs(plan)
    if missing <= set(present):
        return plan
    kind = plan.nodeName()
    if kind not in _WIDENED and kind not in _PASSED:
        return None
    child = _let_through(jvm, plan.children().apply(0), missing - set(present))
    if child is None:
        return None
    if kind in _PASSED:
        children = jvm.java.util.ArrayList()
        children.add(child)
        return plan.withNewChildren(_scala_sequence(jvm, children))
    attributes = _outputs(child)
    wanted = jvm.java.util.ArrayList()
    project_list = plan.projectList()
    for position in range(project_list.size()):
        wanted.add(project_list.apply(position))
    for name in sorted(missing - set(present)):
        wanted.add(attributes[name])
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(_scala_sequence(jvm, wanted), child)


def _outputs(plan: Any) -> dict[str, Any]:
    output = plan.output()
    return {
        attribute.name(): attribute
        for attribute in (output.apply(position) for position in range(output.size()))
    }


def _scala_sequence(jvm: Any, items: Any) -> Any:
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(items)
