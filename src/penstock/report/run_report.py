"""The report of one run, simulated or real: the same page from the same journal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from penstock.controller.journal import Journal
from penstock.controller.result import RunResult
from penstock.monitoring.sla import LEVELS
from penstock.quantities import format_duration
from penstock.report.page import PALETTE, Page
from penstock.topology.model import Topology

DECISIONS_SHOWN = 400


def write_run_report(
    folder: Path,
    topology: Topology,
    result: RunResult,
    journal: Journal,
    compared: Mapping[str, RunResult] | None = None,
) -> Path:
    """Write summary.json and report.html into a run's folder; the page's path.

    `compared` adds a table of this run beside others, for example the simulated twin of a real run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(result.summary(), indent=2) + "\n")
    page = Page(
        f"{topology.name}: {result.kind} run",
        ", ".join(
            [
                f"{format_duration(result.duration_s)}",
                "policy " + " and ".join(sorted({unit.policy.name for unit in topology.units})),
                "filter " + " and ".join(sorted({unit.filter.name for unit in topology.units})),
                "billing unit " + ", ".join(format_duration(site.btu_s) for site in topology.sites),
                *([f"seed {result.seed}"] if result.seed is not None else []),
            ]
        ),
    )
    page.cards(_cards(result))
    if compared:
        comparison_table(page, {result.kind: result, **compared})
    ticks = journal.rows("tick")
    observations = _by_unit(journal.rows("observation"))
    start_s = ticks[0]["at_s"] if ticks else 0.0
    _load(page, topology, observations, start_s)
    _lines(page, "Waiting records", observations, "waiting", start_s, "records", "What waits for each unit.")
    _lines(
        page, "Instances", observations, "instances", start_s, "instances", "Asked for, by unit.", step=True
    )
    _leases(page, journal, ticks, start_s)
    _bill(page, ticks, start_s)
    _durations(page, topology, observations, start_s)
    _compliance(page, result)
    _units(page, result)
    _decisions(page, journal, start_s)
    _notices(page, journal, start_s)
    return page.write(folder / "report.html")


def comparison_table(page: Page, results: Mapping[str, RunResult]) -> None:
    """Runs side by side; with two of them, how far the second deviates from the first."""
    names = list(results)
    rows: list[list[object]] = []
    figures: dict[str, list[float]] = {
        "resource cost": [float(r.resource_cost) for r in results.values()],
        "host-minutes": [r.host_s / 60 for r in results.values()],
        "compliance, real-time": [r.compliance.ratio("real_time") for r in results.values()],
        "compliance, near real-time": [r.compliance.ratio("near_real_time") for r in results.values()],
        "compliance, relaxed": [r.compliance.ratio("relaxed") for r in results.values()],
        "rescales": [float(r.rescales) for r in results.values()],
        "records in": [float(r.records_in) for r in results.values()],
        "end-to-end p95 (s)": [r.end_to_end.p95_s for r in results.values()],
    }
    for name, values in figures.items():
        row: list[object] = [name, *values]
        if len(values) == 2:
            row.append(f"{(values[1] / values[0] - 1) * 100:+.1f} %" if values[0] else "")
        rows.append(row)
    columns = ["", *names, *(["deviation"] if len(names) == 2 else [])]
    page.table("Side by side", columns, rows)


def _cards(result: RunResult) -> dict[str, str]:
    compliance = result.compliance
    return {
        "resource cost": f"{result.resource_cost:.4g} {result.currency}".strip(),
        "host-minutes": f"{result.host_s / 60:,.0f}",
        "kept real-time": compliance.shown("real_time"),
        "kept relaxed": compliance.shown("relaxed"),
        "end-to-end p95": format_duration(result.end_to_end.p95_s) if result.end_to_end.count else "–",
        "records in": f"{result.records_in:,}",
        "rescales": f"{result.rescales:,}",
    }


def _by_unit(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["unit"], []).append(row)
    return found


