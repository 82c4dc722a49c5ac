"""`penstock explain`: what a run decided and why, from its journal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.choosing import nearest
from penstock.cli.console import console as open_console
from penstock.controller.journal.rows import amount_of
from penstock.errors import ConfigurationError, QuantityError
from penstock.experiments.twin import opened
from penstock.fleet.actions import verb_of
from penstock.policies.auto_words import BETWEEN, INSTEAD
from penstock.quantities import counted, duration_s, format_duration, shown


def explain(
    journal: Annotated[Path, typer.Argument(help="A run's folder, or its journal.")],
    at: Annotated[
        str | None, typer.Option(help='How long into the run, such as "2 h"; else its changes.')
    ] = None,
    unit: Annotated[str | None, typer.Option(help="This unit alone.")] = None,
    last: Annotated[int, typer.Option(help="Without --at: so many decisions, the newest.", min=1)] = 10,
) -> None:
    """Tell what was decided, what was seen and forecast, and what the alternatives would have cost."""
    into_s = None if at is None else _instant(at)
    with opened(journal) as book:
        actions, seen = book.rows("action"), book.rows("observation")
        bills = book.rows("tick", ("at_s", "bill", "hosts"))
    if not bills:
        raise ConfigurationError(f"nothing was decided in the run of {journal}")
    known = {row["unit"] for row in (*actions, *seen) if row["unit"]}
    if unit is not None and unit not in known:
        raise ConfigurationError(f"--unit: the run has no unit {shown(unit)}{nearest(unit, known)}")
    actions = [row for row in actions if unit is None or row["unit"] in (unit, None)]
    seen = [row for row in seen if unit is None or row["unit"] == unit]
    start_s = bills[0]["at_s"]
    instants = sorted({row["at_s"] for row in actions if into_s is not None or row["kind"] != "Hold"})
    if into_s is not None:
        wanted_s = start_s + into_s
        instants = [min(instants, key=lambda s: abs(s - wanted_s))] if instants else []
    console = open_console()
    for instant_s in instants[-last:]:
        bill = next((row for row in reversed(bills) if row["at_s"] <= instant_s), bills[0])
        console.print(
            f"[bold]{format_duration(instant_s - start_s)}[/bold] into the run: "
            f"{counted(bill['hosts'], 'host')}, bill {float(amount_of(bill, 'bill')):.4g}"
        )
        for row in seen:
            if row["at_s"] == instant_s:
                console.print(f"  saw   {_seen(row)}", highlight=False, markup=False)
        for text in _decided([row for row in actions if row["at_s"] == instant_s]):
            told, _, instead = text.partition(INSTEAD)
            console.print(f"  {told}", highlight=False, markup=False)
            for alternative in instead.split(BETWEEN) if instead else ():
                console.print(f"    instead, {alternative}", highlight=False, markup=False)


def _instant(text: str) -> float:
    """How long into a run: a duration of 0 or more."""
    try:
        found = duration_s(text)
    except QuantityError as error:
        raise ConfigurationError(f"--at: {error}") from None
    if found < 0:
        raise ConfigurationError(f"--at: expected 0 or more into the run, got {shown(text)}")
    return found


def _seen(row: dict[str, Any]) -> str:
    rate = (row["arrived"] or 0) / row["interval_s"]
    duration = "unknown" if row["duration_s"] is None else format_duration(row["duration_s"])
    return (
        f"{row['unit']}: {rate:.4g}/s came, {row['waiting'] or 0} waiting, mean duration {duration}, "
        f"{row['running']} of {row['instances']} instances running"
    )


def _decided(rows: list[dict[str, Any]]) -> list[str]:
    """One line for all actions of a kind with the same reason, which is told once."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for row in rows:
        refused = f" [refused: {row['refused']}]" if row["refused"] else ""
        key = (verb_of(row["kind"]), row["unit"] or "", row["reason"], refused)
        groups.setdefault(key, []).append(row["subject"] or "")
    told: set[str] = set()
    lines = []
    for (kind, about, reason, refused), subjects in groups.items():
        what = f"{len(subjects)} × {about or 'hosts'}" if len(subjects) > 1 else about or subjects[0]
        lines.append(f"{kind} {what}: {'for the same reason' if reason in told else reason}{refused}")
        told.add(reason)
    return lines
