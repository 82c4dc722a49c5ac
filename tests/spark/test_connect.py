"""Spark Connect: a client is measured and advised, hosts come for its server, and the server sees it all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from compatibility.foreign import free_port

from penstock.machine.processes import TOKEN_VARIABLE, log_tail, wait_until
from penstock.spark.session.leased import Serving
from penstock.spark.training import ensure_archive

SERVER = """
import json, sys, time
import penstock
from pathlib import Path
from penstock.spark.gateway.executors import ExecutorControl
from penstock.spark.settings import end_session, start_session

folder, port, master = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
spark = start_session("server", master, log_level="ERROR", settings={
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.port": port,
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.dynamicAllocation.enabled": "false",
    "spark.executor.memory": "512m",
})
control = ExecutorControl(spark)
handle = penstock.attach(
    spark, slo="2 s", interval="500 ms", advise_only=True, journal=folder / "server.db", name="server"
)
most = 0
(folder / "up").touch()
while not (folder / "end").exists():
    time.sleep(0.2)
    status, most = handle.status(), max(most, len(control.executors()))
    queries = [[query.name, query.processed] for query in status.queries]
    part = folder / "part"
    part.write_text(json.dumps(
        {"service": status.service, "queries": queries, "problem": status.problem, "most": most}
    ))
    part.rename(folder / "server.json")
end_session()
"""
CLIENT = """
import atexit, json, subprocess, sys, time
from decimal import Decimal
from pathlib import Path

import penstock
from penstock.errors import ConfigurationError
from penstock.machine.processes import exit_on_sigterm, wait_until
from penstock.spark.managers.local_cluster import LocalCluster
from penstock.topology.model import Choice, HostFlavour, Site
from pyspark.sql import SparkSession

folder, port = Path(sys.argv[1]), sys.argv[2]
slow, end, seen, last = folder / "slow", folder / "end", {}, None
slow.touch()

def site(cores):
    flavour = HostFlavour("small", float(cores), 1024, Decimal("0.01"))
    return Site("here", Choice("local"), btu_s=2.0, flavours=(flavour,), max_hosts=2)

def work(parts, slow=str(slow)):
    import os, time
    for part in parts:
        if os.path.exists(slow):
            time.sleep(3.0)
        yield part

exit_on_sigterm()
cluster = LocalCluster(folder=folder / "cluster")
cluster.start()
with (folder / "server.log").open("wb") as log:
    command = [sys.executable, str(folder / "server.py"), str(folder), port, cluster.master_url]
    server = subprocess.Popen(command, stdout=log, stderr=log)

def finish():
    "What was registered first is called last: by then nobody decides any more."
    seen["decides still"] = last is not None and last.running
    seen["left at the end"] = not wait_until(lambda: not cluster.hosts(), 20)
    end.touch()
    wait_until(lambda: server.poll() is not None, 30)
    if server.poll() is None:
        server.kill()
    cluster.stop()
    print(json.dumps(seen), flush=True)

atexit.register(finish)
assert wait_until(lambda: (folder / "up").exists() or server.poll() is not None, 120)

def connected(): return SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()

spark = connected()
often = {"slo": "1 s", "interval": "1 s"}
advice = penstock.attach(spark, **often, journal=folder / "advice.db", name="advice")
try:
    penstock.attach(spark, hosts=penstock.Hosts(cluster, site(2)))
except ConfigurationError as error:
    seen["refused"] = str(error)
handle = penstock.attach(
    spark, **often, policy="threshold", max_instances=2, name="client",
    parameters={"up_queue": 0}, journal=folder / "client.db", hosts=penstock.Hosts(cluster, site(1)),
)
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
stream = stream.option("numPartitions", 1).load().mapInPandas(work, "timestamp timestamp, value long")
writer = stream.writeStream.format("noop").queryName("numbers")
query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()

def processed(): return sum(query.processed for query in advice.status().queries)

def running(): return sum(unit.running for unit in handle.status().units)

seen["grew"] = wait_until(lambda: running() == 2, 90)
seen["hosts"] = len(cluster.hosts())
# The server looks by itself: it has to have seen both before one goes.
wait_until(lambda: json.loads((folder / "server.json").read_text())["most"] == 2, 20)
slow.unlink()
seen["shrank"] = wait_until(lambda: running() == 1 and len(cluster.hosts()) == 1, 60)
before = processed()
seen["goes on"] = wait_until(lambda: processed() > before + 20, 30)
for name, one in (("advice", advice), ("client", handle)):
    status = one.status()
    seen[name] = {
        "service": status.service, "acting": status.acting, "reason": status.reason,
        "problem": status.problem, "processed": sum(query.processed for query in status.queries),
        "queries": [query.name for query in status.queries], "bill": status.bill,
        "instances": status.units[0].running, "decisions": status.decisions,
    }
