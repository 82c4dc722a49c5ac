"""The laboratory's two operators: `see` works on pictures, `remember` keeps windows and answers queries.

Images and queries share one stateful operator. What `see` found on images and the queries are one stream of
rows by region; Spark's `transformWithState` hands each region's rows of a micro-batch to the shard that has
the region's window. Images are taken in first, then queries are answered from the same state, and one
checkpoint covers both: a micro-batch that runs again gives the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from cells.shard import IMAGE, QUERY, RESULT_SCHEMA, Shard

IMAGE_SCHEMA = "region int, sequence long, picture string"
"""What the microscope sends: a picture's place in the tissue, its number there, and its file."""
QUERY_SCHEMA = "region int, sequence long, x int, y int, point int"
"""A question: the point of the tissue, and how many pictures its region had taken when it was asked."""
SEEN_SCHEMA = "region int, sequence long, cells int, edge_ratio double, grid binary"
"""What `see` gives."""


def see(images: DataFrame) -> DataFrame:
    """Blur, split, find edges, count: one row a picture, with what the window needs of it."""
    outgoing = StructType([images.schema[name] for name in ("record_id", "source_time")])
    for field in StructType.fromDDL(SEEN_SCHEMA):
        outgoing.add(field)
    return images.mapInArrow(_look_at_all, outgoing)


def _look_at_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not batch.num_rows:
            continue
        # Loaded here and not before: an empty partition needs no OpenCV.
        from cells.seeing import look

        seen = [look(Path(file).read_bytes()) for file in batch.column("picture").to_pylist()]
        columns = {name: batch.column(name) for name in ("record_id", "source_time", "region", "sequence")}
        columns["cells"] = pa.array([each.cells for each in seen], pa.int32())
        columns["edge_ratio"] = pa.array([each.edge_ratio for each in seen], pa.float64())
        columns["grid"] = pa.array([each.grid for each in seen], pa.binary())
        yield pa.RecordBatch.from_pydict(columns)


def remember(see: DataFrame, queries: DataFrame) -> DataFrame:
    """Take images into their region's window, and answer queries from it."""
    nothing = {"x": "int", "y": "int", "point": "int"}
    images = see.withColumn("kind", sql.lit(IMAGE)).withColumns(
        {name: sql.lit(None).cast(kind) for name, kind in nothing.items()}
    )
    absent = {"cells": "int", "edge_ratio": "double", "grid": "binary"}
    asked = queries.withColumn("kind", sql.lit(QUERY)).withColumns(
        {name: sql.lit(None).cast(kind) for name, kind in absent.items()}
    )
    return (
        images.unionByName(asked)
        .groupBy("region")
        .transformWithState(Shard(), StructType.fromDDL(RESULT_SCHEMA), "append", "none")
    )
