"""The plugin setting: Penstock beside a driver in Java, here a Connect server by its own main class."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from compatibility.foreign import free_port, listens, processed
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.controller.journal import Journal
from penstock.errors import ClusterError
from penstock.machine.java import find_java
from penstock.machine.processes import log_tail, wait_until
from penstock.spark.gateway.plugin import PLUGIN, compiled
from penstock.spark.installation import spark_home

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
NAME = "server"
CLIENT = """
import sys
from pyspark.sql import SparkSession

folder, port = sys.argv[1:]
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"{folder}/lines")
writer = lines.writeStream.format("noop").queryName("lines")
query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
query.processAllAvailable()
query.stop()
"""


def most_executors(journal: Path) -> int:
    """The most executors that its journal has seen at once."""
    with Journal(journal, run=NAME) as record:
        return max((int(row["running"] or 0) for row in record.rows("observation", ("running",))), default=0)


def below(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """A process's children that are Penstock's. Others may end while they are looked at."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "penstock.spark.session.beside" in child.cmdline():
                found.append(child)
    return found


@pytest.mark.spark
def test_java_that_does_not_compile_is_told() -> None:
    with pytest.raises(ClusterError, match="could not be compiled"):
        compiled("public class Wrong { int a = unknown; }")


@pytest.mark.spark
def test_a_connect_server_with_the_plugin_setting_has_the_full_service_and_ends_with_all_of_it(
    tmp_path: Path,
) -> None:
    for module in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(module, reason="Spark Connect's client needs it: pip install 'pyspark[connect]'")
    told = CliRunner().invoke(app, ["attach", "--plugin"])
    assert told.exit_code == 0, told.output
    (tmp_path / "lines").mkdir()
    for number in range(12):
        (tmp_path / "lines" / f"{number:03d}.txt").write_text("a line\n" * 20)
    (tmp_path / "client.py").write_text(CLIENT)
    port, journal = free_port(), tmp_path / "journal.db"
    settings = {
        "spark.plugins": PLUGIN, "spark.penstock.python": sys.executable,
        "spark.penstock.journal": str(journal), "spark.penstock.interval": "1s",
        "spark.penstock.minInstances": "2", "spark.penstock.maxInstances": "2",
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port),
        "spark.master": "local-cluster[2,1,1024]",
        "spark.executor.cores": "1", "spark.executor.memory": "512m",
        "spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.initialExecutors": "1",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false", "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.local.dir": str(tmp_path / "local"),
    }  # fmt: skip
    chosen = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    environment |= {
        **find_java().environment(),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    submit = [
        str(spark_home() / "bin" / "spark-submit"),
        "--name",
        NAME,
        "--jars",
        told.output.strip(),
        *chosen,
    ]
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*submit, "--class", SERVER, "spark-internal"], cwd=tmp_path, env=environment,
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        assert wait_until(lambda: listens(port) or server.poll() is not None, 120), log_tail(log)
        assert wait_until(lambda: journal.exists(), 60), log_tail(log)
        client = subprocess.run(
            [sys.executable, str(tmp_path / "client.py"), str(tmp_path), str(port)],
            capture_output=True, text=True, timeout=150, env=environment,
        )  # fmt: skip
        assert client.returncode == 0, client.stderr[-3000:]
        assert wait_until(lambda: processed(journal) == 240, 30), "every line of the client's query was seen"
        assert wait_until(lambda: most_executors(journal) == 2, 60), "one more than Spark started"
        beside = below(server)
        assert len(beside) == 1
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        assert wait_until(lambda: not beside[0].is_running(), 10), "it ends with the server"
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
    with Journal(journal, run=NAME) as record:
        notices = " ".join(str(row["text"]) for row in record.rows("notice"))
    assert "executors at local-cluster[2,1,1024] can be added and retired" in notices
    assert "stopped Spark's own dynamic allocation" in notices
