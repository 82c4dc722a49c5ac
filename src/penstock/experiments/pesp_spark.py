"""Table III of paper 003 in small, on real Spark: elastic, over- and under-provisioned.

The rides of the replay are played in six minutes. `speed` stands for the two stages that are scaled (speed
and average speed, 11 nodes in the small setup of Table II and 18 in the large one, here 2 and 4); `report`
for all behind them. Each is at a site of its own, with its own Spark master: two sites of the rig, or two
local ones where there can be no rig. A record takes its time waiting, so that instances add up on a machine
of few cores. The same topology is simulated beside it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from penstock.channels.batches import batches_in, data_files
from penstock.controller.journal import Journal
from penstock.errors import ConfigurationError
from penstock.experiments import pesp_rig
from penstock.experiments.pesp import PAPER, SETUPS, report_durations_s
from penstock.experiments.recordings import CHECKOUT, VARIABLE, Recordings
from penstock.experiments.taxi_rides import BIN_S, REPLAY_S, RIDES, Rides
from penstock.report.figures import Figure
from penstock.rig.availability import unavailable
from penstock.runs.folder import RunFolder
from penstock.runs.service import run_topology
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import (
    Choice,
    HostFlavour,
    LoopSettings,
    Operator,
    Service,
    Sink,
    Site,
    Source,
    Topology,
    Unit,
)

PLAY_S = 360.0
"""The replay's 110 minutes are played in so long: in less, the morning is over before a Java has started."""
HOLD_S = BIN_S * PLAY_S / REPLAY_S
SLA_S = 10.0
"""A report is due so long after the last position of its ride: a micro-batch alone takes seconds."""
NODES = {"under": 2, "over": 4}
MOST = 6
"""Nodes that elastic provisioning may come to."""
PEAK_PER_S = 20.0
"""Positions a second at the height of the day: a micro-batch of them is no queue that asks for more nodes."""
SERVICE_S = NODES["over"] / PEAK_PER_S
"""Seconds a position takes: the larger setup just carries the peak, as in the paper."""
SETTLE_S = 120.0
CODE = CHECKOUT / "examples" / "taxi"


@dataclass(frozen=True, slots=True)
class Small:
    """What one run came to."""

    setup: str
    kind: str
    """`spark` or `simulator`."""
    node_minutes: float
    makespan_s: float
    report_s: float
    delays: int
    reports: int

    def row(self) -> dict[str, float]:
        """The run's column of Table III."""
        return {
            "cost (node-minutes)": self.node_minutes,
            "makespan (s)": self.makespan_s,
            "report duration (s)": self.report_s,
            "delays": float(self.delays),
            "adherence (%)": 100.0 * (1 - self.delays / max(1, self.reports)),
        }


def small_levels(rides: Rides) -> list[float]:
    """Positions a second in the small replay, of which each is held for `HOLD_S`."""
    peak_per_s = max(rides.levels_per_s())
    return [level * PEAK_PER_S / peak_per_s for level in rides.levels_per_s()]


def ends_s(rides: Rides) -> list[float]:
    """When each ride ends in the small replay.

    A ride is told to be over by the next position. The last ones end while twice as many are to be sent.
    """
    ends = [end_s * PLAY_S / REPLAY_S for end_s in rides.ends_s]
    last_s, left = PLAY_S, 0.0
    for number, level in reversed(list(enumerate(small_levels(rides)))):
        last_s, left = number * HOLD_S, left + level * HOLD_S
        if left >= 2 * sum(end_s >= last_s for end_s in ends):
            break
    return [min(end_s, last_s) for end_s in ends]


