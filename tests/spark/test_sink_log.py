"""The log of Spark's file sink where micro-batches were written in another way for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.checkpoints import SinkLog


def names(folder: Path) -> set[str]:
    return {path.name for path in (folder / "_spark_metadata").glob("*")}


@pytest.mark.parametrize(
    ("last", "needed"),
    [(-1, ""), (0, "0"), (8, "0 1 2 3 4 5 6 7 8"), (9, "9.compact"), (12, "9.compact 10 11 12")],
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
