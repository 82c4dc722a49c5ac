"""`python -m faults.plain_job MASTER SOURCE FOLDER`: the job as one writes it by hand."""

from __future__ import annotations

import sys
from typing import Any

from faults.ground import HERE, SETTINGS, TRIGGER_S


def main() -> None:
    """Read, work, write, until somebody ends it."""
    from pyspark.sql import SparkSession

    master, source, folder = sys.argv[1:4]
    sys.path.insert(0, str(HERE / "job"))
    builder: Any = SparkSession.builder.appName(f"plain {folder}").master(master)
    size = {"spark.executor.cores": "1", "spark.cores.max": "1", "spark.executor.memory": "512m"}
    for name, value in {
        **SETTINGS,
        **size,
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        # By hand, files would lie in one folder. These lie in many: no reason to list them by a job of tasks.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.addPyFile(str(HERE / "job" / "functions.py"))
    from functions import work

    schema = "record_id string, source_time string, number long"
    records = spark.readStream.schema(schema).json(f"{source}/batch-*")
    query = (
        work(records)
        .writeStream.format("json")
        .trigger(processingTime=f"{TRIGGER_S * 1000:.0f} milliseconds")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
