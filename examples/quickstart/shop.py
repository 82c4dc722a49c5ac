"""The functions of the quickstart topology: plain DataFrame in, DataFrame out."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

WORK_S = 0.004
"""What one order costs: a stand-in for a call to a model or a service."""


@sql.pandas_udf("double")
def slow_price(numbers: Iterator[pd.Series]) -> Iterator[pd.Series]:
    """Price orders, 4 ms each."""
    for batch in numbers:
        time.sleep(WORK_S * len(batch))
        yield 1.0 + (batch % 97) * 0.5


def price(orders: DataFrame) -> DataFrame:
    """Add a price to every order; record id and source time come along by themselves."""
    return orders.select("number", "customer", slow_price("number").alias("price"))


def large(priced: DataFrame) -> DataFrame:
    """Mark the large ones."""
    return priced.withColumn("large", sql.col("price") > 40)


def by_customer(priced: DataFrame) -> DataFrame:
    """What every customer has spent so far; a result is as old as the newest order in it."""
    return priced.groupBy("customer").agg(
        sql.sum("price").alias("spent"),
        sql.count("*").alias("orders"),
        sql.max("source_time").alias("source_time"),
    )
