"""The image pipeline of `examples/cells` on Spark against the same functions in a plain process pool.

Both look at the same pictures on the same two cores, each warmed up first, in turns within one run. On Spark
it is a static DataFrame in `local[2]`: the operator with Arrow and Python workers, without micro-batches, an
executor's own process, or the state.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from penstock.report.figures import Figure

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
CORES = 2
PICTURES = 24
REPEATED = 16
"""Each picture is looked at so often a round: a round takes so many seconds that what Spark needs to begin a
job counts little."""
ROUNDS = 3
LEAST_RATIO = 0.9


def look_at(file: str) -> int:
    """Everything that is done with one picture, in a process of the pool."""
    from cells.seeing import look

    return int(look(Path(file).read_bytes()).cells)


def figures(megapixels: float = 1.7) -> list[Figure]:
    """Pictures a second by both ways, and their ratio."""
    sys.path.insert(0, str(EXAMPLES))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH")]))
    from cells.operators import see
    from cells.tissue import make_album
    from pyspark.sql import functions as sql

    from penstock.spark.settings import end_session, start_session

    pool_per_s, spark_per_s = [], []
    with tempfile.TemporaryDirectory() as folder:
        album = make_album(Path(folder), PICTURES, megapixels=megapixels)
        files = [str(album.file(number % PICTURES)) for number in range(PICTURES * REPEATED)]
        spark = start_session("cells-benchmark", f"local[{CORES}]", log_level="ERROR")
        try:
            rows = [(f"image-{n}", 0, n, file) for n, file in enumerate(files)]
            images = spark.createDataFrame(
                rows, "record_id string, region int, sequence long, picture string"
            )
            images = images.withColumn("source_time", sql.current_timestamp()).repartition(CORES * 4).cache()
            images.count()
            # Spawned, for a fork copies OpenCV's threads in the state they are in, and hangs.
            with ProcessPoolExecutor(CORES, get_context("spawn")) as pool:
                for number in range(ROUNDS + 1):
                    begun_s = time.perf_counter()
                    by_pool = sum(pool.map(look_at, files, chunksize=4))
                    pool_s = time.perf_counter() - begun_s
                    begun_s = time.perf_counter()
                    by_spark = see(images).agg(sql.sum("cells")).first()[0]
                    spark_s = time.perf_counter() - begun_s
                    if by_pool != by_spark:
                        raise AssertionError(f"Spark counted {by_spark} cells, the pool {by_pool}")
                    if number:  # the first round warms both up
                        pool_per_s.append(len(files) / pool_s)
                        spark_per_s.append(len(files) / spark_s)
        finally:
            end_session()
    ratios = [a / b for a, b in zip(spark_per_s, pool_per_s, strict=True)]
    ratio, name = median(ratios), f"{megapixels:g} megapixels"
    return [
        Figure(f"cells: images a second in a process pool, {name}", median(pool_per_s), unit="/s"),
        Figure(f"cells: images a second on Spark, {name}", median(spark_per_s), unit="/s"),
        Figure(
            f"cells: Spark over process pool, {name}",
            ratio,
            f">= {LEAST_RATIO:g}",
            None,
            ratio >= LEAST_RATIO,
        ),
    ]
