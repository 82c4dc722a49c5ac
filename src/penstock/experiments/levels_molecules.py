"""Paper 002, Figure 11: the instances that the analysis of a molecular dynamics run needs, by its load.

What one source sends and what a slot of each unit takes is measured on Spark, by
`examples/molecules/measure.py`. From there the same benchmark as for Table 1 goes on on the simulator, where
there are as many hosts as it needs. A simulated record stands for many blocks of atoms, each as much longer.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import resources
from pathlib import Path

from penstock.errors import ClusterError, ConfigurationError
from penstock.experiments.levels_topology import HOST_START_S
from penstock.experiments.recordings import CHECKOUT
from penstock.levels.files import read_yaml
from penstock.monitoring.health import CONGESTED
from penstock.report.figures import Figure
from penstock.studies.benchmark import Plan, benchmark_simulated
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

ATOMS = 32_000
"""The paper's default problem; 32 million atoms are 1,000 times as many."""
RATES = (10.0, 100.0, 250.0, 500.0, 1000.0)
"""Iterations a second."""
SMALL_RATES = (1.0, 5.0, 10.0, 20.0, 50.0)
"""Iterations a second for which it is told what the slots that were measured carry."""
PAPER = {10.0: (1, 1, 1), 500.0: (2, None, None), 1000.0: (4, 12, 24)}
"""Iterations a second to sources, histogram and distance instances, where the paper tells them."""
UNITS = ("histogram", "distance")
A_SLOT_S = 120.0
"""How long the benchmark gets for each slot it will need."""
MEASURE = CHECKOUT / "examples" / "molecules" / "measure.py"


@dataclass(frozen=True, slots=True)
class SizeMeasured:
    """What was measured on Spark with one number of atoms, in blocks a second."""

    atoms: int
    by: str
    """Who ran the atoms."""
    source_per_s: float
    """Sent by one source."""
    histogram_per_s: tuple[float, ...]
    """Taken by one slot, and by two."""
    distance_per_s: tuple[float, ...]

    def taken(self, unit: str) -> tuple[float, ...]:
        """What a unit takes in one slot, and in two."""
        return self.histogram_per_s if unit == "histogram" else self.distance_per_s


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured on Spark."""

    block_atoms: int
    """Atoms of a block, which is a record."""
    sizes: tuple[SizeMeasured, ...]

    def at(self, atoms: int) -> SizeMeasured:
        """The measurement with the nearest number of atoms."""
        return min(self.sizes, key=lambda size: abs(math.log(size.atoms / atoms)))


@dataclass(frozen=True, slots=True)
class Needed:
    """What a rate needs."""

    iterations_per_s: float
    sources: int
    instances: dict[str, int]
    """By unit; an instance of the paper is one slot."""
    hosts: int
    least_health: float


def measured(file: Path | None = None) -> Measured:
    """What a run of `measure.py` wrote; by default what one on a machine of two cores wrote."""
    if file is not None:
        return read_yaml(Measured, file, "what examples/molecules/measure.py writes")
    with resources.as_file(resources.files("penstock.experiments") / "molecules.yaml") as shipped:
        return read_yaml(Measured, shipped, "what examples/molecules/measure.py writes")


def measure_on_spark(out: Path, progress: Callable[[str], None]) -> Measured:
    """Measure anew, on Spark; what it says on its way is passed on."""
    if not MEASURE.is_file():
        raise ConfigurationError("--on spark needs the folder examples/molecules of a checkout")
    file = out / "molecules.yaml"
    with subprocess.Popen(
        [sys.executable, str(MEASURE), str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            progress(f"9 of 9 on Spark: {line.strip()}")
    if child.returncode != 0:
        raise ClusterError(f"{MEASURE.name} ended with code {child.returncode}")
    return measured(file)


def sources_needed(found: SizeMeasured, blocks_per_s: float) -> int:
    """Sources that send a load healthily: one, or a power of two, which is how atoms are divided."""
    need = CONGESTED * blocks_per_s / found.source_per_s
    return 1 if need <= 1 else 2 ** math.ceil(math.log2(need))


def slots_on_spark(found: SizeMeasured, unit: str, blocks_per_s: float) -> int | None:
    """Slots of those measured that take a load healthily; None where it needs more than were measured."""
    enough = [n for n, taken in enumerate(found.taken(unit), 1) if blocks_per_s * CONGESTED <= taken]
    return enough[0] if enough else None


# -- on the simulator ----------------------------------------------------------------------------


def analysis(found: SizeMeasured, scale: float) -> Topology:
    """Both units on hosts like the paper's (4 cores); a record stands for so many blocks."""

    def operator(name: str) -> Operator:
        service = Service(scale / found.taken(name)[0], 0.2)
        return Operator(name, ("atoms",), slo_s=60.0, memory_mib=1024, stateful=True, service=service)

    start = {"host_start_least_s": HOST_START_S[0], "host_start_most_s": HOST_START_S[1]}
    return Topology(
        "molecules",
        (Source("atoms", workload=Choice("constant", {"level_per_s": 1.0})),),
        tuple(operator(name) for name in UNITS),
        units=tuple(
            Unit(name, (name,), max_instances=200, max_slots=4, slot_memory_mib=128) for name in UNITS
        ),
        sites=(
            Site("cloud", Choice("simulated", start), 60.0,
                 (HostFlavour("m1.large", 4.0, 8192, Decimal("0.002")),), 200),
        ),
        loop=LoopSettings(monitoring_s=10.0, provisioning_s=20.0),
    )  # fmt: skip


