"""Both units on Spark, on blocks out of order, against NumPy on whole frames."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from atoms.dynamics import record
from atoms.injection import spread_over
from atoms.source import Sending

from penstock.channels.batches import publish
from penstock.channels.feeder import as_text
from penstock.channels.sinks import read_results
from penstock.runs.assembly import load
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.query import UnitQuery

from ..spark_units.conftest import process_all

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "molecules"


def test_histograms_and_distances_of_the_stream_are_those_of_numpy(spark: Any, tmp_path: Path) -> None:
    frames = record(4000, 5, own=True)
    topology, folders = spread_over(load(EXAMPLE / "molecules.yaml"), 2, 1.0), RunFolders(tmp_path)
    luck, sent = random.Random(5), 6 * frames.blocks
    for which, source in enumerate(topology.sources):
        rows = [
            {"record_id": f"{which}-{k}", "source_time": "2026-01-01T00:00:00.000000+00:00", **columns}
            for k, columns in enumerate(Sending(frames, which, 2).columns(0, [0.0] * (sent // 2)))
        ]
        luck.shuffle(rows)
        streams = [folders.sources / source.name / unit.name for unit in topology.units]
        for number, part in enumerate((rows[: sent // 4], rows[sent // 4 :])):
            writing = folders.sources / f"_writing-{which}-{number}"
            writing.mkdir(parents=True)
            (writing / "records.json").write_text(
                "".join(json.dumps(row, default=as_text) + "\n" for row in part)
            )
            publish(writing, [writing / "records.json"], len(part), streams, number)
    for unit in topology.units:
        process_all(UnitQuery(spark, topology, unit.name, folders))
    found = the_demo().compared(
        frames,
        sent,
        read_results(folders.results / "histograms"),
        read_results(folders.results / "distances"),
    )
    assert found.equal, found.told()
    assert (found.histograms, found.distances) == (6, 20)


def the_demo() -> Any:
    """The example's `demo.py` as a module; other examples have one, too."""
    place = importlib.util.spec_from_file_location("molecules_demo", EXAMPLE / "demo.py")
    assert place is not None
    assert place.loader is not None
    demo = importlib.util.module_from_spec(place)
    sys.modules[demo.__name__] = demo  # where dataclasses look their module up
    place.loader.exec_module(demo)
    return demo
