"""Clusters of somebody else's, in short: executors come, are replaced and go on YARN and on Kubernetes.

The quickstart runs on a standalone master, and on YARN where that is asked for. `make clusters` does it all
under load, with a node lost, and with the default policy.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.clusters.hadoop import daemon_jars
from benchmarks.clusters.kubernetes import build
from benchmarks.clusters.kubernetes.cluster import KubernetesCluster
from benchmarks.clusters.shop import final, sell
from benchmarks.clusters.standalone import StandaloneCluster
from benchmarks.clusters.yarn import YarnCluster
from compatibility.foreign import topic_of_lines
from pyspark.sql.streaming import DataStreamWriter

from penstock.channels.kafka_jars import connector_jars
from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder
from penstock.machine.processes import ChildProcesses, log_tail, wait_until
from penstock.spark.installation import spark_version
from penstock.spark.managers.registry import make_manager
from penstock.spark.training import ensure_archive

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

takes_minutes = pytest.mark.skipif(
    "PENSTOCK_CLUSTERS" not in os.environ, reason="takes minutes: set PENSTOCK_CLUSTERS=1"
)

JOB = """
import json, os, sys
from pathlib import Path

folder = Path(sys.argv[1])
told = json.loads((folder / "told.json").read_text())
os.environ.update(told["environment"])
import penstock
from penstock.machine.processes import wait_until
from penstock.spark.gateway.executors import ExecutorControl
from penstock.spark.settings import end_session, start_session

spark = start_session("short", told["master"], settings=told["settings"], log_level="ERROR")
control, seen = ExecutorControl(spark), {}

def ids():
    return {executor.id for executor in control.executors()}

def bring(number):
    bounds = {"min_instances": number, "max_instances": number}
    return penstock.attach(spark, **bounds, interval="1 s", journal=folder / f"{number}.db")

assert wait_until(lambda: len(ids()) == 1, 120), ids()
handle = bring(2)
assert wait_until(lambda: len(ids()) == 2, 120), ids()
lines = spark.readStream.option("maxFilesPerTrigger", 2).text(f"file://{folder}/numbers")
writer = lines.writeStream.format("text").option("path", f"file://{folder}/out")
writer = writer.trigger(processingTime="300 milliseconds")
query = writer.option("checkpointLocation", f"file://{folder}/checkpoint").start()
first = ids()
(folder / "two").touch()
assert wait_until(lambda: len(ids()) == 2 and len(ids() - first) == 1, 120), (first, ids())
query.processAllAvailable()
query.stop()
seen["ids"] = sorted(int(row.value) for row in spark.read.text(f"file://{folder}/out").collect())
handle.stop()
seen |= {"service": handle.status().service, "problem": handle.status().problem}
again = bring(1)
assert wait_until(lambda: len(ids()) == 1, 120), ids()
(folder / "seen.json").write_text(json.dumps(seen))
end_session()
"""


REAL_TIME = """
import json, os, sys
from pathlib import Path

folder = Path(sys.argv[1])
told = json.loads((folder / "told.json").read_text())
os.environ.update(told["environment"])
import penstock
from penstock.controller import Journal
from penstock.machine.processes import wait_until
from penstock.spark.gateway.executors import ExecutorControl
from penstock.spark.settings import end_session, start_session

rocks = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
settings = {"spark.sql.shuffle.partitions": "1", "spark.sql.streaming.stateStore.providerClass": rocks}
spark = start_session("real", told["master"], settings={**told["settings"], **settings}, log_level="ERROR")
control, seen = ExecutorControl(spark), []

def bring(number):
    bounds = {"min_instances": number, "max_instances": number}
    with penstock.attach(spark, **bounds, interval="1 s", journal=folder / f"{number}.db") as handle:
        assert wait_until(lambda: len(control.executors()) == number, 120), control.executors()
        seen.append([number, handle.status().service])

def batch():
    return query.lastProgress["batchId"] if query.lastProgress else -1

def go_on():
    before = batch()
    assert wait_until(lambda: batch() > before + 1 or not query.isActive, 120), before
    assert query.isActive, query.exception()

bring(2)  # the query has two tasks, which must run at once
kafka = {"kafka.bootstrap.servers": told["address"]}
lines = spark.readStream.format("kafka").options(**kafka).option("subscribe", "lines").load()
counts = lines.groupBy("value").count().selectExpr("value AS key", "string(count) AS value")
writer = counts.writeStream.format("kafka").options(**kafka).option("topic", "out").outputMode("update")
writer = writer.option("checkpointLocation", f"file://{folder}/checkpoint")
query = writer.trigger(realTime="5 seconds").start()
go_on()
bring(3)
go_on()
bring(2)
go_on()
always_down = dict.fromkeys(("up_queue", "up_twice_queue", "down_queue"), 10**6)
fewer = {"policy": "threshold", "parameters": always_down, "interval": "1 s", "max_instances": 2}
with penstock.attach(spark, **fewer, journal=folder / "fewer.db"):
    go_on()
    go_on()
with Journal(folder / "fewer.db", run="real") as journal:
    refused = {row["refused"] for row in journal.rows("action") if row["kind"] == "StopInstance"}
