"""Micro-batches of small files are cut for the slots there are, also those of a query that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.spark.unit.driver import unit_settings
from penstock.spark.unit.pieces import PIECES, cut_into, pieces
from penstock.topology.model import Unit
from tests.builders import a_topology, an_operator


def test_a_micro_batch_is_cut_for_the_slots_that_are_wanted_now() -> None:
    assert pieces(1, 1) == "2"
    assert pieces(3, 1) == "3"
    assert pieces(3, 2, {"7": 4}) == "8"


def test_a_unit_that_may_become_large_begins_with_few_tasks_a_micro_batch() -> None:
    unit = Unit("a", ("a",), max_instances=24, max_slots=2)
    topology = a_topology(operators=[an_operator("a")], units=[unit])
    assert unit_settings(topology, "a", {})[PIECES] == "2"
    assert unit_settings(topology, "a", {PIECES: "9"})[PIECES] == "9"


@pytest.mark.spark
def test_a_query_that_runs_is_cut_otherwise_from_its_next_micro_batch_on(spark: Any, tmp_path: Path) -> None:
    before = {name: spark.conf.get(name, None) for name in (PIECES, "spark.sql.files.openCostInBytes")}
    spark.conf.set("spark.sql.files.openCostInBytes", "0")
    cut_into(spark, pieces(1, 1))
    given = tmp_path / "given"
    given.mkdir()
    tasks: list[int] = []

    def lay(batch: int) -> None:
        for number in range(16):
            (tmp_path / "a").write_text(f"{batch}-{number}\n" * 10)
            (tmp_path / "a").rename(given / f"{batch}-{number}.txt")

    query = (
        spark.readStream.text(str(given))
        .writeStream.foreachBatch(lambda frame, number: tasks.append(frame.rdd.getNumPartitions()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        lay(0)
        query.processAllAvailable()
        few, tasks[:] = list(tasks), []
        cut_into(spark, pieces(4, 2))
        lay(1)
        query.processAllAvailable()
    finally:
        query.stop()
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)
    assert max(few) <= 3, few
    assert max(tasks) >= 8, tasks
