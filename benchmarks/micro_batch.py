"""One side of the comparison of micro-batches: a session that runs trivial ones when asked to.

`plain` is a session as Spark makes it by itself, `ours` one of Penstock's session builder; nothing else
differs. Each is a process of its own with one executor of one core, so that all settings of a side take
effect, those of a driver's and an executor's Java too. A line with a number asks for so many batches.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

from penstock.machine.java import find_java
from penstock.spark.access import settings_at
from penstock.spark.settings import prepare_environment, start_session

SKIPPED = 3
"""The first batches of a query make its checkpoint: they are not like the others."""


def session(kind: str, master: str) -> Any:
    """A session with one executor of one core and 512 MiB."""
    if kind == "ours":
        return start_session("ours", master, log_level="OFF")
    prepare_environment(find_java(), master)
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.appName("plain").master(master)
    size = {"spark.executor.cores": "1", "spark.cores.max": "1", "spark.executor.memory": "512m"}
    # The cluster lets nobody in without its secret; both sides pay for the same encryption.
    for name, value in {**size, "spark.driver.host": "127.0.0.1", **settings_at(master)}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def batches_ms(spark: Any, number: int) -> list[float]:
    """Durations of so many batches of ten rows in one task, by Spark's own account."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        query = rows.load().writeStream.format("noop").option("checkpointLocation", folder).start()
        try:
            while (query.lastProgress or {"batchId": 0})["batchId"] < number + SKIPPED:
                time.sleep(0.05)
            progress = query.recentProgress
        finally:
            query.stop()
    return [event["durationMs"]["triggerExecution"] for event in progress[SKIPPED:] if event["numInputRows"]]


def main() -> None:
    """Serve until the end of the input."""
    kind, master = sys.argv[1:3]
    spark = session(kind, master)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(batches_ms(spark, int(line))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
