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

from atoms.analysis import CELLS, counts, travelled

ENVELOPE = "record_id string, source_time timestamp"
COUNTED = "iteration long, block int, blocks int, counts binary"
"""The atoms of one block by cell."""
HISTOGRAM = "iteration long, atoms long, counts array<int>"
DISTANCES = "iteration long, block int, furthest double, mean double, distances binary"
PARTITIONS = 2
"""Of the state: each is a Python task in every micro-batch, and two cores run two at a time."""


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
    there = pickle.loads(bytes(state.get[0])) if state.exists else {}
    needed = 0
    for batch in batches:
        for row in batch.to_dict("records"):
            there[row["block"]] = (row["source_time"], row["counts"])
            needed = row["blocks"]
    if len(there) < needed:
        state.update((pickle.dumps(there),))
        return
    if state.exists:
        state.remove()
    latest = max(at for at, _ in there.values())
    total = np.sum([np.frombuffer(bytes(raw), dtype=np.int32) for _, raw in there.values()], axis=0)
    assert total.size == CELLS**3
    yield pd.DataFrame(
        [
            {
                "record_id": f"iteration-{key[0]:09d}",
                "source_time": latest,
                "iteration": key[0],
                "atoms": int(total.sum()),
                "counts": total.tolist(),
            }
        ]
    )


# -- the distance --------------------------------------------------------------------------------


def travel(*one: DataFrame, **sources: DataFrame) -> DataFrame:
    """How far each atom of a block went since the iteration before; the first iteration gives nothing."""
    return _with_state(together(one, sources), "block", _travel, DISTANCES)


def _travel(key: Any, batches: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    due, before, early = pickle.loads(bytes(state.get[0])) if state.exists else (0, None, {})
    for batch in batches:
        for row in batch[["iteration", "source_time", "record_id", "box", "positions"]].to_dict("records"):
            if row["iteration"] >= due:
                early.setdefault(row["iteration"], row)
    emitted = []
    while due in early:
        row = early.pop(due)
        now = positions_of(row["positions"])
        if before is not None:
            distances = travelled(before, now, row["box"])
            emitted.append(
                {
                    "record_id": row["record_id"],
                    "source_time": row["source_time"],
                    "iteration": due,
                    "block": key[0],
                    "furthest": float(distances.max()),
                    "mean": float(distances.mean()),
                    "distances": distances.tobytes(),
                }
            )
        before, due = now, due + 1
    state.update((pickle.dumps((due, before, early)),))
    if emitted:
        yield pd.DataFrame(emitted)


# -- both ----------------------------------------------------------------------------------------


def positions_of(raw: bytes) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """The positions of a block."""
    return np.frombuffer(bytes(raw), dtype=np.float32).reshape(-1, 3)


def _with_state(rows: DataFrame, key: str, function: Any, columns: str) -> DataFrame:
    session = rows.sparkSession
    session.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    # Blocks spread evenly: what is hashed is a column computed here, not the row as it came.
    return (
        rows.withColumn(key, sql.abs(key))
        .groupBy(key)
        .applyInPandasWithState(
            function, f"{ENVELOPE}, {columns}", "memory binary", "append", GroupStateTimeout.NoTimeout
        )
    )
