"""Results of executors that do not share the driver's disk: the driver writes them, the same and once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.channels.batches import batches_in, count_records, data_files
from penstock.channels.sinks import make_sink, read_results
from penstock.topology.model import Sink

pytestmark = pytest.mark.spark


def records(spark: Any) -> Any:
    from pyspark.sql import functions as sql

    numbers = spark.range(0, 50, 1, 3).withColumn("name", sql.concat(sql.lit("n-"), "id"))
    moment = sql.timestamp_millis(sql.lit(1_700_000_000_123))
    none_of_even = sql.when(sql.col("id") % 2 == 1, sql.col("id"))
    return numbers.withColumn("source_time", moment).withColumn("odd", none_of_even)


def test_gathered_results_are_those_that_executors_would_have_written(spark: Any, tmp_path: Path) -> None:
    found = []
    for gathered in (False, True):
        sink = Sink("kept", ("o",), "jsonl:kept")
        write = make_sink(sink, "o", tmp_path / str(gathered), "me", gathered=gathered)
        write(records(spark), 0)
        write(records(spark), 0)
        found.append(sorted(read_results(tmp_path / str(gathered) / "kept"), key=lambda row: row["id"]))
    assert found[0] == found[1]
    assert len(found[1]) == 50


def test_gathered_parquet_has_every_record_in_one_file(spark: Any, tmp_path: Path) -> None:
    write = make_sink(Sink("kept", ("o",), "parquet:kept"), "o", tmp_path, "me", gathered=True)
    write(records(spark), 0)
    (batch,) = batches_in(tmp_path / "kept")
    (file,) = data_files(batch.path)
    assert count_records([file], "parquet") == {file: 50}
    assert spark.read.parquet(str(file)).filter("odd is null").count() == 25
