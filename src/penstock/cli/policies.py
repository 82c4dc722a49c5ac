"""`penstock policies` and `penstock filters`: what can be chosen, with every parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from penstock.cli.console import console as open_console
from penstock.cli.parameters import first_sentence, parameters
from penstock.filters.registry import FILTERS
from penstock.policies.registry import POLICIES


def policies() -> None:
    """List the policies and their parameters."""
    _list("policy", POLICIES)


def filters() -> None:
    """List the filters and their parameters."""
    _list("filter", FILTERS)


def _list(what: str, registry: Mapping[str, type[Any]]) -> None:
    table = Table(show_lines=False, title_justify="left")
    for column in (what, "default", "meaning"):
        table.add_column(column)
    for name, kind in registry.items():
        table.add_section()
        table.add_row(f"[bold]{name}[/bold]", "", f"[bold]{first_sentence(kind)}[/bold]")
        for parameter in parameters(kind):
            table.add_row(f"  {parameter.name}", parameter.default, parameter.meaning)
    open_console().print(table)
