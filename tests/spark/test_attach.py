"""Attaching: a session's executors follow the load, and where they cannot it says why."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.controller import Journal
from penstock.controller.kept import kept_topology
from penstock.errors import ConfigurationError
from penstock.machine.processes import wait_until
from penstock.spark.gateway.executors import ExecutorControl
from penstock.spark.managers.local_cluster import LocalCluster

DEMO = Path(__file__).parents[2] / "examples" / "attach" / "demo.py"


def test_importing_the_package_neither_starts_nor_loads_spark() -> None:
    script = "import penstock, sys; assert 'pyspark' not in sys.modules and 'py4j' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"policy": "magic"}, "expected a policy out of .*rate"),
        ({"slo": "0 s"}, "must be above 0"),
        ({"min_instances": 5, "max_instances": 2}, "min_instances <= max_instances"),
        ({"metrics": 99999}, "expected a port"),
    ],
)
def test_wrong_arguments_are_told_at_once(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        penstock.attach(None, **wrong)  # type: ignore[arg-type]


@pytest.fixture
def slow_query(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """A query over a folder of files, one file a batch, that is always behind while files come."""
    lines = tmp_path / "lines"
    lines.mkdir()
    for number in range(20):
        (lines / f"{number:03d}.txt").write_text("one line\n" * 10)
    stream = spark.readStream.option("maxFilesPerTrigger", 1).text(str(lines))
    query = (
        stream.writeStream.foreachBatch(lambda batch, _: (batch.count(), time.sleep(0.5)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    yield query
    query.stop()


@pytest.mark.spark
def test_executors_follow_the_backlog_up_and_down_and_every_decision_is_journalled(
    spark: Any, slow_query: Any, tmp_path: Path
) -> None:
    journal = tmp_path / "journal.db"
    handle = penstock.attach(
        spark,
        policy="threshold",
        max_instances=2,
        interval="1 s",
        parameters={"up_queue": 30, "up_twice_queue": 10_000},
        journal=journal,
    )
    try:
        assert handle.status().acting
        assert "Spark's own dynamic allocation" in handle.status().reason
        control = ExecutorControl(spark)
        assert wait_until(lambda: len(control.executors()) == 2, 120), handle.status()
        status = handle.status()
        assert status.unit("spark-tests").instances == 2
        assert any(text.startswith("start ") and "waiting > 30" in text for text in status.decisions)
        slow_query.processAllAvailable()
        assert wait_until(lambda: len(control.executors()) == 1, 120), handle.status()
        assert wait_until(lambda: handle.status().units[0].instances == 1, 30)
        assert handle.status().problem is None
    finally:
        handle.stop()
    assert not handle.running
    with Journal(journal, run="spark-tests") as record:
        actions = [row for row in record.rows("action") if row["status"] == "enacted"]
        kinds = [row["kind"] for row in actions]
        assert kinds.index("StartInstance") < kinds.index("StopInstance")
        assert all(row["reason"] for row in actions)
        assert max(row["waiting"] for row in record.rows("observation")) > 30
        counted = sum(row["processed"] for row in record.rows("observation"))
        kept = kept_topology(record)
        assert kept is not None
        assert kept.units[0].policy.parameters["up_queue"] == 30
    assert counted <= 200


@pytest.mark.spark
def test_a_master_that_hangs_keeps_nobody_waiting(
    spark: Any, local_cluster: LocalCluster, tmp_path: Path
) -> None:
    handles: list[Any] = []

    def attach() -> None:
        path = tmp_path / "journal.db"
        handles.append(penstock.attach(spark, policy="fixed", max_instances=1, interval="1 s", journal=path))

    attaching = threading.Thread(target=attach, daemon=True)
    master = local_cluster.processes["master"].pid
    os.kill(master, signal.SIGSTOP)
    try:
        attaching.start()
        assert wait_until(lambda: bool(handles), 15), "the job's own thread goes on"
        assert wait_until(lambda: handles[0].status().phase == "running", 15), handles[0].status()
    finally:
        os.kill(master, signal.SIGCONT)
        attaching.join(180)
        for handle in handles:
            handle.stop(60.0)
    assert handles[0].status().acting


LOCAL = """
import json, sys, time
import penstock
from penstock.spark.settings import end_session, start_session
spark = start_session("local-job", "local[1]", log_level="ERROR")
handle = penstock.attach(spark, policy="threshold", interval="1 s", journal=sys.argv[1] + "/journal.db",
                         parameters={"up_queue": 0})
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
query = stream.writeStream.format("noop").option("checkpointLocation", sys.argv[1] + "/c").start()
deadline = time.monotonic() + 120
while time.monotonic() < deadline:
    status = handle.status()
    seen = status.units[0].measurement if status.units else None
    if seen is not None and seen.processed > 0 and "advisory" in str(status.decisions):
        break
    time.sleep(0.2)
spark.stop()
while handle.running and time.monotonic() < deadline:
    time.sleep(0.2)
after = handle.status()
print(json.dumps({"scaling": status.acting, "reason": status.reason, "decisions": status.decisions,
    "processed": status.units[0].measurement.processed, "running_after": handle.running,
    "error": after.problem}))
end_session()
"""


@pytest.mark.spark
def test_on_a_local_master_it_advises_says_why_and_ends_with_the_session(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOCAL, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["scaling"] is False
    assert "local[1]" in told["reason"]
    assert "no executors to add" in told["reason"]
    assert told["processed"] > 0
    assert any("advisory mode" in text for text in told["decisions"])
    assert told["running_after"] is False
    assert told["error"] is None


@pytest.mark.spark
@pytest.mark.timeout(480)
def test_the_word_count_example_scales_up_and_down_and_counts_every_word(tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    # The first three batches, of some seconds each, tell nothing: with 4 s a phase the load was gone by then.
    done = subprocess.run(
        [sys.executable, str(DEMO), "--phase", "10", "--most", "2", "--summary", str(summary),
         "--journal", str(tmp_path / "journal.db")],
        capture_output=True, text=True, timeout=450, cwd=tmp_path, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(summary.read_text())
    assert told["words"] == 9 * told["written"], "no line lost, none counted twice"
    assert told["most"] >= 2
    assert told["last"] < told["most"]
    assert "stopped Spark's own dynamic allocation" in told["reason"]
