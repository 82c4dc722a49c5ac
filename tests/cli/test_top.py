"""`penstock top`: one line a tick without a terminal, and what became of a run that does not go on."""

from __future__ import annotations

import os
import time
from pathlib import Path

from penstock.page.shown import Shown
from penstock.runs.folder import SILENT_S
from tests.cli.test_commands import penstock
from tests.page.runs import PacedSimulation, many_units


def forgotten(folder: Path) -> None:
    """As if the run had been here a while ago."""
    long_ago_s = time.time() - 2 * SILENT_S
    for path in (folder / "plan.json", folder / "status.json"):
        os.utime(path, (long_ago_s, long_ago_s))


def test_without_a_terminal_a_run_is_followed_in_one_line_a_tick_to_its_end(tmp_path: Path) -> None:
    with PacedSimulation(tmp_path / "run", many_units(1), ticks=12, pace_s=0.6, hold_at=4) as simulation:
        simulation.go_on()
        said = penstock("top", "run", folder=tmp_path).splitlines()
    lines = [line for line in said if line.startswith("t running: unit0000 ")]
    assert len(lines) > 4
    assert said[-1].startswith("it is over: ")
    assert "kept within the SLO, for " in said[-1]


def test_once_is_one_line_of_a_run_that_is_over_as_well(tmp_path: Path) -> None:
    with PacedSimulation(tmp_path / "run", many_units(1), ticks=4, pace_s=0.0):
        pass
    said = penstock("top", "run", "--once", folder=tmp_path).splitlines()
    assert len(said) == 1
    assert said[0].startswith("t ")


def test_a_run_that_nobody_runs_is_interrupted_and_not_live(tmp_path: Path) -> None:
    with PacedSimulation(tmp_path / "run", many_units(1), ticks=100_000, pace_s=0.01) as simulation:
        assert Shown(simulation.folder.root).live
    (simulation.folder.root / "result.json").unlink()  # as a run leaves it that was killed
    assert simulation.folder.running()  # for a moment: its watcher may start it again
    forgotten(simulation.folder.root)
    assert not simulation.folder.running()
    assert not Shown(simulation.folder.root).live
    assert "it was interrupted" in penstock("top", "run", folder=tmp_path)
