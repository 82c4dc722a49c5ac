"""A load that jumps: in how many decisions does a policy find the right number of instances?

DS2's claim is one step, three at worst. Counted are the decisions that start instances after the jump;
instances given back later, when a lease ends and the backlog is gone, are no part of the search.
"""

from __future__ import annotations

from decimal import Decimal

from penstock.controller.journal import Journal
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import (
    Choice,
    HostFlavour,
    LoopSettings,
    Operator,
    Service,
    Site,
    Source,
    Topology,
    Unit,
)

JUMP_S = 905.0
LENGTH_S = 2400.0
RATE = Choice("rate")


def step_topology(policy: Choice = RATE, low_per_s: float = 20.0, high_per_s: float = 120.0) -> Topology:
    """Two units in a row, the second with half the records; the load jumps after a quarter of an hour."""
    # The low level lasts until the jump, the high one for the rest of the run.
    levels = (low_per_s, *[high_per_s] * 3)
    workload = Choice("stepwise", {"levels_per_s": levels, "hold_s": JUMP_S})
    return Topology(
        "step",
        (Source("records", workload=workload),),
        (
            Operator("first", ("records",), slo_s=1.0, memory_mib=256, ratio=0.5, service=Service(0.2)),
            Operator("second", ("first",), slo_s=1.0, memory_mib=256, service=Service(0.1)),
        ),
        units=tuple(Unit(name, (name,), policy=policy, max_instances=100) for name in ("first", "second")),
        sites=(Site("cloud", btu_s=600.0, flavours=(HostFlavour("standard", 4.0, 8192, Decimal(1)),)),),
        loop=LoopSettings(monitoring_s=15.0, provisioning_s=60.0),
    )


def changes_after_jump(policy: Choice = RATE, seed: int = 1) -> dict[str, int]:
    """For each unit, the decisions after the jump that started instances."""
    topology = step_topology(policy)
    with Journal("sqlite://", topology.name, buffered=True) as journal:
        simulate(topology, SimulationSettings(seed=seed), duration_s=LENGTH_S, journal=journal)
        rows = journal.rows("action")
    changed: dict[str, set[float]] = {unit.name: set() for unit in topology.units}
    for row in rows:
        started = row["kind"] == "StartInstance" and row["status"] == "enacted"
        if started and row["at_s"] >= JUMP_S:
            changed[row["unit"]].add(row["at_s"])
    return {unit: len(times) for unit, times in changed.items()}


def steps_to_converge(policy: Choice = RATE, seed: int = 1) -> int:
    """The most decisions any unit took to settle after the jump."""
    return max(changes_after_jump(policy, seed).values())
