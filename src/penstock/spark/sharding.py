"""Brings the state of a unit to another number of shards, while its query does not run.

Spark cuts state into as many pieces as there were shuffle partitions when its first micro-batch ran, and goes
on with that number whatever is set later. No more slots than these can work on it. Newer versions of Spark
can cut the state of a stopped query anew, by a micro-batch that reads nothing; it is done on a copy of the
checkpoint, for where it fails Spark leaves a checkpoint that no query starts from.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.checkpoints import Checkpoint, rewritten, whole
from penstock.spark.gateway.errors import cause_of
from penstock.spark.gateway.queries import repartition_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger(__name__)


def reshard(spark: SparkSession, checkpoint: Path, wanted: int | None) -> str | None:
    """Cut the state in a checkpoint into so many shards; why it keeps those it has, None where all is well.

    Takes seconds for some hundred thousand keys. Where it fails the checkpoint is as it was.
    """
    whole(checkpoint)
    known = Checkpoint(checkpoint)
    shards = known.shards()
    if wanted is None or shards is None or shards == wanted:
        return None
    stays = f"its state stays in {shards} shards and not {wanted}"
    unfinished = known.unfinished()
    if unfinished is not None:
        return f"{stays}: batch {unfinished} is half done and ends as it began; start the unit again after it"
    began_s = time.monotonic()
    try:
        with rewritten(checkpoint) as copy:
            repartition_state(spark, str(copy), wanted)
    except Exception as error:
        return f"{stays}: {cause_of(error)}"
    LOG.warning(
        "the state was cut into %d shards (%d before) in %.1f s", wanted, shards, time.monotonic() - began_s
    )
    return None
