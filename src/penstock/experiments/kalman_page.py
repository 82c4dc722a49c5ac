"""What the evaluation of paper 001 leaves behind: one page, one table of values, one verdict in words.

Nothing is computed here but means, spreads and p-values. Every table has the paper's values beside ours and
the reason where a row is not the same.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

import plotly.graph_objects as go
from scipy import stats

from penstock.experiments.kalman_evaluation import (
    AS_PRINTED,
    DRAIN_S,
    GAPS_CLOSED,
    GAUSSIAN_MIDDLE,
    METRICS,
    NEAR_RATIO,
    PAPER_RULES,
    RECOVERY_MEAN_S,
    RECOVERY_RATIO,
    RECOVERY_S,
    SAME_ACTUATOR,
    SENSITIVITY_S,
    Evaluation,
    Key,
    Pair,
    Prices,
    Results,
    break_even,
    start_error,
    values_of,
)
from penstock.experiments.kalman_paper import (
    FILTERS,
    LAB_REASON,
    PAPER,
    PAPER_NAMES,
    PAPER_TABLE_2,
    REASONS,
    TABLE_2_DOWN,
    TABLE_2_UP,
    reason_for,
)
from penstock.experiments.kalman_runs import WORKLOADS, Trail
from penstock.report.figures import Figure
from penstock.report.page import PALETTE, Page

SHOWN = {
    **PAPER_NAMES,
    GAPS_CLOSED: "EKF, gaps closed only",
    AS_PRINTED: "EKF, as printed",
    GAUSSIAN_MIDDLE: "GW, aiming at the middle",
}
"""The columns of the tables."""
NEARLY_CONSTANT = 1e-9
"""A spread below this share of the mean is rounding, which a t-test would take for a spread."""
COLUMNS = {
    PAPER_RULES: (*FILTERS, GAPS_CLOSED, AS_PRINTED),
    SAME_ACTUATOR: (*FILTERS, GAUSSIAN_MIDDLE),
}
RULES = (
    "“Paper's rules” are the paper's rules of scaling: thresholds at 45 % and 80 %, one instance a decision "
    "for PURE and GW, as many as its estimate says for EKF. They are not the paper's filter: the column EKF "
    "is our kalman with its gaps closed (covariance step, floor for Q, clamped readings as censored, "
    "newcomers from their unit's mean, reset on divergence) and with two rules of ours on: adaptive Q "
    f"(adaptive_ratio 0.1) and the backlog rule (drain_s {DRAIN_S:g}). Nor does the paper print how many "
    "instances EKF moves by: ours goes to where the work meets the middle of the band.",
    "“EKF, gaps closed only” leaves our two rules off. “EKF, as printed” is Equations (10) to (18) as they "
    "stand, but for the floor where P0 − R is negative: P grows by Q for ever, so the gain goes to 1 and the "
    "estimate becomes the reading, clamped at 1 where 14 instances are missing, plus b times the noise in "
    "the count of images, which swings it enough to stop instances that are still starting.",
    "“Same actuator” gives every filter the same: as many instances as its estimate says, thresholds widened "
    f"by one standard deviation of the estimate, and moves that go only {NEAR_RATIO * 100:g} % of the band "
    f"beyond the threshold that was crossed (inset_ratio {NEAR_RATIO:g}). “GW, aiming at the middle” is GW "
    "with moves to the middle of the band: EKF is held against it, too, lest it gain by what harms GW.",
)


def write_tables(path: Path, results: Results) -> None:
    """Every mean and σ as CSV, the paper's value where there is one."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["rules", "workload", "filter", "metric", "unit", "mean", "sigma", "paper"])
        for (rules, workload, label), found in results.items():
            for metric, (unit, _) in METRICS.items():
                values = values_of(found, metric)
                known = rules == PAPER_RULES and label in FILTERS
                paper = PAPER[workload][metric][FILTERS.index(label)] if known else ""
                writer.writerow([rules, workload, label, metric, unit, fmean(values), _spread(values), paper])


