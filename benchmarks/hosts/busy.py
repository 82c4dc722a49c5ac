"""Functions of topologies that need no disk and no broker; beside a topology's file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

WORK_S = 0.06
"""Processor time of one record."""
RATE_PER_S = 10


def ticks(spark: SparkSession) -> DataFrame:
    """Ten records a second."""
    return spark.readStream.format("rate").option("rowsPerSecond", RATE_PER_S).load()


def worked(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Compute for 60 ms of processor time a record, however long that takes."""
    for batch in batches:
        begun_s = time.process_time()
        while time.process_time() - begun_s < WORK_S * len(batch):
            pass
        yield batch


def work(ticks: DataFrame) -> DataFrame:
    """Work on each record: 0.6 cores are needed in all."""
    return ticks.mapInPandas(worked, ticks.schema)


def pass_on(ticks: DataFrame) -> DataFrame:
    """Do nothing with them."""
    return ticks.select("timestamp", "value")
