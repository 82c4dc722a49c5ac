"""Retention: a journal of months stays the size of one.

Old observations become one row a unit and hour, old ticks one an hour (a shorter span where rows are kept for
less than ten hours); old decisions go, those enacted
after they were counted; lives that are over go, of the others the first and the newest entry stay. A host's
charges for one reason become one: where time is paid by the second, there is one at every turn. Leases and
notices are kept for ever: they are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from penstock.controller.journal.restoring import ends_of_lives
from penstock.controller.journal.tables import (
    ACTIONS,
    BUDGETS,
    CHARGES,
    ENACTED,
    HOURS,
    INTENDED,
    LIVES,
    OBSERVATIONS,
    TICKS,
)

KEPT = 1000
"""Newest ticks and newest enacted actions that stay whatever their age: a restart needs them."""
HOURS_AT_ONCE = 24
"""Hours trimmed by one call at most, so that the loop is never kept for long."""
TRIMMED_UNTIL = "trimmed until"
"""The setting for the instant before which everything is trimmed."""
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What one call of `Journal.trim` did."""

    hours: int
    """Hours, or shorter spans, whose rows were thinned."""
    rows: int
    """Rows deleted."""
    more: bool
    """Whether there is more to trim: call again, at a calm moment."""


def span_s(raw_s: float) -> float:
    """What is thinned at once: an hour, and a tenth of what is kept where that is shorter."""
    return min(_HOUR_S, raw_s / 10)


def limit_s(connection: sa.Connection, run: str, before_s: float, keep: int, span_s: float) -> float:
    """The end of the last span whose rows may go: older than asked for, and not among the newest ticks."""
    newest = sa.select(TICKS.c.at_s).where(TICKS.c.run == run).order_by(TICKS.c.id.desc())
    kept_from_s = connection.execute(newest.offset(max(keep, 1) - 1).limit(1)).scalar()
    return -1.0 if kept_from_s is None else min(before_s, kept_from_s) // span_s * span_s


def next_span(
    connection: sa.Connection, run: str, until_s: float | None, limit_s: float, span_s: float
) -> float | None:
    """The next span to trim, by its beginning; None where nothing is left to trim."""
    query = sa.select(TICKS.c.at_s).where(TICKS.c.run == run).order_by(TICKS.c.id).limit(1)
    if until_s is not None:
        query = query.where(TICKS.c.at_s >= until_s)
    first_s = connection.execute(query).scalar()
    begins_s = None if first_s is None else float(first_s // span_s * span_s)
    return begins_s if begins_s is not None and begins_s < limit_s else None


def trim_span(
    connection: sa.Connection,
    run: str,
    begins_s: float,
    span_s: float,
    keep: int,
    counted: dict[str, dict[str, int]],
) -> int:
    """Thin the rows of a span, adding enacted actions that go to `counted`; the number of rows deleted."""
    end_s = begins_s + span_s
    old = _before(connection, OBSERVATIONS, run, end_s)
    o, mean, most, total = OBSERVATIONS.c, sa.func.avg, sa.func.max, sa.func.sum
    summary = sa.select(
        sa.literal(run), sa.literal(begins_s), o.unit, sa.func.count(), total(o.interval_s), total(o.arrived),
        total(o.processed), total(o.emitted), most(o.waiting), mean(o.waiting), mean(o.duration_s),
        mean(o.latency_s), most(o.latency_s), mean(o.cpu_ratio), mean(o.memory_ratio), mean(o.instances),
        mean(o.running),
    ).where(old).group_by(o.unit)  # fmt: skip
    columns = [column.name for column in HOURS.columns if column.name != "id"]
    connection.execute(HOURS.insert().from_select(columns, summary))
    deleted = _delete(connection, OBSERVATIONS, old)

    old = _before(connection, TICKS, run, end_s) & (TICKS.c.at_s >= begins_s)
    last = connection.execute(sa.select(sa.func.max(TICKS.c.id)).where(old)).scalar()
    deleted += _delete(connection, TICKS, old & (TICKS.c.id != last))

    newest = sa.select(ACTIONS.c.id).where((ACTIONS.c.run == run) & ENACTED).order_by(ACTIONS.c.id.desc())
    kept_from = connection.execute(newest.offset(max(keep, 1) - 1).limit(1)).scalar()
    old = _before(connection, ACTIONS, run, end_s) & ~INTENDED
    enacted = old & ENACTED & (ACTIONS.c.id < (kept_from or 0))
    kinds = sa.select(ACTIONS.c.kind, ACTIONS.c.unit, sa.func.count()).where(enacted)
    for kind, unit, number in connection.execute(kinds.group_by(ACTIONS.c.kind, ACTIONS.c.unit)):
        units = counted.setdefault(kind, {})
        units[unit or ""] = units.get(unit or "", 0) + number
    deleted += _add_up_charges(connection, run, begins_s, end_s)
    return deleted + _delete(connection, ACTIONS, enacted) + _delete(connection, ACTIONS, old & ~ENACTED)


def _add_up_charges(connection: sa.Connection, run: str, begins_s: float, end_s: float) -> int:
    """Add a host's charges for one reason up in the first of them; the number of rows deleted."""
    old = _before(connection, CHARGES, run, end_s) & (CHARGES.c.at_s >= begins_s)
    alike: dict[tuple[str, str], list[Any]] = {}
    for row in connection.execute(sa.select(CHARGES).where(old).order_by(CHARGES.c.id)):
        alike.setdefault((row.host, row.reason), []).append(row)
    deleted = 0
    for first, *others in alike.values():
        if others:
            units = first.units + sum(row.units for row in others)
            amount = sum((Decimal(row.amount) for row in others), Decimal(first.amount))
            mine = CHARGES.c.id == first.id
            connection.execute(CHARGES.update().where(mine).values(units=units, amount=str(amount)))
            rest = (CHARGES.c.host == first.host) & (CHARGES.c.reason == first.reason)
            deleted += _delete(connection, CHARGES, old & rest & ~mine)
    return deleted


def trim_series(connection: sa.Connection, run: str, until_s: float) -> int:
    """Delete old budgets that others followed and lives long over; the number of rows deleted."""
    newest = sa.select(sa.func.max(BUDGETS.c.id)).where(BUDGETS.c.run == run).group_by(BUDGETS.c.unit)
    old = _before(connection, BUDGETS, run, until_s) & BUDGETS.c.id.not_in(newest)
    deleted = _delete(connection, BUDGETS, old)
    ends = ends_of_lives(run)
    last = LIVES.alias("last")
    going_on = ~last.c.over | (last.c.at_s >= until_s)
    kept = [
        sa.select(end).join(last, last.c.id == ends.c.last).where(going_on)
        for end in (ends.c.first, ends.c.last)
    ]
    old = _before(connection, LIVES, run, until_s) & LIVES.c.id.not_in(sa.union_all(*kept))
    return deleted + _delete(connection, LIVES, old)


def _before(connection: sa.Connection, table: sa.Table, run: str, end_s: float) -> sa.ColumnElement[bool]:
    """Rows older than an instant, found from the oldest on: the newer ones, most of all, are not read."""
    newer = sa.select(table.c.id).where((table.c.run == run) & (table.c.at_s >= end_s)).order_by(table.c.id)
    beyond = connection.execute(newer.limit(1)).scalar()
    old = (table.c.run == run) & (table.c.at_s < end_s)
    return old if beyond is None else old & (table.c.id < beyond)


def _delete(connection: sa.Connection, table: sa.Table, rows: sa.ColumnElement[bool]) -> int:
    result: Any = connection.execute(table.delete().where(rows))
    return int(result.rowcount)
