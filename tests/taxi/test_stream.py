"""The whole fleet on Spark, unit after unit, on positions out of order: every ride as the batch has it."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from cabs.batch import reports
from cabs.operators import AREA
from cabs.rides import Position, drawn, sent

from penstock.channels.batches import publish
from penstock.channels.lookups import update
from penstock.channels.sinks import read_results
from penstock.runs.assembly import load
from penstock.runs.in_one_session import LocalRun
from penstock.topology.model import Topology

from .conftest import EXAMPLE

pytestmark = pytest.mark.spark
NOWHERE = {"south": 0.0, "north": 0.0, "west": 0.0, "east": 0.0}


def put(run: LocalRun, topology: Topology, first: int, found: list[Position], number: int) -> None:
    """Write positions into the source's streams, as its feeder does, in any order."""
    rows = [
        {"record_id": f"taxis-{n:09d}", "source_time": "2026-01-01T00:00:00.000000+00:00", **p._asdict()}
        for n, p in enumerate(found, first)
    ]
    random.Random(number).shuffle(rows)
    sources = run.folders.sources / "taxis"
    writing = sources / f"_writing-{number}"
    writing.mkdir(parents=True)
    (writing / "records.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    readers = [u.name for u in topology.units if {"speed", "aggregation", "monitor"} & set(u.operators)]
    publish(writing, [writing / "records.json"], len(rows), [sources / name for name in readers], number)


def is_outside(position: Position) -> bool:
    inside = AREA["south"] <= position.latitude <= AREA["north"]
    return not (inside and AREA["west"] <= position.longitude <= AREA["east"])


def test_every_ride_is_reported_as_by_the_batch_and_the_area_changes_while_it_runs(
    spark: Any, tmp_path: Path
) -> None:
    found, topology = list(itertools.islice(sent(drawn), 400)), load(EXAMPLE / "taxi.yaml")
    run = LocalRun(spark, topology, tmp_path)
    run.start()
    try:
        put(run, topology, 0, found[:250], 0)
        run.process_all()
        update(run.folders.lookups, "area", NOWHERE)
        put(run, topology, 250, found[250:], 1)
        run.process_all()
    finally:
        run.stop()
    rows = read_results(run.folders.results / "reports")
    wanted = reports(found)
    assert len(wanted) > 10
    assert {row["ride"]: (row["average_kmh"], row["distance_km"]) for row in rows} == wanted, run.notices
    assert len(rows) == len(wanted), "each once"
    left = {row["record_id"] for row in read_results(run.folders.results / "outside")}
    before = [n for n, position in enumerate(found[:250]) if is_outside(position)]
    assert left == {f"taxis-{n:09d}" for n in [*before, *range(250, 400)]}