def _minutes(rows: Sequence[Mapping[str, Any]], start_s: float) -> list[float]:
    return [(row["at_s"] - start_s) / 60 for row in rows]


def _load(
    page: Page, topology: Topology, observations: Mapping[str, Sequence[Mapping[str, Any]]], start_s: float
) -> None:
    figure = go.Figure()
    entries = {
        topology.unit_of[name]
        for source in topology.sources
        for name in topology.successors[source.name]
        if name in topology.unit_of
    }
    for unit, rows in observations.items():
        if unit in entries:
            rates = [row["arrived"] / row["interval_s"] if row["interval_s"] else 0.0 for row in rows]
            figure.add_scatter(x=_minutes(rows, start_s), y=rates, name=unit, line_shape="hv")
    figure.update_xaxes(title="minutes").update_yaxes(title="records a second", rangemode="tozero")
    page.plot("Load", figure, "Records arriving at the units that sources feed.")


def _lines(
    page: Page,
    title: str,
    observations: Mapping[str, Sequence[Mapping[str, Any]]],
    column: str,
    start_s: float,
    axis: str,
    note: str,
    step: bool = False,
) -> None:
    figure = go.Figure()
    for unit, rows in observations.items():
        figure.add_scatter(
            x=_minutes(rows, start_s), y=[row[column] for row in rows], name=unit,
            line_shape="hv" if step else "linear",
        )  # fmt: skip
    figure.update_xaxes(title="minutes").update_yaxes(title=axis, rangemode="tozero")
    if step:
        most = max((row[column] or 0 for rows in observations.values() for row in rows), default=1)
        figure.update_yaxes(dtick=_whole_step(most))
    page.plot(title, figure, note)


def _whole_step(most: int) -> int:
    """The distance of ticks on an axis that counts things: whole, and at most about six of them."""
    return max(1, math.ceil(most / 6))


def _leases(page: Page, journal: Journal, ticks: Sequence[Mapping[str, Any]], start_s: float) -> None:
    leases = journal.leases()
    if not leases or not ticks:
        return
    end_s = ticks[-1]["at_s"]
    figure = go.Figure()
    names = [lease.host for lease in leases]
    figure.add_bar(
        y=names, x=[lease.units * lease.btu_s / 60 for lease in leases],
        base=[(lease.started_s - start_s) / 60 for lease in leases], orientation="h", name="paid",
        marker={"color": "#cfdbe4"}, hovertemplate="%{x:.1f} min paid",
    )  # fmt: skip
    used = [((end_s if lease.ended_s is None else lease.ended_s) - lease.started_s) / 60 for lease in leases]
    figure.add_bar(
        y=names, x=used, base=[(lease.started_s - start_s) / 60 for lease in leases], orientation="h",
        name="leased", width=0.45, marker={"color": PALETTE[0]}, hovertemplate="%{x:.1f} min leased",
    )  # fmt: skip
    figure.update_layout(barmode="overlay").update_xaxes(title="minutes").update_yaxes(autorange="reversed")
    page.plot(
        "Hosts and their leases", figure, "Dark: how long each host was kept. Light: what was paid for.",
        height=max(220, 60 + 22 * len(names)),
    )  # fmt: skip


def _bill(page: Page, ticks: Sequence[Mapping[str, Any]], start_s: float) -> None:
    figure = go.Figure()
    minutes = _minutes(ticks, start_s)
    figure.add_scatter(x=minutes, y=[float(t["bill"]) for t in ticks], name="bill", line_shape="hv")
    figure.add_scatter(
        x=minutes, y=[t["hosts"] for t in ticks], name="hosts", line_shape="hv", yaxis="y2", line_dash="dot"
    )
    figure.update_layout(
        yaxis2={
            "overlaying": "y", "side": "right", "title": "hosts", "rangemode": "tozero", "showgrid": False,
            "dtick": _whole_step(max((t["hosts"] for t in ticks), default=1)),
        }
    )  # fmt: skip
    figure.update_xaxes(title="minutes")
    figure.update_layout(yaxis={"title": "cost so far", "rangemode": "tozero"})
    page.plot("Bill", figure, "Every started billing time unit is paid whole.")


