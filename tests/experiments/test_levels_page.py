"""Paper 002's page: Table 1 says how healthy each configuration was."""

from __future__ import annotations

from pathlib import Path

from penstock.experiments.levels import Held, table_figures
from penstock.experiments.levels_page import write_page
from penstock.levels.configuration import Configuration

TRIED = [
    Held(Configuration(0.0, 40.0, ({"parser": (1,)},)), 0.93, 0.61),
    Held(Configuration(40.0, 120.0, ({"parser": (2,)}, {"parser": (2,)})), 0.97, None),
]


def test_the_table_tells_the_health_of_a_configuration_at_its_load_and_one_step_above(tmp_path: Path) -> None:
    page = write_page(tmp_path / "levels.html", TRIED, {}, table_figures(TRIED)).read_text()
    row = page[page.index("<h2>Table 1</h2>") :]
    assert [cell for cell in ("0.93", "0.61", "0.97") if cell not in row] == []


def test_one_configuration_that_is_healthy_one_step_above_is_too_large_for_its_load() -> None:
    late = [TRIED[0], Held(TRIED[1].configuration, 0.89, 0.92), TRIED[1]]
    held = {figure.name: figure.holds for figure in table_figures(late)}
    assert held["lowest health at a configuration's own load"] is False
    assert held["highest health one step above (next configuration needed)"] is False
