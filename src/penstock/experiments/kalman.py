"""The evaluation of paper 001: scaling on filtered utilisation, and what the filter is worth.

Three workloads × three filters × some seeds on the paper's testbed, twice: with the paper's rules (only the
Kalman filter may move by several instances) and with the same multi-step actuator for all. It ends in the
analogues of Tables 2 to 5 with the paper's values beside ours, Figures 8 and 9, the break-even in money, and
a verdict on each claim, every number of it computed in this run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.experiments.kalman_evaluation import Prices, evaluate, figures_of
from penstock.experiments.kalman_model import Testbed
from penstock.experiments.kalman_page import write_page, write_tables, write_verdict
from penstock.report.figures import Figure, write_figures


def run(
    seeds: int,
    out: Path,
    progress: Callable[[str], None],
    prices: Prices | None = None,
    testbed: Testbed | None = None,
) -> list[Figure]:
    """Run everything, write tables, plots and summary.json to a folder, and return the figures."""
    out.mkdir(parents=True, exist_ok=True)
    evaluation = evaluate(seeds, testbed or Testbed(), progress)
    figures = figures_of(evaluation)
    write_tables(out / "tables.csv", evaluation.results)
    write_page(out / "kalman.html", evaluation, figures, prices or Prices())
    write_verdict(out / "verdict.txt", evaluation, prices or Prices())
    write_figures(figures, out / "summary.json")
    return figures
