"""The taxi scenario in small, for `penstock experiment pesp --on spark`: positions take time, and no more."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from penstock.experiments.pesp import rides_at_hand
from penstock.experiments.pesp_spark import SERVICE_S, ends_s
from penstock.experiments.recordings import find_recordings

Made = Callable[[int, Any], list[dict[str, Any]]]


def positions(_source: str) -> Made:
    """Positions in the order they are sent; the first one sent after a ride's end is its last."""
    ends = sorted(ends_s(rides_at_hand(find_recordings())[0]))
    told = 0

    def made(_first: int, instants_s: Any) -> list[dict[str, Any]]:
        nonlocal told
        found = []
        for at_s in instants_s:
            over = bisect.bisect_right(ends, float(at_s))
            # One position closes one ride; where several end at once, the next positions close the others.
            last = told < over
            found.append({"ride": told if last else -1, "last": last})
            told += last
        return found

    return made


def speed(records: DataFrame) -> DataFrame:
    """Every position takes its time; what goes on is one record a ride."""
    wait_s = SERVICE_S

    @sql.pandas_udf("int")
    def worked(rides: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for batch in rides:
            time.sleep(wait_s * len(batch))
            yield batch

    # Else Spark would drop positions that are not the last before they take their time.
    worked = worked.asNondeterministic()
    done = records.select(worked("ride").alias("ride"), "last")
    return done.filter("last").select("ride")


def report(records: DataFrame) -> DataFrame:
    """The report of a ride."""
    return records.select("ride")
