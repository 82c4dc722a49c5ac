"""The figures and the page of the cell laboratory's experiment, from the rows of its runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev

from penstock.experiments.cells_rows import MEGAPIXELS, METRICS, PREDICTED, WORKLOADS, Failed, Row
from penstock.experiments.kalman_evaluation import Prices
from penstock.experiments.kalman_paper import FILTERS
from penstock.report.figures import Figure
from penstock.report.page import Page

FEWER_EVENTS_PER_CENT = -60.0
NEAR_PER_CENT = 20.0


def figures_of(rows: Sequence[Row], prices: Prices, wanted: int | None = None) -> list[Figure]:
    """The claims with their bars, the break-even, the simulator's deviations, then the tables' values.

    `wanted` is how many runs were asked for: it is told where fewer have finished.

    The break-even is told at the price of a VM that is given, and at the paper's.
    """
    real = [row for row in rows if row.kind == "spark"]
    figures = [
        Figure(
            "runs whose counts and answers equal the batch computation",
            float(sum(row.right for row in real)),
            f"= {len(real)}",
            None,
            all(row.right for row in real),
            "",
        )
    ]
    if wanted is not None and len(real) < wanted:
        figures.append(Figure("runs that have finished", float(len(real)), f"= {wanted}", None, False))
    for workload in _order(real, WORKLOADS, lambda row: row.workload):
        ours, plain = (_cell(real, workload, name) for name in ("kalman", "none"))
        if ours and plain:
            change = per_cent(mean(ours, "scaling events"), mean(plain, "scaling events"))
            figures.append(
                Figure(
                    f"{workload}: scaling events of kalman against none",
                    change,
                    f"<= {FEWER_EVENTS_PER_CENT:g} %",
                    None,
                    change <= FEWER_EVENTS_PER_CENT,
                    "%",
                )
            )
            more = mean(ours, "SLA violations") - mean(plain, "SLA violations")
            figures.append(
                Figure(
                    f"{workload}: SLA violations of kalman less those of none", more, "<= 0", None, more <= 0
                )
            )
            more_h = mean(ours, "VM time") - mean(plain, "VM time")
            for each in dict.fromkeys((prices, Prices())):
                at = f"{each.vm_hour:g} {each.currency}/h"
                figures.append(
                    Figure(f"{workload}: kalman pays against none at {at}", pays(more_h, -more, each))
                )
    figures += _predictions(rows)
    for workload in _order(real, WORKLOADS, lambda row: row.workload):
        for name in _order(real, FILTERS, lambda row: row.filter):
            for metric, (unit, _) in METRICS.items():
                if values := _values(real, workload, name, metric):
                    figures.append(Figure(f"{workload}, {name}: {metric}", fmean(values), unit=unit))
    return figures


def _predictions(rows: Sequence[Row]) -> list[Figure]:
    """How far the simulator is off for the runs whose profile it was not given: over all of them, and a run.

    Over all, one run's excess makes up for what another lacks; deviations a run do not.
    """
    pairs = _pairs(rows)
    figures = []
    for metric in PREDICTED if pairs else ():
        value = METRICS[metric][1]
        off = per_cent(fmean(value(b) for _, b in pairs), fmean(value(a) for a, _ in pairs))
        name = f"simulator: {metric} of {len(pairs)} other runs"
        bar = f"within {NEAR_PER_CENT:g} %"
        figures.append(Figure(name, off, bar, None, abs(off) <= NEAR_PER_CENT, "%"))
        misses = fmean(abs(value(b) - value(a)) for a, b in pairs)
        real = fmean(value(a) for a, _ in pairs)
        share = 100.0 * misses / real if real else 0.0 if misses == 0 else math.inf
        name = f"simulator: {metric}, mean absolute deviation a run"
        figures.append(Figure(name, share, bar, None, share <= NEAR_PER_CENT, "%"))
    return figures


def _pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Runs that have a twin, each with it."""
    told = {(r.workload, r.filter, r.seed): r for r in rows if r.kind == "simulated"}
    return [
        (row, told[key])
        for row in rows
        if row.kind == "spark" and (key := (row.workload, row.filter, row.seed)) in told
    ]


def pays(more_h: float, fewer: float, prices: Prices) -> str:
    """From which price of a violation on a filter pays that needs more hours for fewer violations."""
    if more_h <= 0 <= fewer:
        return "at any price of a violation"
    if more_h >= 0 >= fewer:
        return "at no price of a violation"
    limit = abs(more_h * prices.vm_hour / fewer)
    return f"{'from' if fewer > 0 else 'up to'} {limit:.3g} {prices.currency} a violation"


def mean(rows: Sequence[Row], metric: str) -> float:
    """The mean of a metric over runs."""
    return fmean(METRICS[metric][1](row) for row in rows)


def per_cent(own: float, other: float) -> float:
    """By how much own differs from other; 0 where both are 0."""
    if other == 0:
        return 0.0 if own == 0 else math.inf
    return 100.0 * (own / other - 1.0)


def _cell(rows: Sequence[Row], workload: str, name: str) -> list[Row]:
    return [row for row in rows if row.workload == workload and row.filter == name]


def _values(rows: Sequence[Row], workload: str, name: str, metric: str) -> list[float]:
    """What was measured, without the runs in which it was not."""
    found = (METRICS[metric][1](row) for row in _cell(rows, workload, name))
    return [value for value in found if not math.isnan(value)]


def _order(rows: Sequence[Row], known: Sequence[str], key: Callable[[Row], str]) -> list[str]:
    found = {key(row) for row in rows}
    return [name for name in known if name in found]


def write_page(
    file: Path, rows: Sequence[Row], figures: Sequence[Figure], failed: Sequence[Failed] = ()
) -> None:
    """Write the page: verdicts, what failed, and a table a workload."""
    real = [row for row in rows if row.kind == "spark"]
    page = Page("The cell laboratory", f"{len(real)} runs on real Spark, {MEGAPIXELS:g} megapixels a picture")
    page.table(
        "Verdicts",
        ["", "value", "bar", "held"],
        [[f.name, f.here, f.bar, "yes" if f.holds else "no"] for f in figures if f.bar],
    )
    if failed:
        page.table("Runs that failed", ["run", "why"], [[each.name, each.message] for each in failed])
    for workload in _order(real, WORKLOADS, lambda row: row.workload):
        names = _order(real, FILTERS, lambda row: row.filter)
        table: list[list[object]] = []
        for metric, (unit, _) in METRICS.items():
            cells: list[object] = [f"{metric} [{unit}]" if unit else metric]
            for name in names:
                values = _values(real, workload, name, metric)
                spread = f" ({stdev(values):.3g})" if len(values) > 1 else ""
                cells.append(f"{fmean(values):.4g}{spread}" if values else "not run")
            table.append(cells)
        page.table(workload, ["mean (σ)", *names], table)
    if pairs := _pairs(rows):
        page.table(
            "Real beside simulated",
            ["run", *(f"{metric}{end}" for metric in PREDICTED for end in ("", ", simulated"))],
            [
                [
                    f"{real.workload}, {real.filter}, seed {real.seed}",
                    *(f"{METRICS[metric][1](row):.4g}" for metric in PREDICTED for row in (real, twin)),
                ]
                for real, twin in pairs
            ],
        )
    page.write(file)
