"""Runs of paper 001's testbed: one configuration, all its seeds side by side, through the one control loop.

A scaling event is one decision that was carried out, however many instances it started or stopped: only so
do the paper's Tables 3 to 5 add up (28.5 events on Square move some 160 instances).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from penstock.clock import VirtualClock
from penstock.controller.journal import Journal, Restored, TickRecord
from penstock.controller.loop import Controller, Tick
from penstock.experiments.kalman_model import RunResult, Testbed, TestbedCluster, topology_of
from penstock.policies.actions import StartInstance, StopInstance
from penstock.topology.model import Choice
from penstock.workload.curve import RateCurve
from penstock.workload.model import Pattern, Workload
from penstock.workload.patterns import Pyramid, Square


@dataclass(frozen=True)
class LabLike(Pattern):
    """A bursty trace of ours in place of the paper's Lab trace, which was not published.

    A slow swell between 15 and 45 images/s, with bursts that rise within 5 s and fade within one to two
    minutes: both the rapid and the smooth changes the paper speaks of. It does not claim to be their data.
    """

    name: ClassVar[str] = "lab_like"
    seed: int = 1
    """Where the bursts are."""
    bursts: int = 12
    length_s: float = 2700.0

    def shape(self) -> RateCurve:
        """Straight lines between instants 5 s apart."""
        random = np.random.default_rng(self.seed)
        edges = np.arange(0.0, self.length_s + 5.0, 5.0)
        rate = 30.0 - 15.0 * np.cos(2 * np.pi * edges / 1350.0)
        for _ in range(self.bursts):
            age_s = edges - random.uniform(60.0, self.length_s - 120.0)
            height, fade_s = random.uniform(10.0, 30.0), random.uniform(30.0, 60.0)
            rate += np.where(age_s >= 0, height * np.exp(-np.maximum(age_s, 0.0) / fade_s), 0.0)
        rate = np.minimum(rate, 75.0)
        return RateCurve(edges, rate[:-1], rate[1:], repeats=True)


WORKLOADS: Mapping[str, Workload] = {"Pyramid": Pyramid(), "Square": Square(), "Lab": LabLike()}


@dataclass(frozen=True)
class Configuration:
    """One cell of the evaluation: a workload, a filter and a policy."""

    workload: str
    filter: Choice
    policy: Choice
    rules: str = ""
    """Which set of rules it belongs to."""
    initial: int = 1


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What one seed of a configuration came to."""

    run: RunResult
    events: int
    """Scaling decisions carried out."""
    moved: int
    """Instances started and stopped by them."""
    resets: int
    """Filters of single instances that had diverged and were reset."""


@dataclass(slots=True)
class Trail:
    """What the first seed did over time, for the figures."""

    at_s: list[float] = field(default_factory=list)
    instances: list[int] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    estimated: list[float] = field(default_factory=list)
    demand: list[float] = field(default_factory=list)
    """The work that arrives over what the running instances can do."""


class Record(Journal):
    """A journal in memory that keeps the notices alone: 180 runs at 2 Hz would be two million rows."""

    def __init__(self) -> None:
        self.run = "experiment"
        self.notices: list[tuple[float, str]] = []

    def record(self, tick: TickRecord) -> None:
        """Keep the tick's notices."""
        self.notices.extend((tick.at_s, text) for text in tick.notices)

    def confirm(self, at_s: float, failed: Mapping[str, str]) -> None:
        """This testbed refuses nothing; a failure would be a defect of the experiment."""
        if failed:
            raise AssertionError(f"the testbed refused {failed} at {at_s:g} s")

    def restore(self, window: int) -> Restored | None:
        """Every run is new."""
        return None


def run_configuration(
    configuration: Configuration, seeds: int, testbed: Testbed | None = None, first_seed: int = 0
) -> tuple[list[SeedResult], Trail]:
    """Run all seeds of a configuration side by side; results by seed and the first seed's trail."""
    bed = testbed or Testbed()
    workload = WORKLOADS[configuration.workload]
    units = [f"seed{seed:02d}" for seed in range(first_seed, first_seed + seeds)]
    cluster = TestbedCluster({u: (workload, first_seed + row) for row, u in enumerate(units)}, bed)
    topology = topology_of(units, configuration.policy, configuration.filter, bed, configuration.initial)
    journal = Record()
    controller = Controller(topology, cluster, VirtualClock(), journal)
    events = dict.fromkeys(units, 0)
    moved = dict.fromkeys(units, 0)
    trail = Trail()

    def each(tick: Tick) -> None:
        scaled = [
            verdict.action.unit
            for verdict in tick.verdicts
            if verdict.refused is None
            and verdict.policy != "controller"
            and isinstance(verdict.action, StartInstance | StopInstance)
        ]
        for unit in scaled:
            moved[unit] += 1
        for unit in set(scaled):
            events[unit] += 1
        if tick.signals:
            signal = tick.signals[0]
            readings = signal.measurement.readings
            rate = float(workload.rate_per_s(np.array([tick.at_s - bed.reading_s / 2]))[0])
            trail.at_s.append(tick.at_s)
            trail.instances.append(len(tick.deployment.of_unit(units[0])))
            trail.read.append(sum(r.cpu_ratio or 0.0 for r in readings) / max(len(readings), 1))
            trail.estimated.append(np.nan if signal.cpu_ratio is None else signal.cpu_ratio)
            trail.demand.append(rate * bed.image_s / max(len(readings), 1))

    controller.run(bed.duration_s, each)
    resets = dict.fromkeys(units, 0)
    for _, text in journal.notices:
        for unit in units:
            if text.startswith(f"instance {unit}-"):
                resets[unit] += 1
    return (
        [SeedResult(cluster.result(unit), events[unit], moved[unit], resets[unit]) for unit in units],
        trail,
    )