def write_verdict(path: Path, evaluation: Evaluation, prices: Prices) -> None:
    """What a reader has to know beside the figures, in words."""
    lines = ["Which rules are whose:", *(f"  {text}" for text in RULES)]
    lines += ["Where and why Tables 3 to 5 are not the paper's:"]
    lines += [f"  {metric}: {text}" for metric, text in REASONS.items()]
    lines += [f"  {LAB_REASON}"]
    lines += [f"Break-even of kalman against gaussian at {_named(prices)}:"]
    for rules in (PAPER_RULES, SAME_ACTUATOR):
        for workload in WORKLOADS:
            found = break_even(
                evaluation.results[rules, workload, "kalman"],
                evaluation.results[rules, workload, "gaussian"],
                prices,
            )
            lines.append(
                f"  {rules}, {workload}: {found.more_h:+.2f} VM h, {-found.fewer:+,.0f} violations; "
                f"pays {found.pays}; saves {found.saved:.3g} {prices.currency} a run"
            )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_page(path: Path, evaluation: Evaluation, figures: Sequence[Figure], prices: Prices) -> None:
    """Everything on one page that needs nothing else."""
    page = Page(
        "Paper 001: scaling on filtered utilisation",
        f"Borkowski, Hochreiner, Schulte, PVLDB 12(7), 2019 · {evaluation.seeds} seeds of 45 min each",
    )
    results = evaluation.results
    claims = [figure for figure in figures if figure.bar is not None]
    page.cards(
        {
            "claims hold": f"{sum(figure.holds is True for figure in claims)} of {len(claims)}",
            "scaling events, Square, same actuator, EKF / GW": _ratio(results, "scaling events"),
            "VM time, Square, same actuator, EKF / GW": _ratio(results, "VM time"),
            "SLA violations, Square, same actuator, EKF / GW": _ratio(results, "SLA violations"),
        }
    )
    papers = [figure for figure in claims if figure.name.startswith(PAPER_RULES)]
    for title, shown in (
        ("What it shows: the paper's claims", papers),
        ("What it shows: beyond the paper", [figure for figure in claims if figure not in papers]),
    ):
        page.table(
            title,
            ("claim", "here", "bar", "paper", "holds"),
            [
                (f.name, _with_unit(f.here, f.unit), f.bar, _with_unit(f.paper, f.unit), f.holds)
                for f in shown
            ],
            note="Changes are those of the means over all seeds, unless the claim says worst of the seeds.",
        )
    page.text("Which rules are whose", RULES)
    for rules in (PAPER_RULES, SAME_ACTUATOR):
        for number, workload in enumerate(WORKLOADS, start=3):
            _add_table(page, f"Table {number}: {workload}, {rules}", results, rules, workload)
    page.table(
        "Where and why Tables 3 to 5 are not the paper's",
        ("", "row", "reason"),
        [
            *((_letter(metric), metric, reason) for metric, reason in REASONS.items()),
            ("", "all of Lab", LAB_REASON),
        ],
        left=3,
    )
    _add_sensitivity(page, evaluation.sensitivity)
    _add_break_even(page, results, prices)
    _add_instances(page, evaluation.trails)
    _add_estimate(page, evaluation.trails[PAPER_RULES, "Pyramid", "kalman"])
    _add_lab(page, evaluation.trails)
    _add_starts(page, evaluation)
    training = evaluation.training
    page.text(
        "How the filter was trained",
        (
            f"On a run of its own: √R {training.cpu_std:.3f} (CPU) and {training.memory_std:.4f} (memory) "
            f"from steady levels, a {training.sensitivity[0][0]:.4f} and b {training.sensitivity[0][1]:.4f} "
            "of CPU by least squares on changes over 5 s.",
        ),
    )
    page.write(path)


# --- tables ---


