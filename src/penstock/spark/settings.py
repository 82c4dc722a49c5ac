"""The session builder: Spark settings that were measured to matter, each with its reason.

Every setting can be overridden by the user's own `spark.*` settings, which always win; Java options
are joined instead, ours first. Nothing here imports pyspark before a session is asked for.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import ClusterError, ConfigurationError
from penstock.machine.java import Java
from penstock.machine.secrets import is_secret, redacted, remember_all
from penstock.spark.access import settings_at
from penstock.spark.gateway.errors import cause_of
from penstock.spark.gateway.session import (
    begin_driver,
    counts_executors,
    driver_is_active,
    end_driver,
    is_local,
)
from penstock.spark.launching import spark_archive, spark_environment, spark_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger(__name__)

FAST_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
STATE_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
DRIVER_MEMORY_MIB = 1024
"""A bound, not a need. Planning a micro-batch of a unit with eight operators takes more than half of it; with
less, Java collects garbage for minutes and the unit falls silent."""
JOINED = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
"""Settings where the user's value is appended to ours instead of replacing it."""


@dataclass(frozen=True, slots=True)
class ExecutorShape:
    """What one executor gets: its task slots and its heap."""

    cores: int = 1
    memory_mib: int = 512


ONE_SLOT = ExecutorShape()
"""The smallest executor: one task slot. Many small ones scale in finer steps than few large ones."""


