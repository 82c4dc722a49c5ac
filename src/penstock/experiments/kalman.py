"""The evaluation of paper 001: scaling on filtered utilisation, and what the filter is worth.

Three workloads × three filters × some seeds on the paper's testbed, twice: with the paper's rules (only the
Kalman filter may move by several instances) and with the same multi-step actuator for all. It ends in the
analogues of Tables 2 to 5 with the paper's values beside ours, Figures 8 and 9, the break-even in money, and
a verdict on each claim, every number of it computed in this run.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import plotly.graph_objects as go
from scipy import stats

from penstock.experiments.kalman_model import Testbed
from penstock.experiments.kalman_runs import (
    WORKLOADS,
    Configuration,
    SeedResult,
    Trail,
    Training,
    run_configuration,
    run_side_by_side,
    train,
)
from penstock.report.figures import Figure, write_figures
from penstock.report.page import PALETTE, Page
from penstock.topology.model import Choice

PROCESSES = 2
FILTERS = ("none", "gaussian", "kalman")
PAPER_NAMES = {"none": "PURE", "gaussian": "GW", "kalman": "EKF"}
PAPER_RULES, SAME_ACTUATOR = "paper's rules", "same actuator"

METRICS: Mapping[str, tuple[str, Callable[[SeedResult], float]]] = {
    "VM time": ("h", lambda result: result.run.vm_h),
    "scaling events": ("", lambda result: float(result.events)),
    "image processing time": ("s", lambda result: result.run.image_s),
    "query processing time": ("s", lambda result: result.run.query_s),
    "SLA violations": ("", lambda result: float(result.run.violations)),
}
"""The rows of Tables 3 to 5 with their units."""

PAPER: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    # PURE, GW, EKF. The tables say "1000 h" for VM time; a run of 0.75 h on 32 cores has 24 h at most: h.
    "Pyramid": {
        "VM time": (8.0, 8.4, 8.9),
        "scaling events": (420.6, 304.6, 58.5),
        "image processing time": (2.7, 2.1, 1.5),
        "query processing time": (0.6, 0.5, 0.3),
        "SLA violations": (53800, 51700, 47100),
    },
    "Square": {
        "VM time": (8.6, 9.0, 9.2),
        "scaling events": (326.1, 294.2, 28.5),
        "image processing time": (4.6, 3.9, 1.8),
        "query processing time": (0.9, 0.8, 0.3),
        "SLA violations": (63200, 63900, 47600),
    },
    "Lab": {
        "VM time": (9.9, 10.6, 12.1),
        "scaling events": (423.45, 288.0, 54.6),
        "image processing time": (3.0, 2.7, 1.6),
        "query processing time": (0.8, 0.5, 0.3),
        "SLA violations": (69900, 67000, 63800),
    },
}
REASONS = (
    "SLA violations: the paper counts some 50,000 among about 82,000 records at mean processing times of 1.5 "
    "to 4.6 s. With a mean of 2.7 s at most 54 % of images can exceed 5 s (Markov's inequality), so the "
    "paper's two rows cannot both hold for the SLAs it states. Ours count exactly: images over 5 s, queries "
    "over 1 s, and images that wait for longer at the end.",
    "Processing times: ours are lower, because images go to whichever instance is free first and one image "
    "takes 0.22 s, a value that follows from the paper's VM time. The paper gives no service time.",
    "VM time: the single-step baselines start one instance at every reading while instances are still "
    "starting, up to all 32, and so overshoot more than the paper's; hence their VM time lies above the "
    "Kalman filter's here and below it in the paper.",
    "Lab: the paper's trace is not published. Ours is made up (a slow swell with bursts), so that row can "
    "agree in trend only.",
)
TABLE_2_DOWN = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
TABLE_2_UP = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
PAPER_TABLE_2 = {
    (0.4, 0.5): 65144, (0.4, 0.6): 63596, (0.4, 0.7): 63554, (0.4, 0.8): 61160, (0.4, 0.9): 69434,
    (0.4, 1.0): 67850, (0.5, 0.6): 63632, (0.5, 0.7): 61484, (0.5, 0.8): 60056, (0.5, 0.9): 62450,
    (0.5, 1.0): 67244, (0.6, 0.7): 61370, (0.6, 0.8): 65000, (0.6, 0.9): 65678, (0.6, 1.0): 69098,
    (0.7, 0.8): 67628, (0.7, 0.9): 69668, (0.7, 1.0): 75818, (0.8, 0.9): 79508, (0.8, 1.0): 80168,
    (0.9, 1.0): 79154,
}  # fmt: skip
SENSITIVITY_S = 1350.0
"""Runs of the sensitivity table are half as long: there are 21 times as many of them."""
RECOVERY_S = 60.0
RECOVERY_RATIO = 0.05


@dataclass(frozen=True, slots=True)
class Prices:
    """What the break-even is computed from; put in your own."""

    vm_hour: float = 0.0612
    """A VM hour; the paper's price of one core hour."""
    violation: float = 0.0001
    """One image or query beyond its SLA."""
    currency: str = "USD"


