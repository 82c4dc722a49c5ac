"""The evaluation of paper 004 (Figures 5 to 14) from this code, and beyond it to 10,000 units.

Random graphs as in its Section 6.1: 10 to 100 units, selectivity 0.5, four kinds of cost functions, bound
factor 2 and step 1 unless varied. The paper's integer programme enumerates paths and is run on a few
graphs a size only; its answers are those of `exact`, which proves them in a fraction of the time.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import plotly.graph_objects as go

from penstock.budgets.exact import solve_exact
from penstock.budgets.graphs import KINDS, random_problem
from penstock.budgets.greedy import solve_greedy
from penstock.budgets.hull import solve_hull
from penstock.budgets.lohrmann import solve_lohrmann
from penstock.budgets.paths import solve_path_programme
from penstock.budgets.problem import BudgetProblem, Solution
from penstock.report.figures import Figure, write_figures
from penstock.report.page import Page

SIZES = (10, 25, 50, 75, 100)
BOUND_FACTORS = (2, 3, 4, 5, 6)
STEPS_S = (1, 2, 3, 4, 5)
VARIED_UNITS = 50
PATH_GRAPHS = 2
"""Graphs a size for the path programme, which takes seconds each."""
PATH_LIMIT_S = 60.0
LARGE_SIZES = (100, 300, 1_000, 3_000, 10_000)
LARGE_BOUND_S = 400.0
"""About sixteen seconds for each unit of the longest path, as bound factor 2 gives at 100 units."""


@dataclass(frozen=True, slots=True)
class Run:
    """One solver's answer to one graph."""

    cost: float
    runtime_s: float
    """Processor time, so that other work on the machine does not count."""
    calls: int
    proved: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of a plot: every solver's runs on the graphs of one setting."""

    label: str
    runs: Mapping[str, tuple[Run, ...]]

    def mean(self, solver: str, what: str) -> float:
        """The mean of a run's field over the graphs."""
        return fmean(float(getattr(run, what)) for run in self.runs[solver])

    def ratios(self, solver: str, to: str = "exact", what: str = "cost") -> list[float]:
        """A solver's field over another's, graph by graph, where both ran."""
        return [
            getattr(a, what) / max(getattr(b, what), 1e-12)
            for a, b in zip(self.runs[solver], self.runs[to], strict=False)
        ]


Solver = Callable[[BudgetProblem], Solution]

SOLVERS: Mapping[str, Solver] = {"exact": solve_exact, "hull": solve_hull, "greedy": solve_greedy}


def _uncached(problem: BudgetProblem) -> Solution:
    return solve_greedy(problem, cached=False)


def _path_programme(problem: BudgetProblem) -> Solution:
    return solve_path_programme(problem, time_limit_s=PATH_LIMIT_S)


def _run(solver: Solver, problem: BudgetProblem) -> Run:
    began_s = time.process_time()
    solution = solver(problem)
    return Run(solution.cost, time.process_time() - began_s, solution.calls, solution.optimal)


def _cell(label: str, problems: Sequence[BudgetProblem], solvers: Mapping[str, Solver]) -> Cell:
    return Cell(label, {name: tuple(_run(solver, p) for p in problems) for name, solver in solvers.items()})


def run(seeds: int, out: Path, progress: Callable[[str], None]) -> list[Figure]:
    """Run the evaluation on so many graphs a setting; leaves tables, a page of plots and summary.json."""
    out.mkdir(parents=True, exist_ok=True)
    solve_hull(random_problem(10, 0))  # loads the solver before anything is timed
    sizes = []
    for units in SIZES:
        progress(f"figures 5-7 and 12: {seeds} graphs of {units} units")
        problems = [random_problem(units, seed) for seed in range(seeds)]
        cell = _cell(str(units), problems, {**SOLVERS, "greedy without cache": _uncached})
        paths = tuple(_run(_path_programme, problem) for problem in problems[:PATH_GRAPHS])
        sizes.append(Cell(cell.label, {**cell.runs, "path ILP": paths}))
    progress(f"figures 8 and 9: bound factors, {VARIED_UNITS} units")
    factors = [
        _cell(str(f), [random_problem(VARIED_UNITS, s, bound_factor=f) for s in range(seeds)], SOLVERS)
        for f in BOUND_FACTORS
    ]
    progress(f"figures 10 and 11: steps, {VARIED_UNITS} units")
    steps = [
        _cell(str(k), [random_problem(VARIED_UNITS, s, step_s=float(k)) for s in range(seeds)], SOLVERS)
        for k in STEPS_S
    ]
    progress(f"single cost functions, {VARIED_UNITS} units")
    kinds = [
        _cell(kind, [random_problem(VARIED_UNITS, s, kinds=(kind,)) for s in range(seeds)], SOLVERS)
        for kind in KINDS
    ]
    homogeneous = []
    for units in SIZES:
        progress(f"figures 13 and 14: Lohrmann, {units} units")
        problems = [random_problem(units, seed, kinds=("kingman",)) for seed in range(seeds)]
        homogeneous.append(_cell(str(units), problems, {**SOLVERS, "lohrmann": solve_lohrmann}))
    large = []
    for units in LARGE_SIZES:
        progress(f"beyond the paper: {units:,} units")
        graphs = [random_problem(units, seed, bound_s=LARGE_BOUND_S) for seed in range(min(seeds, 3))]
        large.append(_cell(str(units), graphs, {"hull": solve_hull}))
    _tables(out, sizes, factors, steps, kinds, homogeneous, large)
    figures = _figures(seeds, sizes, factors, steps, kinds, homogeneous, large)
    _page(seeds, figures, sizes, factors, steps, kinds, homogeneous, large).write(out / "budgets.html")
    write_figures(figures, out / "summary.json")
    return figures


