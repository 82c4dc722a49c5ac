"""Publishing: one writer a folder, no error ends it, nothing is lost or left lying. No Spark."""

from __future__ import annotations

import json
import os

import pyarrow as arrow
import pytest
from pyarrow import parquet

from penstock.channels.batches import batches_in, claim, link_into
from penstock.channels.publishing import TORN, Publisher
from penstock.channels.sinks import read_results
from penstock.channels.subscriptions import Terms, subscribe
from penstock.errors import ClusterError, ConfigurationError
from penstock.machine.processes import wait_until
from penstock.spark.checkpoints import Checkpoint


def staged(staging, number, records, content=None):
    """A batch that Spark's file sink has finished."""
    log = staging / "_spark_metadata"
    log.mkdir(parents=True, exist_ok=True)
    file = staging / f"part-{number}.json"
    lines = [json.dumps({"record_id": f"r{n}", "source_time": "2026-01-01T00:00:00Z"}) for n in records]
    file.write_text(content if content is not None else "\n".join(lines) + "\n")
    file.with_name(f".{file.name}.crc").write_text("crc")
    (log / f".{number}").write_text("v1\n" + json.dumps({"path": f"file://{file}"}))
    (log / f".{number}").rename(log / str(number))
    return file


def ids(folder):
    return [record["record_id"] for record in read_results(folder)]


@pytest.fixture
def publisher(tmp_path):
    made = Publisher(tmp_path / "staging", [tmp_path / "out"], "json", "me")
    yield made
    made.stop()


def test_finished_batches_are_published_in_order_and_nothing_stays_in_staging(tmp_path, publisher):
    staged(publisher.staging, 0, [0, 1])
    publisher.start()
    staged(publisher.staging, 1, [2])

    assert wait_until(lambda: ids(tmp_path / "out") == ["r0", "r1", "r2"], 10, poll_s=0.02)
    assert wait_until(lambda: not list(publisher.staging.glob("*part*")), 10)
    assert (publisher.published, publisher.problem) == (3, None)


def test_the_sinks_log_forgets_what_is_published_while_the_query_goes_on(tmp_path, publisher, monkeypatch):
    monkeypatch.setattr("penstock.spark.checkpoints.LONGEST_SINK_NOTE", 50)
    publisher.start()
    notes = []
    for number in range(9):
        notes.append((staged(publisher.staging, number, [number]), number))
    last = staged(publisher.staging, 9, [9])
    log = publisher.staging / "_spark_metadata"
    lines = [json.dumps({"path": f"file://{file}"}) for file in [*(file for file, _ in notes), last]]
    (log / ".9").write_text("\n".join(["v1", *lines]))
    (log / ".9").rename(log / "9.compact")

    assert wait_until(lambda: len(ids(tmp_path / "out")) == 10, 10, poll_s=0.02)
    assert wait_until(lambda: (log / "9.compact").read_text() == "v1", 10, poll_s=0.02)
    assert sorted(ids(tmp_path / "out")) == sorted(f"r{n}" for n in range(10))


def test_two_writers_of_one_folder_are_an_error_and_lose_nothing(tmp_path, publisher):
    staged(publisher.staging, 0, [0])
    publisher.start()
    publisher.publish()
    other = Publisher(tmp_path / "elsewhere", [tmp_path / "out"], "json", "somebody else")
    file = staged(other.staging, 0, [7])

    with pytest.raises(ConfigurationError, match="it was written by me, and now by somebody else"):
        other.start()

    assert file.exists(), "what could not be published stays"
    assert ids(tmp_path / "out") == ["r0"]


def test_a_folder_of_unknown_origin_is_nobodys(tmp_path):
    (tmp_path / "batch-000000003-1r-1f").mkdir(parents=True)

    with pytest.raises(ConfigurationError, match="left no mark"):
        claim(tmp_path, "me")


