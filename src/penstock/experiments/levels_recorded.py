"""Recorded loads: the level-aware policy beside `rate`, at equal compliance."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from penstock.controller.journal import Journal
from penstock.experiments.recordings import CLICKS, Recording
from penstock.levels.platform import INSTANCE, SLOT, default_profile
from penstock.report.figures import Figure
from penstock.simulator import SimulationSettings, simulate
from penstock.studies.benchmark import Plan, benchmark_simulated
from penstock.studies.layouts import Record
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
from penstock.workload.registry import make_workload

LENGTH_S = 6 * 3600.0
PEAK_PER_S = 320.0
"""Recorded loads are scaled to this peak: about eight slots."""
SERVICE_S = 0.025
MEMORY_BAR = 0.15


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy came to on a recorded load."""

    cost: float
    compliance: float
    memory_mib: float
    """Memory of all instances, the mean over the run."""
    processed: int


def recorded_topology(recording: Recording, path: Path, policy: Choice) -> Topology:
    """A recorded load, scaled, into one unit whose instances may have up to four slots."""
    trace = {"path": str(path), "length_s": LENGTH_S, **({} if recording is CLICKS else {"per_s": 300.0})}
    peak = make_workload(Choice("trace", trace)).curve.peak_per_s
    # What an instance and a further slot take is what the study measured on Spark.
    slot, instance = (default_profile().levels[name].memory_mib for name in (SLOT, INSTANCE))
    workload = Choice("trace", {**trace, "rate_scale": PEAK_PER_S / peak})
    return Topology(
        recording.file.partition(".")[0],
        (Source("records", workload=workload),),
        (Operator("work", ("records",), slo_s=2.0, memory_mib=instance, service=Service(SERVICE_S, 0.3)),),
        (Sink("done", ("work",)),),
        units=(Unit("work", ("work",), policy=policy, max_instances=40, max_slots=4, slot_memory_mib=slot),),
        sites=(Site("cloud", btu_s=60.0, flavours=(HostFlavour("m", 4.0, 8192, Decimal("0.01")),)),),
        loop=LoopSettings(monitoring_s=15.0, provisioning_s=30.0),
    )


def outcome(topology: Topology, length_s: float = LENGTH_S) -> Outcome:
    """Simulate a topology."""
    with Journal("sqlite://", topology.name, buffered=True) as journal:
        result = simulate(topology, SimulationSettings(), duration_s=length_s, journal=journal)
        record = Record(topology, journal)
        memory = [record.memory_mib(120.0 * k) for k in range(1, int(length_s / 120.0) + 1)]
    return Outcome(
        float(result.resource_cost),
        result.compliance.ratio("real_time"),
        sum(memory) / len(memory),
        result.units["work"].processed,
    )


def recorded_figures(recording: Recording, path: Path, out: Path) -> list[Figure]:
    """Cost, compliance and memory of both policies on one load."""
    name = recording.file
    rate = outcome(recorded_topology(recording, path, Choice("rate")))
    # Far beyond the peak: a backlog is worked off by more than the load needs.
    plan = Plan(20.0, 2.0 * PEAK_PER_S, 20.0, 300.0, least_health=0.97)
    found = benchmark_simulated(recorded_topology(recording, path, Choice("levels")), plan, lambda text: None)
    file = found.map.write(out / f"map-{name}.yaml")
    policy = Choice("levels", {"map": str(file), "spare_ratio": 0.15})
    levels = outcome(recorded_topology(recording, path, policy))
    saved = 1 - levels.memory_mib / rate.memory_mib
    equal = levels.compliance >= rate.compliance - 0.005
    return [
        Figure(
            f"{name}: compliance, levels",
            levels.compliance,
            f"that of rate ({rate.compliance:.4f})",
            holds=equal,
        ),
        Figure(
            f"{name}: cost, levels", levels.cost, f"<= {rate.cost:.4g} (rate)", holds=levels.cost <= rate.cost
        ),
        Figure(
            f"{name}: memory saved for the same records",
            saved,
            f">= {MEMORY_BAR:.0%}",
            holds=saved >= MEMORY_BAR,
        ),
    ]
