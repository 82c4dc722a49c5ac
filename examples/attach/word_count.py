"""A stock Structured Streaming word count, and the two lines that make it elastic.

Nothing else in it knows of Penstock: take the two marked lines away and it is the plain job again.
Run it by `demo.py`, which brings a cluster and a changing load, or on a cluster of your own:

    spark-submit --master spark://master:7077 word_count.py LINES_FOLDER CHECKPOINT_FOLDER
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StringType

import penstock  # <- the first line

LOOK_UP_S = 0.005
"""How long the dictionary behind `cleaned` takes for a line: the work that needs more executors."""


@f.pandas_udf(StringType())
def cleaned(lines: Iterator[pd.Series]) -> Iterator[pd.Series]:
    """Each line in lower case without punctuation, by a dictionary that takes its time."""
    for batch in lines:
        time.sleep(LOOK_UP_S * len(batch))
        yield batch.str.lower().str.replace(r"[^a-z ]", "", regex=True)


def word_counts(lines: DataFrame) -> DataFrame:
    """How often each word was seen so far."""
    # As many tasks as there may ever be executors, or a new one would have nothing to do.
    words = lines.repartition(8).select(f.explode(f.split(cleaned("value"), " +")).alias("word"))
    return words.where("word != ''").groupBy("word").count()


def start(spark: SparkSession, folder: str, checkpoint: str) -> StreamingQuery:
    """Start counting the words of every text file that appears in a folder."""
    lines = spark.readStream.option("maxFilesPerTrigger", 20).text(folder)
    query: StreamingQuery = (
        word_counts(lines)
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName("word_counts")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    return query


def session(master: str | None = None) -> SparkSession:
    """An ordinary session that lets Spark's own dynamic allocation change the executors."""
    builder = SparkSession.builder.appName("word-count")
    if master is not None:
        builder = builder.master(master)
    settings = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.initialExecutors": "1",
        "spark.decommission.enabled": "true",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    spark = session()
    penstock.attach(spark, slo="2 s", max_instances=4)  # <- the second line
    start(spark, *sys.argv[1:3]).awaitTermination()
