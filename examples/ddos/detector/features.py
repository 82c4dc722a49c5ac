"""From packets to what a model sees of each pair of addresses in a period.

Everything counted is a whole number, so stream and batch come to the same numbers in whatever order records
came. Only then features are made of them, by one function that both use.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from detector.traffic import PERIOD_S

KEYS = ("source", "destination")
COUNTS = ("packets", "bytes", "syns", "source_ports", "destination_ports", "gaps_us", "gaps_squared")
"""Of a pair in a period; gaps are the times between its packets, their sum and the sum of their squares."""
FEATURES = (
    "packets",
    "bytes a packet",
    "mean gap",
    "variation of gaps",
    "first packets of connections",
    "source ports",
    "destination ports",
    "share of those who ask this server",
    "share of packets to this server",
    "servers asked by this source",
)


def counted(packets: pd.DataFrame) -> pd.DataFrame:
    """Counts by pair of the packets of one period, pairs in order."""
    ordered = packets.sort_values([*KEYS, "time_us", "number"], kind="stable")
    keys = [ordered[name].to_numpy() for name in KEYS]
    times = ordered["time_us"].to_numpy()
    same = (keys[0][1:] == keys[0][:-1]) & (keys[1][1:] == keys[1][:-1])
    gaps = np.zeros(len(ordered), dtype=np.int64)
    gaps[1:] = np.where(same, times[1:] - times[:-1], 0)
    ordered = ordered.assign(gaps_us=gaps, gaps_squared=gaps * gaps)
    return (
        ordered.groupby(list(KEYS), sort=True)
        .agg(
            packets=("number", "size"),
            bytes=("length", "sum"),
            syns=("syn", "sum"),
            source_ports=("source_port", "nunique"),
            destination_ports=("destination_port", "nunique"),
            gaps_us=("gaps_us", "sum"),
            gaps_squared=("gaps_squared", "sum"),
        )
        .reset_index()
        .astype(np.int64)
    )


def features_of(pairs: pd.DataFrame) -> NDArray[np.float64]:
    """One row of features for each pair of one period; the pairs are all there are, in order."""
    n = pairs["packets"].to_numpy(dtype=np.float64)
    gaps = np.maximum(n - 1, 1)
    mean_us = pairs["gaps_us"].to_numpy(dtype=np.float64) / gaps
    alone = n < 2
    mean_us = np.where(alone, PERIOD_S * 1e6, mean_us)
    square = pairs["gaps_squared"].to_numpy(dtype=np.float64) / gaps
    spread = np.sqrt(np.maximum(square - mean_us * mean_us, 0.0))
    asked = pairs.groupby("destination")
    # Shares and not numbers: a busy hour has more of everything.
    askers = asked["source"].transform("size").to_numpy(dtype=np.float64) / len(pairs)
    received = asked["packets"].transform("sum").to_numpy(dtype=np.float64) / n.sum()
    reached = pairs.groupby("source")["destination"].transform("size").to_numpy(dtype=np.float64)
    columns = (
        np.log1p(n),
        np.log1p(pairs["bytes"].to_numpy(dtype=np.float64) / n),
        np.log1p(mean_us / 1000.0),
        np.where(alone, 1.0, spread / np.maximum(mean_us, 1.0)),
        pairs["syns"].to_numpy(dtype=np.float64) / n,
        np.log1p(pairs["source_ports"].to_numpy(dtype=np.float64)),
        np.log1p(pairs["destination_ports"].to_numpy(dtype=np.float64)),
        askers,
        received,
        np.log1p(reached),
    )
    return np.column_stack(columns)
