"""Spark Connect: a client is measured and advised, and a server's own driver has the full view of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.machine.processes import wait_until

SERVER = """
import json, sys, time
import penstock
from pathlib import Path
from penstock.spark.settings import end_session, start_session

folder, port = Path(sys.argv[1]), sys.argv[2]
spark = start_session("server", "local[2]", log_level="ERROR", settings={
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.port": port,
    "spark.connect.grpc.binding.address": "127.0.0.1",
})
handle = penstock.attach(spark, slo="2 s", interval="500 ms", journal=folder / "server.db", name="server")
(folder / "up").touch()
while not (folder / "end").exists():
    time.sleep(0.2)
    status = handle.status()
    queries = [[query.name, query.processed] for query in status.queries]
    part = folder / "part"
    part.write_text(json.dumps({"service": status.service, "queries": queries, "problem": status.problem}))
    part.rename(folder / "server.json")
end_session()
"""
CLIENT = """
import json, sys, time
import penstock
from pathlib import Path
from pyspark.sql import SparkSession

folder, port = Path(sys.argv[1]), sys.argv[2]
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
handle = penstock.attach(spark, slo="2 s", interval="500 ms", journal=folder / "client.db", name="client")
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
writer = stream.writeStream.format("noop").queryName("numbers").trigger(processingTime="200 milliseconds")
query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
until_s = time.monotonic() + 60

def processed(): return sum(query.processed for query in handle.status().queries)

while time.monotonic() < until_s and processed() < 50:
    time.sleep(0.1)
status = handle.status()
found = {
    "service": status.service, "acting": status.acting, "reason": status.reason, "problem": status.problem,
    "queries": [[query.name, query.processed] for query in status.queries],
    "lacks": list(status.capabilities), "instances": status.units[0].running if status.units else None,
    "written": [event["batchId"] for event in query.recentProgress][-1],
}
query.stop()
(folder / "seen").touch()
spark.stop()
ended_s = time.monotonic()
while time.monotonic() < ended_s + 10 and handle.running:
    time.sleep(0.1)
print(json.dumps({**found, "ended": not handle.running}), flush=True)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.spark
def test_a_client_is_measured_and_advised_and_its_server_sees_its_queries(tmp_path: Path) -> None:
    for module in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(module, reason="Spark Connect's client needs it: pip install 'pyspark[connect]'")
    for name, code in (("server", SERVER), ("client", CLIENT)):
        (tmp_path / f"{name}.py").write_text(code)
    port = str(free_port())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, str(tmp_path / "server.py"), str(tmp_path), port],
            stdout=log, stderr=log, start_new_session=True, env=environment,
        )  # fmt: skip
    try:
        up = tmp_path / "up"
        assert wait_until(lambda: up.exists() or server.poll() is not None, 120)
        assert up.exists(), (tmp_path / "server.log").read_text()[-2000:]
        done = subprocess.run(
            [sys.executable, str(tmp_path / "client.py"), str(tmp_path), port],
            capture_output=True, text=True, timeout=120, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        seen = said(tmp_path)
        (tmp_path / "end").touch()
        assert wait_until(lambda: server.poll() is not None, 60)
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
    client = json.loads(done.stdout.splitlines()[-1])
    assert client["service"] == "advice over Spark Connect"
    assert not client["acting"]
    assert "Spark Connect session" in client["reason"]
    assert client["problem"] is None
    assert [name for name, _ in client["queries"]] == ["numbers"]
    assert client["queries"][0][1] >= 50
    assert client["instances"] == 1, "as the server was configured"
    assert client["ended"], "with the session"
    assert seen["service"] == "advice", "local[2] has no executors"
    assert seen["problem"] is None
    assert dict(seen["queries"])["numbers"] >= 50, "the queries of its clients are seen"


def said(folder: Path) -> Any:
    """What the server last said of itself."""
    return json.loads((folder / "server.json").read_text())
