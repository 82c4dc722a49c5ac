"""What the tests of units share: a local session, and topologies of one or two units."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from penstock.channels.batches import publish
from penstock.topology.model import Choice, Operator, Sink, Source, Topology, Unit

from ..channels.conftest import kafka_jars, spark  # noqa: F401  (the same session for both)

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _functions_are_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    yield
    sys.modules.pop("functions", None)


def a_topology(operators, sinks, units=(), **more):
    source = Source("numbers", workload=Choice("constant", {"level_per_s": 20.0}), schema="number long")
    return Topology("test", (source,), tuple(operators), tuple(sinks), tuple(units), **more)


def one_operator(function="functions:double", **more):
    return a_topology(
        [Operator("op", ("numbers",), function, **more)],
        [Sink("out", ("op",), "jsonl:out")],
        [Unit("unit", ("op",))],
    )


def process_all(query):
    """Take a unit through all that lies in its inputs, publish it, and end its query and publisher."""
    running = query.start()
    try:
        running.processAllAvailable()
    finally:
        running.stop()
        query.stop_publishing()


def put(folder: Path, numbers, batch_id=0, unit="unit", source="numbers"):
    """Write records into a generated source's stream, as a feeder would."""
    target = folder / "sources" / source / unit
    written = target.parent / f"_writing-{batch_id}"
    written.mkdir(parents=True)
    lines = [
        json.dumps({"record_id": f"r{n:06d}", "source_time": "2026-01-01T00:00:00.000001+00:00", "number": n})
        for n in numbers
    ]
    file = written / "records.json"
    file.write_text("\n".join(lines) + "\n")
    publish(written, [file], len(lines), [target], batch_id)
