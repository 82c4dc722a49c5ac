"""The stream: parse → aggregate → assemble → apply, each a function from a DataFrame to a DataFrame.

A period is over for an aggregator when it has seen a later packet, and every packet before that one. Packets
are numbered, so it knows. No clock and no watermark is needed, nothing is dropped as late, and a packet that
comes twice counts once. The last period stays open until somebody sends again.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from detector.features import COUNTS, KEYS, counted, features_of
from detector.model import Model
from detector.packets import SYN, dotted_all, parsed
from detector.traffic import period_of

ENVELOPE = ("record_id", "source_time")
PACKET = (
    "number long, time_us long, source long, destination long, source_port int, destination_port int, "
    "protocol int, syn int, length int"
)
"""What is known of a packet once it is parsed."""
PART = "period long, lane int, packets binary"
"""One aggregator's packets of one period, by columns."""
ASSEMBLED = "period long, pairs binary"
"""All pairs of one period with their counts."""
ALERT = (
    "period long, source string, destination string, score double, q double, t2 double, reason string, "
    "packets long"
)
CARRIED = ("number", "time_us", *KEYS, "source_port", "destination_port", "syn", "length")
"""Columns of a packet from an aggregator to the assembler."""
LANES = 2
"""Aggregators side by side."""
MODEL = "spark.ddos.model"
"""The session's setting that names the model's file; by default the one beside the topology file."""
SHIPPED = Path(__file__).resolve().parents[1] / "model.json"


def model_of(frame: DataFrame) -> Model:
    """The model that the session of a DataFrame is told to use."""
    return Model.read(Path(frame.sparkSession.conf.get(MODEL, str(SHIPPED)) or SHIPPED))


# -- parse ---------------------------------------------------------------------------------------


def parse(packets: DataFrame) -> DataFrame:
    """Read the headers of each packet; one that cannot be read keeps its number: none is waited for."""
    return packets.mapInPandas(_parse, f"record_id string, source_time timestamp, {PACKET}")


