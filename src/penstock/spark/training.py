"""The training run that makes the class archive, once for each Java and Spark.

One Java process plays every part: first driver and executor in one (`local[1]`), then driver, master
and worker in one (Spark's own `local-cluster`). When it ends it writes down the classes it loaded. It
runs below a Python process of its own, because a driver's Java lives as long as its Python. Without an
archive everything works, only slower.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from penstock.machine.java import Java
from penstock.spark.gateway.session import end_driver, load_class
from penstock.spark.launching import spark_archive, spark_java

LOG = logging.getLogger(__name__)

TIMEOUT_S = 600.0


def ensure_archive(java: Java | None = None) -> bool:
    """Make the class archive where it is missing (under a minute, once); whether there is one now.

    Blocks while it trains. Never raises: what cannot be made is done without.
    """
    found = java or spark_java()
    archive = spark_archive(found)
    with archive.training() as mine:
        if mine:
            LOG.warning("making the class archive for Java %d: once, about a minute", found.version)
            command = [sys.executable, "-m", "penstock.spark.training", str(found.home)]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
                )
                problem = (done.stdout + done.stderr)[-2000:]
            except (OSError, subprocess.SubprocessError) as error:
                problem = str(error)
            if not archive.keep():
                archive.give_up(problem)
    return archive.exists


def train(java: Java) -> None:
    """Run the training workload in a Java that writes the archive when it ends."""
    from pyspark.sql import SparkSession

    from penstock.spark.settings import prepare_environment, spark_settings

    prepare_environment(java, "local[1]")
    flags = spark_archive(java).make()
    for master in ("local[1]", "local-cluster[1,1,1024]"):
        builder: Any = SparkSession.builder.appName("training").master(master)
        settings = spark_settings(master, java_flags=flags)
        # Only this one process may write: an executor would write the same file.
        settings.pop("spark.executor.extraJavaOptions", None)
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        _workload(spark)
        load_class(spark, "org.apache.spark.executor.CoarseGrainedExecutorBackend$")
        spark.stop()
    # The driver's Java writes its archive when it ends.
    end_driver(wait_s=TIMEOUT_S)


def _workload(spark: Any) -> None:
    """A little of everything a unit does: files in, a Python function, an aggregation, files out."""
    from pyspark.sql import functions
    from pyspark.sql.types import LongType

    with tempfile.TemporaryDirectory(prefix="penstock-training-") as folder:
        place = Path(folder)
        spark.range(200).selectExpr("id", "cast(id as string) as text").write.json(str(place / "in"))
        double = functions.udf(lambda number: number * 2, LongType())
        stream = spark.readStream.schema("id long, text string").json(str(place / "in"))
        plain = stream.withColumn("double", double("id"))
        counts = plain.groupBy((functions.col("id") % 7).alias("key")).agg(functions.count("*").alias("n"))
        queries = [
            plain.writeStream.format("parquet").option("checkpointLocation", str(place / "a"))
            .trigger(availableNow=True).start(str(place / "out")),
            counts.writeStream.format("memory").queryName("counts").outputMode("complete")
            .option("checkpointLocation", str(place / "b")).trigger(availableNow=True).start(),
        ]  # fmt: skip
        for query in queries:
            query.awaitTermination(120)
            _ = query.recentProgress
        spark.read.parquet(str(place / "out")).count()


if __name__ == "__main__":
    train(spark_java(sys.argv[1]))
