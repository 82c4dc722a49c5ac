"""`penstock policies` and `penstock filters`: what can be chosen, with every parameter."""

from __future__ import annotations

from rich.table import Table

from penstock.choosing import Registry
from penstock.cli.console import console as open_console
from penstock.filters.registry import FILTERS
from penstock.policies.registry import POLICIES


def policies() -> None:
    """List the policies and their parameters."""
    _list(POLICIES)


def filters() -> None:
    """List the filters and their parameters."""
    _list(FILTERS)


def _list(registry: Registry) -> None:
    table = Table(show_lines=False, title_justify="left")
    for column in (registry.what, "default", "meaning"):
        table.add_column(column)
    for name in registry:
        table.add_section()
        table.add_row(f"[bold]{name}[/bold]", "", f"[bold]{registry.described(name)}[/bold]")
        for parameter in registry.parameters(name).values():
            table.add_row(f"  {parameter.name}", parameter.default_text, parameter.meaning)
    open_console().print(table)
