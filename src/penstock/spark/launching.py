"""Starting Spark's processes: with which Java, which class archive, which command and environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

from penstock.machine.folders import cache_folder
from penstock.machine.java import ClassArchive, Java, find_java
from penstock.spark.installation import least_java_version, spark_home, spark_jars

DAEMON_FLAGS = (
    # Master and workers do little: the fast compiler alone starts sooner and takes less memory, and the
    # serial collector needs no threads of its own.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
)


def spark_java(prefer: str | None = None) -> Java:
    """A Java that runs the installed Spark; see `find_java` for where it is looked for."""
    return find_java(prefer, least_version=least_java_version())


def spark_archive(java: Java) -> ClassArchive:
    """The class archive of this Java and the installed Spark.

    One serves master, workers, drivers and executors: they have the same class path, and pages of it are
    shared between them.
    """
    return ClassArchive.of(java, "spark", spark_jars(), cache_folder("archives"))


def spark_environment(java: Java) -> dict[str, str]:
    """Environment variables under which Spark's scripts use this Java and the installed Spark."""
    return {**java.environment(), "SPARK_HOME": str(spark_home())}


def spark_class(
    java: Java, main_class: str, *arguments: str, flags: tuple[str, ...] = (), memory_mib: int = 256
) -> tuple[list[str], dict[str, str]]:
    """The command and the environment that start one of Spark's daemons by its `spark-class` script.

    The script replaces itself by Java, so the pid of the command is the pid of the daemon.
    """
    environment = _without_spark(os.environ)
    environment.update(spark_environment(java))
    environment["SPARK_DAEMON_MEMORY"] = f"{memory_mib}m"
    environment["SPARK_DAEMON_JAVA_OPTS"] = " ".join((*DAEMON_FLAGS, *flags))
    # The script first runs a small Java program that prints the real command: let that one start fast.
    environment["SPARK_LAUNCHER_OPTS"] = " ".join(DAEMON_FLAGS)
    return [str(spark_home() / "bin" / "spark-class"), main_class, *arguments], environment


def _without_spark(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what would leak another Spark's settings into ours."""
    leaking = ("SPARK_MASTER_", "SPARK_WORKER_", "SPARK_DAEMON_", "SPARK_LOCAL_IP", "PYSPARK_GATEWAY_")
    return {name: value for name, value in environment.items() if not name.startswith(leaking)}
