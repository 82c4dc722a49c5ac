"""Micro-batches on record: those with rows, also after a driver that was killed while it wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from penstock.spark.session.progress import Batch
from penstock.spark.unit.batch_log import BatchLog, log_of, read_batches

BATCH = Batch("q", 3, 100.0, 0.5, 20, 20, {"addBatch": 0.4}, state_rows=16, state_bytes=1000,
              state_s={"commit": 0.1})  # fmt: skip


def test_batches_with_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    unit = tmp_path / "units" / "lab"
    BatchLog(unit).add([BATCH, replace(BATCH, number=4, rows=0)])
    BatchLog(unit).add([replace(BATCH, number=5)])

    found = read_batches(unit)

    assert [batch.number for batch in found] == [3, 5]
    assert (found[0].rows, found[0].parts_s, found[0].state_s) == (20, BATCH.parts_s, BATCH.state_s)


def test_a_line_written_in_part_is_left_out(tmp_path: Path) -> None:
    BatchLog(tmp_path).add([BATCH])
    with log_of(tmp_path).open("a") as stream:
        stream.write('{"number": 4, "star')

    assert [batch.number for batch in read_batches(tmp_path)] == [3]
    assert read_batches(tmp_path / "other") == []
