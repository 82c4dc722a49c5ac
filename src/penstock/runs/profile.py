"""Profiles: what a real run measured, as numbers the simulator can use.

On Spark a record waits for its micro-batch and leaves with it: it takes long, although it costs little. One
number cannot say both, so a profile has two for each unit: the time a slot works on a record (`service_s`,
from which capacity follows) and the time a record takes where nothing waits (`duration_s`). The simulated
twin gives each slot as many places as make both right: places = duration / service. Starting times of hosts
and instances are measured too, when the sources began, and what readings of instances look like.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from penstock.controller.journal import Journal
from penstock.controller.result import RunResult
from penstock.errors import ConfigurationError
from penstock.runs.folder import RunFolder
from penstock.runs.sources import Feed
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import Choice, Service, Site, Topology
from penstock.workload.registry import make_workload

PROFILE = "profile.json"
MOST_PLACES = 16_384
"""Places a slot is given at most; fewer than duration / service make a record shorter than it was."""
TINY_S = 1e-6
"""Service time of operators whose work is booked at the one before them."""
LEAST_READINGS = 30
"""Fewer readings than this tell nothing of their noise."""
LEAST_SPREAD = 0.02
"""Standard deviation of CPU from which on memory's dependence on it can be told."""
LEAST_RECORDS = 5
"""A unit that finished fewer records than this in a run has no profile."""


@dataclass(frozen=True, slots=True)
class UnitProfile:
    """What was measured of one unit."""

    records: int
    service_s: float
    """Mean time a slot worked on one record."""
    duration_s: float
    """Mean processing duration of records while (almost) nothing waited."""
    duration_cv: float
    """Coefficient of variation of those durations."""

    @property
    def places(self) -> int:
        """Records one slot has in hand at once in the simulated twin."""
        return max(1, min(MOST_PLACES, round(self.duration_s / max(self.service_s, TINY_S))))


@dataclass(frozen=True, slots=True)
class Sensors:
    """What readings of the instances that scale look like: policies decide on them, filters calm them."""

    cpu_noise: float
    """Standard deviation of an instance's CPU reading beside the load."""
    memory_noise: float
    memory_idle_ratio: float
    """Memory of an instance that does nothing."""
    memory_load_ratio: float
    """Memory added at full load."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured of a run."""

    topology: str
    units: Mapping[str, UnitProfile]
    host_start_s: float
    """From a lease until the host was up, of hosts leased while the sources sent where there were any."""
    instance_start_s: float
    """From the request of an instance until it ran, its host being up; of the same time."""
    feed_start_s: float
    """From the first tick until the sources began; a run is charged for its hosts from the first tick on."""
    duration_s: float
    """From the first tick to the last."""
    feed_s: float | None = None
    """How long the sources sent; None means for one round of their load."""
    sensors: Sensors | None = None
    """What readings of instances look like; None where it was not measured."""

    def write(self, file: Path) -> None:
        """Write the profile as JSON."""
        file.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @staticmethod
    def read(file: Path) -> Profile:
        """Read a profile; ConfigurationError where the file is not one."""
        try:
            given = json.loads(file.read_text())
            units = {name: UnitProfile(**unit) for name, unit in given.pop("units").items()}
            sensors = given.pop("sensors", None)
            return Profile(units=units, sensors=None if sensors is None else Sensors(**sensors), **given)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"expected a profile made by `penstock profile` in {file}: {error}"
            ) from error


def profile_of(folder: RunFolder) -> tuple[Topology, Profile]:
    """The topology and the profile of the run in a folder; ConfigurationError where there is none."""
    plan = folder.plan()
    if plan.journal is None and not folder.journal.exists():
        raise ConfigurationError(f"expected the folder of a run on Spark, but {folder.root} has no journal")
    topology = plan.read_topology()
    feed = Feed(plan.name, topology, folder.units)
    with folder.opened() as journal:
        return topology, measured_profile(topology, journal, feed.started_s, plan.duration_s)


