"""How many sources an injection needs, by their own health (paper 002, section 5.4).

A source's health is what it emitted over what was due. One that cannot keep up is given company: the load is
spread over twice as many, until all are healthy.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from atoms.dynamics import Recorded
from penstock.machine.processes import wait_until
from penstock.monitoring.health import CONGESTED
from penstock.runs.assembly import load as load_file
from penstock.runs.sources import LATE_S, Feed
from penstock.spark.unit.folders import RunFolders
from penstock.topology.model import Choice, Source, Topology

HERE = Path(__file__).resolve().parents[1]
SPAN_S = 5.0
"""How long sources are tried."""


def spread_over(topology: Topology, sources: int, blocks_per_s: float) -> Topology:
    """The topology with so many sources that share a load."""
    one = topology.sources[0]
    workload = Choice("constant", {"level_per_s": blocks_per_s / sources})
    made = tuple(
        replace(one, name=f"atoms_{place + 1}_of_{sources}", workload=workload) for place in range(sources)
    )
    before, names = {source.name for source in topology.sources}, tuple(source.name for source in made)
    operators = tuple(
        replace(operator, inputs=names) if before & set(operator.inputs) else operator
        for operator in topology.operators
    )
    return replace(topology, sources=made, operators=operators)


def begun_gently(topology: Topology, over_s: float) -> Topology:
    """The same with a load that rises from nothing: units start Python and compile meanwhile."""

    def rising(source: Source) -> Source:
        assert source.workload is not None
        level = source.workload.parameters["level_per_s"]
        load = {"from_per_s": 0.0, "to_per_s": level, "over_s": over_s}
        return replace(source, workload=Choice("linear", load))

    return replace(topology, sources=tuple(rising(source) for source in topology.sources))


def health_of(topology: Topology, span_s: float = SPAN_S) -> float:
    """The lowest health of the topology's sources, tried for a while with nobody reading."""
    with tempfile.TemporaryDirectory(prefix="molecules-") as place:
        feed = Feed("injection", topology, RunFolders(Path(place)), span_s, str(HERE))
        started_s = time.time()
        feed.start(started_s)
        try:
            wait_until(lambda: time.time() >= started_s + span_s + LATE_S, span_s + 10.0, poll_s=0.1)
            found = feed.health(started_s + span_s + LATE_S)
        finally:
            feed.stop()
    return min((value for value in found.values() if value is not None), default=1.0)


def needed(frames: Recorded, iterations_per_s: float, say: Callable[[str], None]) -> Topology:
    """The topology with as many sources as this many iterations a second need here."""
    topology = load_file(HERE / "molecules.yaml")
    load = iterations_per_s * frames.blocks
    sources = 1
    while True:
        spread = spread_over(topology, sources, load)
        found = health_of(spread)
        say(f"{sources} sources for {load:,.0f} blocks a second: health {found:.2f}")
        if found >= CONGESTED or 2 * sources > frames.blocks:
            return spread
        sources *= 2
