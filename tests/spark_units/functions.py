"""Functions of the topologies in these tests; shipped to executors like a user's."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from penstock import Lookup


@sql.pandas_udf("long")
def _worked(numbers: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for batch in numbers:
        # Waits instead of computing: instances add up even where the machine has few cores.
        time.sleep(0.01 * len(batch))
        yield batch


def work(records: DataFrame) -> DataFrame:
    """10 ms a record; selects its own column only."""
    return records.select(_worked("number").alias("number"))


def work_negated(records: DataFrame) -> DataFrame:
    """The same work, and the numbers come out below zero."""
    return records.select((-_worked("number")).alias("number"))


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


def own_ids(records: DataFrame) -> DataFrame:
    """New records with ids of their own."""
    return records.select(
        sql.concat(sql.lit("own-"), "record_id").alias("record_id"), "source_time", "number"
    )


def without_ids(records: DataFrame) -> DataFrame:
    """Forgets the id of one record."""
    return records.select(
        sql.when(sql.col("number") == 13, sql.lit(None).cast("string"))
        .otherwise(sql.col("record_id"))
        .alias("record_id"),
        "source_time",
        "number",
    )


def superstitious_about_more(numbers: DataFrame, more: DataFrame) -> DataFrame:
    """Throws on unlucky numbers of its second input only."""
    return numbers.unionByName(more.withColumn("number", _throws("number")))


@sql.pandas_udf("long")
def _product(left: pd.Series, right: pd.Series) -> pd.Series:
    if (right == 13).any():
        raise ValueError("13 is unlucky")
    return left * right


def multiplied(numbers: DataFrame, more: DataFrame) -> DataFrame:
    """Every number with every other one: throws on a pair of which the second is 13."""
    right = more.select(sql.col("number").alias("other"))
    joined = numbers.join(right, sql.expr("number % 1 = other % 1"))
    return joined.select("record_id", "source_time", _product("number", "other").alias("number"))


@sql.pandas_udf("long")
def _away(numbers: pd.Series, sign: pd.Series) -> pd.Series:
    if Path(sign.iloc[0]).exists():
        raise RuntimeError("503: try again later")
    return numbers


def calling(records: DataFrame) -> DataFrame:
    """Calls a service that is away while a file is there."""
    return records.select(_away("number", sql.lit(os.environ["PENSTOCK_TEST_AWAY"])).alias("number"))


def count_by_parity_again(records: DataFrame) -> DataFrame:
    """The same counts by another function."""
    return count_by_parity(records)


def always_throws(records: DataFrame) -> DataFrame:
    """Throws on every record."""

    @sql.pandas_udf("long")
    def thrown(numbers: pd.Series) -> pd.Series:
        raise ValueError("nobody can do this")

    return records.withColumn("number", thrown("number"))


def looked_up(records: DataFrame) -> DataFrame:
    """Adds what is looked up."""
    offset = Lookup("offset", default=0)

    @sql.pandas_udf("long")
    def moved(numbers: pd.Series) -> pd.Series:
        return numbers + offset()

    return records.withColumn("number", moved("number"))