def measured_profile(
    topology: Topology, journal: Journal, feed_started_s: float | None = None, feed_s: float | None = None
) -> Profile:
    """The profile of the run a journal tells of."""
    ticks = journal.rows("tick")
    rows = journal.rows("observation")
    if not ticks:
        raise ConfigurationError("expected the journal of a run, got one without a single tick")
    first_s, last_s = ticks[0]["at_s"], ticks[-1]["at_s"]
    units = {}
    for unit in topology.units:
        own = [row for row in rows if row["unit"] == unit.name and row["processed"]]
        found = _unit_profile(own)
        if found is not None:
            units[unit.name] = found
    up_s = next((t["at_s"] for t in ticks if t["hosts"] and t["hosts_up"] >= t["hosts"]), first_s)
    running_s = [
        next((r["at_s"] for r in rows if r["unit"] == unit.name and r["running"]), last_s)
        for unit in topology.units
    ]
    begin_s = feed_started_s if feed_started_s is not None else max(running_s, default=first_s)
    hosts_s, instances_s = _starts(journal.rows("life"), begin_s)
    return Profile(
        topology.name,
        units,
        host_start_s=median(hosts_s) if hosts_s else up_s - first_s,
        instance_start_s=median(instances_s)
        if instances_s
        else max(0.0, min(running_s, default=up_s) - up_s),
        feed_start_s=max(0.0, begin_s - first_s),
        duration_s=last_s - first_s,
        feed_s=feed_s,
        sensors=_sensors(topology, rows),
    )


def _starts(lives: Sequence[Mapping[str, Any]], since_s: float) -> tuple[list[float], list[float]]:
    """How long hosts and instances took that were asked for while the sources sent.

    What a run begins with takes longer: a cluster and a driver start before it, and nothing is there yet.
    """
    up_s: dict[str, float] = {}
    hosts: dict[str, float] = {}
    instances: dict[str, float] = {}
    for life in lives:
        told = json.loads(life["payload"]) if isinstance(life["payload"], str) else life["payload"]
        asked_s = told.get("requested_s")
        if life["what"] == "host" and told.get("up_s") is not None:
            up_s[life["name"]] = told["up_s"]
            if asked_s is not None and asked_s >= since_s:
                hosts[life["name"]] = max(0.0, told["up_s"] - asked_s)
        if life["what"] == "instance" and told.get("running_s") is not None and asked_s is not None:
            ready_s = max(asked_s, up_s.get(told.get("host"), asked_s))
            if asked_s >= since_s:
                instances[life["name"]] = max(0.0, told["running_s"] - ready_s)
    return list(hosts.values()), list(instances.values())


def _sensors(topology: Topology, rows: Sequence[Mapping[str, Any]]) -> Sensors | None:
    """What the raw readings of the units that scale look like; None where too few were read.

    From one reading to the next the load hardly changes, so what they differ by is noise. A unit's reading is
    a mean over its instances, which has that much less of it.
    """
    scaled = [unit.name for unit in topology.units if unit.policy.name != "fixed"]
    cpu_jumps, memory_jumps, read = [], [], []
    for name in scaled or [unit.name for unit in topology.units]:
        own = [
            (row["running"], cpu, memory)
            for row in rows
            if row["unit"] == name and row["running"] and row["instances"] == row["running"]
            if (cpu := _raw(row, "cpu")) is not None and (memory := _raw(row, "memory")) is not None
        ]
        read += [each[1:] for each in own]
        for before, after in pairwise(own):
            if before[0] == after[0]:
                scale = math.sqrt(after[0] / 2)
                cpu_jumps.append(abs(after[1] - before[1]) * scale)
                memory_jumps.append(abs(after[2] - before[2]) * scale)
    if len(cpu_jumps) < LEAST_READINGS:
        return None
    cpus, memories = np.array(read).T
    # Where the load was one and the same, no slope can be told.
    slope = float(np.cov(cpus, memories)[0, 1] / cpus.var(ddof=1)) if cpus.std() > LEAST_SPREAD else 0.0
    slope = max(0.0, slope)
    # The median of a normal deviation's size is 0.6745 of its standard deviation; steps of the load are rare.
    cpu_noise, memory_noise = (float(np.median(jumps)) / 0.6745 for jumps in (cpu_jumps, memory_jumps))
    idle = max(0.0, float(memories.mean() - slope * cpus.mean()))
    return Sensors(cpu_noise, memory_noise, idle, slope)


def _raw(row: Mapping[str, Any], what: str) -> float | None:
    """A reading as it was read, before its filter."""
    read: float | None = row[f"{what}_read_ratio"]
    return row[f"{what}_ratio"] if read is None else read