def _add_table(page: Page, title: str, results: Results, rules: str, workload: str) -> None:
    names = COLUMNS[rules]
    rows = []
    for metric, (unit, _) in METRICS.items():
        values = {name: values_of(results[rules, workload, name], metric) for name in names}
        row = [
            f"{metric} [{unit}]" if unit else metric,
            *(f"{_short(fmean(values[name]))} ({_short(_spread(values[name]), 2)})" for name in names),
            _welch(values["kalman"], values["gaussian"]),
            _welch(values["kalman"], values["none"]),
            _welch(values["gaussian"], values["none"]),
        ]
        if rules == PAPER_RULES:
            published = PAPER[workload][metric]
            here = tuple(fmean(values[name]) for name in FILTERS)
            differs = bool(reason_for(metric, here, published))
            row += [" / ".join(f"{value:,g}" for value in published), _letter(metric) if differs else "same"]
        rows.append(row)
    columns = ["metric", *(f"{SHOWN[name]} (σ)" for name in names), "p EKF/GW", "p EKF/PURE", "p GW/PURE"]
    if rules == PAPER_RULES:
        columns += ["paper: PURE / GW / EKF", "why"]
    note = "Means over the seeds (σ); p-values of Welch's t-test."
    if rules == PAPER_RULES:
        note += " Why: the letter of the reason below where a value is more than 10 % off the paper's."
    page.table(title, columns, rows, note=note)


def _add_sensitivity(page: Page, sensitivity: Mapping[Pair, float]) -> None:
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
        note=f"Mean of the nine configurations, one seed of {SENSITIVITY_S:g} s each; [the paper's, 20 runs "
        "of 2,700 s, best at 50 % and 80 %]. The level differs for the reason given for SLA violations. "
        "Violations alone favour low thresholds: nobody pays for the instances in this table.",
    )


def _add_break_even(page: Page, results: Results, prices: Prices) -> None:
    rows = []
    for rules in (PAPER_RULES, SAME_ACTUATOR):
        for workload in WORKLOADS:
            for other in ("gaussian", "none"):
                found = break_even(
                    results[rules, workload, "kalman"], results[rules, workload, other], prices
                )
                rows.append(
                    (
                        rules, workload, PAPER_NAMES[other], found.pays,
                        f"{found.more_h:+.2f}", f"{-found.fewer:+,.0f}", f"{found.saved:+.4f}",
                    )
                )  # fmt: skip
    page.table(
        "Break-even of the Kalman filter, in absolute figures",
        ("rules", "workload", "against", "pays", "VM h", "violations", f"saved [{prices.currency}]"),
        rows,
        note=f"Per run of 45 min, at {_named(prices)} (set your own with --vm-price and --violation-price). "
        "The paper's inequalities (20) and (22) compare percentages of different things and say nothing "
        "about money.",
        left=4,
    )


# --- plots ---


def _add_instances(page: Page, trails: Mapping[Key, Trail]) -> None:
    for rules in (PAPER_RULES, SAME_ACTUATOR):
        figure = go.Figure()
        for colour, name in zip((PALETTE[5], PALETTE[1], PALETTE[0]), FILTERS, strict=True):
            trail = trails[rules, "Pyramid", name]
            figure.add_scatter(
                x=trail.at_s[::4], y=trail.instances[::4], name=PAPER_NAMES[name],
                line={"shape": "hv", "color": colour, "width": 2.5 if name == "kalman" else 1.2},
            )  # fmt: skip
        _add_input(figure, trails[rules, "Pyramid", "kalman"])
        figure.update_layout(yaxis={"title": "instances", "range": [0, 33], "dtick": 8})
        page.plot(
            f"Figure 8: instances on Pyramid, {rules}",
            figure,
            "The first seed. Left: instances that run or start. Right: images a second.",
            380,
        )


def _add_estimate(page: Page, trail: Trail) -> None:
    figure = go.Figure()
    figure.add_scatter(x=trail.at_s, y=trail.read, name="measured CPU", line={"color": "#b8c4cf", "width": 1})
    figure.add_scatter(
        x=trail.at_s, y=trail.demand, name="truth (demand)", line={"color": PALETTE[2], "dash": "dot"}
    )
    figure.add_scatter(x=trail.at_s, y=trail.estimated, name="estimate", line={"color": PALETTE[0]})
    for threshold in (0.45, 0.8):
        figure.add_hline(y=threshold, line={"dash": "dash", "color": PALETTE[6], "width": 1})
    _add_input(figure, trail)
    figure.update_layout(yaxis={"title": "utilisation", "range": [0, 2], "dtick": 0.5})
    page.plot(
        "Figure 9: measured and estimated CPU on Pyramid", figure,
        "The first seed, means over its instances; dashed: both thresholds. Above 1 the estimate is demand "
        "beyond capacity (cut at 2).", 380,
    )  # fmt: skip


