"""What Spark Connect lets a client know of its server's executors: how many were configured."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from penstock.errors import ClusterError
from penstock.spark.gateway.executors import Executor, ExecutorControl, Scalability, scalability
from penstock.spark.gateway.session import is_connect, setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ConfiguredExecutors:
    """The executors a Connect server was configured with, in the place of those that cannot be seen.

    It has the methods of `ExecutorControl`; all that would change something is refused.
    """

    grace_s = 0.0
    target: int | None = None
    retiring: frozenset[str] = frozenset()
    tells_tasks = False
    """Task times are not told: a batch is taken to keep every slot busy."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        number = int(setting(spark, "spark.executor.instances", "1") or 1)
        cores = int(setting(spark, "spark.executor.cores", "1") or 1)
        self._configured = tuple(
            Executor(f"configured-{place}", "server", cores, 0.0, 0, 0, 0.0, 0)
            for place in range(1, number + 1)
        )

    def scalability(self) -> Scalability:
        """That they cannot be changed, and why."""
        return scalability(self.spark)

    def take_over(self) -> str | None:
        """Nothing is taken over."""
        return None

    def executors(self) -> tuple[Executor, ...]:
        """The configured ones."""
        return self._configured

    def present(self) -> tuple[Executor, ...]:
        """The configured ones."""
        return self._configured

    def tick(self) -> None:
        """Nothing is due."""

    def set_target(self, number: int) -> None:
        """Refused."""
        raise ClusterError(self.scalability().reason)

    def retire(self, ids: Collection[str], *, grace_s: float | None = None) -> None:
        """Refused."""
        raise ClusterError(self.scalability().reason)

    def kill(self, ids: Collection[str]) -> None:
        """Refused."""
        raise ClusterError(self.scalability().reason)


Executors = ExecutorControl | ConfiguredExecutors
"""The executors of a session, whatever it is."""


def executors_of(spark: SparkSession) -> Executors:
    """The executors of a session, as far as they can be reached."""
    return ConfiguredExecutors(spark) if is_connect(spark) else ExecutorControl(spark)
