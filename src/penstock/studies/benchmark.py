"""Application benchmarking (paper 002, Algorithms 1 and 2): which configuration each load needs.

The load is raised step by step; in each step policy `levels` without a map scales out the congested unit
nearest to the sources, at the cheapest level, on the least loaded host or on a new one, until all is well.
What stands at the end of a step is the configuration of its load. It is the same run on the simulator and on
Spark; the map is read from its journal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.controller.journal import Journal
from penstock.controller.status import Status
from penstock.errors import ConfigurationError
from penstock.levels.configuration import Configuration, ConfigurationMap
from penstock.monitoring.health import CONGESTED
from penstock.runs.folder import RunFolder
from penstock.runs.service import run_topology
from penstock.simulator import SimulationSettings, simulate
from penstock.studies.layouts import Record, Span
from penstock.topology.model import Choice, Topology

MOST_STEPS = 200
JUDGED = 1 / 3
"""The last part of a step, in which its health is read: by then what it needed has come."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How a topology is benchmarked."""

    first_per_s: float
    last_per_s: float
    step_per_s: float
    hold_s: float
    """How long each load is held."""
    least_health: float = CONGESTED

    @property
    def loads(self) -> tuple[float, ...]:
        """The loads in order."""
        if self.step_per_s <= 0 or not 0 < self.first_per_s <= self.last_per_s:
            raise ConfigurationError(
                f"expected loads above 0 that rise, got {self.first_per_s:g} to {self.last_per_s:g} by "
                f"{self.step_per_s:g} records a second"
            )
        steps = (self.last_per_s - self.first_per_s) / self.step_per_s + 1e-9
        if not steps < MOST_STEPS:
            raise ConfigurationError(
                f"expected at most {MOST_STEPS} steps, got {steps:.4g}: take larger ones"
            )
        return tuple(self.first_per_s + k * self.step_per_s for k in range(math.floor(steps) + 1))

    @property
    def length_s(self) -> float:
        """How long it takes to hold all loads."""
        return self.hold_s * len(self.loads)


@dataclass(frozen=True, slots=True)
class Benchmarked:
    """A configuration map and the steps it was found by."""

    map: ConfigurationMap
    steps: tuple[Span, ...]


def staircase(topology: Topology, plan: Plan, policy: Choice) -> Topology:
    """The topology with the loads one after the other, spread over its sources, under a policy."""
    shares = sum(source.share for source in topology.sources)
    levels = [load / shares for load in plan.loads]
    workload = Choice("stepwise", {"levels_per_s": levels, "hold_s": plan.hold_s})
    return replace(
        topology,
        sources=tuple(replace(source, workload=workload) for source in topology.sources),
        units=tuple(replace(unit, policy=policy) for unit in topology.units),
    )


def benchmark_simulated(topology: Topology, plan: Plan, say: Say, *, seed: int = 1) -> Benchmarked:
    """Benchmark a topology on the simulator."""
    stairs = staircase(topology, plan, _reactive(plan))
    with Journal("sqlite://", topology.name, buffered=True) as journal:
        simulate(
            stairs,
            SimulationSettings(seed=seed),
            duration_s=plan.length_s,
            journal=journal,
            each=lambda tick: say(_progress(plan, tick.at_s)),
        )
        return found_in(Record(stairs, journal), plan, 0.0, "simulated")


def benchmark_spark(
    topology: Topology, plan: Plan, say: Say, folder: Path, code: Path | None = None
) -> Benchmarked:
    """Benchmark a topology on Spark, on a local cluster or where its sites say; all of it is in `folder`."""
    stairs = staircase(topology, plan, _reactive(plan))
    began: list[float] = []

    def watch(status: Status) -> None:
        if status.since_s is None:
            say("starting the cluster and the units")
        else:
            began[:] = [status.since_s]
            say(_progress(plan, status.at_s - status.since_s))

    run_topology(stairs, folder, duration_s=plan.length_s, code=code, drain_s=5.0, watch=watch)
    if not began:
        raise ConfigurationError(f"the run in {folder} ended before its sources began")
    place = RunFolder(folder)
    with place.opened() as journal:
        return found_in(Record(stairs, journal), plan, began[0], "spark")


def found_in(record: Record, plan: Plan, start_s: float, ground: str) -> Benchmarked:
    """The configuration map that a run's record comes to."""
    steps: list[Span] = []
    found: list[Configuration] = []
    ended = ""
    for number, load in enumerate(plan.loads):
        end_s = start_s + (number + 1) * plan.hold_s
        step = record.span(end_s - JUDGED * plan.hold_s, end_s)
        steps.append(step)
        if step.load_per_s < plan.least_health * load:
            ended = f"the sources sent {step.load_per_s:.4g}/s of {load:.4g}/s: it is they who are congested"
            break
        if step.least_health < plan.least_health:
            slow = min((value, unit) for unit, value in step.health.items() if value is not None)
            held_s = f"{plan.hold_s:.0f} s after that began"
            ended = f"unit {slow[1]} has a health of {slow[0]:.2f} at {load:.4g}/s, {held_s}"
            break
        if found and found[-1].hosts == step.hosts:
            found[-1] = replace(found[-1], to_per_s=load)
        else:
            found.append(Configuration(found[-1].to_per_s if found else 0.0, load, step.hosts))
    if not found:
        raise ConfigurationError(f"no configuration carries even the first load: {ended}")
    name = record.topology.name
    return Benchmarked(ConfigurationMap(name, plan.least_health, tuple(found), ground, ended), tuple(steps))


def held(
    topology: Topology, configuration: Configuration, load_per_s: float, hold_s: float, file: Path
) -> Span:
    """A configuration under a constant load on the simulator: what its units' health is, once it stands."""
    one = ConfigurationMap(topology.name, CONGESTED, (replace(configuration, to_per_s=1e12),))
    one.write(file)
    plan = Plan(load_per_s, load_per_s, load_per_s, hold_s)
    policy = Choice("levels", {"map": str(file), "keep_paid": False})
    fixed = staircase(topology, plan, policy)
    with Journal("sqlite://", topology.name, buffered=True) as journal:
        simulate(fixed, SimulationSettings(), duration_s=hold_s, journal=journal)
        return Record(fixed, journal).span(hold_s * (1 - JUDGED), hold_s)


def _reactive(plan: Plan) -> Choice:
    return Choice("levels", {"least_health": plan.least_health})


def _progress(plan: Plan, at_s: float) -> str:
    number = min(len(plan.loads), max(1, math.ceil(at_s / plan.hold_s)))
    return f"{number} of {len(plan.loads)} loads: {plan.loads[number - 1]:.4g}/s"


def rows_of(found: Benchmarked, units: Sequence[str]) -> list[list[str]]:
    """The map as a table: load, hosts, what stands on each, instances and slots in all."""
    return [
        [
            f"{c.from_per_s:,.6g} – {c.to_per_s:,.6g}",
            str(len(c.hosts)),
            str(sum(c.instances(unit) for unit in units)),
            str(sum(c.slots(unit) for unit in units)),
            c.described(),
        ]
        for c in found.map.configurations
    ]