state = query.lastProgress["stateOperators"][0]["numRowsTotal"]
told = {"executors": seen, "lines in state": state, "refused": sorted(refused, key=str)}
(folder / "seen.json").write_text(json.dumps(told))
query.stop()
end_session()
"""


def need_hadoop() -> None:
    """Skip where Hadoop's jars cannot be fetched."""
    try:
        daemon_jars()
    except ClusterError as error:
        pytest.skip(f"Hadoop's jars cannot be had: {error}")


def yarn(folder: Path) -> YarnCluster:
    need_hadoop()
    return YarnCluster(folder, nodes=1)


def kubernetes(folder: Path) -> KubernetesCluster:
    reason = build.unavailable()
    if reason is not None:
        pytest.skip(reason)
    return KubernetesCluster(folder, nodes=1)


@pytest.fixture(params=[yarn, kubernetes])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    make: Callable[[Path], Any] = request.param
    made = make(tmp_path / "theirs")
    ensure_archive()
    with made as started:
        yield started


def test_executors_come_are_replaced_and_go_no_id_is_lost_and_nothing_is_left(
    cluster: Any, tmp_path: Path
) -> None:
    folder, numbers = tmp_path / "job", range(40)
    (folder / "numbers").mkdir(parents=True)
    for number in numbers:
        (folder / "numbers" / f"{number}.txt").write_text(f"{number}\n")
    (folder / "told.json").write_text(json.dumps(told_of(cluster, folder)))
    (folder / "job.py").write_text(JOB)
    children, log = ChildProcesses(f"short {folder}"), folder / "job.log"
    try:
        command = [sys.executable, str(folder / "job.py"), str(folder)]
        children.start("job", command, log=log, environment={**os.environ})
        wait_until(lambda: (folder / "two").exists() or not children.alive("job"), 300)
        assert cluster.kill_executor() is not None, log_tail(log)
        wait_until(lambda: not children.alive("job"), 300)
    finally:
        children.stop_all(5.0)
    assert (folder / "seen.json").exists(), log_tail(log)
    seen = json.loads((folder / "seen.json").read_text())
    assert seen == {"ids": list(numbers), "service": "full", "problem": None}
    assert wait_until(lambda: cluster.remains() == [], 30), cluster.remains()


def told_of(cluster: Any, folder: Path) -> dict[str, Any]:
    """What a job is told of a cluster."""
    site = cluster.site(folder)
    manager = make_manager(site)
    return {
        "master": manager.master_url,
        "settings": {**manager.settings(), **site.settings},
        "environment": dict(manager.environment()),
    }


@takes_minutes
@pytest.mark.kafka
def test_a_job_with_state_in_real_time_goes_on_while_executors_come_and_go_on_yarn(tmp_path: Path) -> None:
    if "realTime" not in inspect.signature(DataStreamWriter.trigger).parameters:
        pytest.skip("this Spark has no real-time mode")
    need_hadoop()
    ensure_archive()
    folder = tmp_path / "job"
    folder.mkdir()
    jars = connector_jars(cache_folder("jars"), spark_version())
    with YarnCluster(tmp_path / "yarn", nodes=1) as cluster, topic_of_lines(tmp_path / "broker") as address:
        told = {**told_of(cluster, folder), "address": address}
        told["settings"] |= {"spark.jars": ",".join(map(str, jars))}
        (folder / "told.json").write_text(json.dumps(told))
        (folder / "job.py").write_text(REAL_TIME)
        command = [sys.executable, str(folder / "job.py"), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == 0, done.stderr
        assert wait_until(lambda: cluster.remains() == [], 30), cluster.remains()
    seen = json.loads((folder / "seen.json").read_text())
    assert seen["executors"] == [[2, "full"], [3, "full"], [2, "full"]]
    assert seen["lines in state"] > 0
    assert seen["refused"] == ["real time: 2 slots must be there all the time"], (
        "one would have ended the query"
    )


def test_the_quickstart_on_an_existing_standalone_master_gives_the_usual_results(tmp_path: Path) -> None:
    ensure_archive()
    with StandaloneCluster(tmp_path / "theirs", workers=1) as cluster:
        sold = sell(tmp_path / "shop", cluster.site(tmp_path), hold_s=3.0)
        assert cluster.remains() == []
    assert sold.records_in > 0
    assert sold.spent == expected(sold.records_in)


@takes_minutes
def test_the_quickstart_on_yarn_gives_the_usual_results(tmp_path: Path) -> None:
    need_hadoop()
    with YarnCluster(tmp_path / "yarn", nodes=1) as cluster:
        sold = sell(tmp_path / "shop", cluster.site(tmp_path), hold_s=3.0)
        assert wait_until(lambda: cluster.remains() == [], 30)
    assert sold.records_in > 0
    assert sold.spent == expected(sold.records_in)


def expected(orders: int) -> dict[str, tuple[int, float]]:
    """What the shop sells for, by arithmetic: `shop.price` over the numbers the feeder counts."""
    records, spent = [], dict[str, tuple[int, float]]()
    for number in range(orders):
        customer = f"customer-{number % 100}"
        count, money = spent.get(customer, (0, 0.0))
        spent[customer] = (count + 1, money + 1.0 + (number % 97) * 0.5)
        records.append({"customer": customer, "orders": count + 1, "spent": spent[customer][1]})
    return final(records)
