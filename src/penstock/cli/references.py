"""Writes the generated pages of the documentation: command line, Python, what is recorded, API, metrics.

`python -m penstock.cli.references docs` writes them all; a test fails where a page says something else than
the code. The page of topology files has a module of its own, `penstock.cli.reference`, and so have the last
two, `penstock.cli.reference_service`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import typer

from penstock.cli.main import COMMANDS, app
from penstock.cli.reference import reference
from penstock.cli.reference_service import NOTE as _NOTE
from penstock.cli.reference_service import api, metrics
from penstock.controller.journal.tables import METADATA
from penstock.controller.status import HostStatus, Status, UnitStatus
from penstock.monitoring.measurements import Measurement

PYTHON: Mapping[str, tuple[str, ...]] = {
    "penstock": ("attach", "Hosts"),
    "penstock.topology.builder": ("TopologyBuilder",),
    "penstock.topology.file": ("load_topology", "parse_topology", "dump_topology"),
    "penstock.topology.difference": ("difference",),
    "penstock.simulator": ("simulate", "SimulationSettings"),
    "penstock.controller.journal": ("Journal",),
    "penstock.controller.result": ("RunResult",),
    "penstock.controller.status": ("Status", "UnitStatus", "HostStatus"),
    "penstock.runs.assembly": ("load", "with_choices"),
    "penstock.runs.service": ("run_topology",),
    "penstock.page.server": ("PageServer", "live_page"),
}
"""What a user may build on, by module."""

_JOURNAL = {
    "tick": "one row a turn of the loop",
    "observation": "what a unit did over one monitoring interval, after its filter",
    "action": "what was decided, held, refused, done or failed, each with its reason",
    "life": "what became of each host, instance and unit",
    "lease": "each host's paid time",
    "charge": "each entry of the bill",
    "budget": "each unit's share of an end-to-end bound",
    "notice": "what else there was to tell",
    "observation_hour": "what is left of old observations: one row a unit and hour",
}


def command_line() -> str:
    """Every command with its arguments and options."""
    parts = [
        "# Command line\n",
        f"{_NOTE}\n",
        "`penstock --help` and `penstock COMMAND --help` say the same.",
        "",
    ]
    root: Any = typer.main.get_command(app)
    for name in COMMANDS:
        command = root.get_command(None, name)
        if command is None:
            continue
        members = getattr(command, "commands", None)
        if members:
            parts.append(f"## penstock {name}\n\n{_sentence(command)}\n")
            parts += [_command(f"penstock {name} {inner}", one, "###") for inner, one in members.items()]
        else:
            parts.append(_command(f"penstock {name}", command, "##"))
    return "\n".join(parts).rstrip() + "\n"


def python() -> str:
    """The names a user may build on, with their signatures."""
    parts = ["# Python\n", f"{_NOTE}\n", "Everything else may change from one version to the next.", ""]
    for module, names in PYTHON.items():
        found = importlib.import_module(module)
        parts.append(f"## {module}\n")
        parts += [_name(module, name, getattr(found, name)) for name in names]
    return "\n".join(parts).rstrip() + "\n"


def recorded() -> str:
    """What a run records and tells: the journal's tables, the status, a measurement."""
    parts = [
        "# What is recorded\n",
        f"{_NOTE}\n",
        "The journal is a SQLite file (or a PostgreSQL database). Times are seconds of the run's own clock: "
        "since 1970 for a run on Spark, since its start for a simulated one. Names end in their unit.",
        "",
    ]
    for name, meaning in _JOURNAL.items():
        table = METADATA.tables[name]
        parts.append(f"## Table `{name}`\n\n{meaning.capitalize()}.\n")
        parts.append("| column | kind |\n| --- | --- |")
        parts += [f"| `{c.name}` | {_kind(c)} |" for c in table.columns if c.name not in ("id", "run")]
        parts.append("")
    for kind in (Status, UnitStatus, HostStatus, Measurement):
        parts.append(f"## `{kind.__name__}`\n\n{inspect.getdoc(kind)}\n")
        parts.append("| field | meaning |\n| --- | --- |")
        meanings = _field_meanings(kind)
        parts += [f"| `{f.name}` | {meanings.get(f.name, '')} |" for f in fields(kind)]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "topology-file.md": reference,
    "command-line.md": command_line,
    "python.md": python,
    "recorded.md": recorded,
    "api.md": api,
    "metrics.md": metrics,
}
"""Every generated page by its file."""


def _command(name: str, command: Any, heading: str) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join([name, *(_usage(p) for p in arguments), *(["[OPTIONS]"] if options else [])])
    lines = [f"{heading} {name}\n", f"{_sentence(command)}\n", f"    {usage}\n"]
    if arguments or options:
        lines += ["| | default | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{_shown_name(p)}` | {_default(p)} | {_cell(p.help)} |" for p in arguments]
    lines += [
        f"| `{', '.join([*p.opts, *p.secondary_opts])}` | {_default(p)} | {_cell(p.help)} |" for p in options
    ]
    return "\n".join([*lines, ""])


def _usage(argument: Any) -> str:
    return _shown_name(argument) if argument.required else f"[{_shown_name(argument)}]"


def _shown_name(argument: Any) -> str:
    return str(argument.metavar or argument.name).upper()


def _sentence(command: Any) -> str:
    return " ".join((command.help or "").split())


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return "required"
    if value is None or value is False or callable(value) or value in ("", (), []) or "UNSET" in repr(value):
        return ""
    return f"`{str(value).lower() if value is True else value}`"


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _name(module: str, name: str, value: Any) -> str:
    head = f"class {name}" if inspect.isclass(value) else f"{name}{_signature(value)}"
    lines = [f"### {name}\n", f"    {head}\n", f"{inspect.getdoc(value) or ''}\n"]
    if inspect.isclass(value) and not is_dataclass(value):
        for own, member in vars(value).items():
            if not own.startswith("_") and inspect.isfunction(member):
                first = (inspect.getdoc(member) or "").split("\n\n")[0]
                lines.append(f"- `{own}{_signature(member)}`: {' '.join(first.split())}")
        lines.append("")
    return "\n".join(lines)


def _signature(value: Any) -> str:
    signature = inspect.signature(value)
    shown = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    # A function as a default has no name that stays the same.
    shown = [p.replace(default=Ellipsis) if inspect.isfunction(p.default) else p for p in shown]
    return (
        str(signature.replace(parameters=shown, return_annotation=inspect.Signature.empty))
        .replace("(self, ", "(")
        .replace("(self)", "()")
    )


def _kind(column: sa.Column[Any]) -> str:
    words = {"INTEGER": "whole number", "FLOAT": "number", "VARCHAR": "text", "BOOLEAN": "yes or no"}
    kind = words.get(str(column.type), str(column.type).lower())
    return kind if not column.nullable else f"{kind}, or nothing"


def _field_meanings(kind: type[Any]) -> dict[str, str]:
    """The sentence below each field of a dataclass, from its source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = tree.body[0].body  # type: ignore[attr-defined]
    found = {}
    for before, after in pairwise(body):
        if isinstance(before, ast.AnnAssign) and isinstance(after, ast.Expr):
            text = getattr(after.value, "value", "")
            found[before.target.id] = _cell(str(text))  # type: ignore[union-attr]
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    for page, written in PAGES.items():
        (folder / page).write_text(written())