def small_topology(rides: Rides, setup: str, provider: Choice) -> Topology:
    """The two units, at a site each."""
    levels = small_levels(rides)
    workload = Choice("stepwise", {"levels_per_s": (*levels, *[0.0] * 400), "hold_s": HOLD_S})
    # The paper's rules, in the small: a decision every 12 s instead of every minute, and shorter memory.
    elastic = Choice("pesp", {"average_s": 30.0, "grace_s": 15.0})
    first = NODES.get(setup, 1)
    flavour = HostFlavour("micro", 1.0, 1024, Decimal("0.01"))
    total = sum(level * HOLD_S for level in levels)
    return Topology(
        f"taxi-{setup}",
        (
            Source(
                "taxis", workload=workload, schema="ride int, last boolean", records="cabs.small:positions"
            ),
        ),
        (
            Operator(
                "speed",
                ("taxis",),
                "cabs.small:speed",
                slo_s=SLA_S,
                service=Service(SERVICE_S, 0.0, "deterministic"),
                ratio=RIDES / total,
                schema="ride int",
            ),
            Operator("report", ("speed",), "cabs.small:report", slo_s=SLA_S, service=Service(0.05)),
        ),
        (Sink("reports", ("report",), "jsonl:reports"),),
        (
            Unit(
                "speed",
                ("speed",),
                sites=("cloud",),
                policy=elastic if setup == "elastic" else Choice("fixed"),
                min_instances=1 if setup == "elastic" else first,
                initial_instances=first,
                max_instances=MOST if setup == "elastic" else first,
            ),
            Unit("report", ("report",), sites=("private",), policy=Choice("fixed"), max_instances=1),
        ),
        tuple(
            Site(name, provider, btu_s=30.0, flavours=(flavour,), max_hosts=MOST)
            for name in ("cloud", "private")
        ),
        loop=LoopSettings(monitoring_s=3.0, provisioning_s=12.0),
    )


def run(
    rides: Rides,
    out: Path,
    progress: Callable[[str], None],
    setups: Sequence[str] = SETUPS,
    recordings: Recordings | None = None,
) -> dict[str, list[Small]]:
    """Every setup on Spark and on the simulator; `small.md` with the table is written to `out`.

    `recordings` are those the rides are from: what is sent is made of them in another process.
    """
    if not (CODE / "cabs" / "small.py").is_file():
        raise ConfigurationError(f"--on spark needs examples/taxi of a checkout; {CODE} is not there")
    if recordings is not None and recordings.folder is not None:
        os.environ[VARIABLE] = str(recordings.folder.resolve())
    found: dict[str, list[Small]] = {}
    no_rig = unavailable()
    for number, setup in enumerate(setups):
        progress(f"{number} of {len(setups)} runs on Spark: {setup}")
        found[setup] = [on_spark(rides, setup, out / f"small-{setup}", no_rig), simulated(rides, setup)]
        (out / "small.md").write_text(as_text(found, rides, no_rig))
    return found


def on_spark(rides: Rides, setup: str, folder: Path, no_rig: str | None) -> Small:
    """One setup on real Spark: over two sites of the rig, or on this machine where `no_rig` says why not."""
    topology = small_topology(rides, setup, Choice("local"))
    if no_rig is None:
        folders = pesp_rig.play(topology, folder, CODE, duration_s=PLAY_S, settle_s=SETTLE_S, records=RIDES)
    else:
        run_topology(topology, folder, duration_s=PLAY_S, code=CODE, drain_s=SETTLE_S)
        folders = [folder]
    rows: list[Mapping[str, Any]] = []
    for place in map(RunFolder, folders):
        with Journal(place.journal, place.plan().name) as journal:
            rows += journal.rows("observation")
    began_s = _began_s(folders[0])
    reports = written_reports(folders[-1] / "results" / "reports")
    durations = [at_s - sent_s for _, sent_s, at_s in reports]
    end_s = max(at_s for _, _, at_s in reports)
    return Small(
        setup,
        "spark",
        node_minutes(rows, began_s, end_s),
        end_s - began_s,
        fmean(durations),
        # A ride of which there is no report is late for ever.
        sum(duration > SLA_S for duration in durations) + RIDES - len(durations),
        RIDES,
    )


