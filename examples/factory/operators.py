"""The nine operators of paper 000's factory as functions from DataFrames to a DataFrame.

Each works alone in a unit of its own or together with others in one, on a stream or on a plain DataFrame
(where Spark allows state). Every record keeps the id and the time it left its source with, and carries
`machine`, `sequence` (its number in the machine's life) and `time_s` (the machine's own clock).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from factory import effectiveness
from factory.in_order import PASSED_ON, Record, Remembering, for_each_in_order, gather, with_state
from factory.machines import DEFECT, TEMPERATURE_LIMIT

AVAILABILITY_SCHEMA = "machine string, sequence long, time_s long, status string"
"""What S1 sends."""
PRODUCTION_SCHEMA = "machine string, sequence long, time_s long, cycle_s long, picture binary"
"""What S2 sends; `cycle_s` is the time since the camera's picture before."""
TEMPERATURE_SCHEMA = "machine string, sequence long, time_s long, temperature double"
"""What S3 sends."""

CYCLE_COLUMNS = "produced long, defective long, ideal_ms long, planned_stop_s long, defect_stop_s long"
COMPONENTS = ("availability", "performance", "quality")

REPORT_EVERY = "spark.factory.reportEvery"
"""The session's setting of how many OEE values make a report (paper 000: 300)."""
REPORT_EVERY_DEFAULT = 30
BOTH_LOOKS = "spark.factory.bothLooks"
"""The session's setting of whether every picture is looked at twice, in two ways that must agree."""


def parse_and_distribute(rows: DataFrame) -> DataFrame:
    """O1: read each picture by optical character recognition; O3, O4 and O5 take the result.

    `readable` is false and the counters are null where a picture could not be read. `looks` is 2 where
    it took a second, slower look; the session's setting `BOTH_LOOKS` takes it at every picture.
    """
    both = rows.sparkSession.conf.get(BOTH_LOOKS, "false") == "true"
    passed_on = StructType([rows.schema[name] for name in (*PASSED_ON, "cycle_s")])
    outgoing = StructType(passed_on.fields)
    for field in StructType.fromDDL(f"readable boolean, looks int, {CYCLE_COLUMNS}"):
        outgoing.add(field)
    return rows.mapInPandas(_ReadPictures(passed_on.names, both), outgoing)


