"""Paper 002's detection of denial-of-service attacks as a simulated topology, a tenth of its loads.

A parser's slot takes 4,500 packets a second (here: 450); hosts have two cores for it and one for the
analyser. A tenth of the packets, each ten times as long, fills the same slots in the same way and is
simulated in a tenth of the time; loads are shown in the paper's size.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

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

SCALE = 10
"""Packets that one simulated record stands for."""
STEP_PER_S, PEAK_PER_S = 2000.0, 16000.0
HOST_START_S = (50.0, 70.0)
"""Paper 002, section 5.3: a virtual machine takes about a minute."""
DAY = (
    5000, 4200, 3800, 3600, 3800, 4600, 6400, 9000, 12200, 14200, 15200, 15600,
    15000, 14400, 14800, 15400, 15800, 15200, 13400, 11600, 10000, 8600, 7000, 5800,
)  # fmt: skip
"""A working day by hour in the shape of Figure 8, packets a second."""
HOUR_S = 300.0
"""Section 5.3: each hour's mean is held for five minutes."""


def detection(policy: Choice, workload: Choice | None = None) -> Topology:
    """The topology under a policy; with a constant load where no workload is given."""
    start = {"host_start_least_s": HOST_START_S[0], "host_start_most_s": HOST_START_S[1]}
    return Topology(
        "detection",
        (Source("packets", workload=workload or Choice("constant", {"level_per_s": 100.0})),),
        (
            Operator(
                "parse", ("packets",), slo_s=2.0, memory_mib=1024, ratio=0.02, stateful=True,
                service=Service(0.0022, 0.3),
            ),
            Operator("analyse", ("parse",), slo_s=2.0, memory_mib=768, service=Service(0.003, 0.3)),
        ),
        (Sink("alerts", ("analyse",)),),
        units=(
            Unit(
                "parser", ("parse",), policy=policy, max_instances=8, max_slots=2, slot_memory_mib=64
            ),
            Unit("analyser", ("analyse",), policy=policy, max_instances=4),
        ),
        sites=(
            Site(
                "cloud", Choice("simulated", start), 60.0,
                (HostFlavour("m1.medium", 3.0, 6144, Decimal("0.001")),), 8,
            ),
        ),
        loop=LoopSettings(monitoring_s=10.0, provisioning_s=30.0),
    )  # fmt: skip


def pyramid(hold_s: float) -> tuple[tuple[float, ...], float]:
    """The loads of Figure 9, up and down again, and how long all of them take."""
    steps = int(PEAK_PER_S / STEP_PER_S)
    up = [k * STEP_PER_S for k in range(1, steps + 1)]
    loads = (*up, *up[-2::-1])
    return loads, hold_s * len(loads)


def stairs(loads: tuple[float, ...], hold_s: float) -> Choice:
    """A workload of these loads, scaled, one after the other."""
    return Choice("stepwise", {"levels_per_s": [load / SCALE for load in loads], "hold_s": hold_s})


def one_host_a_slot(topology: Topology) -> Topology:
    """The same topology where a host is the only level: what is too much for one host's slot means a host."""
    return replace(
        topology, units=tuple(replace(unit, max_slots=None, slot_memory_mib=0) for unit in topology.units)
    )
