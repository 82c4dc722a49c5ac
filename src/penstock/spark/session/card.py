"""A small card of an attachment for notebooks: what it does, in one look."""

from __future__ import annotations

from html import escape

from penstock.controller.status import Status

_CELL = "padding:2px 10px 2px 0;text-align:left;vertical-align:top"
_LAST = 5


def card(status: Status) -> str:
    """HTML without scripts and without anything fetched; readable on light and dark pages."""
    parts = [
        '<div style="font-family:sans-serif;font-size:13px;border:1px solid #8888;border-radius:6px;'
        'padding:8px 12px;max-width:60em">',
        f"<b>Penstock</b> · {escape(status.run)} · {escape(status.phase)}"
        f" · {'acting' if status.acting else 'advising only'}",
    ]
    if status.reason:
        parts.append(f'<div style="opacity:.75">{escape(status.reason)}</div>')
    if status.problem is not None:
        parts.append(f'<div style="color:#c33">{escape(status.problem)}</div>')
    for unit in status.units:
        measured = unit.measurement
        rate = "" if measured is None else f", {measured.arrival_rate_per_s:.4g} records/s in"
        parts.append(
            f"<div>{unit.running} of {unit.instances} executors run, {unit.least} to {unit.most} allowed, "
            f"policy {escape(unit.policy)}{rate}</div>"
        )
    if status.queries:
        parts.append(_table(status))
    if status.decisions:
        lines = "".join(f"<li>{escape(text)}</li>" for text in status.decisions[-_LAST:])
        parts.append(f'<ul style="margin:6px 0 0;padding-left:18px">{lines}</ul>')
    return "".join([*parts, "</div>"])


def _table(status: Status) -> str:
    rows = [("query", "trigger", "duration", "SLO", "waiting", "")]
    for query in status.queries:
        state = query.problem or ("" if query.active else "ended")
        missed = query.keeps is False
        rows.append(
            (
                query.name,
                query.trigger,
                "–" if query.duration_s is None else f"{query.duration_s:.3g} s{' ✗' if missed else ''}",
                f"{query.slo_s:g} s",
                "–" if query.waiting is None else f"{query.waiting}",
                state,
            )
        )
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f'<table style="border-collapse:collapse;margin-top:6px">{body}</table>'
