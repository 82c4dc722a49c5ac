"""The runs of paper 000's evaluation: every cell of its grid simulated with every seed.

The walks are the published ones where they are at hand, else drawn by the paper's Eq. (6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from penstock.controller.journal import Journal
from penstock.experiments.clairvoyant import clairvoyant_cost
from penstock.experiments.recordings import WALK_1, WALK_2, Recording, Recordings
from penstock.experiments.visp_topology import visp_topology
from penstock.monitoring.sla import LEVELS
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import Choice
from penstock.workload.patterns import MACHINE_PER_S

DURATION_S = 7200.0
BTUS_MIN = (10, 30, 60)
POLICIES = ("btu", "threshold")
PROCESSES = 2
WALKS = {WALK_1: 1, WALK_2: 2}
"""The published walks, each with the seed of Eq. (6) that stands in for it where it is not at hand."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the grid: a pattern under a policy, billed by a unit of so many minutes."""

    pattern: str
    policy: str
    btu_min: int


@dataclass(frozen=True, slots=True)
class Series:
    """One run over time, for the plots: minutes, machines, instances of all units, hosts."""

    minutes: tuple[float, ...]
    machines: tuple[float, ...]
    instances: tuple[int, ...]
    hosts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run came to."""

    seed: int
    records: int
    compliance: Mapping[str, float]
    resource_cost: float
    total_cost: Mapping[str, float]
    counts: Mapping[str, float]
    series: Series | None = None


def patterns(recordings: Recordings) -> dict[str, Choice]:
    """The paper's four arrival patterns; the walks as published where they are at hand, else drawn."""
    found = {"stepwise": Choice("stepwise"), "two_level": Choice("two_level")}
    for number, (recording, seed) in enumerate(WALKS.items(), 1):
        path = recordings.find(recording)
        if path is None:
            found[f"random_walk_{number}"] = Choice("random_walk", {"seed": seed})
        else:
            # One published level is two machines; the walk changes once a minute.
            parameters = {"path": str(path), "time_unit_s": 60.0, "rate_scale": 2 * MACHINE_PER_S}
            found[f"random_walk_{number}"] = Choice("trace", parameters)
    return found


def drawn_walks(recordings: Recordings) -> dict[Recording, str]:
    """The published walks that are absent, each with what stands in for it."""
    return {
        recording: f"drawn by Eq. (6) with seed {seed} instead"
        for recording, seed in WALKS.items()
        if recordings.find(recording) is None
    }


def outcomes_of(
    seeds: int,
    progress: Callable[[str], None],
    recordings: Recordings,
    only: Sequence[str] | None = None,
) -> dict[Cell, list[Outcome]]:
    """Every cell run with every seed, on two cores; `only` restricts it to some patterns."""
    chosen = {name: choice for name, choice in patterns(recordings).items() if only is None or name in only}
    tasks = [
        (Cell(pattern, policy, btu_min), workload, seed)
        for pattern, workload in chosen.items()
        for btu_min in BTUS_MIN
        for policy in POLICIES
        for seed in range(1, seeds + 1)
    ]
    found: dict[Cell, list[Outcome]] = {}
    with ProcessPoolExecutor(PROCESSES) as pool:
        for number, (cell, outcome) in enumerate(pool.map(_run_one, tasks, chunksize=3), 1):
            found.setdefault(cell, []).append(outcome)
            progress(f"{number} of {len(tasks)} runs: {cell.pattern}, {cell.policy}, BTU{cell.btu_min}")
    return found


def _run_one(task: tuple[Cell, Choice, int]) -> tuple[Cell, Outcome]:
    cell, workload, seed = task
    topology = visp_topology(btu_s=cell.btu_min * 60.0, policy=Choice(cell.policy), workload=workload)
    with Journal("sqlite://", topology.name, buffered=True) as journal:
        result = simulate(topology, SimulationSettings(seed=seed), duration_s=DURATION_S, journal=journal)
        series = _series(journal) if seed == 1 else None
    compliance = result.compliance
    actions = result.actions
    return cell, Outcome(
        seed,
        compliance.records,
        {level: compliance.ratio(level) for level in LEVELS},
        float(result.resource_cost),
        {level: float(result.total_cost(level)) for level in LEVELS},
        {
            "hosts leased": result.leases,
            "leases prolonged": result.prolonged_units,
            "hosts released early": result.early_releases,
            "upscalings": actions.get("StartInstance", 0),
            "downscalings": actions.get("StopInstance", 0),
            "migrations": actions.get("MigrateInstance", 0),
            "time to adapt (s)": result.time_to_adapt_s or 0.0,
        },
        series,
    )


def _series(journal: Journal) -> Series:
    arrived: dict[float, float] = {}
    instances: dict[float, int] = {}
    for row in journal.rows("observation"):
        at_s = row["at_s"]
        instances[at_s] = instances.get(at_s, 0) + (row["instances"] or 0)
        # The three units behind the sensors take 16 records of a machine and tick together.
        if row["unit"] in ("parse_and_distribute", "filter_availability", "monitor_temperature"):
            arrived[at_s] = arrived.get(at_s, 0.0) + row["arrived"] / row["interval_s"] / MACHINE_PER_S
    hosts = {row["at_s"]: row["hosts"] for row in journal.rows("tick")}
    times = sorted(instances)
    return Series(
        tuple(at_s / 60 for at_s in times),
        tuple(arrived.get(at_s, 0.0) for at_s in times),
        tuple(instances[at_s] for at_s in times),
        tuple(hosts.get(at_s, 0) for at_s in times),
    )


def clairvoyant_bounds(recordings: Recordings) -> dict[tuple[str, int], float]:
    """The clairvoyant cost of every pattern and billing time unit."""
    return {
        (pattern, btu_min): float(
            clairvoyant_cost(visp_topology(btu_s=btu_min * 60.0, workload=workload), DURATION_S)
        )
        for pattern, workload in patterns(recordings).items()
        for btu_min in BTUS_MIN
    }