def _unit_profile(rows: Sequence[Mapping[str, Any]]) -> UnitProfile | None:
    timed = [row for row in rows if row["duration_s"] is not None and row["service_s"] is not None]
    records = sum(row["processed"] for row in timed)
    if records < LEAST_RECORDS:
        return None
    service_s = sum(row["service_s"] * row["processed"] for row in timed) / records
    # Where less waits than came in during an interval, a duration is the unit's own and not the queue's.
    idle = [row for row in timed if row["waiting"] <= max(row["arrived"] or 0, 1)] or timed
    weight = sum(row["processed"] for row in idle)
    mean_s = sum(row["duration_s"] * row["processed"] for row in idle) / weight
    variance = sum((row["duration_s"] - mean_s) ** 2 * row["processed"] for row in idle) / weight
    within = [
        ((row["duration_p95_s"] - row["duration_s"]) / 1.645) ** 2
        for row in idle
        if row["duration_p95_s"] is not None
    ]
    variance += sum(within) / len(within) if within else 0.0
    return UnitProfile(records, service_s, mean_s, min(2.0, math.sqrt(variance) / mean_s) if mean_s else 0.0)


def profiled(topology: Topology, profile: Profile) -> Topology:
    """The topology for the simulator, with what was measured in place of what was assumed."""
    operators = {operator.name: operator for operator in topology.operators}
    units = []
    for unit in topology.units:
        found = profile.units.get(unit.name)
        if found is None:
            units.append(unit)
            continue
        units.append(replace(unit, places=found.places))
        for name in unit.operators:
            enters = any(topology.unit_of.get(i) != unit.name for i in operators[name].inputs)
            # The unit's whole work stands at the operators records enter it by.
            work = Service(found.service_s, found.duration_cv) if enters else Service(TINY_S, 0.0)
            operators[name] = replace(operators[name], service=work)
    sites = tuple(_profiled_site(site, profile) for site in topology.sites)
    return replace(topology, operators=tuple(operators.values()), units=tuple(units), sites=sites)


def _profiled_site(site: Site, profile: Profile) -> Site:
    provider = Choice(
        "simulated",
        {
            "host_start_least_s": profile.host_start_s,
            "host_start_most_s": profile.host_start_s,
            "instance_start_least_s": profile.instance_start_s,
            "instance_start_most_s": profile.instance_start_s,
            "image_pull_s": 0.0,
        },
    )
    return replace(site, provider=provider)


def with_delay(
    topology: Topology, delay_s: float, duration_s: float, feed_s: float | None = None
) -> Topology:
    """The topology with every load starting later, and over when the sources stopped, as in a real run.

    Where that is not known it is over after one round.
    """

    def delayed(workload: Choice | None) -> Choice | None:
        if workload is None:
            return None
        curve = make_workload(workload).curve
        length_s = curve.length_s if feed_s is None else feed_s
        edges_s = np.arange(math.ceil(max(duration_s, delay_s + min(length_s, duration_s))) + 2.0)
        came = curve.records(np.clip(edges_s - delay_s, 0.0, length_s))
        return Choice("stepwise", {"levels_per_s": tuple(np.diff(came).tolist()), "hold_s": 1.0})

    sources = tuple(replace(source, workload=delayed(source.workload)) for source in topology.sources)
    return replace(topology, sources=sources)


def simulated_twin(
    topology: Topology,
    profile: Profile,
    seed: int = 1,
    journal: Journal | None = None,
    bound_s: float | None = None,
) -> RunResult:
    """The run a profile was measured in, simulated: the same load, policy and length.

    `journal` is written to where it is given; `bound_s` is as for `simulate`.
    """
    twin = with_delay(profiled(topology, profile), profile.feed_start_s, profile.duration_s, profile.feed_s)
    # A place takes a record's whole duration, which varies with its wait. The work in it does not, and a
    # policy reckons with the work: one that saw it vary rescaled more often than the run did.
    settings = SimulationSettings(seed=seed, steady_service=True)
    if (read := profile.sensors) is not None:
        settings = replace(
            settings,
            reading_noise=read.cpu_noise,
            memory_noise=read.memory_noise,
            memory_idle_ratio=read.memory_idle_ratio,
            memory_load_ratio=read.memory_load_ratio,
        )
    return simulate(
        twin, settings, duration_s=profile.duration_s, journal=journal or "sqlite://", bound_s=bound_s
    )


def deviations(real: RunResult, simulated: RunResult) -> list[tuple[str, float, float, float | None]]:
    """(figure, real, simulated, deviation as a ratio of the real one or None where that is 0)."""
    figures = {
        "resource cost": (float(real.resource_cost), float(simulated.resource_cost)),
        "host-minutes": (real.host_s / 60, simulated.host_s / 60),
        "compliance, real-time": (
            real.compliance.ratio("real_time"),
            simulated.compliance.ratio("real_time"),
        ),
        "compliance, relaxed": (real.compliance.ratio("relaxed"), simulated.compliance.ratio("relaxed")),
        "rescales": (float(real.rescales), float(simulated.rescales)),
    }
    return [(name, a, b, (b / a - 1) if a else None) for name, (a, b) in figures.items()]
