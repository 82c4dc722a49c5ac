"""What a session's Spark and its cluster manager allow, found by trying: no version number is asked."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from penstock.spark.gateway.events import reads_at_once
from penstock.spark.gateway.executors import DECOMMISSION_INFO, SUMMARY_PRINTER, DriverExecutors
from penstock.spark.gateway.plans import DATASETS
from penstock.spark.gateway.queries import REAL_TIME_TRIGGER
from penstock.spark.gateway.session import has, is_connect, is_stopped, java_class, java_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What can be done with a session. A missing method or class is a missing capability."""

    driver: bool = False
    """The session's driver can be reached; without it (Spark Connect) none of the following can be done."""
    executor_list: bool = False
    """Executors can be listed in one call."""
    executor_target: bool = False
    """The cluster manager takes a number of executors, as dynamic allocation's client gives it."""
    decommission: bool = False
    """An executor can be told to finish its tasks and go, and the session's settings allow it."""
    kill: bool = False
    """An executor can be killed by its id."""
    allocation_manager: bool = False
    """Spark's own dynamic allocation can be stopped, where it is on."""
    progress_in_one_call: bool = False
    """Progress events of all queries can be read in one call, and not query by query."""
    widened_projections: bool = False
    """Columns that an operator dropped can be let through its plan."""
    real_time: bool = False
    """This Spark has a real-time mode."""

    def missing(self) -> tuple[str, ...]:
        """The names of what cannot be done, in words."""
        return tuple(item.name.replace("_", " ") for item in fields(self) if not getattr(self, item.name))


def capabilities(spark: SparkSession) -> Capabilities:
    """What can be done with a Spark session; looked at anew at each call (tens of milliseconds)."""
    if is_connect(spark) or is_stopped(spark):
        return Capabilities()
    context = java_context(spark)
    backend = context.schedulerBackend()
    executors = DriverExecutors(spark)
    decommissions = spark.sparkContext.getConf().get("spark.decommission.enabled", "false") == "true"
    return Capabilities(
        driver=True,
        executor_list=has(context, "statusStore") and java_class(spark, SUMMARY_PRINTER) is not None,
        executor_target=has(context, "requestTotalExecutors") and _works(executors.answers_to_targets),
        decommission=decommissions
        and has(backend, "decommissionExecutor")
        and java_class(spark, DECOMMISSION_INFO) is not None,
        kill=has(backend, "killExecutors"),
        allocation_manager=has(context, "executorAllocationManager"),
        progress_in_one_call=_works(lambda: reads_at_once(spark)),
        real_time=java_class(spark, REAL_TIME_TRIGGER) is not None,
        widened_projections=java_class(spark, *(f"{name}$" for name in DATASETS)) is not None,
    )


def _works(attempt: Callable[[], bool]) -> bool:
    """What an attempt says; False where it cannot even be made."""
    try:
        return attempt()
    except Exception:
        return False