def needed_at(found: SizeMeasured, blocks: int, rate: float) -> Needed:
    """What a rate needs, by the benchmark of Algorithm 1 with this one load."""
    load = rate * blocks
    # A record is a second of work in the slower unit: few records, and slots are filled all the same.
    scale = min(found.taken(name)[0] for name in UNITS)
    # Algorithm 1 adds one at a time, each once the trend agrees.
    slots = sum(load / found.taken(name)[0] for name in UNITS)
    hold_s = 600.0 + A_SLOT_S * slots
    plan = Plan(load / scale, load / scale, load / scale, hold_s)
    step = benchmark_simulated(analysis(found, scale), plan, lambda text: None).steps[0]
    instances = {name: sum(sum(layout.get(name, ())) for layout in step.hosts) for name in UNITS}
    return Needed(rate, sources_needed(found, load), instances, len(step.hosts), step.least_health)


def figure_11(
    found: Measured, progress: Callable[[str], None], rates: Sequence[float] = RATES
) -> list[Needed]:
    """Sources and instances by iterations a second, for the paper's default problem."""
    size = found.at(ATOMS)
    answers = []
    for rate in rates:
        progress(f"9 of 9 Figure 11: {rate:g} iterations a second")
        answers.append(needed_at(size, ATOMS // found.block_atoms, rate))
    return answers


def _told(size: SizeMeasured, blocks_per_s: float) -> str:
    """Sources and slots of both units for a load; what two slots do not carry is told as such."""
    slots = (slots_on_spark(size, name, blocks_per_s) for name in UNITS)
    return ", ".join(
        [str(sources_needed(size, blocks_per_s)), *("more than 2" if n is None else str(n) for n in slots)]
    )


def molecule_figures(found: Measured, answers: Sequence[Needed]) -> list[Figure]:
    """Figure 11 beside the paper's: on Spark as far as two cores go, then on the simulator."""
    figures = []
    for size in found.sizes:
        what = f"Figure 11 on Spark, {size.atoms:,} atoms by {size.by}"
        blocks = max(1, size.atoms // found.block_atoms)
        reach = [
            f"{name} " + ", ".join(f"{taken / CONGESTED / blocks:.3g}" for taken in size.taken(name))
            for name in UNITS
        ]
        figures.append(
            Figure(
                f"{what}: highest healthy it/s in 1 and 2 slots",
                "; ".join([*reach, f"a source {size.source_per_s / CONGESTED / blocks:.3g}"]),
            )
        )
        shown = [f"{rate:g}: {_told(size, rate * blocks)}" for rate in SMALL_RATES]
        figures.append(Figure(f"{what}: it/s: sources, histogram, distance", "; ".join(shown)))
    for answer in answers:
        paper = PAPER.get(answer.iterations_per_s)
        told = None
        if paper is not None:
            told = ", ".join("–" if number is None else str(number) for number in paper)
        what, counts = f"Figure 11, {answer.iterations_per_s:g} it/s of {ATOMS:,} atoms", answer.instances
        here = f"{answer.sources}, {counts['histogram']}, {counts['distance']} on {answer.hosts} hosts"
        health = answer.least_health
        figures += [
            Figure(f"{what}: sources, histogram, distance", here, paper=told),
            Figure(f"{what}: lowest health", health, ">= 0.9", holds=health >= CONGESTED),
        ]
    return figures
