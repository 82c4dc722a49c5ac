"""The report of one run, simulated or real: the same page from the same journal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from penstock.controller.journal import Journal
from penstock.controller.result import RunResult
from penstock.fleet.actions import verb_of
from penstock.monitoring.health import operator_health
from penstock.monitoring.sla import LEVELS
from penstock.quantities import format_duration
from penstock.report.hints import KEPT_RATIO, hints
from penstock.report.lines import Line
from penstock.report.moments import moments_of
from penstock.report.page import PALETTE, Page
from penstock.topology.file import dump_topology
from penstock.topology.model import Topology

DECISIONS_SHOWN = 400
LEASES_SHOWN = 120
KINDS = {"spark": "a run on Spark", "simulated": "a simulated run"}
"""What a run is, in words."""


def write_run_report(
    folder: Path,
    topology: Topology,
    result: RunResult,
    journal: Journal,
    compared: Mapping[str, RunResult] | None = None,
    best_cost: float | None = None,
    busy_ratio: float | None = None,
) -> Path:
    """Write topology.yaml, summary.json and report.html into a run's folder; the page's path.

    `compared` adds a table of this run beside others, for example the simulated twin of a real run.
    `best_cost` is what the clairvoyant plan for the same load costs, where it is known, and `busy_ratio` how
    busy the cores of the machine were that it ran on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "topology.yaml").write_text(dump_topology(topology))
    (folder / "summary.json").write_text(json.dumps(result.summary(), indent=2) + "\n")
    page = Page(
        f"{topology.name}: {KINDS.get(result.kind, result.kind)}",
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
    ticks = journal.rows("tick")
    observations = _by_unit(journal.rows("observation"))
    start_s = ticks[0]["at_s"] if ticks else 0.0
    _verdict(page, topology, result, journal, observations, start_s, best_cost, busy_ratio)
    page.cards(_cards(result))
    if compared:
        comparison_table(page, {result.kind: result, **compared})
    _load(page, topology, observations, start_s)
    _lines(page, "Waiting records", observations, "waiting", start_s, "records", "What waits for each unit.")
    _lines(
        page, "Instances", observations, "instances", start_s, "instances", "Asked for, by unit.", step=True
    )
    health = (
        "Over the last minute; below 0.9 a unit is congested. Not known until its first record is finished."
    )
    _lines(page, "Health", observations, "health", start_s, "executed / received", health)
    _operators(page, topology, observations)
    _durations(page, topology, observations, start_s)
    _bill(page, ticks, start_s)
    _leases(page, journal, ticks, start_s)
    _compliance(page, result)
    _units(page, result)
    _decisions(page, journal, start_s)
    _notices(page, journal, start_s)
    return page.write(folder / "report.html")


def _verdict(
    page: Page,
    topology: Topology,
    result: RunResult,
    journal: Journal,
    observations: Mapping[str, Sequence[Mapping[str, Any]]],
    start_s: float,
    best_cost: float | None,
    busy_ratio: float | None,
) -> None:
    """Kept or not, at what cost, against what it could have cost, and the moments worth looking at."""
    compliance, cost = result.compliance, float(result.resource_cost)
    # A unit with few records that misses is not outweighed by one with many that keeps.
    missed = [
        unit.unit
        for unit in result.units.values()
        if unit.compliance.records and unit.compliance.ratio("real_time") < KEPT_RATIO
    ]
    kept, verdict = not missed, f"Missed by {', '.join(missed)}" if missed else "Kept"
    money = f"{cost:.4g} {result.currency}".rstrip()
    sentence = (
        f"{verdict}: {compliance.shown('real_time')} of the records were processed within their SLO, "
        f"for {money}" + ("" if kept else f"; {KEPT_RATIO:.0%} of each unit's count as kept")
    )
    more = []
    if best_cost is not None and best_cost > 0:
        more.append(
            f"It could have cost {best_cost:.4g} {result.currency}".rstrip()
            + f", had the load been known beforehand: this run paid {cost / best_cost:.2f} times that."
        )
    more += [f"{hint}." for hint in hints(result, busy_ratio)[:4]]
    moments = moments_of(
        topology,
        observations,
        journal.rows("action"),
        [(charge.at_s, float(charge.amount)) for charge in journal.charges()],
        journal.rows("notice"),
        result.currency,
    )
    page.verdict(kept, sentence, more, {f"minute {(m.at_s - start_s) / 60:.1f}": m.what for m in moments})


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
    note = "The same load on the simulator, with what this run measured." if "simulated" in names[1:] else ""
    page.table("Side by side", columns, rows, note)


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
    entries = {
        topology.unit_of[name]
        for source in topology.sources
        for name in topology.successors[source.name]
        if name in topology.unit_of
    }
    lines = [
        Line(
            unit,
            _minutes(rows, start_s),
            [row["arrived"] / row["interval_s"] if row["interval_s"] else 0.0 for row in rows],
            stepped=True,
        )
        for unit, rows in observations.items()
        if unit in entries
    ]
    page.lines("Load", lines, "records a second", "Records arriving at the units that sources feed.")


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
    lines = [
        Line(unit, _minutes(rows, start_s), [row[column] for row in rows], stepped=step)
        for unit, rows in observations.items()
    ]
    page.lines(title, lines, axis, note)


def _leases(page: Page, journal: Journal, ticks: Sequence[Mapping[str, Any]], start_s: float) -> None:
    leases = [lease for lease in journal.leases() if lease.units]
    if not leases or not ticks:
        return
    end_s = max(float(ticks[-1]["at_s"]), start_s + 1.0)
    shown = sorted(leases, key=lambda lease: lease.cost, reverse=True)[:LEASES_SHOWN]
    shown.sort(key=lambda lease: lease.started_s)
    width, row, left = 1000, 18, 130
    parts = []
    for number, lease in enumerate(shown):
        y = 4 + number * row

        def x(at_s: float) -> float:
            return left + (width - left) * min(1.0, max(0.0, (at_s - start_s) / (end_s - start_s)))

        until_s = end_s if lease.ended_s is None else lease.ended_s
        paid_time = format_duration(lease.paid_until_s - lease.started_s)
        begin, paid, kept = x(lease.started_s), x(lease.paid_until_s), x(until_s)
        parts.append(
            f'<text x="0" y="{y + 12}">{escape(lease.host)}</text>'
            f'<rect x="{begin:.1f}" y="{y}" width="{max(1.0, paid - begin):.1f}" height="14" fill="#cfdbe4">'
            f"<title>{paid_time} paid, {lease.cost}</title></rect>"
            f'<rect x="{begin:.1f}" y="{y + 4}" width="{max(1.0, kept - begin):.1f}" height="6" '
            f'fill="{PALETTE[0]}"/>'
        )
    height = 8 + row * len(shown)
    drawing = (
        f'<div class="scroll"><svg viewBox="0 0 {width} {height}" width="100%" role="img" '
        f'aria-label="leases" font-size="11">{"".join(parts)}</svg></div>'
    )
    first = f" The {len(shown)} dearest of {len(leases)}." if len(leases) > len(shown) else ""
    note = f"Dark: how long each host was kept. Light: what was paid for.{first}"
    page.html("Hosts and their leases", drawing, note)


def _bill(page: Page, ticks: Sequence[Mapping[str, Any]], start_s: float) -> None:
    minutes = _minutes(ticks, start_s)
    bill = Line("bill", minutes, [float(tick["bill"]) for tick in ticks], stepped=True)
    page.lines("Bill", [bill], "cost so far", "Every started billing time unit is paid whole.")
    hosts = Line("hosts", minutes, [tick["hosts"] for tick in ticks], stepped=True)
    page.lines("Hosts", [hosts], "hosts leased")


def _durations(
    page: Page, topology: Topology, observations: Mapping[str, Sequence[Mapping[str, Any]]], start_s: float
) -> None:
    lines = []
    for unit, rows in observations.items():
        slo_s = topology.unit_slo_s(unit)
        # Where nothing was finished there is no duration; the line goes on at the next that is known.
        values = [None if not row["duration_s"] else row["duration_s"] / slo_s for row in rows]
        lines.append(Line(unit, _minutes(rows, start_s), values))
    note = "Mean over each monitoring interval, as a multiple of the SLO; the dashed line is the SLO."
    page.lines("Processing duration", lines, "mean duration / SLO", note, log=True, reference=1.0)


def _compliance(page: Page, result: RunResult) -> None:
    head = "".join(
        f"<th>{escape(level.replace('_', ' '))} (≤ {factor:g} SLO)</th>" for level, factor in LEVELS.items()
    )
    rows = "".join(
        f'<tr><td class="left">{escape(name)}</td>'
        + "".join(
            f'<td>{unit.compliance.shown(level)}<div class="bar" '
            f'style="width:{100 * unit.compliance.ratio(level):.1f}%"></div></td>'
            for level in LEVELS
        )
        + "</tr>"
        for name, unit in result.units.items()
    )
    table = f'<table><thead><tr><th class="left">unit</th>{head}</tr></thead><tbody>{rows}</tbody></table>'
    page.html("Compliance", table, "Share of records within one, two and five times the SLO.")


def _operators(
    page: Page, topology: Topology, observations: Mapping[str, Sequence[Mapping[str, Any]]]
) -> None:
    """The lowest health of each operator, where a unit has several: which of them was congested."""
    rows = []
    for unit in topology.units:
        known = [row["health"] for row in observations.get(unit.name, ()) if row["health"] is not None]
        if len(unit.operators) > 1 and known:
            found = operator_health(topology, unit.name, min(known))
            rows += [[name, unit.name, "–" if low is None else f"{low:.2f}"] for name, low in found.items()]
    if rows:
        note = (
            "Operators of a unit share its micro-batches: records wait before those that read from outside."
        )
        page.table("Operators", ["operator", "unit", "lowest health"], rows, note, left=2)


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
            *[[verb_of(kind), number] for kind, number in counts.items()],
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
            [f"{(row['at_s'] - start_s) / 60:.1f}", verb_of(row["kind"]), row["subject"], row["policy"],
             row["reason"], row["refused"] or row["status"]]
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