Results = dict[tuple[str, str, str], list[SeedResult]]
"""By rules, workload and label."""


def kalman_choice(training: Training, **changes: object) -> Choice:
    """The Kalman filter as trained, with the rules that go beyond the paper."""
    return Choice(
        "kalman",
        {
            "noise_std": (training.cpu_std, training.memory_std),
            "sensitivity": training.sensitivity,
            "adaptive_ratio": 0.1,
            "drain_s": 60.0,
            **changes,
        },
    )


def configurations(training: Training) -> list[Configuration]:
    """The nine cells with the paper's rules, the nine with the same actuator, and three more for honesty."""
    single, multi = Choice("utilisation", {"step": "single"}), Choice("utilisation", {"step": "multi"})
    certain = Choice("utilisation", {"step": "multi", "certainty_sigma": 1.0})
    plain = kalman_choice(training, adaptive_ratio=0.0, drain_s=0.0)
    found = []
    for workload in WORKLOADS:
        for name in FILTERS:
            chosen = kalman_choice(training) if name == "kalman" else Choice(name)
            policy = multi if name == "kalman" else single
            found.append(Configuration(workload, chosen, policy, PAPER_RULES, name))
    for workload in WORKLOADS:
        for name in FILTERS:
            chosen = kalman_choice(training) if name == "kalman" else Choice(name)
            found.append(Configuration(workload, chosen, certain, SAME_ACTUATOR, name))
    for workload in WORKLOADS:
        found.append(Configuration(workload, plain, multi, PAPER_RULES, "kalman, no rules of ours"))
    return found


def run(
    seeds: int,
    out: Path,
    progress: Callable[[str], None],
    prices: Prices | None = None,
    testbed: Testbed | None = None,
) -> list[Figure]:
    """Run everything, write tables, plots and summary.json to a folder, and return the figures."""
    out.mkdir(parents=True, exist_ok=True)
    bed = testbed or Testbed()
    progress("training the Kalman filter")
    training = train()
    cells = configurations(training)
    results: Results = {}
    trails: dict[tuple[str, str, str], Trail] = {}
    begun_s = time.perf_counter()
    nine_s = 0.0
    with ProcessPoolExecutor(PROCESSES) as pool:
        for number, (cell, (found, trail)) in enumerate(
            zip(
                cells,
                pool.map(run_configuration, cells, [seeds] * len(cells), [bed] * len(cells)),
                strict=True,
            ),
            start=1,
        ):
            key = (cell.rules, cell.workload, cell.label)
            results[key], trails[key] = found, trail
            progress(f"{number} of {len(cells)} configurations × {seeds} seeds: {', '.join(key)}")
            if number == 9:
                nine_s = time.perf_counter() - begun_s
        progress("a start under full load")
        recovery = recovery_s(training, seeds)
        progress("the sensitivity table")
        short = replace(bed, duration_s=min(bed.duration_s, SENSITIVITY_S))
        jobs = [(workload, name, training, short) for workload in WORKLOADS for name in FILTERS]
        parts = list(pool.map(_sensitivity_part, jobs))
    sensitivity = {pair: fmean(part[pair] for part in parts) for pair in parts[0]}

    figures = [*_verdicts(results, recovery, nine_s, seeds), *_table_figures(results)]
    _write_tables(out / "tables.csv", results)
    _write_page(out / "kalman.html", results, trails, sensitivity, figures, prices or Prices(), training)
    write_figures(figures, out / "summary.json")
    return figures


# --- further runs ---


def recovery_s(training: Training, seeds: int) -> list[float]:
    """For each seed, when the estimate is for good within 5 points of the truth after a saturated start.

    The truth is the work that arrives over what the running instances can do; five-second means are
    compared, so that a single half second's count of images does not decide.
    """
    cell = Configuration("Full load", kalman_choice(training), Choice("utilisation", {"step": "multi"}))
    bed = replace(Testbed(), duration_s=2 * RECOVERY_S)
    cells = {f"seed{seed:02d}": (cell, seed) for seed in range(seeds)}
    _, trails = run_side_by_side(cells, bed, trails=seeds)
    return [_settled_s(trail, int(5.0 / bed.reading_s)) for trail in trails.values()]


