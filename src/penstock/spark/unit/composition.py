"""DataFrames put together: an operator's function called, records tagged and handed out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.channels.envelope import SOURCE_TIME
from penstock.channels.sinks import load_function
from penstock.errors import ConfigurationError
from penstock.topology.model import Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OBSERVED_INPUT = "penstock-input-"
"""The metrics a unit's query reports with its progress of sources that are functions begin with this."""
OBSERVED_OUTPUT = "penstock-output"
"""The metric a unit's query reports with its progress: how many records leave."""
BEHIND = "behind "
"""What of it is one operator's begins with this."""
OUTLET = "penstock_outlet"
"""The column that says which operator's a record is, where those of several are in one DataFrame."""
_SQL = "sql:"


def write_all(batch: DataFrame, batch_id: int, writers: list[Callable[[DataFrame, int], None]]) -> None:
    """Hand a micro-batch to all who take it, computed once."""
    kept_in_memory = len(writers) > 1 and not batch.is_cached
    if kept_in_memory:
        batch.persist()
    try:
        for write in writers:
            write(batch, batch_id)
    finally:
        if kept_in_memory:
            batch.unpersist()


def tagged(parts: Mapping[str, DataFrame]) -> DataFrame:
    """Records of several kinds in one DataFrame: a column of their own each, and one that says which."""
    from pyspark.sql import functions as sql

    union: DataFrame | None = None
    for name, records in parts.items():
        columns = sql.struct(*(sql.col(f"`{column}`") for column in records.columns)).alias(name)
        part = records.select(sql.lit(name).alias(OUTLET), columns)
        union = part if union is None else union.unionByName(part, allowMissingColumns=True)
    if union is None:
        raise ConfigurationError("expected a unit with at least one operator, got none")
    return union


def called(spark: SparkSession, operator: Operator, given: Mapping[str, DataFrame]) -> DataFrame:
    """What an operator's function makes of its inputs; ConfigurationError where that is no DataFrame."""
    from pyspark.sql import DataFrame as PySparkDataFrame

    frames = list(given.values())
    if operator.function is None:
        result = frames[0]
        for more in frames[1:]:
            result = result.unionByName(more, allowMissingColumns=True)
        return result
    if operator.function.startswith(_SQL):
        return spark.sql(operator.function.removeprefix(_SQL), **given)
    function = load_function(operator.function, f"operator {operator.name}")
    if len(frames) == 1:
        answer = function(frames[0])
    else:
        answer = function(**{name.replace("-", "_"): frame for name, frame in given.items()})
    if not isinstance(answer, PySparkDataFrame):
        raise ConfigurationError(
            f"operator {operator.name}: expected {operator.function} to give back a DataFrame, "
            f"got {type(answer).__name__}"
        )
    return answer


def counted(leaving: DataFrame, operators: Iterable[str]) -> DataFrame:
    """What leaves, counted at every progress event: in all, and by operator where a column says whose."""
    from pyspark.sql import functions as sql

    counts = [sql.count(sql.lit(1)).alias("records")]
    if OUTLET in leaving.columns:
        counts += [sql.count_if(leaving[OUTLET] == name).alias(BEHIND + name) for name in operators]
    return leaving.observe(OBSERVED_OUTPUT, *counts)


def aged(records: DataFrame, name: str) -> DataFrame:
    """The records of a source's own function, with their ages reported at every progress event.

    Nothing else tells from when they are. Mean and minimum only: percentiles would cost more than a light
    operator does.
    """
    from pyspark.sql import functions as sql

    instant = sql.unix_millis(SOURCE_TIME)
    mean, first = sql.avg(instant).alias("source_mean_ms"), sql.min(instant).alias("source_first_ms")
    return records.observe(f"{OBSERVED_INPUT}{name}", mean, first)
