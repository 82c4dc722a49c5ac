"""The operators of paper 003's taxi scenario, as functions from DataFrames to a DataFrame.

Positions of a ride may come in any order within a micro-batch: every operator with state takes a ride's
records by their number, and keeps those that come early. All that is remembered of a ride is one Python
value, and it is forgotten when the ride is over.
"""

from __future__ import annotations

import itertools
import json
import math
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import StructType

EARTH_KM = 6371.0088
AREA = {"south": 39.6, "north": 40.2, "west": 116.1, "east": 116.7}
"""Where taxis may drive, where nobody says anything else (look-up `area`)."""
SPEED = (
    "record_id string, source_time timestamp, ride string, sequence int, km double, kmh double, last boolean"
)
AVERAGE = "record_id string, source_time timestamp, ride string, average_kmh double"
WAY = "record_id string, source_time timestamp, ride string, way string"
REPORT = "record_id string, source_time timestamp, ride string, average_kmh double, distance_km double"
_STATE = "memory binary"

Step = Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any] | None]]
"""(what is remembered, a record) to (what is remembered then, what is emitted or nothing)."""


def between_km(before: tuple[float, float], after: tuple[float, float]) -> float:
    """The length of the way between two points of (latitude, longitude) in degrees: the haversine formula."""
    (lat1, lon1), (lat2, lon2) = ((math.radians(a), math.radians(b)) for a, b in (before, after))
    half = (
        math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    )
    return 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(half)))


def speed_step(memory: Any, record: dict[str, Any]) -> tuple[Any, dict[str, Any] | None]:
    """The speed since the position before; nothing for the first."""
    here = (record["latitude"], record["longitude"])
    out = None
    if memory is not None:
        at_s, before = memory
        km, hours = between_km(before, here), (record["at_s"] - at_s) / 3600
        out = {"km": km, "kmh": km / hours if hours > 0 else 0.0, "last": bool(record["last"])}
    return (record["at_s"], here), out


def average_step(memory: Any, record: dict[str, Any]) -> tuple[Any, dict[str, Any] | None]:
    """The mean of a ride's speeds, when it is over."""
    total, count = memory or (0.0, 0)
    total, count = total + record["kmh"], count + 1
    return (total, count), {"average_kmh": total / count} if record["last"] else None


def way_step(memory: Any, record: dict[str, Any]) -> tuple[Any, dict[str, Any] | None]:
    """All positions of a ride, when it is over."""
    way = [*(memory or []), (record["latitude"], record["longitude"])]
    return way, {"way": json.dumps(way)} if record["last"] else None


class InOrder:
    """Takes the records of one ride by their number, from `first` on, and forgets it behind the last."""

    def __init__(self, step: Step, columns: str, first: int = 1) -> None:
        self._step, self._first = step, first
        self._names = [part.split()[0] for part in columns.split(",")]

    def __call__(
        self, key: Any, batches: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Spark's call: the ride, its new records, and its state."""
        due, memory, early = pickle.loads(bytes(state.get[0])) if state.exists else (self._first, None, {})
        records = (record for batch in batches for record in batch.to_dict("records"))
        due, memory, early, over, emitted = self.advance(due, memory, early, records)
        if over:
            state.remove()
        else:
            state.update((pickle.dumps((due, memory, early)),))
        if emitted:
            yield pd.DataFrame(emitted, columns=self._names)

    def advance(
        self, due: int, memory: Any, early: dict[int, Any], records: Iterable[dict[str, Any]]
    ) -> tuple[int, Any, dict[int, Any], bool, list[dict[str, Any]]]:
        """What comes of some more records: what is due then, what is remembered, and what is emitted."""
        for record in records:
            if record["sequence"] >= due:
                early.setdefault(record["sequence"], record)
        emitted: list[dict[str, Any]] = []
        over = False
        while due in early and not over:
            record = early.pop(due)
            memory, result = self._step(memory, record)
            if result is not None:
                passed = {name: record[name] for name in ("record_id", "source_time", "ride", "sequence")}
                emitted.append(passed | result)
            due, over = due + 1, bool(record["last"])
        return due, memory, early, over, emitted


def _by_ride(records: DataFrame, memory: Any, columns: str) -> DataFrame:
    session = records.sparkSession
    # Spark refuses two of these in a query, because timeouts of one could mislead the other: there are none.
    session.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    # A key of its own for each call: Spark cannot hand what one such function gives straight to the next.
    keyed = records.withColumn("key", sql.concat(sql.lit("ride "), "ride"))
    return keyed.groupBy("key").applyInPandasWithState(
        memory, StructType.fromDDL(columns), _STATE, "append", GroupStateTimeout.NoTimeout
    )


def positions(taxis: DataFrame) -> DataFrame:
    """What taxis send, as it is: on its way to another site."""
    return taxis.select("ride", "sequence", "at_s", "latitude", "longitude", "last")


def speed(taxis: DataFrame) -> DataFrame:
    """The speed of each taxi between two positions."""
    return _by_ride(taxis, InOrder(speed_step, SPEED), SPEED)


def average_speed(records: DataFrame) -> DataFrame:
    """The average speed of each ride, when it is over."""
    return _by_ride(records, InOrder(average_step, AVERAGE, first=2), AVERAGE)


def aggregation(taxis: DataFrame) -> DataFrame:
    """The whole way of each ride, when it is over."""
    return _by_ride(taxis, InOrder(way_step, WAY), WAY)


def way_km(way: str) -> float:
    """How long a way is."""
    points = [tuple(point) for point in json.loads(way)]
    return sum((between_km(a, b) for a, b in itertools.pairwise(points)), 0.0)


def distance(records: DataFrame) -> DataFrame:
    """How far each ride went."""

    @sql.pandas_udf("double")
    def km(ways: pd.Series) -> pd.Series:
        return ways.map(way_km)

    return records.withColumn("distance_km", km("way"))


class Report:
    """Puts the average speed and the distance of a ride together, whichever comes first."""

    names = tuple(part.split()[0] for part in REPORT.split(","))

    def __call__(
        self, key: Any, batches: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Spark's call: the ride, what came of it, and what was there before."""
        known: dict[str, Any] = pickle.loads(bytes(state.get[0])) if state.exists else {}
        for batch in batches:
            for record in batch.to_dict("records"):
                known |= {name: value for name, value in record.items() if not _missing(value)}
        if "average_kmh" in known and "distance_km" in known:
            state.remove()
            yield pd.DataFrame([{**known, "record_id": f"report-{known['ride']}"}], columns=list(self.names))
        else:
            state.update((pickle.dumps(known),))


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def analysis(average_speed: DataFrame, distance: DataFrame) -> DataFrame:
    """The report of each ride: how fast and how far."""
    both = average_speed.unionByName(distance, allowMissingColumns=True)
    return _by_ride(both, Report(), REPORT)


def monitor(taxis: DataFrame) -> DataFrame:
    """Positions outside the area in which taxis may drive: that area is looked up, and may change."""
    from penstock import Lookup

    area = Lookup("area", default=AREA)

    @sql.pandas_udf("boolean")
    def outside(latitudes: pd.Series, longitudes: pd.Series) -> pd.Series:
        now = area()
        inside = latitudes.between(now["south"], now["north"]) & longitudes.between(now["west"], now["east"])
        return ~inside

    return taxis.filter(outside("latitude", "longitude"))