def _figures(
    seeds: int,
    sizes: Sequence[Cell],
    factors: Sequence[Cell],
    steps: Sequence[Cell],
    kinds: Sequence[Cell],
    homogeneous: Sequence[Cell],
    large: Sequence[Cell],
) -> list[Figure]:
    most = sizes[-1]
    hull_gap = max(ratio - 1 for cell in (*sizes, *factors, *steps, *kinds) for ratio in cell.ratios("hull"))
    tables = {cell.label: int(cell.label) * (2 * int(cell.label) + 1) for cell in sizes}
    fewer = all(run.calls < tables[c.label] for c in sizes for run in c.runs["greedy without cache"])
    cached = fmean(most.ratios("greedy", "greedy without cache", "calls"))
    falls = all(a.mean(s, "cost") >= b.mean(s, "cost") for s in SOLVERS for a, b in pairwise(factors))
    slowest_s = max(run.runtime_s for cell in steps for run in cell.runs["exact"])
    proved = all(run.proved for cell in steps for run in cell.runs["exact"])
    greedy_steps = [cell.mean("greedy", "cost") for cell in steps]
    lohrmann, greedy = fmean(homogeneous[-1].ratios("lohrmann")), fmean(homogeneous[-1].ratios("greedy"))
    slower = fmean(most.ratios("path ILP", "greedy", "runtime_s"))
    largest_s = min(run.runtime_s for run in large[-1].runs["hull"])
    return [
        Figure(
            "Figure 5, 7: greedy cost over optimum, 100 units mixed",
            fmean(most.ratios("greedy")),
            paper="slightly above 1",
        ),
        Figure(
            "Figure 5: hull cost over optimum, largest of all graphs",
            1 + hull_gap,
            "<= 1.01",
            holds=hull_gap <= 0.01,
        ),
        Figure(
            "Figure 6, 7: path ILP slower than greedy, 100 units",
            slower,
            "> 10",
            paper="orders of magnitude",
            holds=slower > 10,
            unit="×",
        ),
        Figure(
            "path ILP slower than hull, 100 units",
            fmean(most.ratios("path ILP", "hull", "runtime_s")),
            ">= 20",
            holds=min(most.ratios("path ILP", "hull", "runtime_s")) >= 20,
            unit="×",
        ),
        Figure("Figure 8: cost falls as the bound grows", str(falls), "True", paper="falls", holds=falls),
        Figure(
            "Figure 10, 11: exact proves steps 1 to 5, slowest graph",
            slowest_s,
            "< 5 s",
            paper="no answer in 1 h beyond step 1",
            holds=proved and slowest_s < 5,
            unit="s",
        ),
        Figure(
            "Figure 10: greedy cost at step 5 over step 1",
            greedy_steps[-1] / greedy_steps[0],
            paper="stable",
        ),
        Figure(
            "Figure 12: greedy asks for less than the full table",
            str(fewer),
            f"True on all {len(sizes) * seeds} graphs",
            paper="continuously fewer",
            holds=fewer,
        ),
        Figure(
            "Figure 12: cached calls of greedy over uncached, 100 units",
            cached,
            "<= 0.6",
            paper="reduced further",
            holds=cached <= 0.6,
        ),
        Figure(
            "Figure 13: Lohrmann cost over optimum, 100 units",
            lohrmann,
            "below greedy's",
            paper="almost optimal",
            holds=lohrmann <= greedy,
        ),
        Figure("Figure 13: greedy cost over optimum, 100 Kingman units", greedy, paper="slightly above 1"),
        Figure(
            "Figure 14: greedy runtime, 100 Kingman units",
            homogeneous[-1].mean("greedy", "runtime_s"),
            paper="< 0.1 s",
            unit="s",
        ),
        Figure("hull, 10,000 units", largest_s, "< 2 s", holds=largest_s < 2, unit="s"),
    ]


def _plot(
    cells: Sequence[Cell], what: str, solvers: Iterable[str], x: str, y: str, log: bool = False
) -> go.Figure:
    figure = go.Figure()
    for solver in solvers:
        points = [cell for cell in cells if solver in cell.runs]
        figure.add_scatter(
            x=[float(cell.label) for cell in points],
            y=[cell.mean(solver, what) for cell in points],
            mode="lines+markers",
            name=solver,
        )
    figure.update_xaxes(title=x).update_yaxes(title=y, type="log" if log else "linear")
    return figure


