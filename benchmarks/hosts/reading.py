"""Sources of the examples as topics of a broker; beside a topology's file, where its functions are.

The factory and the quickstart have generated sources, which lie on the disk of the machine that runs them.
Hosts that share no disk read the same records from Kafka.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BROKER = "broker.json"
"""Where the broker is and how it lets in, on the driver's disk."""
ENVELOPE = "record_id string, source_time timestamp"
SCHEMAS = {
    "orders": "number long, customer string",
    "availability": "machine string, sequence long, time_s long, status string",
    "production": "machine string, sequence long, time_s long, cycle_s long, picture binary",
    "temperature": "machine string, sequence long, time_s long, temperature double",
}


def _topic(spark: SparkSession, name: str) -> DataFrame:
    from pyspark.sql import functions as sql

    known = json.loads((Path(__file__).parent / BROKER).read_text())
    reader = spark.readStream.format("kafka").options(
        **{f"kafka.{key}": value for key, value in known["client"].items()}
    )
    rows = (
        reader.option("kafka.bootstrap.servers", known["bootstrap"])
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", known["most_a_batch"])
        .load()
    )
    record = sql.from_json(sql.col("value").cast("string"), f"{ENVELOPE}, {SCHEMAS[name]}")
    return rows.select(record.alias("record")).select("record.*")


def orders(spark: SparkSession) -> DataFrame:
    """The quickstart's orders."""
    return _topic(spark, "orders")


def availability(spark: SparkSession) -> DataFrame:
    """The factory's S1."""
    return _topic(spark, "availability")


def production(spark: SparkSession) -> DataFrame:
    """The factory's S2."""
    return _topic(spark, "production")


def temperature(spark: SparkSession) -> DataFrame:
    """The factory's S3."""
    return _topic(spark, "temperature")
