"""The experiment of paper 004, on a few small graphs: figures, tables and a page that loads nothing."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from penstock.experiments import budgets


def test_the_experiment_leaves_figures_tables_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "SIZES", (10, 14))
    monkeypatch.setattr(budgets, "VARIED_UNITS", 12)
    monkeypatch.setattr(budgets, "LARGE_SIZES", (30, 60))
    monkeypatch.setattr(budgets, "STEPS_S", (1, 2))
    told: list[str] = []
    figures = budgets.run(2, tmp_path, told.append)
    assert told
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [row["name"] for row in summary] == [figure.name for figure in figures]
    verdicts = {figure.name: figure.holds for figure in figures}
    assert verdicts["Figure 5: hull cost over optimum, largest of all graphs"]
    assert verdicts["Figure 8: cost falls as the bound grows"]
    assert verdicts["Figure 12: greedy asks for less than the full table"]
    page = (tmp_path / "budgets.html").read_text()
    for number in range(5, 15):
        assert f"Figure {number}" in page
    assert 'src="http' not in page
    with (tmp_path / "sizes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["solver"] for row in rows} == {"exact", "hull", "greedy", "greedy without cache", "path ILP"}
    assert all(float(row["cost_over_optimum"]) >= 1 - 1e-9 for row in rows)
