"""Into how many tasks a micro-batch of files is cut: one for each slot that there is.

Files are small, and a task takes tens of milliseconds whatever is in it, more with Python. Cut for the slots
that a unit may have one day, a micro-batch of a unit with one slot was 48 tasks in a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECES = "spark.sql.files.minPartitionNum"
"""Spark's name of it. Where opening a file costs nothing (`openCostInBytes`) there are about so many."""
LEAST = 2
"""One task long after the other is not waited for: two at least."""


def pieces(instances: int, own: int, grown: Mapping[str, int] | None = None) -> str:
    """The setting for so many instances of their own slots, some of which have grown to others."""
    slots = instances * own + sum(number - own for number in (grown or {}).values())
    return str(max(LEAST, slots))


def cut_into(spark: SparkSession, number: str) -> None:
    """Let micro-batches from the next one on be cut into so many tasks, those of queries that run too."""
    if spark.conf.get(PIECES, None) != number:
        spark.conf.set(PIECES, number)
