"""What a session is, and the driver process behind it: begun, stopped, ended."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import ClusterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


REPEATED = (
    # A micro-batch took longer than its trigger: the loop measures that, and acts on it.
    "org.apache.spark.sql.execution.streaming.ProcessingTimeExecutor",  # up to Spark 4.0
    "org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor",
    # A folder of records that was read and deleted while another listing ran.
    "org.apache.spark.util.HadoopFSUtils",
)
"""Who warns at every micro-batch, for weeks, of what is no news."""


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What a session is. Everything but the first two is empty where it is stopped."""

    connect: bool
    """Whether it is a Spark Connect session: its driver is a server's, out of our reach."""
    stopped: bool
    master: str = ""
    application_id: str = ""
    application_name: str = ""

    @property
    def local(self) -> bool:
        """Whether driver and tasks share one process, without executors."""
        return is_local(self.master)


def is_local(master: str) -> bool:
    """Whether a master URL means "no cluster, all in the driver" (`local`, `local[*]`, …)."""
    return master == "local" or master.startswith("local[")


def counts_executors(master: str) -> bool:
    """Whether the manager behind a master takes a number of executors as it is (YARN, Kubernetes).

    A standalone master takes cores instead, and all there are where nobody says otherwise.
    """
    return master == "yarn" or master.startswith("k8s://")


def warn_less(spark: SparkSession) -> None:
    """Keep what Spark would repeat at every micro-batch out of the driver's log, which has a bound."""
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j
    for name in REPEATED:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a Spark Connect session."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_stopped(spark: SparkSession) -> bool:
    """Whether the session was stopped, or its driver is gone."""
    if is_connect(spark):
        return bool(getattr(spark, "is_stopped", False))
    try:
        context: Any = spark.sparkContext
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Exception:
        # Whatever the call fails with: there is no driver that answers.
        return True


def session_facts(spark: SparkSession) -> SessionFacts:
    """What the session is, as far as it can be told."""
    connect = is_connect(spark)
    if is_stopped(spark):
        return SessionFacts(connect, stopped=True)
    if connect:
        return SessionFacts(
            connect,
            False,
            setting(spark, "spark.master", ""),
            setting(spark, "spark.app.id", ""),
            setting(spark, "spark.app.name", ""),
        )
    context = spark.sparkContext
    return SessionFacts(connect, False, context.master, str(context.applicationId), context.appName)


def setting(spark: SparkSession, name: str, default: str) -> str:
    """A setting the application was started with; over Spark Connect, the server's."""
    if is_connect(spark):
        return str(spark.conf.get(name, default) or default)
    return spark.sparkContext.getConf().get(name, default) or default


def driver_is_active() -> bool:
    """Whether this process has a driver with a context that was not stopped."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def begin_driver(settings: Mapping[str, str]) -> None:
    """Start the driver's Java with these settings, which stand on its command line for all to read."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))


def end_driver(wait_s: float = 30.0) -> None:
    """Stop the active context, if any, and end the driver's Java, so that a next one may be another.

    Blocks until Java has ended, at most `wait_s`. Calling it again does nothing.
    """
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        # A driver whose Java died cannot be stopped in an orderly way; what is left of it still has to go.
        with contextlib.suppress(Exception):
            SparkContext._active_spark_context.stop()
        SparkContext._active_spark_context = None
    gateway = SparkContext._gateway
    if gateway is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        # The driver's Java ends when its standard input does.
        process.stdin.close()
        process.wait(wait_s)
    SparkContext._gateway = None
    SparkContext._jvm = None


def load_class(spark: SparkSession, name: str) -> None:
    """Make the driver's Java load a class, as a start of what uses it would."""
    java(spark).org.apache.spark.util.Utils.classForName(name, True, False)


# --- for the gateway's own modules ---------------------------------------------------------------------


def java(spark: SparkSession) -> Any:
    """The driver's Java; ClusterError where there is none to be reached."""
    if is_connect(spark):
        raise ClusterError("this is a Spark Connect session: its driver cannot be reached from here")
    found = spark.sparkContext._jvm
    if found is None:
        raise ClusterError("the Spark session is stopped")
    return found


def java_context(spark: SparkSession) -> Any:
    """The driver's own SparkContext; ClusterError where the session is stopped."""
    context: Any = spark.sparkContext
    if context._jsc is None:
        raise ClusterError("the Spark session is stopped")
    return context._jsc.sc()


def has(target: Any, method: str) -> bool:
    """Whether a Java object has a method of this name."""
    return method in dir(target)


def java_class(spark: SparkSession, *names: str) -> Any | None:
    """The first of these classes that the driver's Java has, as an object to call; None where it has none."""
    from py4j.java_gateway import JavaClass

    for name in names:
        found: Any = java(spark)
        for part in name.split("."):
            found = getattr(found, part)
        # A name that is no class is taken for a package by py4j.
        if isinstance(found, JavaClass):
            return found
    return None
