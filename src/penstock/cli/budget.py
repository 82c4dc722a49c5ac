"""`penstock budget`: how a topology's latency bound is shared among its units, and what that costs."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock.budgets import (
    SOLVERS,
    Load,
    Solution,
    at_places,
    granted,
    loads_from_sources,
    problem_of,
    solve,
)
from penstock.cli.choices import read_span
from penstock.cli.console import console as open_console
from penstock.errors import ConfigurationError
from penstock.quantities import format_duration, rate_per_s
from penstock.report.page import Page
from penstock.runs.assembly import load, source_rates
from penstock.topology.model import Topology


def budget(
    file: Annotated[Path, typer.Argument(help="The topology file.", show_default=False)],
    solver: Annotated[str, typer.Option(help=f"One of {', '.join(SOLVERS)}.")] = "hull",
    bound: Annotated[
        str | None, typer.Option(help='Bound for every path, such as "2 s", instead of the file\'s own.')
    ] = None,
    step: Annotated[
        str | None, typer.Option(help="Budgets are multiples of this; a 200th of the bound by default.")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(help='Load of every source, such as "100/s"; its workload\'s mean by default.'),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with the graph coloured by budget.")] = None,
) -> None:
    """Share a latency bound among the units at the least cost: budget, instances, cost and slack of each."""
    topology = at_places(load(file))
    rates = source_rates(topology) if rate is None else dict.fromkeys(topology.source_by_name, _rate(rate))
    loads = loads_from_sources(topology, rates)
    problem = problem_of(
        topology,
        loads=loads,
        bound_s=None if bound is None else read_span(bound, "--bound"),
        step_s=None if step is None else read_span(step, "--step"),
    )
    solution = solve(problem, solver)
    console = open_console()
    if json:
        typer.echo(json_module.dumps(described(topology, loads, solution), indent=2, ensure_ascii=False))
    else:
        console.print(budget_table(topology, loads, solution))
    if html is not None:
        budget_page(topology, loads, solution).write(html)
        if not json:
            console.print(f"page written to {html}")


def _rate(text: str) -> float:
    found = rate_per_s(text)
    if found < 0:
        raise ConfigurationError(f"--rate: expected 0/s or more, got {text!r}")
    return found


def _currency(topology: Topology) -> str:
    return next((site.currency for site in topology.sites if site.currency), "")


def _bounds_in_words(solution: Solution) -> str:
    bounds = [
        format_duration(bound.bound_s)
        + (f" from {', '.join(bound.first)}" if bound.first else "")
        + (f" to {', '.join(bound.last)}" if bound.last else "")
        for bound in solution.problem.bounds
    ]
    return "; ".join(bounds)


def _quality(solution: Solution) -> str:
    if solution.optimal:
        return "proved optimal"
    if solution.lower_bound is not None and solution.lower_bound > 0:
        return f"at most {max(0.0, solution.cost / solution.lower_bound - 1):.2%} above the cheapest"
    return "no proof of optimality"


def budget_table(topology: Topology, loads: Mapping[str, Load], solution: Solution) -> Table:
    """Units with their budgets; the whole in the caption."""
    table = Table(
        title=f"{topology.name}: bound {_bounds_in_words(solution)}",
        title_justify="left",
        caption_justify="left",
        caption=(
            f"{solution.solver}: {solution.cost:.6g} {_currency(topology)}".rstrip()
            + f" an hour, {_quality(solution)}; step {format_duration(solution.problem.step_s)}; "
            + f"{solution.calls:,} cost-function calls"
            + (f", {solution.fee:.4g} in fees" if solution.fee else "")
            + "\nbudget: the least that needs these instances; granted: with what is left of the bound, "
            + "as units get it in the loop"
        ),
    )
    table.add_column("unit")
    table.add_column("policy")
    for name in ("load", "service", "budget", "instances", "cost/h", "slack", "granted", "share"):
        table.add_column(name, justify="right")
    longest_s = max(bound.bound_s for bound in solution.problem.bounds)
    given_s = granted(solution)
    for unit in topology.units_in_order:
        name, found = unit.name, loads[unit.name]
        if name not in solution.budgets_s:
            table.add_row(
                name, unit.policy.name, f"{found.arrival_rate_per_s:.4g}/s", "", "no bound", *[""] * 5
            )
            continue
        count = solution.parallelism[name]
        table.add_row(
            name,
            unit.policy.name,
            f"{found.arrival_rate_per_s:.4g}/s",
            format_duration(found.service_s),
            format_duration(solution.budgets_s[name]),
            "" if count is None else str(count),
            f"{solution.costs[name]:.4g}",
            format_duration(solution.slack_s[name]),
            format_duration(given_s[name]),
            f"{given_s[name] / longest_s:.0%}",
        )
    return table


def described(topology: Topology, loads: Mapping[str, Load], solution: Solution) -> dict[str, Any]:
    """The answer as plain numbers and strings, for JSON."""
    given_s = granted(solution)
    return {
        "topology": topology.name,
        "solver": solution.solver,
        "bounds": [
            {"bound_s": bound.bound_s, "first": list(bound.first), "last": list(bound.last)}
            for bound in solution.problem.bounds
        ],
        "step_s": solution.problem.step_s,
        "cost_per_h": solution.cost,
        "currency": _currency(topology),
        "optimal": solution.optimal,
        "lower_bound": solution.lower_bound,
        "calls": solution.calls,
        "fee": solution.fee,
        "units": [
            {
                "unit": name,
                "budget_s": budget_s,
                "granted_s": given_s[name],
                "instances": solution.parallelism[name],
                "cost_per_h": solution.costs[name],
                "slack_s": solution.slack_s[name],
                "arrival_rate_per_s": loads[name].arrival_rate_per_s,
                "service_s": loads[name].service_s,
            }
            for name, budget_s in solution.budgets_s.items()
        ],
    }


def budget_page(topology: Topology, loads: Mapping[str, Load], solution: Solution) -> Page:
    """A page with the graph of units coloured by budget, and the table."""
    page = Page(f"Latency budgets of {topology.name}", f"bound {_bounds_in_words(solution)}")
    page.cards(
        {
            f"{_currency(topology) or 'cost'} an hour": f"{solution.cost:,.4g}",
            "solver": solution.solver,
            "quality": _quality(solution),
            "cost-function calls": f"{solution.calls:,}",
        }
    )
    page.html(
        "Units",
        _drawing(topology, solution),
        "The darker a unit, the larger its share of the bound; from the sources down.",
    )
    given_s = granted(solution)
    rows = [
        (
            name,
            topology.unit_by_name[name].policy.name,
            budget_s,
            given_s[name],
            solution.parallelism[name],
            solution.costs[name],
            solution.slack_s[name],
            loads[name].arrival_rate_per_s,
            loads[name].service_s,
        )
        for name, budget_s in solution.budgets_s.items()
    ]
    columns = (
        "unit",
        "policy",
        "budget s",
        "granted s",
        "instances",
        "cost/h",
        "slack s",
        "load /s",
        "service s",
    )
    page.table("Budgets", columns, rows, left=2)
    return page


_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 220, 62, 30, 54


def _drawing(topology: Topology, solution: Solution) -> str:
    """The graph of units as SVG, a layer for each distance from the sources."""
    depth: dict[str, int] = {}
    for unit in topology.units_in_order:
        depth[unit.name] = 1 + max(
            (depth.get(name, -1) for name in topology.unit_inputs[unit.name]), default=-1
        )
    layers: dict[int, list[str]] = {}
    for name, level in depth.items():
        layers.setdefault(level, []).append(name)
    widest = max(len(layer) for layer in layers.values())
    place: dict[str, tuple[float, float]] = {}
    for level in sorted(layers):
        # A unit stands near the middle of what feeds it, so that few edges cross.
        layer = sorted(layers[level], key=lambda name: _centre(topology, place, name))
        left = (widest - len(layer)) * (_WIDTH + _GAP_X) / 2
        for i, name in enumerate(layer):
            place[name] = (left + i * (_WIDTH + _GAP_X), level * (_HEIGHT + _GAP_Y))
    width = widest * (_WIDTH + _GAP_X) - _GAP_X + 4
    height = (max(layers) + 1) * (_HEIGHT + _GAP_Y) - _GAP_Y + 4
    parts = []
    for name, inputs in topology.unit_inputs.items():
        for before in inputs:
            (x1, y1), (x2, y2) = place[before], place[name]
            a, b, c, d = x1 + _WIDTH / 2, y1 + _HEIGHT, x2 + _WIDTH / 2, y2
            parts.append(
                f'<path d="M{a:.1f},{b:.1f} C{a:.1f},{b + 28:.1f} {c:.1f},{d - 28:.1f} {c:.1f},{d:.1f}" '
                'fill="none" stroke="#8a98a6" stroke-width="1.5"/>'
            )
    largest_s = max(solution.budgets_s.values(), default=0.0) or 1.0
    for name, (x, y) in place.items():
        budget_s = solution.budgets_s.get(name)
        strength = 0.0 if budget_s is None else budget_s / largest_s
        fill, ink = _shade(strength), "#ffffff" if strength > 0.55 else "#1d2733"
        count = solution.parallelism.get(name)
        words = [] if budget_s is None else [format_duration(budget_s)]
        words += [] if count is None else [f"{count} instance{'' if count == 1 else 's'}"]
        words += [] if budget_s is None else [f"{solution.costs[name]:.3g}/h"]
        parts.append(
            f'<g><title>{escape(name)}</title><rect x="{x + 2:.1f}" y="{y + 2:.1f}" width="{_WIDTH}" '
            f'height="{_HEIGHT}" rx="7" fill="{fill}" stroke="#5c6b7a"/>'
            f'<text x="{x + _WIDTH / 2:.1f}" y="{y + 28:.1f}" text-anchor="middle" font-weight="600" '
            f'fill="{ink}">{escape(name if len(name) < 26 else name[:24] + "…")}</text>'
            f'<text x="{x + _WIDTH / 2:.1f}" y="{y + 49:.1f}" text-anchor="middle" font-size="12" '
            f'fill="{ink}">{escape(" · ".join(words) or "no bound")}</text></g>'
        )
    return (
        '<div style="overflow-x:auto;text-align:center">'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" style="max-width:100%;font-family:system-ui,sans-serif;font-size:14px">'
        f"{''.join(parts)}</svg></div>"
    )


def _centre(topology: Topology, place: Mapping[str, tuple[float, float]], name: str) -> float:
    above = [place[before][0] for before in topology.unit_inputs[name] if before in place]
    return sum(above) / len(above) if above else 0.0


def _shade(strength: float) -> str:
    """From nearly white to deep blue."""
    light, deep = (0xEE, 0xF4, 0xF8), (0x0B, 0x4F, 0x78)
    mixed = (round(a + (b - a) * strength) for a, b in zip(light, deep, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