def _settled_s(trail: Trail, width: int) -> float:
    kernel = np.ones(width) / width
    error = np.array(trail.estimated) - np.array(trail.demand)
    far = np.abs(np.convolve(error, kernel, mode="valid")) > RECOVERY_RATIO
    last = np.flatnonzero(far)
    return trail.at_s[0] if len(last) == 0 else float(trail.at_s[min(last[-1] + width, len(trail.at_s) - 1)])


def _sensitivity_part(job: tuple[str, str, Training, Testbed]) -> dict[tuple[float, float], float]:
    """SLA violations of one workload and filter for every pair of thresholds, side by side."""
    workload, name, training, bed = job
    cells = {}
    for down in TABLE_2_DOWN:
        for up in TABLE_2_UP:
            if down < up:
                step = "multi" if name == "kalman" else "single"
                policy = Choice("utilisation", {"step": step, "down_ratio": down, "up_ratio": up})
                chosen = kalman_choice(training) if name == "kalman" else Choice(name)
                unit = f"d{down * 100:.0f}u{up * 100:.0f}"
                cells[unit] = ((down, up), (Configuration(workload, chosen, policy), 0))
    results, _ = run_side_by_side({unit: cell for unit, (_, cell) in cells.items()}, bed)
    return {cells[unit][0]: float(result.run.violations) for unit, result in results.items()}


# --- figures ---


def _values(results: Iterable[SeedResult], metric: str) -> list[float]:
    return [METRICS[metric][1](result) for result in results]


def _change(ours: Sequence[SeedResult], theirs: Sequence[SeedResult], metric: str) -> float:
    """How much the mean changes, in per cent."""
    return _per_cent(fmean(_values(ours, metric)), fmean(_values(theirs, metric)))


def _per_cent(own: float, other: float) -> float:
    """By how much own differs from other; 0 where both are 0."""
    if other == 0:
        return 0.0 if own == 0 else math.inf
    return 100.0 * (own / other - 1.0)


def _worst_change(ours: Sequence[SeedResult], theirs: Sequence[SeedResult], metric: str) -> float:
    """The largest change of any seed, in per cent."""
    pairs = zip(_values(ours, metric), _values(theirs, metric), strict=True)
    return max(_per_cent(own, other) for own, other in pairs)


def _verdicts(results: Results, recovery: Sequence[float], nine_s: float, seeds: int) -> list[Figure]:
    figures = []

    def at_most(name: str, value: float, limit: float, unit: str, paper: float | None = None) -> None:
        figures.append(Figure(name, value, f"<= {limit:g} {unit}".rstrip(), paper, value <= limit, unit))

    for workload in ("Pyramid", "Square"):
        for other in ("gaussian", "none"):
            ours, theirs = (results[PAPER_RULES, workload, name] for name in ("kalman", other))
            published = PAPER[workload]["scaling events"]
            paper = 100.0 * (published[2] / published[FILTERS.index(other)] - 1.0)
            at_most(
                f"{PAPER_RULES}, {workload}: events of kalman against {other}, worst of {seeds} seeds",
                _worst_change(ours, theirs, "scaling events"), -80.0, "%", round(paper, 1),
            )  # fmt: skip
    for metric in ("SLA violations", "image processing time", "query processing time"):
        for other in ("gaussian", "none"):
            ours, theirs = (results[PAPER_RULES, "Square", name] for name in ("kalman", other))
            published = PAPER["Square"][metric]
            paper = 100.0 * (published[2] / published[FILTERS.index(other)] - 1.0)
            at_most(
                f"{PAPER_RULES}, Square: {metric} of kalman against {other}",
                _change(ours, theirs, metric), 0.0, "%", round(paper, 1),
            )  # fmt: skip
    for workload, limit in (("Pyramid", -50.0), ("Square", -30.0)):
        ours, theirs = (results[SAME_ACTUATOR, workload, name] for name in ("kalman", "gaussian"))
        for metric, bar in (("scaling events", limit), ("SLA violations", 0.0), ("VM time", 5.0)):
            at_most(
                f"{SAME_ACTUATOR}, {workload}: {metric} of kalman against gaussian",
                _change(ours, theirs, metric), bar, "%",
            )  # fmt: skip
    at_most(
        f"start under full load: estimate within {RECOVERY_RATIO * 100:g} points of the truth, slowest seed",
        max(recovery), RECOVERY_S, "s",
    )  # fmt: skip
    at_most(f"nine configurations × {seeds} seeds on {PROCESSES} processes", nine_s, 120.0, "s")
    return figures


