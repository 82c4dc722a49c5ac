"""`penstock workloads`: the arrival patterns, their parameters, and what they look like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.choices import read_span, read_value
from penstock.errors import ConfigurationError
from penstock.quantities import format_duration
from penstock.topology.model import Choice
from penstock.workload.model import Pattern
from penstock.workload.registry import WORKLOADS, make_workload

_BARS = " ▁▂▃▄▅▆▇█"
_DEFAULT_SPAN_S = 7200.0


def workloads(
    name: Annotated[str | None, typer.Argument(help="One workload, to see its parameters.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help='A parameter, such as --set "hold_s=2 min".')
    ] = None,
    span: Annotated[
        str | None, typer.Option("--span", help='How much of it to draw, such as "2 h".', show_default=False)
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the plot as a page of HTML to this file, too.")
    ] = None,
) -> None:
    """List the workloads, or show one with its parameters and its shape."""
    console = Console(highlight=False)
    span_s = None if span is None else read_span(span, "--span")
    if name is None:
        if setting:
            raise ConfigurationError("--set needs the name of a workload: penstock workloads NAME --set …")
        drawn = _print_all(console, span_s)
    else:
        workload = make_workload(Choice(name, _settings(setting or [])))
        _print_one(console, workload, span_s)
        drawn = {name: workload}
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(_page(drawn, span_s), encoding="utf-8")
        console.print(f"page written to {html}", soft_wrap=True)


def _settings(given: list[str]) -> dict[str, Any]:
    """Parameters from the command line; a list is written as [1, 2, 3]."""
    found: dict[str, Any] = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f'expected --set "parameter=value", got {item!r}')
        found[key.strip()] = read_value(value, f"--set {key.strip()}")
    return found


def sparkline(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    """Values as a row of bars, the highest as high as a character."""
    top = float(values.max()) if values.size else 0.0
    heights = np.zeros(values.size) if top <= 0 else values / top * (len(_BARS) - 1)
    return "".join(_BARS[max(1, round(float(height)))] for height in heights)


def _span_of(workload: Pattern, span_s: float | None) -> float:
    """What to draw: what was asked for, or the whole of it, or two rounds, or two hours."""
    if span_s is not None:
        return span_s
    length_s = workload.curve.length_s
    if np.isinf(length_s):
        return _DEFAULT_SPAN_S
    rounds = max(1, round(_DEFAULT_SPAN_S / length_s)) if workload.curve.repeats else 1
    longest = 86_400.0 if length_s <= 86_400.0 or not workload.curve.repeats else _DEFAULT_SPAN_S
    return min(length_s * rounds, longest) if workload.curve.repeats else length_s


def _samples(workload: Pattern, span_s: float, count: int) -> tuple[Any, Any]:
    """Mean rates over equal parts of the span: a short peak is seen, whatever the number of parts."""
    edges = np.linspace(0.0, span_s, count + 1)
    rates = np.diff(workload.curve.records(edges)) / np.diff(edges)
    return (edges[:-1] + edges[1:]) / 2, rates


def _print_all(console: Console, span_s: float | None) -> dict[str, Pattern]:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("workload", "shape", "span", "what it is"):
        table.add_column(column, no_wrap=column != "what it is")
    drawn: dict[str, Pattern] = {}
    for name in WORKLOADS:
        meaning = WORKLOADS.described(name)
        if name == "trace":
            table.add_row(name, "", "the file's", meaning)
            continue
        workload = drawn[name] = make_workload(Choice(name))
        shown_s = _span_of(workload, span_s)
        _, rates = _samples(workload, shown_s, 32)
        table.add_row(name, f"[cyan]{sparkline(rates)}[/]", format_duration(shown_s), meaning)
    console.print(table)
    console.print("\nParameters of one: penstock workloads NAME")
    return drawn


def _print_one(console: Console, workload: Pattern, span_s: float | None) -> None:
    name = workload.name
    console.print(f"[bold]{name}[/]: {WORKLOADS.described(name)}\n")
    _print_plot(console, workload, _span_of(workload, span_s))
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("parameter", "default", "meaning"):
        table.add_column(column)
    for parameter in WORKLOADS.parameters(name).values():
        table.add_row(parameter.name, parameter.default_text, parameter.meaning)
    console.print()
    console.print(table)


def _print_plot(console: Console, workload: Pattern, span_s: float, rows: int = 8) -> None:
    """The rate over time as bars, eight lines high."""
    columns = max(20, min(100, console.width - 14))
    _, rates = _samples(workload, span_s, columns)
    top = float(rates.max())
    parts = np.zeros(columns) if top <= 0 else rates / top * rows * (len(_BARS) - 1)
    for row in range(rows - 1, -1, -1):
        levels = np.clip(np.round(parts - row * (len(_BARS) - 1)), 0, len(_BARS) - 1).astype(int)
        label = f"{top * (row + 1) / rows:9.4g}/s" if row in (rows - 1, rows // 2 - 1) else " " * 11
        console.print(f"{label} [cyan]{''.join(_BARS[level] for level in levels)}[/]")
    end = format_duration(span_s)
    console.print(f"{'':12}0 s{end:>{columns - 3}}")


def _page(drawn: dict[str, Pattern], span_s: float | None) -> str:
    """One page with a plot for each workload, its script inside."""
    # plotly takes most of a second to import; every other command does without it.
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    figure = make_subplots(
        rows=len(drawn), cols=1, subplot_titles=list(drawn), vertical_spacing=0.3 / len(drawn)
    )
    for row, (name, workload) in enumerate(drawn.items(), start=1):
        at_s, rates = _samples(workload, _span_of(workload, span_s), 720)
        figure.add_trace(go.Scatter(x=at_s / 60, y=rates, name=name, line_shape="hvh"), row=row, col=1)
    figure.update_yaxes(title_text="records/s", rangemode="tozero")
    figure.update_xaxes(title_text="minutes")
    figure.update_layout(
        height=120 + 260 * len(drawn), showlegend=False, title="Workloads", template="simple_white"
    )
    return str(figure.to_html(include_plotlyjs=True, full_html=True))