def _add_lab(page: Page, trails: Mapping[Key, Trail]) -> None:
    figure = go.Figure()
    trail = trails[SAME_ACTUATOR, "Lab", "kalman"]
    for colour, name in ((PALETTE[1], "gaussian"), (PALETTE[0], "kalman")):
        shown = trails[SAME_ACTUATOR, "Lab", name]
        figure.add_scatter(
            x=shown.at_s[::4], y=shown.instances[::4], name=PAPER_NAMES[name],
            line={"shape": "hv", "color": colour},
        )  # fmt: skip
    _add_input(figure, trail)
    figure.update_layout(yaxis={"title": "instances", "range": [0, 33], "dtick": 8})
    page.plot(
        "The lab-like trace, which is ours, and the instances on it, same actuator", figure, LAB_REASON, 340
    )


def _add_starts(page: Page, evaluation: Evaluation) -> None:
    figure = go.Figure()
    for number, trail in enumerate(evaluation.starts.values()):
        error = start_error(trail) * 100.0
        figure.add_scatter(
            x=trail.at_s[len(trail.at_s) - len(error) :], y=error, name=f"seed {number}",
            line={"color": PALETTE[0], "width": 1}, opacity=0.5, showlegend=False,
        )  # fmt: skip
    for limit in (-RECOVERY_RATIO, RECOVERY_RATIO):
        figure.add_hline(y=limit * 100.0, line={"dash": "dash", "color": PALETTE[6], "width": 1})
    figure.add_vline(x=RECOVERY_S, line={"dash": "dash", "color": PALETTE[6], "width": 1})
    figure.update_layout(xaxis={"title": "s"}, yaxis={"title": "points", "range": [-60, 60]})
    page.plot(
        "A start under full load: estimate less truth",
        figure,
        f"One line a seed, running means of {RECOVERY_MEAN_S:g} s (cut at 60 points). One instance meets 65 "
        f"images/s. For good within {RECOVERY_RATIO * 100:g} points of the truth after "
        f"{min(evaluation.recovery_s):.1f} to {max(evaluation.recovery_s):.1f} s, "
        f"{fmean(evaluation.recovery_s):.1f} s on average; dashed: the bar.",
        340,
    )


def _add_input(figure: go.Figure, trail: Trail) -> None:
    figure.add_scatter(
        x=trail.at_s[::4], y=trail.images_per_s[::4], name="images/s", yaxis="y2",
        line={"color": "#999999", "width": 1, "dash": "dot"},
    )  # fmt: skip
    figure.update_layout(
        xaxis={"title": "s"},
        yaxis2={
            "overlaying": "y", "side": "right", "range": [0, 82.5], "dtick": 20, "tickmode": "linear",
            "tick0": 0, "showgrid": False, "title": "images/s",
        },
    )  # fmt: skip


# --- words and numbers ---


def _letter(metric: str) -> str:
    return "ABCDE"[list(REASONS).index(metric)]


def _named(prices: Prices) -> str:
    currency = prices.currency
    return f"{prices.vm_hour:g} {currency} a VM hour and {prices.violation:g} {currency} a violation"


def _ratio(results: Results, metric: str) -> str:
    ours, theirs = (
        fmean(values_of(results[SAME_ACTUATOR, "Square", name], metric)) for name in ("kalman", "gaussian")
    )
    return f"{_short(ours)} / {_short(theirs)}"


def _short(value: float, digits: int = 3) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def _with_unit(value: float | str | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value if isinstance(value, str) else f'{value:.4g}'} {unit}".rstrip()


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def _welch(one: Sequence[float], other: Sequence[float]) -> str:
    """The p-value of Welch's t-test; none for a single seed, 0 or 1 for (nearly) constant values."""
    if len(one) < 2:
        return ""
    if all(_spread(values) <= NEARLY_CONSTANT * abs(fmean(values)) for values in (one, other)):
        return "1" if abs(one[0] - other[0]) <= NEARLY_CONSTANT * abs(one[0]) else "0"
    found = stats.ttest_ind_from_stats(
        fmean(one), stdev(one), len(one), fmean(other), stdev(other), len(other), equal_var=False
    )
    return f"{float(found.pvalue):.2g}"
