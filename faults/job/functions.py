"""The function of the job under fault; shipped to executors like a user's."""

from __future__ import annotations

from pyspark.sql import DataFrame


def work(records: DataFrame) -> DataFrame:
    """Little work without Python: executors come up as fast as Java does, and so does what heals."""
    return records.selectExpr("number", "number * 2 AS twice")
