"""What every record carries through every hop: its id and the time it left its source.

`record_id` (string) and `source_time` (timestamp) are ordinary columns that operators may read. A
stateless operator that selects only its own columns gets them back: the projections that dropped them
are widened in the plan. What an aggregation emits is a new record: its id is derived from its content,
its source time is the one the operator gives (`max("source_time")` is right), else when it was made.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigurationError
from penstock.spark.gateway.plans import aggregates, widened

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RECORD_ID = "record_id"
SOURCE_TIME = "source_time"
PROBLEM = "penstock_problem"
"""The column that says why a record cannot be taken; null for a good one."""


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


def received(records: DataFrame, malformed: Column | None = None) -> DataFrame:
    """Records as they come in, with a column that says what is wrong with one (`PROBLEM`).

    `malformed` is a text column with what could not be read, null for a good record. A record without an
    id gets one from its content, so that it can be named and left out like any other.
    """
    from pyspark.sql import functions as sql

    names = [name for name in records.columns if name not in (RECORD_ID, PROBLEM)]
    missing = sql.when(sql.col(RECORD_ID).isNull(), sql.lit(f"it has no {RECORD_ID}"))
    own = sql.concat(sql.lit("without-id-"), _content_id(names))
    if malformed is None:
        problem = missing
    else:
        shown = sql.concat(sql.lit("it cannot be read: "), sql.substring(malformed, 1, 200))
        problem = sql.when(malformed.isNotNull(), shown).otherwise(missing)
        own = sql.coalesce(sql.concat(sql.lit("malformed-"), sql.sha1(malformed.cast("binary"))), own)
    return records.withColumns({PROBLEM: problem, RECORD_ID: sql.coalesce(sql.col(RECORD_ID), own)})


def admitted(records: DataFrame, whose: str, left_out: Collection[str] = ()) -> DataFrame:
    """Received records at the door: those with the ids to leave out are dropped, a bad one is an error.

    `whose` names the source or the operator they come from, for the error's message.
    """
    from pyspark.sql import functions as sql

    message = sql.concat(sql.lit(f"{whose}: record "), RECORD_ID, sql.lit(": "), PROBLEM)
    refused = sql.raise_error(message).cast("boolean")
    # One expression, for its parts are looked at in order: what is left out raises no error.
    good = sql.when(sql.col(PROBLEM).isNotNull(), refused).otherwise(sql.lit(True))
    if left_out:
        good = sql.when(sql.col(RECORD_ID).isin(sorted(left_out)), sql.lit(False)).otherwise(good)
    return records.filter(good).drop(PROBLEM)


def kept(result: DataFrame, operator: str, stateful: bool) -> DataFrame:
    """An operator's result with both columns, whatever the operator selected."""
    from pyspark.sql import functions as sql

    missing = [name for name in (RECORD_ID, SOURCE_TIME) if name not in result.columns]
    if not missing:
        return result
    if not stateful:
        complete = widened(result, missing)
        if complete is not None:
            return complete
    if result.isStreaming and not (stateful or aggregates(result)):
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
