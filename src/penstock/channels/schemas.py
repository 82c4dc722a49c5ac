"""Typed schemas at the channel's edge: a producer's records are made to fit the declared columns.

A schema is declared once, as a Spark DDL string, where an edge crosses units. What a producer sends is
checked against it when the query is built, so a missing or unfit column is told with the operator's name
before any record flows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.channels.envelope import RECORD_ID, SOURCE_TIME
from penstock.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def user_schema(ddl: str, whose: str) -> StructType:
    """The user's columns of a DDL string; ConfigurationError names whose schema cannot be read."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException as error:
        raise ConfigurationError(
            f'schema of {whose}: expected columns as Spark DDL such as "word string, count long", '
            f"got {ddl!r}: {str(error).splitlines()[0]}"
        ) from None
    fields = [field for field in schema.fields if field.name not in (RECORD_ID, SOURCE_TIME)]
    return StructType(fields)


def carried_schema(ddl: str, whose: str) -> StructType:
    """The columns as they lie in a channel: the envelope first, then the user's."""
    from pyspark.sql.types import StringType, StructField, StructType, TimestampType

    envelope = [StructField(RECORD_ID, StringType()), StructField(SOURCE_TIME, TimestampType())]
    return StructType(envelope + user_schema(ddl, whose).fields)


def fitted(records: DataFrame, ddl: str, whose: str) -> DataFrame:
    """The records with exactly the declared columns, in their order and types."""
    from pyspark.sql import functions as sql

    wanted = carried_schema(ddl, whose)
    missing = [name for name in wanted.fieldNames() if name not in records.columns]
    if missing:
        raise ConfigurationError(
            f"{whose}: its schema declares {', '.join(missing)}, but its function gives "
            f"{', '.join(records.columns)}; give the column or correct the schema"
        )
    present = {field.name: field.dataType for field in records.schema.fields}
    return records.select(
        *(
            sql.col(f"`{field.name}`")
            if present[field.name] == field.dataType
            else sql.col(f"`{field.name}`").cast(field.dataType).alias(field.name)
            for field in wanted.fields
        )
    )