def spark_settings(
    master: str,
    *,
    executor: ExecutorShape = ONE_SLOT,
    initial_executors: int = 1,
    java_flags: Sequence[str] = (),
    ui: bool = False,
    driver_memory_mib: int = DRIVER_MEMORY_MIB,
    checkpoints_on_local_disk: bool = True,
    user: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The settings of a session at `master`, the user's own on top.

    `java_flags` are added to the Java options of driver and executors.
    """
    settings = {
        # --- executors: an exact number, and ours to change -------------------------------------------
        # Without its own size an executor takes all cores of a worker, and "one more" means nothing.
        "spark.executor.cores": str(executor.cores),
        "spark.executor.memory": f"{executor.memory_mib}m",
        **_exact_start(master, initial_executors),
        # A retired executor finishes its tasks first; without this a retirement is a kill.
        "spark.decommission.enabled": "true",
        # No cached blocks worth moving: a micro-batch's shuffle files live shorter than their migration.
        "spark.storage.decommission.enabled": "false",
        # A killed executor shows after 0.3 s instead of 5 s: the loop sees what it did.
        "spark.standalone.executorRemoveDelayOnDisconnection": "200ms",
        # The first tasks run on whatever has registered; waiting for a share delays start for nothing.
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        # --- micro-batches ----------------------------------------------------------------------------
        # Spark's default polls an idle source every 10 ms: 0.16 core a query for nothing.
        "spark.sql.streaming.pollingDelay": "100ms",
        # The default of 200 tasks a shuffle costs seconds a batch on a small cluster. State keeps the
        # number it was created with, so it is chosen for growth: some slots may take two partitions.
        "spark.sql.shuffle.partitions": "8",
        # Streaming does without it in most plans, and warns at every query's start where it is on.
        "spark.sql.adaptive.enabled": "false",
        # Every micro-batch is planned anew. What a plan's filters imply of its columns is found out by trying
        # all pairs of them: three seconds of a planning of 3.5 s where three ways are joined, and nothing
        # that a stream's scan could use.
        "spark.sql.constraintPropagation.enabled": "false",
        # The agent reads progress in batches every few seconds; the default ring of 100 overflows in 5 s.
        "spark.sql.streaming.numRecentProgressUpdates": "400",
        # Spark keeps what its file source and sink noted for 10 min, every tenth note with all before it:
        # at six batches a second gigabytes. Nobody needs them once they are repeated.
        "spark.sql.streaming.fileSource.log.cleanupDelay": "1m",
        "spark.sql.streaming.fileSink.log.cleanupDelay": "1m",
        # Spark remembers the files of every micro-batch, up to 250 MB of them, for tables read again.
        "spark.sql.hive.filesourcePartitionFileCacheSize": "0",
        # A function that hangs must not hang the end of the application too.
        "spark.sql.streaming.stopTimeout": "20s",
        # --- the driver -------------------------------------------------------------------------------
        # 60 MB and a port less; the page and the reports show more than it does.
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{driver_memory_mib}m",
        # A driver keeps some 70 MiB, but Java fills all of its heap before it looks at what is old. Spark
        # asks it to look every half hour; asked more often it gives memory back to the machine.
        "spark.cleaner.periodicGC.interval": "10min",
        # Times in records and checkpoints mean the same on every machine.
        "spark.sql.session.timeZone": "UTC",
        # No Hive, and no warehouse folder beside whatever the user happens to run in.
        "spark.sql.catalogImplementation": "in-memory",
        # Each Python call moves a whole Arrow batch instead of pickled rows.
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if not ui:
        # Spark keeps what it would show on its page of the last 1000 executions, plans and metrics included.
        settings |= {
            "spark.sql.ui.retainedExecutions": "50",
            "spark.ui.retainedJobs": "100",
            "spark.ui.retainedStages": "100",
            "spark.ui.retainedTasks": "2000",
        }
    if checkpoints_on_local_disk:
        # The default forks about 40 processes a batch on a local disk: 150 ms a batch against 50 ms.
        settings["spark.sql.streaming.checkpointFileManagerClass"] = FAST_CHECKPOINTS
        # No checksum file beside each file: half the files of a checkpoint, 7 ms less for each that is
        # written. Disks check their own sectors, and a torn file is no danger: files appear by a rename.
        # YARN's client asks a file system for its scheme, which the raw one cannot tell; RocksDB's snapshots
        # are copied by a call that works with the checking one alone.
        if master != "yarn" and "RocksDB" not in (user or {}).get(STATE_PROVIDER, ""):
            settings["spark.hadoop.fs.file.impl"] = "org.apache.hadoop.fs.RawLocalFileSystem"
    if _is_loopback(master):
        # Nothing of a local cluster listens to the network.
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    if is_local(master):
        for name in [n for n in settings if n.startswith(("spark.dynamicAllocation", "spark.executor."))]:
            del settings[name]
    if java_flags:
        settings["spark.driver.extraJavaOptions"] = " ".join(java_flags)
        # Other machines have another Java: only here are its files and its flags known.
        if _is_loopback(master) and not is_local(master):
            settings["spark.executor.extraJavaOptions"] = " ".join(java_flags)
    for name, value in (user or {}).items():
        if not name.startswith("spark."):
            raise ConfigurationError(f"expected a Spark setting that begins with `spark.`, got {name!r}")
        both = name in JOINED and name in settings
        settings[name] = f"{settings[name]} {value}" if both else str(value)
    return settings


def _exact_start(master: str, executors: int) -> dict[str, str]:
    """Settings under which an application starts with so many executors, and lets the number be changed."""
    if counts_executors(master):
        return {
            # These managers take a number at the start and another one at any time: nothing else is needed.
            "spark.dynamicAllocation.enabled": "false",
            "spark.executor.instances": str(executors),
            # Executors are lost on purpose and by faults: that must never end one that runs for weeks.
            "spark.executor.maxNumFailures": "1000000",
        }
    return {
        # A standalone application grabs spark.cores.max at its start unless dynamic allocation is on.
        # It is on only for the exact start: `executors.take_over` stops Spark's own manager at once.
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.initialExecutors": str(executors),
        # Spark wants one way to keep shuffle files; decommissioning is one, two make it complain.
        "spark.dynamicAllocation.shuffleTracking.enabled": "false",
    }


LOOPBACK = tuple(
    f"{scheme}{host}"
    for scheme in ("spark://", "k8s://", "k8s://https://", "k8s://http://")
    for host in ("127.", "localhost")
)


def _is_loopback(master: str) -> bool:
    return is_local(master) or master.startswith(LOOPBACK)


def start_session(
    name: str,
    master: str = "local[*]",
    *,
    executor: ExecutorShape = ONE_SLOT,
    initial_executors: int = 1,
    settings: Mapping[str, str] | None = None,
    packages: tuple[str, ...] = (),
    java: Java | None = None,
    ui: bool = False,
    driver_memory_mib: int = DRIVER_MEMORY_MIB,
    checkpoints_on_local_disk: bool = True,
    log_level: str = "WARN",
) -> SparkSession:
    """Start a session with Penstock's settings and (on a cluster) exactly `initial_executors` executors.

    `settings` are the user's `spark.*` and win. `packages` are Maven coordinates. On a cluster Spark's
    own dynamic allocation is stopped at once: change executors through `executors.ExecutorControl`.
    Blocks until the driver is up (5 to 15 s), not until executors have registered.
    """
    user = {**settings_at(master), **(settings or {})}
    remember_all(user)
    if packages:
        given = user.get("spark.jars.packages")
        user["spark.jars.packages"] = ",".join(
            dict.fromkeys([*(given.split(",") if given else []), *packages])
        )
    found = java or spark_java()
    prepare_environment(found, master)
    chosen = spark_settings(
        master,
        executor=executor,
        initial_executors=initial_executors,
        # The class archive of earlier starts: half the time until the session is up.
        java_flags=spark_archive(found).use(),
        ui=ui,
        driver_memory_mib=driver_memory_mib,
        checkpoints_on_local_disk=checkpoints_on_local_disk,
        user=user,
    )
    if driver_is_active():
        raise ClusterError(
            "a Spark session is already active in this process; stop it first (one process has one driver)"
        )
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.appName(name).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        # PySpark puts what it has at this point on a command line; secrets follow once Java is there.
        begin_driver({key: value for key, value in chosen.items() if not is_secret(key)})
        spark: SparkSession = builder.getOrCreate()
    except Exception as error:
        raise ClusterError(
            f"could not start a Spark session at {master} with Java {found.version} ({found.home}): "
            f"{redacted(cause_of(error))}\n"
            "likely causes: no master listens there, or Java options it does not know"
        ) from error
    spark.sparkContext.setLogLevel(log_level)
    if not is_local(master):
        from penstock.spark.gateway.executors import ExecutorControl

        control = ExecutorControl(spark)
        if control.take_over() is not None:
            control.tick()
    return spark


def end_session() -> None:
    """Stop the active session, if any, and end its Java, so that a next one may have other Java options."""
    end_driver()


def prepare_environment(java: Java, master: str) -> None:
    """Set the variables PySpark's launcher reads: which Java, which Spark, which Python, which address."""
    os.environ.update(spark_environment(java))
    # Python functions must run in the same Python and packages as the driver, on every local worker.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if _is_loopback(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