class _ReadPictures:
    """Reads the pictures of one partition with the one recogniser of this Python worker."""

    def __init__(self, passed_on: list[str], both: bool) -> None:
        self._passed_on = passed_on
        self._both = both

    def __call__(self, batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            if batch.empty:
                continue
            # Loaded here and not before: an empty partition needs no recogniser.
            from factory.reader import display_reader

            reader = display_reader()
            readings = [reader.read(bytes(picture), both=self._both) for picture in batch["picture"]]
            found = batch[self._passed_on].copy()
            found["readable"] = [reading.cycle is not None for reading in readings]
            found["looks"] = [reading.looks for reading in readings]
            for name in (part.split()[0] for part in CYCLE_COLUMNS.split(", ")):
                found[name] = pd.array(
                    [getattr(reading.cycle, name) if reading.cycle else None for reading in readings],
                    dtype="Int64",
                )
            yield found


def filter_availability(rows: DataFrame) -> DataFrame:
    """O2: a warning for each *new* defect of a machine; everything else ends here."""
    return _warnings(rows, "defect", _new_defect)


def _new_defect(was_defect: bool, record: Record) -> tuple[bool, Record | None]:
    is_defect = record["status"] == DEFECT
    text = f"{record['machine']}: defect since {record['time_s']} s"
    return is_defect, {"text": text} if is_defect and not was_defect else None


def monitor_temperature(rows: DataFrame) -> DataFrame:
    """O6: a warning for each *new* temperature above the limit; everything else ends here."""
    return _warnings(rows, "temperature", _new_violation)


def _new_violation(was_above: bool, record: Record) -> tuple[bool, Record | None]:
    is_above = record["temperature"] > TEMPERATURE_LIMIT
    text = f"{record['machine']}: {record['temperature']} °C at {record['time_s']} s"
    return is_above, {"text": text} if is_above and not was_above else None


def _warnings(rows: DataFrame, kind: str, step: Any) -> DataFrame:
    return for_each_in_order(rows, step, False, "text string").withColumn("kind", sql.lit(kind))


def calculate_performance(rows: DataFrame) -> DataFrame:
    """O3: performance in the last reporting cycle; needs no state, for the camera sends its length."""
    # Eq. (2) of 000: performance = producedItems · idealProductionTime / reportingCycle
    value = sql.col("produced") * sql.col("ideal_ms") / 1000 / sql.col("cycle_s")
    return rows.select(*PASSED_ON, value.alias("value"))


def calculate_availability(rows: DataFrame) -> DataFrame:
    """O4: availability over the machine's whole life so far."""
    return for_each_in_order(rows, _availability_so_far, (0, 0), "value double")


def _availability_so_far(stops_s: tuple[int, int], record: Record) -> tuple[tuple[int, int], Record]:
    if not record["readable"]:
        return stops_s, {"value": None}
    stops_s = (stops_s[0] + int(record["planned_stop_s"]), stops_s[1] + int(record["defect_stop_s"]))
    return stops_s, {"value": effectiveness.availability(record["time_s"], *stops_s)}


def calculate_quality(rows: DataFrame) -> DataFrame:
    """O5: share of good ones among all goods of the machine's whole life so far."""
    return for_each_in_order(rows, _quality_so_far, (0, 0), "value double")


def _quality_so_far(goods: tuple[int, int], record: Record) -> tuple[tuple[int, int], Record]:
    if not record["readable"]:
        return goods, {"value": None}
    goods = (goods[0] + int(record["produced"]), goods[1] + int(record["defective"]))
    return goods, {"value": effectiveness.quality(*goods)}


def calculate_oee(
    calculate_performance: DataFrame, calculate_availability: DataFrame, calculate_quality: DataFrame
) -> DataFrame:
    """O7: join the three by machine and timestamp (the cycle's number) into the OEE.

    A cycle whose picture could not be read has no value, but its record goes on, so counts reconcile.
    """
    parts = zip(COMPONENTS, (calculate_availability, calculate_performance, calculate_quality), strict=True)
    first, second, third = (
        rows.select(*PASSED_ON, "value").withColumn("part", sql.lit(part)) for part, rows in parts
    )
    joined = gather(first.unionByName(second).unionByName(third), COMPONENTS)
    # Eq. (5) of 000: OEE = availability · performance · quality
    product = sql.col("availability") * sql.col("performance") * sql.col("quality")
    return joined.withColumn("oee", product)


def generate_report(rows: DataFrame) -> DataFrame:
    """O9: a report as PDF for every so many OEE values, over all machines."""
    every = int(rows.sparkSession.conf.get(REPORT_EVERY, str(REPORT_EVERY_DEFAULT)) or REPORT_EVERY_DEFAULT)
    return with_state(
        rows.withColumn("all", sql.lit(True)), "all", _Reports(every), "text string, document binary"
    ).withColumn("kind", sql.lit("report"))


class _Reports(Remembering):
    """Collects OEE values until they make a report."""

    def __init__(self, every: int) -> None:
        self._every = every

    def first(self) -> Any:
        """No report yet, and no values."""
        return 0, []

    def advance(self, memory: Any, records: Iterator[Record]) -> tuple[Any, list[Record]]:
        """Make as many reports as the values collected are enough for."""
        from factory.pdf_report import Value, make_pdf

        number, collected = memory
        emitted: list[Record] = []
        for record in sorted(records, key=lambda r: (r["time_s"], r["machine"])):
            # What is null in Spark is not a number in pandas.
            numbers = (None if pd.isna(record[name]) else record[name] for name in (*COMPONENTS, "oee"))
            collected.append(Value(record["machine"], record["time_s"], *numbers))
            if len(collected) == self._every:
                number += 1
                emitted.append(
                    {name: record[name] for name in PASSED_ON}
                    | {
                        "record_id": f"report-{number:04d}",
                        "machine": "all",
                        "sequence": number,
                        "text": f"report {number}: {len(collected)} values",
                        "document": make_pdf(number, collected),
                    }
                )
                collected = []
        return (number, collected), emitted


def inform_user(
    filter_availability: DataFrame, monitor_temperature: DataFrame, generate_report: DataFrame
) -> DataFrame:
    """O8: every warning and report as one message to the person in charge."""
    columns = (*PASSED_ON, "kind", "text")
    nothing = sql.lit(None).cast("binary").alias("document")
    return (
        filter_availability.select(*columns, nothing)
        .unionByName(monitor_temperature.select(*columns, nothing))
        .unionByName(generate_report.select(*columns, "document"))
    )