def _parse(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    names = [part.split()[0] for part in PACKET.split(", ")]
    for batch in batches:
        found = [parsed(bytes(raw)) for raw in batch["packet"]]
        rows = [
            (
                p.number, p.time_us, p.source, p.destination, p.source_port, p.destination_port, p.protocol,
                int(bool(p.flags & SYN)), p.length,
            )
            for p in found
        ]  # fmt: skip
        table = pd.DataFrame(rows, columns=names)
        for name in ENVELOPE:
            table[name] = batch[name].to_numpy()
        yield table[[*ENVELOPE, *names]]


# -- aggregate -----------------------------------------------------------------------------------


def aggregate(parsed_packets: DataFrame) -> DataFrame:
    """Gather each period's packets, in as many lanes as there are aggregators."""
    lanes = parsed_packets.withColumn("lane", (sql.col("number") % LANES).cast("int"))
    return _with_state(lanes, "lane", Aggregator(), PART)


class Aggregator:
    """The packets of one lane by period; every `LANES`-th number is the lane's, in order."""

    def __call__(
        self, key: Any, batches: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Spark's call: the lane, its new packets, and what is remembered of it."""
        lane = int(key[0])
        memory = pickle.loads(bytes(state.get[0])) if state.exists else None
        memory, parts = self.advance(lane, memory, pd.concat(list(batches)))
        state.update((pickle.dumps(memory),))
        if parts:
            yield pd.DataFrame(parts)

    def advance(self, lane: int, memory: Any, new: pd.DataFrame) -> tuple[Any, list[dict[str, Any]]]:
        """What is remembered after these packets, and the periods that are over."""
        due, kept = memory if memory is not None else (lane or LANES, None)
        new = new[new["number"] >= due]
        early = new if kept is None else pd.concat([kept, new])
        early = early.drop_duplicates("number").sort_values("number", kind="stable")
        numbers = early["number"].to_numpy()
        # How far they follow each other without a gap; those before `due` are kept for their period only.
        start = int(np.searchsorted(numbers, due))
        steps = numbers[start:] == due + LANES * np.arange(len(numbers) - start)
        reached = start + (len(steps) if steps.all() else int(steps.argmin()))
        if reached > start:
            due = int(numbers[reached - 1]) + LANES
        if reached == 0:
            return (due, early), []
        periods = early["time_us"].map(period_of).to_numpy()
        open_period = periods[reached - 1]
        over = np.arange(len(early)) < reached
        over &= periods < open_period
        parts = [
            _part(int(period), lane, early[over & (periods == period)]) for period in np.unique(periods[over])
        ]
        return (due, early[~over]), parts


def _part(period: int, lane: int, packets: pd.DataFrame) -> dict[str, Any]:
    return {
        "record_id": f"period-{period:06d}-{lane}",
        "source_time": packets["source_time"].max(),
        "period": period,
        "lane": lane,
        "packets": packed(packets[packets["protocol"] > 0], CARRIED),
    }


# -- assemble ------------------------------------------------------------------------------------


def assemble(parts: DataFrame) -> DataFrame:
    """Put the lanes of each period together and count by pair: one record a period."""
    return _with_state(parts, "period", Assembler(), ASSEMBLED)


class Assembler:
    """The parts of one period, until all lanes are there."""

    def __call__(
        self, key: Any, batches: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Spark's call: the period, its new parts, and those that are there already."""
        there = pickle.loads(bytes(state.get[0])) if state.exists else {}
        for batch in batches:
            for part in batch.to_dict("records"):
                there[part["lane"]] = (part["source_time"], part["packets"])
        if len(there) < LANES:
            state.update((pickle.dumps(there),))
            return
        if state.exists:
            state.remove()
        period = int(key[0])
        packets = pd.concat([unpacked(content, CARRIED) for _, content in there.values()])
        yield pd.DataFrame(
            [
                {
                    "record_id": f"period-{period:06d}",
                    "source_time": max(at for at, _ in there.values()),
                    "period": period,
                    "pairs": packed(counted(packets), (*KEYS, *COUNTS)),
                }
            ]
        )


# -- apply ---------------------------------------------------------------------------------------


def apply(assembled: DataFrame) -> DataFrame:
    """Compare each pair with the model of normal traffic; those that do not fit leave as alerts."""
    return assembled.mapInPandas(
        _Apply(model_of(assembled)), f"record_id string, source_time timestamp, {ALERT}"
    )


class _Apply:
    def __init__(self, model: Model) -> None:
        self._model = model

    def __call__(self, batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            for row in batch.to_dict("records"):
                found = alerts_of(self._model, row["period"], unpacked(row["pairs"], (*KEYS, *COUNTS)))
                pairs = zip(found["source"], found["destination"], strict=True)
                found.insert(0, "record_id", [f"{row['period']:06d}-{s}-{d}" for s, d in pairs])
                found.insert(1, "source_time", row["source_time"])
                yield found


def alerts_of(model: Model, period: int, pairs: pd.DataFrame) -> pd.DataFrame:
    """The pairs of one period that are attacks by the model, with the scores that say so."""
    q, t2, blame = model.scores(features_of(pairs))
    score = model.worst(q, t2)
    told = score > 1.0
    return pd.DataFrame(
        {
            "period": period,
            "source": dotted_all(pairs["source"].to_numpy()[told]),
            "destination": dotted_all(pairs["destination"].to_numpy()[told]),
            "score": score[told],
            "q": q[told],
            "t2": t2[told],
            "reason": [model.names[k] for k in blame[told]],
            "packets": pairs["packets"].to_numpy()[told],
        }
    )


# -- tables as bytes, and state ----------------------------------------------------------------------


def packed(table: pd.DataFrame, names: Sequence[str]) -> bytes:
    """A table of whole numbers as bytes."""
    return table[list(names)].to_numpy(dtype=np.int64).tobytes()


def unpacked(content: bytes, names: Sequence[str]) -> pd.DataFrame:
    """The table again."""
    numbers = np.frombuffer(bytes(content), dtype=np.int64).reshape(-1, len(names))
    return pd.DataFrame(numbers, columns=list(names))


def _with_state(rows: DataFrame, key: str, memory: Any, columns: str) -> DataFrame:
    session = rows.sparkSession
    # Spark refuses state twice in a query, because timeouts and watermarks of one could mislead the other.
    # There are none here.
    session.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    session.conf.set("spark.sql.shuffle.partitions", str(LANES))
    # Rows of a state function are not in the form that a shuffle takes (a ClassCastException in Spark 4):
    # with a column computed in between they are.
    return (
        rows.withColumn(key, sql.abs(key))
        .groupBy(key)
        .applyInPandasWithState(
            memory,
            f"record_id string, source_time timestamp, {columns}",
            "memory binary",
            "append",
            GroupStateTimeout.NoTimeout,
        )
    )