def _page(
    seeds: int,
    figures: Sequence[Figure],
    sizes: Sequence[Cell],
    factors: Sequence[Cell],
    steps: Sequence[Cell],
    kinds: Sequence[Cell],
    homogeneous: Sequence[Cell],
    large: Sequence[Cell],
) -> Page:
    page = Page("Latency budgets", f"paper 004, Figures 5 to 14, {seeds} random graphs a setting")
    page.table(
        "The paper's findings beside ours",
        ("figure", "here", "bar", "paper", "holds"),
        [
            (f.name, f.here if not f.unit else f"{f.here:.4g} {f.unit}", f.bar, f.paper, f.holds)
            for f in figures
        ],
        "Runtimes are processor time in one run on one machine; their ratios are what counts.",
    )
    usual = ("exact", "hull", "greedy")
    timed = ("path ILP", *usual)
    page.plot(
        "Figure 5: cost",
        _plot(sizes, "cost", usual, "units", "cost"),
        "Mixed cost functions, bound factor 2.",
    )
    page.plot(
        "Figure 6: runtime",
        _plot(sizes, "runtime_s", timed, "units", "s", log=True),
        f"The path ILP is the paper's formulation, on {PATH_GRAPHS} graphs a size.",
    )
    page.plot("Figure 7: cost and runtime relative to the optimum and to greedy", _relative(sizes))
    page.plot("Figure 8: cost for bounds", _plot(factors, "cost", usual, "bound factor", "cost"))
    page.plot(
        "Figure 9: runtime for bounds", _plot(factors, "runtime_s", usual, "bound factor", "s", log=True)
    )
    page.plot(
        "Figure 10: cost for steps", _plot(steps, "cost", usual, "step", "cost"), "The paper has greedy only."
    )
    page.plot("Figure 11: runtime for steps", _plot(steps, "runtime_s", usual, "step", "s", log=True))
    page.plot(
        "Figure 12: cost-function calls",
        _plot(
            sizes, "calls", ("exact", "hull", "greedy without cache", "greedy"), "units", "calls", log=True
        ),
        "Exact and hull ask for the whole table, as the ILP does; remote functions they ask more sparingly.",
    )
    all_four = ("exact", "hull", "greedy", "lohrmann")
    page.plot("Figure 13: cost, Kingman units only", _plot(homogeneous, "cost", all_four, "units", "cost"))
    page.plot(
        "Figure 14: runtime, Kingman units only",
        _plot(homogeneous, "runtime_s", all_four, "units", "s", log=True),
    )
    page.plot(
        "Beyond the paper: hull to 10,000 units",
        _plot(large, "runtime_s", ("hull",), "units", "s", log=True),
        f"Bound {LARGE_BOUND_S:g} s.",
    )
    page.table(
        f"Single cost functions, {VARIED_UNITS} units: cost over the optimum",
        ("cost function", "hull mean", "hull largest", "greedy mean", "greedy largest"),
        [
            (
                cell.label,
                fmean(cell.ratios("hull")),
                max(cell.ratios("hull")),
                fmean(cell.ratios("greedy")),
                max(cell.ratios("greedy")),
            )
            for cell in kinds
        ],
    )
    return page


def _relative(sizes: Sequence[Cell]) -> go.Figure:
    figure = go.Figure()
    x = [float(cell.label) for cell in sizes]
    figure.add_scatter(x=x, y=[fmean(c.ratios("greedy")) for c in sizes], name="greedy cost / optimum")
    figure.add_scatter(x=x, y=[fmean(c.ratios("hull")) for c in sizes], name="hull cost / optimum")
    figure.add_scatter(
        x=x,
        y=[fmean(c.ratios("path ILP", "greedy", "runtime_s")) for c in sizes],
        name="path ILP runtime / greedy runtime",
    )
    figure.update_xaxes(title="units").update_yaxes(title="ratio", type="log")
    return figure


def _tables(out: Path, *groups: Sequence[Cell]) -> None:
    names = ("sizes", "bound_factors", "steps", "cost_functions", "homogeneous", "large")
    for name, cells in zip(names, groups, strict=True):
        with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(
                (name, "solver", "graphs", "cost", "runtime_s", "calls", "proved", "cost_over_optimum")
            )
            for cell in cells:
                for solver, runs in cell.runs.items():
                    over = fmean(cell.ratios(solver)) if "exact" in cell.runs else math.nan
                    writer.writerow(
                        (
                            cell.label,
                            solver,
                            len(runs),
                            f"{cell.mean(solver, 'cost'):.6g}",
                            f"{cell.mean(solver, 'runtime_s'):.6g}",
                            f"{cell.mean(solver, 'calls'):.6g}",
                            sum(run.proved for run in runs),
                            "" if math.isnan(over) else f"{over:.6g}",
                        )
                    )
