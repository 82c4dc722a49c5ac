"""A run of the laboratory on a real, elastic Spark cluster: from drawing pictures to checking answers.

The demo, the tests and `penstock experiment cells` all use this one way. The state is in RocksDB with
changelog checkpoints: a micro-batch writes what has changed, and an executor that takes a shard over loads it
from the checkpoint.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from cells.checking import Check, Result, check, count_results, read
from cells.feed import IMAGES, QUERIES, Load
from cells.timing import Parts, Seen, Wait, parts_of, waits_around
from cells.tissue import Album, make_album
from penstock.controller.journal import Journal
from penstock.controller.loop import Tick
from penstock.controller.result import RunResult
from penstock.errors import ConfigurationError
from penstock.experiments.within import host_time_s, scaling_events
from penstock.machine.files import written
from penstock.runs.assembly import load as load_file
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.runs.profile import PROFILE, Profile, measured_profile
from penstock.runs.run import Run
from penstock.runs.sources import Feed
from penstock.spark.unit import batch_log
from penstock.spark.unit.plan import generated_sources
from penstock.topology.model import Choice, Topology

EXAMPLES = Path(__file__).resolve().parents[1]
DRAIN_S = 120.0
"""Longest time without progress that images on their way are waited for."""
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A micro-batch writes what it changed, not the whole state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    batch_log.SETTING: "true",
}


def require_packages() -> None:
    """ConfigurationError where OpenCV is missing."""
    if importlib.util.find_spec("cv2") is None:
        raise ConfigurationError(
            "the laboratory needs opencv-python; install it with `pip install -e '.[examples]'`"
        )


def topology_of(
    load: Load, *, filter: Choice | None = None, policy: Choice | None = None, together: bool = False
) -> Topology:
    """The topology file with a load, and with other choices for the unit that scales where they are given.

    `together` has both operators in one unit: the state scales, and queries wait for the images beside them.
    """
    topology = load_file(EXAMPLES / "cells" / "cells.yaml")
    scaled, kept = topology.units
    if together:
        both = (*scaled.operators, *kept.operators)
        # A shard is a Python task of its own in every micro-batch: two, for two cores.
        scaled = replace(scaled, name="lab", operators=both, trigger_s=0.0, shards=2)
    scaled = replace(scaled, policy=policy or scaled.policy, filter=filter or scaled.filter)
    workloads = {IMAGES: load.choice, QUERIES: _thinned(load)}
    return replace(
        topology,
        units=(scaled,) if together else (scaled, kept),
        sources=tuple(replace(source, workload=workloads[source.name]) for source in topology.sources),
    )


def _thinned(load: Load) -> Choice:
    """The queries' workload: that of the images, divided."""
    parameters = {
        name: (
            tuple(rate / load.query_every for rate in value)
            if isinstance(value, (list, tuple))
            else value / load.query_every
        )
        if name.endswith("_per_s")
        else value
        for name, value in load.parameters.items()
    }
    return Choice(load.workload, parameters)


class LaboratoryFeed(Feed):
    """Microscope and scientists as the sources of a run; it knows when everything has come out."""

    def __init__(self, run: str, topology: Topology, folder: RunFolder, load: Load, album: Path) -> None:
        super().__init__(run, topology, folder.units, load.duration_s)
        self.load = load
        self.album = album

    def launch(self, sources: Collection[str]) -> None:
        """One process makes images and queries: it carries the name of the images."""
        streams = {
            source: [str(self.folders.sources / source / unit) for unit in units]
            for source, units in generated_sources(self.topology).items()
        }
        specification = {
            "load": asdict(self.load),
            "album": str(self.album),
            "streams": streams,
            "started_s": self.started_s,
        }
        file = self.folders.root / "feeder.json"
        written(file, json.dumps(specification))
        self.children.start(
            IMAGES,
            [sys.executable, "-m", "cells.feed", str(file)],
            log=self.folders.root / "feeder.log",
            environment={**os.environ, "PYTHONPATH": _with_examples()},
        )

    def all_arrived(self) -> bool:
        """Whether a result is there for every image and every query."""
        return not self.unfinished() and count_results(self.results) >= self.records()

    def emitted(self, source: str) -> int:
        """Records of a source, once the feed has ended."""
        return int(self._told(source).get("records", 0))

    @property
    def results(self) -> Path:
        """Where results come out."""
        return self.folders.results / "results"