def _durations(
    page: Page, topology: Topology, observations: Mapping[str, Sequence[Mapping[str, Any]]], start_s: float
) -> None:
    figure = go.Figure()
    for unit, rows in observations.items():
        slo_s = topology.unit_slo_s(unit)
        values = [None if row["duration_s"] is None else row["duration_s"] / slo_s for row in rows]
        # Where nothing was finished there is no duration; the line goes on at the next that is known.
        figure.add_scatter(x=_minutes(rows, start_s), y=values, name=unit, connectgaps=True)
    figure.add_hline(
        y=1.0, line_dash="dash", line_color="#888", annotation_text="SLO", annotation_position="bottom left"
    )
    figure.update_xaxes(title="minutes").update_yaxes(title="mean duration / SLO", type="log")
    page.plot("Processing duration", figure, "Mean over each monitoring interval, as a multiple of the SLO.")


def _compliance(page: Page, result: RunResult) -> None:
    figure = go.Figure()
    names = list(result.units)
    for level, factor in LEVELS.items():
        figure.add_bar(
            x=names,
            y=[result.units[name].compliance.ratio(level) * 100 for name in names],
            name=f"{level.replace('_', ' ')} (≤ {factor:g} SLO)",
        )
    figure.update_yaxes(title="% of records", range=[0, 100])
    page.plot("Compliance", figure, "Share of records within one, two and five times the SLO.")


def _units(page: Page, result: RunResult) -> None:
    page.table(
        "Units",
        ["unit", "SLO (s)", "arrived", "processed", "left", "mean (s)", "p50 (s)", "p95 (s)", "p99 (s)",
         "real-time", "relaxed", "largest queue", "time to adapt (s)"],
        [
            [u.unit, u.slo_s, u.arrived, u.processed, u.left, u.durations.mean_s, u.durations.p50_s,
             u.durations.p95_s, u.durations.p99_s, u.compliance.shown("real_time"),
             u.compliance.shown("relaxed"), u.largest_queue, u.time_to_adapt_s]
            for u in result.units.values()
        ],
    )  # fmt: skip
    counts = {kind: number for kind, number in result.actions.items() if number}
    page.table(
        "Actions and cost",
        ["", "value"],
        [
            *[[kind, number] for kind, number in counts.items()],
            ["hosts leased", result.leases],
            ["billing time units paid", result.paid_units],
            ["of these by prolonging", result.prolonged_units],
            ["hosts given back before their paid end", result.early_releases],
            ["resource cost", f"{result.resource_cost} {result.currency}"],
            *[[f"total cost, {level.replace('_', ' ')}", str(result.total_cost(level))] for level in LEVELS],
        ],
    )


def _decisions(page: Page, journal: Journal, start_s: float) -> None:
    rows = [row for row in journal.rows("action") if row["status"] != "held"]
    shown = rows[:DECISIONS_SHOWN]
    note = f"The first {len(shown)} of {len(rows)}; the journal has all." if len(rows) > len(shown) else ""
    page.table(
        "Decisions",
        ["minute", "action", "about", "policy", "reason", "outcome"],
        [
            [f"{(row['at_s'] - start_s) / 60:.1f}", row["kind"], row["subject"], row["policy"], row["reason"],
             row["refused"] or row["status"]]
            for row in shown
        ],
        note,
        left=6,
    )  # fmt: skip


def _notices(page: Page, journal: Journal, start_s: float) -> None:
    rows = journal.rows("notice")
    if rows:
        page.table(
            "Notices",
            ["minute", "what happened"],
            [[f"{(row['at_s'] - start_s) / 60:.1f}", row["text"]] for row in rows[:DECISIONS_SHOWN]],
            left=2,
        )