def _table_figures(results: Results) -> list[Figure]:
    figures = []
    for (rules, workload, label), found in results.items():
        for metric, (unit, _) in METRICS.items():
            paper = None
            if rules == PAPER_RULES and label in FILTERS:
                paper = PAPER[workload][metric][FILTERS.index(label)]
            values = _values(found, metric)
            figures.append(
                Figure(f"{rules}, {workload}, {label}: {metric}", fmean(values), paper=paper, unit=unit)
            )
    return figures


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def _welch(one: Sequence[float], other: Sequence[float]) -> str:
    """The p-value of Welch's t-test; none for a single seed, 0 or 1 for constants."""
    if len(one) < 2:
        return ""
    if _spread(one) == 0 and _spread(other) == 0:
        return "1" if one[0] == other[0] else "0"
    return f"{float(stats.ttest_ind(one, other, equal_var=False).pvalue):.2g}"


# --- what is written ---


def _write_tables(path: Path, results: Results) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["rules", "workload", "filter", "metric", "unit", "mean", "sigma", "paper"])
        for (rules, workload, label), found in results.items():
            for metric, (unit, _) in METRICS.items():
                values = _values(found, metric)
                known = rules == PAPER_RULES and label in FILTERS
                paper = PAPER[workload][metric][FILTERS.index(label)] if known else ""
                writer.writerow([rules, workload, label, metric, unit, fmean(values), _spread(values), paper])


def _write_page(
    path: Path,
    results: Results,
    trails: Mapping[tuple[str, str, str], Trail],
    sensitivity: Mapping[tuple[float, float], float],
    figures: Sequence[Figure],
    prices: Prices,
    training: Training,
) -> None:
    page = Page(
        "Paper 001: scaling on filtered utilisation", "Borkowski, Hochreiner, Schulte, PVLDB 12(7), 2019"
    )
    page.table(
        "What it shows",
        ("claim", "here", "bar", "paper", "holds"),
        [(f.name, f.here, f.bar, f.paper, f.holds) for f in figures if f.bar is not None],
    )
    for rules in (PAPER_RULES, SAME_ACTUATOR):
        for number, workload in enumerate(WORKLOADS, start=3):
            _add_table(page, f"Table {number}: {workload}, {rules}", results, rules, workload)
    page.text("Where and why we differ from the paper", REASONS)
    _add_sensitivity(page, sensitivity)
    _add_break_even(page, results, prices)
    _add_plots(page, trails)
    page.text(
        "How the filter was trained",
        (
            f"On a run of its own: √R {training.cpu_std:.3f} (CPU) and {training.memory_std:.4f} (memory) "
            f"from steady levels, a {training.sensitivity[0][0]:.4f} and b {training.sensitivity[0][1]:.4f} "
            "of CPU by least squares on changes over 5 s.",
        ),
    )
    page.write(path)


def _add_table(page: Page, title: str, results: Results, rules: str, workload: str) -> None:
    found = {name: results[rules, workload, name] for name in FILTERS}
    rows = []
    for metric, (unit, _) in METRICS.items():
        values = {name: _values(found[name], metric) for name in FILTERS}
        paper = " / ".join(f"{value:g}" for value in PAPER[workload][metric])
        rows.append(
            (
                f"{metric} [{unit}]" if unit else metric,
                *(f"{fmean(values[name]):.4g} ({_spread(values[name]):.2g})" for name in FILTERS),
                _welch(values["kalman"], values["gaussian"]),
                _welch(values["kalman"], values["none"]),
                _welch(values["gaussian"], values["none"]),
                paper if rules == PAPER_RULES else "",
            )
        )
    page.table(
        title,
        ("metric", *(f"{PAPER_NAMES[name]} (σ)" for name in FILTERS), "p EKF/GW", "p EKF/PURE", "p GW/PURE",
         "paper: PURE / GW / EKF"),
        rows,
        note="Means over seeds; p-values of Welch's t-test.",
    )  # fmt: skip


def _add_sensitivity(page: Page, sensitivity: Mapping[tuple[float, float], float]) -> None:
    best = min(sensitivity.values())
    rows = []
    for down in TABLE_2_DOWN:
        row = [f"Θ⁻ {down:.0%}"]
        for up in TABLE_2_UP:
            found = sensitivity.get((down, up))
            if found is None:
                row.append("")
            else:
                mark = " (best)" if found == best else ""
                row.append(f"{found:,.0f}{mark} [{PAPER_TABLE_2[down, up]:,}]")
        rows.append(row)
    page.table(
        "Table 2: SLA violations by thresholds",
        ("", *(f"Θ⁺ {up:.0%}" for up in TABLE_2_UP)),
        rows,
        note=f"Mean of the nine configurations, one seed of {SENSITIVITY_S:g} s each; [the paper's].",
    )


