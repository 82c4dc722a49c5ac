"""The batch layer: Spark SQL over whole captures trains the model, and finds the alerts the stream must find.

It shares with the stream how a packet is parsed and how scores are made. How packets are counted is its own:
grouping and windows of Spark SQL here, lanes and state there. So equal alerts mean something.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from pyspark.ml.feature import PCA, StandardScaler
from pyspark.ml.linalg import DenseVector, Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql
from pyspark.sql.types import StructField, StructType

from detector.features import COUNTS, FEATURES, KEYS, features_of
from detector.model import EXPLAINED, QUIET, Model
from detector.operators import LANES, alerts_of, parse
from detector.packets import written
from detector.traffic import PERIOD_S, Labelled

RAW = "record_id string, source_time timestamp, packet binary"


def capture(spark: SparkSession, found: Iterable[Labelled]) -> DataFrame:
    """A capture as a DataFrame, as the source's records are."""
    rows = pd.DataFrame({"packet": [written(labelled.packet) for labelled in found]})
    rows.insert(0, "record_id", [f"packet-{k:09d}" for k in range(len(rows))])
    rows.insert(1, "source_time", pd.Timestamp("2026-01-01"))
    return spark.createDataFrame(rows, RAW)


def pairs_of(packets: DataFrame) -> DataFrame:
    """Counts by period and pair, of all periods that are over."""
    parsed = parse(packets).dropDuplicates(["number"])
    parsed = parsed.withColumn("period", sql.floor(sql.col("time_us") / round(PERIOD_S * 1e6)))
    # Over are periods before the one that each lane of the stream was in when the capture ended.
    ended = parsed.groupBy((sql.col("number") % LANES).alias("lane")).agg(sql.max("period").alias("last"))
    last = ended.agg(sql.min("last")).first()
    assert last is not None
    own = Window.partitionBy("period", *KEYS).orderBy("time_us", "number")
    gap = sql.col("time_us") - sql.lag("time_us").over(own)
    readable = parsed.filter((sql.col("protocol") > 0) & (sql.col("period") < last[0]))
    return (
        readable.withColumn("gap", sql.coalesce(gap, sql.lit(0)))
        .groupBy("period", *KEYS)
        .agg(
            sql.count("*").alias("packets"),
            sql.sum("length").alias("bytes"),
            sql.sum("syn").alias("syns"),
            sql.countDistinct("source_port").alias("source_ports"),
            sql.countDistinct("destination_port").alias("destination_ports"),
            sql.sum("gap").alias("gaps_us"),
            sql.sum(sql.col("gap") * sql.col("gap")).alias("gaps_squared"),
        )
    )


def features_by_period(pairs: DataFrame) -> DataFrame:
    """A vector of features for every pair of every period."""
    schema = StructType([StructField("features", VectorUDT())])
    names = [f"f{k} double" for k in range(len(FEATURES))]

    def made(period: pd.DataFrame) -> pd.DataFrame:
        ordered = period.sort_values(list(KEYS))
        return pd.DataFrame(features_of(ordered), columns=[name.split()[0] for name in names])

    found = pairs.groupBy("period").applyInPandas(made, ", ".join(names))
    return found.rdd.map(lambda row: (Vectors.dense(list(row)),)).toDF(schema)


def train(rows: DataFrame, names: Sequence[str], quiet: float = QUIET) -> Model:
    """The model of normal rows, a DataFrame with a vector `features`: standardised, then PCA, by Spark ML.

    Each limit is above the scores of a share `quiet` of them.
    """
    rows = rows.persist()
    scaler = StandardScaler(withMean=True, inputCol="features", outputCol="standard").fit(rows)
    scales = [scale if scale > 1e-12 else 1.0 for scale in scaler.std]
    width = len(names)
    found = PCA(k=width, inputCol="standard", outputCol="parts").fit(scaler.transform(rows))
    shares = np.asarray(found.explainedVariance)
    kept = min(int(np.searchsorted(np.cumsum(shares), EXPLAINED)) + 1, width - 1)
    components = np.asarray(found.pc.toArray()).T[:kept]
    values = np.array([_numbers(row.features) for row in rows.collect()])
    z = (values - np.asarray(scaler.mean)) / np.asarray(scales)
    variances = ((z @ components.T) ** 2).mean(axis=0)
    model = Model(
        tuple(names),
        tuple(float(mean) for mean in scaler.mean),
        tuple(float(scale) for scale in scales),
        tuple(tuple(float(weight) for weight in component) for component in components),
        tuple(float(variance) for variance in variances),
    )
    q, t2, _ = model.scores(values)
    rows.unpersist()
    limits = float(np.quantile(q, quiet)), float(np.quantile(t2, quiet))
    return Model(
        model.names, model.means, model.scales, model.components, model.variances, *limits, len(values)
    )


def train_on_traffic(packets: DataFrame) -> Model:
    """The model of a capture without attacks."""
    return train(features_by_period(pairs_of(packets)), FEATURES)


def alerts_in_batch(packets: DataFrame, model: Model) -> pd.DataFrame:
    """What a model finds in a whole capture, by period."""
    counts = pairs_of(packets).toPandas().astype(np.int64)
    found = [
        alerts_of(model, int(period), own.sort_values(list(KEYS))[[*KEYS, *COUNTS]].reset_index(drop=True))
        for period, own in counts.groupby("period")
    ]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _numbers(vector: DenseVector) -> list[float]:
    return list(vector.toArray())
