"""Figures: numbers computed in this run, beside the bar they must reach or the paper's value.

Benchmarks and experiments all end in a list of these, printed as a table and written as JSON, so that
one look (or one script) tells which claims hold. A figure that falls short is shown, never hidden.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One computed number with what it is held against."""

    name: str
    here: float | str
    bar: str | None = None
    """What it must reach, in words: "<= 0.8 s"."""
    paper: float | str | None = None
    """The paper's value, where there is one."""
    holds: bool | None = None
    """Whether the bar is reached; None where there is nothing to reach."""
    unit: str = ""


def write_figures(figures: Sequence[Figure], path: Path) -> None:
    """Write figures as a JSON list, making the folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(figure) for figure in figures], indent=2) + "\n")


def print_figures(figures: Sequence[Figure], title: str, console: Console | None = None) -> None:
    """Print figures as a table."""
    table = Table(title=title, title_justify="left")
    table.add_column("figure")
    for column in ("here", "bar", "paper", "holds"):
        table.add_column(column, justify="right")
    for figure in figures:
        verdict = {True: "[green]yes", False: "[red]no", None: ""}[figure.holds]
        table.add_row(
            figure.name,
            f"{_written(figure.here)} {figure.unit}".rstrip(),
            figure.bar or "",
            "" if figure.paper is None else _written(figure.paper),
            verdict,
        )
    (console or Console()).print(table)


def _written(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
