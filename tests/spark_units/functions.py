"""Functions of the topologies in these tests; shipped to executors like a user's."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql


@sql.pandas_udf("long")
def _worked(numbers: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for batch in numbers:
        # Waits instead of computing: instances add up even where the machine has few cores.
        time.sleep(0.01 * len(batch))
        yield batch


def work(records: DataFrame) -> DataFrame:
    """10 ms a record; selects its own column only."""
    return records.select(_worked("number").alias("number"))


def double(records: DataFrame) -> DataFrame:
    return records.select((sql.col("number") * 2).alias("twice"), "number")


def even(records: DataFrame) -> DataFrame:
    return records.filter("number % 2 = 0")


def odd(records: DataFrame) -> DataFrame:
    return records.filter("number % 2 = 1")


def joined(even: DataFrame, odd: DataFrame) -> DataFrame:
    return even.unionByName(odd)


def count_by_parity(records: DataFrame) -> DataFrame:
    return records.groupBy((sql.col("number") % 2).alias("parity")).agg(
        sql.count("*").alias("records"), sql.max("source_time").alias("source_time")
    )


@sql.pandas_udf("long")
def _throws(numbers: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for batch in numbers:
        for number in batch:
            if number % 20 == 13:
                raise ValueError(f"{number} is unlucky")
        yield batch


def superstitious(records: DataFrame) -> DataFrame:
    """Throws on 13, 33, 53, …"""
    return records.select(_throws("number").alias("number"))


def not_a_frame(records: DataFrame) -> int:
    return 3
