"""Warming an executor: a first task on it that nobody waits for.

The first task on a new executor takes seconds: Java loads and compiles what every later one finds there.
Spark gives tasks to whoever is free, so that first one would be part of a micro-batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.gateway.session import java, java_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.gateway.executors import Executor

ROUNDS = 3
"""How often it is done: what runs several times is compiled."""


def warm(spark: SparkSession, executor: Executor) -> None:
    """Have an executor read, compute and write a few records that come from nowhere and go nowhere; waits."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as sql

    jvm = java(spark)
    # A task that prefers an executor by its name gets it, unless that is busy for seconds.
    there = jvm.PythonUtils.toSeq([f"executor_{executor.host}_{executor.id}"])
    line: Any = jvm.scala.Tuple2('{"number": 1, "word": "one"}', there)
    tags = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$")
    text = tags.apply(jvm.java.lang.Class.forName("java.lang.String"))
    for _ in range(ROUNDS):
        lines = java_context(spark).makeRDD(jvm.PythonUtils.toSeq([line]), text).toJavaRDD()
        reader = spark._jsparkSession.read().schema("number long, word string")
        read = DataFrame(reader.json(lines), spark)
        computed = read.withColumn("twice", sql.col("number") * 2).filter(sql.length("word") > 0)
        computed.write.format("noop").mode("overwrite").save()
