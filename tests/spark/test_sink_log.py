"""The log of Spark's file sink where micro-batches were written in another way for a while."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.spark.checkpoints import Checkpoint, SinkLog


def names(folder: Path) -> set[str]:
    return {path.name for path in (folder / "_spark_metadata").glob("*")}


@pytest.mark.parametrize(
    ("last", "needed"),
    [
        (-1, ""),
        (0, "0"),
        (8, "0 1 2 3 4 5 6 7 8"),
        (9, "9.compact"),
        (12, "9.compact 10 11 12"),
        (20, "9.compact 19.compact 20"),
    ],
)
def test_what_the_next_compaction_needs_is_there(tmp_path: Path, last: int, needed: str) -> None:
    SinkLog(tmp_path).fill(last)
    assert names(tmp_path) == set(needed.split())
    assert all(SinkLog(tmp_path).files(number) == [] for number in range(last + 1))


def test_what_is_on_record_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    (log / "9.compact").write_text('v1\n{"path": "file:///a", "size": 1}')
    (log / "11").write_text('v1\n{"path": "file:///b", "size": 1}')
    SinkLog(tmp_path).fill(12)
    assert names(tmp_path) == {"9.compact", "10", "11", "12"}
    assert SinkLog(tmp_path).files(11) == [Path("/b")]
    assert SinkLog(tmp_path).files(9) == [Path("/a")]


def test_a_long_note_with_a_checksum_is_emptied_while_the_query_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.checkpoints.LONGEST_SINK_NOTE", 50)
    monkeypatch.setattr("penstock.spark.checkpoints.LONGEST_CHECKED_SINK_NOTE", 100)
    log, sink = tmp_path / "_spark_metadata", SinkLog(tmp_path)
    log.mkdir()
    note, checksum = log / "19.compact", log / ".19.compact.crc"
    (log / "9.compact").write_text("v1")
    note.write_text("v1\n" + '{"path": "file:///a", "size": 1}\n' * 4)
    assert not sink.overgrown, "without a checksum it is emptied while the query runs"
    checksum.write_text("crc")
    assert sink.overgrown
    sink.forget(19)
    assert sink.files(19), "its reader could find the one of the old and the other of the new"
    sink.forget_all()
    assert (sink.files(19), checksum.exists(), sink.overgrown) == ([], False, False)
    note.write_text('v1\n{"path": "file:///b"}')
    sink.forget_all()
    assert sink.files(19) == [Path("/b")], "a short one stays"


@pytest.mark.spark
def test_spark_goes_on_after_a_gap_in_which_it_would_have_compacted(spark: Any, tmp_path: Path) -> None:
    given, staging, checkpoint = (tmp_path / name for name in ("given", "staging", "checkpoint"))
    given.mkdir()

    def until(batch: int, native: bool) -> None:
        for number in range(len(list(given.iterdir())), batch + 1):
            (given / f"{number:03d}.txt").write_text(f"{number}\n")
        stream = spark.readStream.option("maxFilesPerTrigger", 1).text(str(given)).writeStream
        sink = stream.format("text").option("path", str(staging)) if native else stream.foreachBatch(_nothing)
        query = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        assert Checkpoint(checkpoint).finished() == batch

    until(11, native=True)
    until(29, native=False)  # 19 is among them
    SinkLog(staging).fill(29)
    until(39, native=True)
    assert "39.compact" in names(staging)
    assert SinkLog(staging).numbers_from(30) == list(range(30, 40))


def _nothing(records: Any, batch: int) -> None:
    """Serves a micro-batch in another way than by Spark's file sink."""
