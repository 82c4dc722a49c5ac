"""The attach suite on one Spark and one Python: run by the environment's own interpreter.

    python cell.py FOLDER

Prints one line of JSON: what was found, by name, true where it holds. A real session with real executors (as
processes of this machine), a query over files that falls behind and catches up, a query that fails, two that
run beside, and the end of the session.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main(folder: Path) -> dict[str, Any]:
    """Run the suite; every check is made, whatever the others say."""
    from pyspark.sql import SparkSession

    import penstock

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("compatibility").master("local-cluster[2,1,1024]")
    settings = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.initialExecutors": "1",
        "spark.decommission.enabled": "true",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    lines = folder / "lines"
    lines.mkdir(parents=True)
    for number in range(12):
        (lines / f"{number:03d}.txt").write_text("one line\n" * 10)
    handle = penstock.attach(
        spark, slo="5 s", policy="threshold", max_instances=2, interval="1 s", metrics=0,
        parameters={"up_queue": 30, "up_twice_queue": 100_000}, journal=folder / "journal.db",
        queries={"rate": {"priority": 0}},
    )  # fmt: skip
    found: dict[str, Any] = {"spark": spark.version, "python": "{}.{}.{}".format(*sys.version_info)}

    def work(batch: Any, number: int) -> None:
        # Python on the executors, in every batch.
        found["python_rows"] = batch.rdd.map(lambda row: len(row[0])).sum()
        time.sleep(0.4)

    def fail(batch: Any, number: int) -> None:
        raise ValueError("a broken sink")

    def start(name: str, stream: Any, each: Any = None, **trigger: Any) -> Any:
        writer = stream.writeStream.queryName(name).option("checkpointLocation", str(folder / name))
        writer = writer.foreachBatch(each) if each is not None else writer.format("noop")
        return (writer.trigger(**trigger) if trigger else writer).start()

    def units() -> Any:
        return handle.status().units[0] if handle.status().units else None

    def query(name: str) -> Any:
        return next((query for query in handle.status().queries if query.name == name), None)

    text = spark.readStream.option("maxFilesPerTrigger", 1).text(str(lines))
    backlog = start("files", text, work)
    start(
        "rate", spark.readStream.format("rate").option("rowsPerSecond", 20).load(), processingTime="1 second"
    )
    start("fails", spark.readStream.format("rate").option("rowsPerSecond", 5).load(), fail)
    found["acts"] = handle.status().acting
    found["grows"] = within(90, lambda: units() is not None and units().running == 2)
    found["measures files"] = within(30, lambda: (q := query("files")) is not None and q.told_by == "files")
    found["own goals"] = within(10, lambda: (q := query("rate")) is not None and q.priority == 0)
    found["triggers"] = within(5, lambda: query("rate").trigger == "every 1 s")
    found["failed query told"] = within(
        40, lambda: "a broken sink" in (getattr(query("fails"), "problem", "") or "")
    )
    backlog.processAllAvailable()
    found["measures all"] = within(30, lambda: query("files").processed == 120)
    found["shrinks"] = within(90, lambda: units() is not None and units().running == 1)
    found["python on executors"] = found.pop("python_rows", 0) > 0
    found["service"] = handle.status().service
    found["lacks"] = list(handle.status().capabilities)
    found["problem"] = handle.status().problem
    began_s = time.monotonic()
    spark.stop()
    found["stop_s"] = round(time.monotonic() - began_s, 2)
    found["ends with the session"] = within(10, lambda: not handle.running)
    found["problem"] = handle.status().problem
    return found


def within(wait_s: float, holds: Callable[[], Any]) -> bool:
    """Whether something becomes true in time."""
    deadline_s = time.monotonic() + wait_s
    while time.monotonic() < deadline_s:
        if holds():
            return True
        time.sleep(0.2)
    return False


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))), flush=True)
    # Java's threads must not keep a cell that is done.
    os._exit(0)