def test_a_new_checkpoint_is_a_new_writer(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    first = checkpoint.identity()
    assert Checkpoint(tmp_path / "checkpoint").identity() == first

    for file in (tmp_path / "checkpoint").iterdir():
        file.unlink()

    assert checkpoint.identity() != first


def test_any_error_is_told_and_tried_again(tmp_path, publisher, monkeypatch):
    publisher.start()
    broken = iter([OverflowError("date value out of range"), OSError("No space left"), KeyError("path")])

    def failing_first(*arguments, **options):
        error = next(broken, None)
        if error is not None:
            raise error
        link_into(*arguments, **options)

    monkeypatch.setattr("penstock.channels.publishing.link_into", failing_first)
    staged(publisher.staging, 0, [0])

    assert wait_until(lambda: publisher.problem is not None, 10, poll_s=0.005)
    assert wait_until(lambda: ids(tmp_path / "out") == ["r0"], 10)
    assert wait_until(lambda: publisher.problem is None, 10)
    assert publisher.stuck_s == 0.0


def test_what_cannot_be_published_at_a_start_is_told_before_the_query_runs(tmp_path, publisher):
    staged(publisher.staging, 0, [0])
    (tmp_path / "out").write_text("not a folder")

    with pytest.raises(ClusterError, match="results cannot be published"):
        publisher.start()


def torn(file, how):
    """A Parquet file as a power cut may leave it."""
    content = file.read_bytes()
    if how == "cut short":
        file.write_bytes(content[:20])
    else:
        file.write_bytes(content[:10] + bytes(len(content) - 18) + content[-8:])


@pytest.mark.parametrize("how", ["cut short", "empty inside"])
@pytest.mark.parametrize("started", [False, True], ids=["left by a crash", "while it runs"])
def test_a_torn_parquet_file_is_set_aside_and_costs_nothing_else(tmp_path, started, how):
    publisher = Publisher(tmp_path / "staging", [tmp_path / "out"], "parquet", "me")
    if started:
        publisher.start()
    log = publisher.staging / "_spark_metadata"
    log.mkdir(parents=True)
    for number in range(3):
        file = publisher.staging / f"part-{number}.parquet"
        parquet.write_table(arrow.table({"record_id": [f"r{number}"]}), file)
        if number == 1:
            torn(file, how)
        (log / f".{number}").write_text("v1\n" + json.dumps({"path": f"file://{file}"}))
        (log / f".{number}").rename(log / str(number))
    if not started:
        publisher.start()

    assert wait_until(lambda: len(batches_in(tmp_path / "out")) == 2, 20, poll_s=0.02)
    publisher.stop()
    assert [batch.batch_id for batch in batches_in(tmp_path / "out")] == [0, 2]
    assert [file.name for file in (publisher.staging / TORN).iterdir()] == ["part-1.parquet"]
    assert "part-1.parquet" in publisher.problem


def test_a_time_outside_of_pythons_dates_costs_a_batch_its_span_only(tmp_path):
    file = tmp_path / "part.parquet"
    far = arrow.array([300_000 * 365 * 86_400 * 1_000_000 // 1000], arrow.timestamp("ms", "UTC"))
    parquet.write_table(arrow.table({"record_id": ["r0"], "source_time": far}), file)

    link_into([file], 1, [tmp_path / "out"], 0, "me")

    (batch,) = batches_in(tmp_path / "out")
    assert (batch.records, batch.span_s) == (1, None)


def test_what_failed_tasks_left_in_staging_goes_at_the_next_start(tmp_path, publisher):
    staged(publisher.staging, 0, [0])
    orphan = publisher.staging / "part-of-nobody.json"
    orphan.write_text("{}\n")

    publisher.start()

    assert ids(tmp_path / "out") == ["r0"]
    assert not orphan.exists()


@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_batch_is_synced_before_its_rename(tmp_path, monkeypatch, durable):
    (tmp_path / "part.json").write_text("{}\n")
    synced, renamed = [], []
    rename = os.rename
    monkeypatch.setattr(
        "penstock.channels.batches.sync", lambda path: synced.append((path.name, bool(renamed)))
    )
    monkeypatch.setattr(os, "rename", lambda a, b: (renamed.append(b), rename(a, b)))

    link_into([tmp_path / "part.json"], 1, [tmp_path / "out"], 0, "me", durable=durable)

    before = [name for name, after in synced if not after]
    after = [name for name, after in synced if after]
    assert (before, after) == ((["part.json", "_staged-000000000"], ["out"]) if durable else ([], []))


@pytest.mark.parametrize("durable", [True, False])
def test_a_subscribers_batch_is_synced_where_the_channel_is_durable(tmp_path, monkeypatch, durable):
    synced = []
    monkeypatch.setattr("penstock.channels.batches.sync", lambda path: synced.append(path.name))
    stream = tmp_path / "stream"
    office = subscribe(stream, Terms("office"))
    publisher = Publisher(tmp_path / "staging", [], "json", "me", durable=durable, stream=stream)
    staged(publisher.staging, 0, [0])

    publisher.publish()

    assert ids(office.folder) == ["r0"]
    assert synced[:3] == (["part-0.json", "_staged-000000000", office.folder.name] if durable else [])


def test_a_publisher_that_hangs_is_told_and_so_is_for_how_long(tmp_path, publisher, monkeypatch):
    monkeypatch.setattr("penstock.channels.publishing.LONGEST_BUSY_S", 0.2)
    publisher.start()
    file = publisher.staging / "part-0.json"
    # Reading it takes until somebody writes into it, as from a disk that does not answer.
    os.mkfifo(file)
    log = publisher.staging / "_spark_metadata"
    log.mkdir(parents=True, exist_ok=True)
    (log / ".0").write_text("v1\n" + json.dumps({"path": f"file://{file}"}))
    (log / ".0").rename(log / "0")

    assert wait_until(lambda: publisher.problem is not None, 10, poll_s=0.05)
    assert "does not answer" in publisher.problem
    assert publisher.stuck_s > 0.2

    file.open("w").close()
    assert wait_until(lambda: publisher.problem is None, 10, poll_s=0.05)


def test_a_publisher_that_fails_for_long_says_for_how_long(tmp_path, publisher, monkeypatch):
    publisher.start()
    monkeypatch.setattr("penstock.channels.publishing.link_into", lambda *a, **o: 1 / 0)
    staged(publisher.staging, 0, [0])
    assert wait_until(lambda: publisher.problem is not None, 10)
    before_s = publisher.stuck_s

    assert wait_until(lambda: publisher.stuck_s > before_s + 0.1, 10)
    monkeypatch.undo()