def _with_examples() -> str:
    return os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH")]))


@dataclass(frozen=True, slots=True)
class Moment:
    """What was read of a unit at a tick."""

    at_s: float
    """Since the feed began."""
    unit: str
    raw_cpu: float | None
    """Mean of the instances as read."""
    filtered_cpu: float | None
    """What the filter made of it, and the policy decided on."""
    memory: float | None
    instances: int
    arrived_per_s: float
    waiting: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """All there is to say about a run that ended."""

    load: Load
    topology: Topology
    folder: Path
    result: RunResult
    check: Check
    results: list[Result]
    moments: list[Moment]
    started_s: float
    """When the feed began."""
    album: Album
    interrupted: bool
    events: int
    """Decisions to scale that were carried out while images were sent, after the lead-in."""
    vm_h: float
    """Hours of hosts in the same time."""
    parts: list[Parts]
    """What the units' micro-batches took."""
    waits: list[Wait]
    """Changes of units' instances, and how long queries took around them."""


def run_laboratory(
    topology: Topology,
    load: Load,
    folder: Path,
    *,
    watch: Callable[[Run, Tick], None] | None = None,
    before: Callable[[LaboratoryFeed], None] | None = None,
    album: Path | None = None,
    drain_s: float = DRAIN_S,
) -> Outcome:
    """Run the laboratory to its end and check what came out; `watch` gets (run, tick).

    `before` is told of the feed before anything starts. `album` is a folder of pictures to use again.
    """
    pictures = make_album(album or folder / "album", load.album, load.seed, load.megapixels)
    place = RunFolder.at(folder)
    name = f"cells-{os.getpid()}"
    plan = RunPlan.of(
        topology,
        name,
        duration_s=load.duration_s,
        drain_s=drain_s,
        code=str(EXAMPLES),
        settings=SETTINGS,
    )
    feed = LaboratoryFeed(name, topology, place, load, pictures.folder)
    if before is not None:
        before(feed)
    run = Run(plan, place, feed=feed)
    moments: list[Moment] = []
    interrupted = False

    def each(tick: Tick) -> None:
        moments.extend(_moments(tick, feed.started_s))
        if watch is not None:
            watch(run, tick)

    with run:
        try:
            run.run(each)
        except KeyboardInterrupt:
            interrupted = True
        result, last = run.result(), run.status()
        results = read(feed.results)
        images = feed.emitted(IMAGES)
        begun_s = feed.started_s or time.time()
        profile, events, vm_h = told_by(run.journal, topology, load, begun_s)
        profile.write(folder / PROFILE)
    place.write_end(last, result)
    return Outcome(
        load,
        topology,
        folder,
        result,
        check(load, pictures, images, results),
        results,
        moments,
        begun_s,
        pictures,
        interrupted,
        events,
        vm_h,
        parts_of(place.units, [unit.name for unit in topology.units]),
        waits_around([Seen(m.at_s, m.unit, m.instances) for m in moments], results, begun_s),
    )


def told_by(journal: Journal, topology: Topology, load: Load, begun_s: float) -> tuple[Profile, int, float]:
    """The profile of a run, and its scaling events and the hours of its hosts after the lead-in."""
    profile = measured_profile(topology, journal, begun_s, load.duration_s)
    counted_s, ended_s = begun_s + load.lead_in_s, begun_s + load.duration_s
    return (
        profile,
        scaling_events(journal, counted_s, ended_s),
        host_time_s(journal, counted_s, ended_s) / 3600,
    )


def _moments(tick: Tick, started_s: float | None) -> list[Moment]:
    if started_s is None:
        return []
    found = []
    for signal in tick.signals:
        measured = signal.taken
        readings = [each.cpu_ratio for each in measured.readings if each.cpu_ratio is not None]
        found.append(
            Moment(
                tick.at_s - started_s,
                signal.unit,
                fmean(readings) if readings else None,
                signal.cpu_ratio,
                signal.memory_ratio,
                len(measured.readings),
                measured.arrival_rate_per_s,
                measured.waiting,
            )
        )
    return found
