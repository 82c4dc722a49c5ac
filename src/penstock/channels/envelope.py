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
from penstock.spark.gateway.plans import aggregates, lets_through, widened

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
    """Records as they came in, with a column that says what is wrong with one (`PROBLEM`).

    `malformed` is a text column with what could not be read, null for a good record. A record without an
    id gets one from its content, so that it can be named and left out like any other.
    """
    problem, identity = _judged(records, malformed)
    return records.withColumns({PROBLEM: problem, RECORD_ID: identity})


def admitted(
    records: DataFrame, whose: str, left_out: Collection[str] = (), malformed: Column | None = None
) -> DataFrame:
    """Records at the door: those with the ids to leave out are dropped, a bad one is an error.

    `whose` names the source or the operator they come from, for the error's message; `malformed` is as for
    `received`. It is one short filter: who is bad is found out when the batch is read again (`received`).
    """
    from pyspark.sql import functions as sql

    bad, problem = sql.col(RECORD_ID).isNull(), sql.lit(f"has no {RECORD_ID}")
    if malformed is not None:
        bad = malformed.isNotNull() | bad
        shown = sql.concat(sql.lit("cannot be read: "), sql.substring(malformed, 1, 200))
        problem = sql.coalesce(shown, problem)
    # One expression, for its parts are looked at in order: what is left out raises no error.
    refused = _refused(sql.concat(sql.lit(f"{whose}: a record "), problem))
    good = sql.when(bad, refused).otherwise(sql.lit(True))
    if left_out:
        identity = _judged(records, malformed)[1]
        good = sql.when(identity.isin(sorted(left_out)), sql.lit(False)).otherwise(good)
    return records.filter(good)


def admitted_again(records: DataFrame, whose: str) -> DataFrame:
    """The same for records that were read again (`received`): what is wrong with one is in a column."""
    from pyspark.sql import functions as sql

    message = sql.concat(sql.lit(f"{whose}: record "), RECORD_ID, sql.lit(": "), PROBLEM)
    good = sql.when(sql.col(PROBLEM).isNotNull(), _refused(message)).otherwise(sql.lit(True))
    return records.filter(good).drop(PROBLEM)


def identified(records: DataFrame, operator: str, admitted: Collection[DataFrame] = ()) -> DataFrame:
    """Records that leave, each with an id: the next unit could neither name nor deduplicate one without.

    Where they have the ids that were looked at when they were `admitted`, nobody looks again.
    """
    from pyspark.sql import functions as sql

    if any(lets_through(records, given, RECORD_ID) for given in admitted):
        return records
    refused = _refused(sql.lit(f"operator {operator}: it has no {RECORD_ID}"))
    return records.filter(sql.when(sql.col(RECORD_ID).isNull(), refused).otherwise(sql.lit(True)))


def _judged(records: DataFrame, malformed: Column | None) -> tuple[Column, Column]:
    """What is wrong with a record, null for a good one; and its id, from its content where it has none."""
    from pyspark.sql import functions as sql

    names = [name for name in records.columns if name not in (RECORD_ID, PROBLEM)]
    problem = sql.when(sql.col(RECORD_ID).isNull(), sql.lit(f"it has no {RECORD_ID}"))
    own = sql.concat(sql.lit("without-id-"), _content_id(names))
    if malformed is not None:
        shown = sql.concat(sql.lit("it cannot be read: "), sql.substring(malformed, 1, 200))
        problem = sql.when(malformed.isNotNull(), shown).otherwise(problem)
        own = sql.coalesce(sql.concat(sql.lit("malformed-"), sql.sha1(malformed.cast("binary"))), own)
    return problem, sql.coalesce(sql.col(RECORD_ID), own)


def _refused(message: Column) -> Column:
    """The end of the query, with a message."""
    from pyspark.sql import functions as sql

    return sql.raise_error(message).cast("boolean")


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