query.stop()
spark.stop()
seen["ended"] = wait_until(lambda: not (advice.running or handle.running), 20)
seen["left"] = not wait_until(lambda: not cluster.hosts(), 20)

# The next program just ends, amid its work.
spark = connected()
last = penstock.attach(
    spark, **often, name="last", journal=folder / "last.db", hosts=penstock.Hosts(cluster, site(1))
)
seen["leased again"] = wait_until(lambda: len(cluster.hosts()) == 1, 60)
"""


def test_an_executor_that_shall_go_is_shown_no_longer_and_under_a_new_name_where_it_is_wanted_again() -> None:
    serving, two = Serving(), {"0": "10.0.0.1", "1": "10.0.0.2"}
    assert serving.shown(two, 2) == two
    serving.let_go(["1"])
    assert serving.shown(two, 1) == {"0": "10.0.0.1"}
    assert serving.shown(two, 2) == {"0": "10.0.0.1", "1+1": "10.0.0.2"}
    serving.let_go(["1+1"])
    assert serving.shown(two, 1) == {"0": "10.0.0.1"}
    assert serving.shown({"0": "10.0.0.1"}, 2) == {"0": "10.0.0.1"}, "it is gone with its host"
    assert serving.shown({"0": "10.0.0.1", "2": "10.0.0.2"}, 2) == {"0": "10.0.0.1", "2": "10.0.0.2"}


@pytest.mark.spark
def test_a_client_is_advised_or_has_hosts_leased_for_its_server_which_sees_its_queries(
    tmp_path: Path,
) -> None:
    for module in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(module, reason="Spark Connect's client needs it: pip install 'pyspark[connect]'")
    ensure_archive()
    for name, code in (("server", SERVER), ("client", CLIENT)):
        (tmp_path / f"{name}.py").write_text(code)
    ours = ("SPARK_", TOKEN_VARIABLE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    command = [sys.executable, str(tmp_path / "client.py"), str(tmp_path), str(free_port())]
    with (tmp_path / "said").open("wb") as said, (tmp_path / "errors").open("wb") as errors:
        client = subprocess.Popen(
            command, stdout=said, stderr=errors, start_new_session=True, env=environment
        )
    try:
        assert wait_until(lambda: client.poll() is not None, 280)
    finally:
        if client.poll() is None:
            client.send_signal(signal.SIGTERM)
            client.wait(30)
    told = log_tail(tmp_path / "errors", 30) + log_tail(tmp_path / "server.log", 10)
    assert client.returncode == 0, told
    seen = json.loads((tmp_path / "said").read_text().splitlines()[-1])
    server = json.loads((tmp_path / "server.json").read_text())

    advised, leased = seen["advice"], seen["client"]
    assert (advised["service"], advised["acting"]) == ("advice over Spark Connect", False)
    assert "Spark Connect session" in advised["reason"]
    assert advised["instances"] == 1, "as the server was configured"
    assert advised["queries"] == leased["queries"] == ["numbers"]
    assert advised["problem"] is None

    assert (leased["service"], leased["acting"]) == ("hosts for a Spark Connect server", True)
    assert leased["problem"] is None
    assert "no second one" in seen["refused"], "a host of two executors cannot be told from two hosts"
    assert seen["grew"], leased["decisions"]
    assert seen["hosts"] == 2
    assert server["most"] == 2, "hosts became the server's executors"
    assert seen["shrank"], leased["decisions"]
    assert seen["goes on"], "with the host that is left"
    assert float(leased["bill"].split()[0]) > 0
    assert seen["ended"], "with the session"
    assert not seen["left"], "every host was given back"
    assert seen["leased again"]
    assert not seen["decides still"], "a program that just ends waits until its hosts are told to go"
    assert not seen["left at the end"], "a program that just ends gives its hosts back, too"

    assert server["service"] == "advice"
    assert server["problem"] is None
    assert dict(server["queries"])["numbers"] >= 50, "the queries of its clients are seen"
