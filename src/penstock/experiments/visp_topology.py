"""The factory topology of paper 000: nine operators, three sensors, one operator a unit.

Tables 1 and 2 of the paper, as a `Topology` that the experiments, the benchmarks and the tests share.
The workload counts every sensor's records together, as `penstock.workload.patterns` does: a machine
emits 5 + 1 + 10 records a tick of 480 ms, so the three sources take 5, 1 and 10 parts of sixteen.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from penstock.topology.model import (
    Choice,
    HostFlavour,
    LoopSettings,
    Operator,
    Site,
    Source,
    Topology,
    Unit,
)

SHARES_PER_CORE = 1024
"""CPU shares of one core, as Docker counts them."""

SLOTS = 5
"""Records an instance works on at once.

The paper does not say it. Its durations include the time in the message broker, so an instance has
several records in work; with five, the baseline leases about as many hosts as the paper's did. See
docs/designs/0008-leasing.md.
"""

HOST_CORES = 4.0
HOST_MEMORY_MIB = 7168
PRICE_PER_10_MIN = Decimal(1)
"""The paper's linear pricing: 1, 3 and 6 for a billing time unit of 10, 30 and 60 minutes."""

BASELINE = Choice("threshold")
STEPWISE = Choice("stepwise")


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of Table 2: an operator type as the paper measured it."""

    name: str
    inputs: tuple[str, ...]
    duration_s: float
    cpu_shares: int
    memory_mib: int
    ratio: float
    """Records emitted towards each successor for every record consumed."""


TABLE_2: tuple[TableRow, ...] = (
    # O1's outgoing ratio of 1:3 is one record towards each of its three successors.
    TableRow("parse_and_distribute", ("production",), 1.5, 660, 452, 1.0),
    TableRow("filter_availability", ("availability",), 0.6, 131, 524, 1 / 50),
    TableRow("calculate_performance", ("parse_and_distribute",), 0.75, 100, 430, 1.0),
    TableRow("calculate_availability", ("parse_and_distribute",), 0.75, 83, 502, 1.0),
    TableRow("calculate_quality", ("parse_and_distribute",), 0.75, 77, 527, 1.0),
    TableRow("monitor_temperature", ("temperature",), 0.6, 65, 440, 1 / 100),
    TableRow(
        "calculate_oee",
        ("calculate_performance", "calculate_availability", "calculate_quality"),
        0.7, 46, 464, 1 / 3,
    ),
    TableRow(
        "inform_user", ("filter_availability", "monitor_temperature", "generate_report"), 0.5, 74, 466, 0.0
    ),
    TableRow("generate_report", ("calculate_oee",), 1.3, 47, 452, 1 / 300),
)  # fmt: skip
"""Table 2, O1 to O9, with the edges of Figure 1."""

TABLE_1: dict[str, float] = {"availability": 5 / 16, "production": 1 / 16, "temperature": 10 / 16}
"""Table 1: the part of a machine's records that comes from each sensor (S1, S2, S3)."""


def visp_topology(
    *,
    btu_s: float = 3600.0,
    policy: Choice = BASELINE,
    workload: Choice = STEPWISE,
    slots: int = SLOTS,
    max_instances: int = 50,
    max_hosts: int = 100,
) -> Topology:
    """The nine operators, each a unit of its own under `policy`, at one site billed by `btu_s`."""
    operators = tuple(
        Operator(
            row.name,
            row.inputs,
            # The SLO is the mean duration (a service time that is not given has it as its mean), so about
            # half of the records keep it at best.
            slo_s=row.duration_s,
            cores=row.cpu_shares / SHARES_PER_CORE / slots,
            memory_mib=row.memory_mib,
            stateful=True,
            ratio=row.ratio,
        )
        for row in TABLE_2
    )
    units = tuple(
        Unit(row.name, (row.name,), policy=policy, max_instances=max_instances, slots=slots)
        for row in TABLE_2
    )
    price = PRICE_PER_10_MIN * Decimal(str(btu_s)) / 600
    return Topology(
        name="visp",
        sources=tuple(Source(name, workload=workload, share=share) for name, share in TABLE_1.items()),
        operators=operators,
        units=units,
        sites=(
            Site(
                "cloud",
                btu_s=btu_s,
                flavours=(HostFlavour("dockerhost", HOST_CORES, HOST_MEMORY_MIB, price),),
                max_hosts=max_hosts,
            ),
        ),
        loop=LoopSettings(monitoring_s=15.0, provisioning_s=60.0, penalty=Decimal("0.0001")),
    )
