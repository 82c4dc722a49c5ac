"""The two units: where atoms are (a histogram over a 3D grid), and how far each went (with state).

Blocks may come in any order. A histogram leaves when all blocks of its iteration are there, a block's
distances when the same block of the iteration before is.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from atoms.analysis import counts, travelled

ENVELOPE = "record_id string, source_time timestamp"
COUNTED = "iteration long, block int, blocks int, counts binary"
"""The atoms of one block by cell."""
HISTOGRAM = "iteration long, atoms long, counts array<int>"
DISTANCES = "iteration long, block int, furthest double, mean double, distances binary"
LANES, PARTITIONS = 8, 4
"""Blocks or iterations that are remembered together, and the tasks that do so in every micro-batch."""


def together(one: tuple[DataFrame, ...], named: dict[str, DataFrame]) -> DataFrame:
    """What all sources send, as one DataFrame."""
    first, *more = (*one, *named.values())
    for other in more:
        first = first.unionByName(other)
    return first


# -- the histogram -------------------------------------------------------------------------------


def count(*one: DataFrame, **sources: DataFrame) -> DataFrame:
    """Count the atoms of each block by cell."""
    return together(one, sources).mapInPandas(_count, f"{ENVELOPE}, {COUNTED}")


def _count(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for batch in batches:
        found = batch[["record_id", "source_time", "iteration", "block", "blocks"]].copy()
        found["counts"] = [
            counts(positions_of(raw), box).astype(np.int32).tobytes()
            for raw, box in zip(batch["positions"], batch["box"], strict=True)
        ]
        yield found


def gather(counted: DataFrame) -> DataFrame:
    """Put the blocks of each iteration together: one histogram an iteration."""
    return _with_state(counted, "iteration", _gather, HISTOGRAM)


def _gather(key: Any, batches: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    waiting: dict[int, dict[int, tuple[Any, bytes]]] = _remembered(state, {})
    emitted = []
    for batch in batches:
        for row in batch.to_dict("records"):
            there = waiting.setdefault(row["iteration"], {})
            there[row["block"]] = (row["source_time"], row["counts"])
            if len(there) == row["blocks"]:
                del waiting[row["iteration"]]
                parts = [np.frombuffer(bytes(raw), dtype=np.int32) for _, raw in there.values()]
                total = np.sum(parts, axis=0)
                emitted.append(
                    {
                        "record_id": f"iteration-{row['iteration']:09d}",
                        "source_time": max(at for at, _ in there.values()),
                        "iteration": row["iteration"],
                        "atoms": int(total.sum()),
                        "counts": total.tolist(),
                    }
                )
    state.update((pickle.dumps(waiting),))
    if emitted:
        yield pd.DataFrame(emitted)


# -- the distance --------------------------------------------------------------------------------


def travel(*one: DataFrame, **sources: DataFrame) -> DataFrame:
    """How far each atom of a block went since the iteration before; the first iteration gives nothing."""
    return _with_state(together(one, sources), "block", _travel, DISTANCES)


def _travel(key: Any, batches: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    # By block: the iteration that is due, the positions before it, and what came too early.
    lane: dict[int, list[Any]] = _remembered(state, {})
    emitted = []
    for batch in batches:
        for row in batch.to_dict("records"):
            own = lane.setdefault(row["block"], [0, None, {}])
            if row["iteration"] >= own[0]:
                own[2].setdefault(row["iteration"], row)
            while own[0] in own[2]:
                emitted += _step(own, own[2].pop(own[0]))
    state.update((pickle.dumps(lane),))
    if emitted:
        yield pd.DataFrame(emitted)


def _step(own: list[Any], row: dict[str, Any]) -> list[dict[str, Any]]:
    """Take the block that is due; its distances, where there is one before it."""
    before, now = own[1], positions_of(row["positions"])
    own[:2] = [row["iteration"] + 1, now]
    if before is None:
        return []
    distances = travelled(before, now, row["box"])
    return [
        {
            "record_id": row["record_id"],
            "source_time": row["source_time"],
            "iteration": row["iteration"],
            "block": row["block"],
            "furthest": float(distances.max()),
            "mean": float(distances.mean()),
            "distances": distances.tobytes(),
        }
    ]


# -- both ----------------------------------------------------------------------------------------


def positions_of(raw: bytes) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """The positions of a block."""
    return np.frombuffer(bytes(raw), dtype=np.float32).reshape(-1, 3)


def _remembered(state: GroupState, first: Any) -> Any:
    return pickle.loads(bytes(state.get[0])) if state.exists else first


def _with_state(rows: DataFrame, key: str, function: Any, columns: str) -> DataFrame:
    session = rows.sparkSession
    session.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    # A call for each lane instead of one for each block or iteration: Spark takes milliseconds for a call.
    return (
        rows.withColumn("lane", sql.col(key) % LANES)
        .groupBy("lane")
        .applyInPandasWithState(
            function, f"{ENVELOPE}, {columns}", "memory binary", "append", GroupStateTimeout.NoTimeout
        )
    )