def simulated(rides: Rides, setup: str) -> Small:
    """One setup on the simulator, with hosts and executors that start as quickly as local ones."""
    times = {
        "host_start_least_s": 3.0, "host_start_most_s": 6.0, "instance_start_least_s": 4.0,
        "instance_start_most_s": 8.0, "image_pull_s": 0.0,
    }  # fmt: skip
    topology = small_topology(rides, setup, Choice("simulated", times))
    with Journal("sqlite://", topology.name, buffered=True) as journal:
        simulate(topology, SimulationSettings(seed=1), duration_s=PLAY_S + SETTLE_S, journal=journal)
        rows = journal.rows("observation")
    by_unit: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_unit.setdefault(row["unit"], []).append(row)
    ends = ends_s(rides)
    durations = report_durations_s(ends, by_unit["speed"], by_unit["report"])
    end_s = max(end + duration for end, duration in zip(ends, durations, strict=True))
    return Small(
        setup,
        "simulator",
        node_minutes(rows, 0.0, end_s),
        end_s,
        fmean(durations),
        sum(duration > SLA_S for duration in durations),
        RIDES,
    )


def node_minutes(rows: Sequence[Mapping[str, Any]], from_s: float, until_s: float) -> float:
    """Instances of all units over time, as they were observed, between two instants."""
    total_s = 0.0
    for unit in {row["unit"] for row in rows}:
        own = sorted((row["at_s"], row["instances"] or 0) for row in rows if row["unit"] == unit)
        for (at_s, count), (next_s, _) in pairwise([*own, (until_s, 0)]):
            total_s += count * max(0.0, min(next_s, until_s) - max(at_s, from_s))
    return total_s / 60.0


def written_reports(folder: Path) -> list[tuple[int, float, float]]:
    """Every ride's report: the ride, when its last position was sent, and when the report was written."""
    found: dict[int, tuple[float, float]] = {}
    for batch in batches_in(folder):
        for file in data_files(batch.path):
            at_s = file.stat().st_mtime
            for line in file.read_text().splitlines():
                record = json.loads(line)
                sent_s = datetime.fromisoformat(record["source_time"]).timestamp()
                found.setdefault(int(record["ride"]), (sent_s, at_s))
    return [(ride, sent_s, at_s) for ride, (sent_s, at_s) in sorted(found.items())]


def _began_s(folder: Path) -> float:
    """When the sources of a run began."""
    status = RunFolder(folder).status()
    return time.time() if status is None or status.since_s is None else status.since_s


def figures_of(found: Mapping[str, Sequence[Small]]) -> list[Figure]:
    """The paper's claims on Spark in small, and every cell of the table."""
    figures = []
    spark = {setup: runs[0].row() for setup, runs in found.items()}
    if {"elastic", "over"} <= spark.keys():
        saved = 1 - spark["elastic"]["cost (node-minutes)"] / spark["over"]["cost (node-minutes)"]
        figures.append(
            Figure("on Spark: elastic cheaper than over by", round(100 * saved, 1), paper=18.9, unit="%")
        )
    if {"elastic", "under"} <= spark.keys():
        slower = spark["under"]["report duration (s)"] / spark["elastic"]["report duration (s)"]
        figures.append(Figure("on Spark: report duration, under / elastic", round(slower, 2), paper=4.6))
    for setup, runs in found.items():
        for one in runs:
            for what, value in one.row().items():
                paper = PAPER[what][SETUPS.index(setup)]
                name = f"in small on {one.kind}: {what}, {setup}"
                figures.append(Figure(name, round(value, 1), paper=paper))
    return figures


def as_text(found: Mapping[str, Sequence[Small]], rides: Rides, no_rig: str | None) -> str:
    """Table III in small: Spark / the simulator / the paper."""
    lines = [
        "# The taxi topology in small: Spark / simulator / the paper's",
        "",
        f"{rides.origin}, played in {PLAY_S:g} s, {PEAK_PER_S:g} positions a second at the height, "
        f"{SERVICE_S:g} s each; a report is due after {SLA_S:g} s (60 s in the paper).",
        f"On Spark over two sites of the rig, {pesp_rig.DELAY_MS:g} ms between them, with a run at each."
        if no_rig is None
        else f"All of it on one machine, two local sites with a Spark master each: {no_rig}.",
        "",
        "| | " + " | ".join(found) + " |",
        "|" + " --- |" * (len(found) + 1),
    ]
    for what, paper in PAPER.items():
        cells = []
        for setup, runs in found.items():
            values = [f"{one.row()[what]:.1f}" for one in runs]
            cells.append(" / ".join([*values, f"{paper[SETUPS.index(setup)]:g}"]))
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