def break_even_violation(
    ours: Sequence[SeedResult], theirs: Sequence[SeedResult], vm_hour: float
) -> float | None:
    """The price of one violation from which on ours is cheaper; None where it is so at any price or none.

    In absolute figures: VM hours more, times their price, over violations fewer.
    """
    more_h = fmean(_values(ours, "VM time")) - fmean(_values(theirs, "VM time"))
    fewer = fmean(_values(theirs, "SLA violations")) - fmean(_values(ours, "SLA violations"))
    if more_h <= 0 or fewer <= 0:
        return None
    return more_h * vm_hour / fewer


def _add_break_even(page: Page, results: Results, prices: Prices) -> None:
    rows = []
    for rules in (PAPER_RULES, SAME_ACTUATOR):
        for workload in WORKLOADS:
            ours = results[rules, workload, "kalman"]
            for other in ("gaussian", "none"):
                theirs = results[rules, workload, other]
                more_h = fmean(_values(ours, "VM time")) - fmean(_values(theirs, "VM time"))
                fewer = fmean(_values(theirs, "SLA violations")) - fmean(_values(ours, "SLA violations"))
                price = break_even_violation(ours, theirs, prices.vm_hour)
                if price is not None:
                    verdict = f"from {price:.3g} {prices.currency} a violation on"
                else:
                    verdict = (
                        "at any price" if more_h <= 0 <= fewer else "depends: fewer VM hours, more violations"
                    )
                    if more_h > 0 >= fewer:
                        verdict = "never"
                saved = fewer * prices.violation - more_h * prices.vm_hour
                rows.append((rules, workload, PAPER_NAMES[other], more_h, fewer, verdict, saved))
    page.table(
        "Break-even of the Kalman filter, in absolute figures",
        ("rules", "workload", "against", "VM h more", "violations fewer", "pays", "saved"),
        rows,
        note=f"Per run of 45 min, at {prices.vm_hour:g} {prices.currency} a VM hour and {prices.violation:g} "
        f"{prices.currency} a violation. The paper's inequalities (20) and (22) compare percentages of "
        "different things and say nothing about money.",
        left=3,
    )  # fmt: skip


def _add_plots(page: Page, trails: Mapping[tuple[str, str, str], Trail]) -> None:
    for rules in (PAPER_RULES, SAME_ACTUATOR):
        figure = go.Figure()
        for colour, name in zip(PALETTE, FILTERS, strict=False):
            trail = trails[rules, "Pyramid", name]
            figure.add_scatter(
                x=trail.at_s[::4], y=trail.instances[::4], name=PAPER_NAMES[name],
                line={"shape": "hv", "color": colour},
            )  # fmt: skip
        _add_input(figure, trails[rules, "Pyramid", "kalman"])
        page.plot(
            f"Figure 8: instances on Pyramid, {rules}",
            figure,
            "Left: instances. Right: images a second.",
            380,
        )
    trail = trails[PAPER_RULES, "Pyramid", "kalman"]
    figure = go.Figure()
    figure.add_scatter(x=trail.at_s, y=trail.read, name="measured CPU", line={"color": "#b8c4cf", "width": 1})
    figure.add_scatter(x=trail.at_s, y=trail.estimated, name="estimate", line={"color": PALETTE[0]})
    figure.add_scatter(
        x=trail.at_s, y=trail.demand, name="truth (demand)", line={"color": PALETTE[2], "dash": "dot"}
    )
    for threshold in (0.45, 0.8):
        figure.add_hline(y=threshold, line={"dash": "dash", "color": PALETTE[6], "width": 1})
    _add_input(figure, trail)
    figure.update_yaxes(range=[0, 2], selector={"anchor": "x"})
    page.plot(
        "Figure 9: measured and estimated CPU on Pyramid", figure,
        "Means over instances; dashed: both thresholds. Above 1 the estimate is demand beyond capacity.", 380,
    )  # fmt: skip


def _add_input(figure: go.Figure, trail: Trail) -> None:
    figure.add_scatter(
        x=trail.at_s[::4], y=trail.images_per_s[::4], name="images/s", yaxis="y2",
        line={"color": "#999999", "width": 1, "dash": "dot"},
    )  # fmt: skip
    figure.update_layout(
        xaxis={"title": "s"},
        yaxis2={"overlaying": "y", "side": "right", "rangemode": "tozero", "showgrid": False},
    )
