"""The demo: a molecular dynamics run analysed while it streams, on an elastic Spark cluster.

`python examples/molecules/demo.py`: atoms of a Lennard-Jones run (LAMMPS where it is installed, else code of
this example) are streamed iteration by iteration, from as many sources as that needs. One unit makes a
histogram of where atoms are, another tells how far each one went. At the end both are compared with NumPy on
the same frames, number by number, and the same run is simulated with what this one measured.
"""

from __future__ import annotations

import base64
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import numpy as np
import typer
from atoms.analysis import counts, travelled
from atoms.dynamics import BLOCK, VARIABLE, Recorded, record, write
from atoms.injection import begun_gently, needed
from atoms.picture import draw

from penstock.channels.sinks import read_results
from penstock.cli.choices import read_choice
from penstock.cli.console import console as make_console
from penstock.cli.main import told_in_words
from penstock.errors import ClusterError, ConfigurationError
from penstock.quantities import format_duration
from penstock.report.terminal import ProgressLines, side_by_side
from penstock.runs.assembly import with_choices
from penstock.runs.folder import RunFolder
from penstock.runs.profile import PROFILE, deviations, profile_of, simulated_twin
from penstock.runs.service import run_topology

BEGIN_S = 30.0
"""How long the load takes to rise to what it is."""


def demo(
    atoms: Annotated[int, typer.Option(help="Atoms: 4 · n³, such as 4000, 32000 or 256000.")] = 4000,
    per_s: Annotated[float, typer.Option("--iterations", help="Iterations a second.")] = 5.0,
    minutes: Annotated[float, typer.Option(help="How long they are streamed.")] = 2.0,
    policy: Annotated[str, typer.Option(help="Policy of every unit, such as levels or rate.")] = "levels",
    own: Annotated[bool, typer.Option("--own", help="Never use LAMMPS.")] = False,
    out: Annotated[Path, typer.Option(help="Where the run's folder is made.")] = Path("runs"),
) -> None:
    """Stream a molecular dynamics run through two analyses and compare both with NumPy."""
    console = make_console()
    duration_s = minutes * 60
    folder = (out / f"molecules-{time.strftime('%Y%m%d-%H%M%S')}").resolve()
    console.print(f"Folder: {folder}", soft_wrap=True, highlight=False)
    with console.status("running the atoms …"):
        try:
            frames = record(atoms, own=own)
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
    os.environ[VARIABLE] = str(write(frames, folder / "frames.npz"))
    console.print(
        f"{atoms:,} Lennard-Jones atoms, {len(frames.positions)} iterations by {frames.by}, in blocks of "
        f"{BLOCK:,}",
        highlight=False,
    )
    topology = needed(frames, per_s, lambda text: console.print(text, highlight=False))
    topology = begun_gently(topology, BEGIN_S)
    if policy != topology.units[0].policy.name:
        topology = with_choices(topology, policy=read_choice(policy))
    watch = ProgressLines(console, duration_s)
    result = run_topology(topology, folder / "run", duration_s=duration_s, code=HERE, watch=watch)
    results = RunFolder(folder / "run").units.results
    # Every source sends its share of each iteration: the last one may be sent in part.
    sent = result.units["distance"].processed
    found = compared(frames, sent, read_results(results / "histograms"), read_results(results / "distances"))
    for text in found.told():
        console.print(text, highlight=False)
    for name, unit in result.units.items():
        console.print(
            f"{name}: {unit.processed:,} blocks, mean {format_duration(unit.durations.mean_s)}, "
            f"p95 {format_duration(unit.durations.p95_s)}, SLO kept by {unit.compliance.shown('real_time')}",
            highlight=False,
        )
    actions = ", ".join(f"{count} {kind}" for kind, count in sorted(result.actions.items()) if count)
    console.print(f"{actions}; {result.leases} hosts, {result.host_s / 60:.1f} host-minutes", highlight=False)
    ran, profile = profile_of(RunFolder(folder / "run"))
    profile.write(folder / "run" / PROFILE)
    twin = simulated_twin(ran, profile, 1)
    console.print(side_by_side(deviations(result, twin)))
    picture = draw(folder / "molecules.svg", frames)
    console.print(
        f"picture: {picture}\npage:    penstock page {folder / 'run'}", soft_wrap=True, highlight=False
    )
    if not found.equal:
        raise ClusterError("the results are not those of NumPy on the same frames; see above")


@dataclass(frozen=True, slots=True)
class Compared:
    """The stream's results beside NumPy's, number by number."""

    iterations: int
    """Iterations that were sent whole."""
    histograms: int
    equal_histograms: int
    blocks: int
    """Blocks that have one before them."""
    distances: int
    equal_distances: int

    @property
    def equal(self) -> bool:
        """Whether every result is there, once, and equals NumPy's."""
        return (
            self.iterations == self.histograms == self.equal_histograms > 0
            and self.blocks == self.distances == self.equal_distances > 0
        )

    def told(self) -> list[str]:
        """The same in words."""
        return [
            f"histograms: {self.iterations:,} iterations sent, {self.histograms:,} came, "
            f"{self.equal_histograms:,} equal NumPy's",
            f"distances: {self.blocks:,} blocks with one before them, {self.distances:,} came, "
            f"{self.equal_distances:,} equal NumPy's in every number",
        ]


def compared(
    frames: Recorded, sent: int, histograms: list[dict[str, Any]], distances: list[dict[str, Any]]
) -> Compared:
    """Compare results with NumPy on whole frames; so many blocks were sent, evenly over the sources."""
    whole = sent // frames.blocks
    known = {row["iteration"]: row for row in histograms}
    equal = sum(
        row["counts"] == counts(frames.frame(iteration), frames.box).tolist()
        for iteration, row in known.items()
    )
    by_block = {(row["iteration"], row["block"]): row for row in distances}
    right = 0
    for iteration in {iteration for iteration, _ in by_block}:
        expected = travelled(frames.frame(iteration - 1), frames.frame(iteration), frames.box)
        for block in range(frames.blocks):
            row = by_block.get((iteration, block))
            if row is not None:
                got = np.frombuffer(base64.b64decode(row["distances"]), dtype=np.float64)
                right += bool(np.array_equal(got, expected[block * BLOCK : (block + 1) * BLOCK]))
    return Compared(whole, len(histograms), equal, sent - frames.blocks, len(distances), right)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with told_in_words():
        typer.run(demo)
