"""Checkpoints in an object store: what a session needs is found, and a query with state recovers from one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.clusters.s3 import ObjectStore

from penstock.errors import ClusterError
from penstock.machine.processes import wait_until
from penstock.spark import object_store
from penstock.spark.object_store import CHECKPOINTS, ENDPOINT, client_jars, store_settings


def test_other_storage_needs_nothing() -> None:
    assert store_settings(None, {}) == {}
    assert store_settings("hdfs://names/penstock", {}) == {}


def test_whoever_names_the_client_is_given_no_other_and_keeps_what_they_set() -> None:
    named = {"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.4.2", CHECKPOINTS: "theirs"}
    given = store_settings("s3a://bucket/runs", named)
    assert "spark.jars" not in given
    assert CHECKPOINTS not in given
    assert "spark.hadoop.fs.s3a.path.style.access" not in given
    own = store_settings("s3a://bucket/runs", {**named, ENDPOINT: "http://store:9000"})
    assert own["spark.hadoop.fs.s3a.path.style.access"] == "true"


def test_a_hadoop_whose_client_is_not_known_is_told_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "spark_jars", lambda: [Path("hadoop-client-api-2.7.0.jar")])
    with pytest.raises(ClusterError, match=r"no client is known for Hadoop 2\.7\.0.*spark\.jars\.packages"):
        store_settings("s3a://bucket/runs", {})


COUNTING = """
import json, sys
from pathlib import Path
from penstock.spark.settings import start_session
folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
spark = start_session("counting", "local[1]", settings=settings, checkpoints_on_local_disk=False,
                      log_level="ERROR")
numbers = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{folder}/numbers")
counts = numbers.groupBy((numbers.value % 2).alias("odd")).count()
def keep(batch, number):
    (folder / "kept" / str(number)).write_text(json.dumps({row.odd: row["count"] for row in batch.collect()}))
query = counts.writeStream.foreachBatch(keep).outputMode("complete").option(
    "checkpointLocation", sys.argv[3]).start()
query.awaitTermination()
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """S3Proxy; skips where its jar, or the client's, cannot be had."""
    try:
        client_jars()
        with ObjectStore(tmp_path / "s3") as started:
            yield started
    except ClusterError as error:
        pytest.skip(f"no object store can be had here: {error}")


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_query_with_state_whose_driver_is_killed_goes_on_from_its_checkpoint_in_the_store(
    store: ObjectStore, tmp_path: Path
) -> None:
    for name in ("numbers", "kept"):
        (tmp_path / name).mkdir()

    def write(file: int) -> None:
        part = tmp_path / "numbers" / f".{file}"
        part.write_text("".join(f"{number}\n" for number in range(10 * file, 10 * file + 10)))
        part.rename(tmp_path / "numbers" / f"{file}.txt")

    def counted() -> dict[str, int]:
        kept = sorted((tmp_path / "kept").iterdir(), key=lambda file: int(file.name))
        content = kept[-1].read_text() if kept else ""
        found: dict[str, int] = json.loads(content) if content else {}
        return found

    settings = {**store.settings, "spark.sql.shuffle.partitions": "1"}
    settings |= store_settings(store.url, settings)
    command = [
        sys.executable, "-c", COUNTING, str(tmp_path), json.dumps(settings), f"{store.url}/checkpoint",
    ]  # fmt: skip

    def run_until(total: int) -> None:
        with (tmp_path / "log").open("wb") as log:
            driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_until(lambda: driver.poll() is not None or sum(counted().values()) == total, 120)
            assert sum(counted().values()) == total, (tmp_path / "log").read_text()[-2000:]
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()

    for files in ((0, 1), (2, 3)):
        for file in files:
            write(file)
        run_until(10 * (files[-1] + 1))
    assert counted() == {"0": 20, "1": 20}
    keys = {path.name for path in (store.buckets / "penstock" / "checkpoint").iterdir()}
    assert {"commits", "offsets", "state"} <= keys
