"""What a restarted controller takes up, read from the journal in constant time and memory.

A month of nine units is three million rows; a controller needs a few hundred of them. Everything here asks
the database for those alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from penstock.controller.journal.rows import (
    Restored,
    action_of,
    lease_of,
    life_of,
    signal_of,
)
from penstock.controller.journal.tables import (
    ACTIONS,
    BUDGETS,
    CHARGES,
    ENACTED,
    INTENDED,
    LEASES,
    LIVES,
    OBSERVATIONS,
    SETTINGS,
    TICKS,
)
from penstock.fleet.actions import Action
from penstock.fleet.lives import Life
from penstock.infrastructure.leases import Charge, Lease
from penstock.monitoring.measurements import Signal

ACTIONS_TAKEN_UP = 1000
"""Enacted actions a restarted controller looks back on."""
LEASES_TAKEN_UP = 1000
"""Ended leases a restarted controller knows: a host released just before may still turn up."""
LOOK_BACK = 4
"""Observations are looked for in so many times `window` ticks: who is silent for longer has no window."""
TRIMMED_ACTIONS = "enacted actions no longer kept"
"""The setting for numbers of trimmed actions, by kind and unit."""
MODE = "mode"
"""The setting for how much a controller was told to do."""
SCALINGS = ("StartInstance", "StopInstance")
"""The actions that count as scalings of a unit."""
Rows = list[dict[str, Any]]


def restored(connection: sa.Connection, run: str, window: int) -> Restored | None:
    """What a restarted controller takes up; None where there is nothing of this run."""
    mine = TICKS.c.run == run
    ticks = _found(connection, sa.select(TICKS).where(mine).order_by(TICKS.c.id.desc()).limit(1))
    if not ticks:
        return None
    (last,) = ticks
    decided = sa.select(TICKS.c.at_s).where(mine & TICKS.c.decided).order_by(TICKS.c.id.desc()).limit(1)
    return Restored(
        leases=_leases(connection, run),
        charges=_charges(connection, run, last["at_s"]),
        signals=_signals(connection, run, window),
        actions=_enacted(connection, run),
        intended=_intended(connection, run),
        budgets=_budgets(connection, run),
        next_host=last["next_host"],
        next_instance=last["next_instance"],
        last_decided_s=connection.execute(decided).scalar(),
        last_tick_s=last["at_s"],
        lives=lives(connection, run),
        scalings=_scalings(connection, run),
        mode=setting(connection, run, MODE),
    )


def lives(connection: sa.Connection, run: str) -> tuple[Life, ...]:
    """The newest entry of every life that is not over, in the order its subjects first appeared in."""
    ends = ends_of_lives(run)
    newest = sa.select(LIVES).join(ends, LIVES.c.id == ends.c.last).where(~LIVES.c.over)
    return tuple(life_of(row) for row in _found(connection, newest.order_by(ends.c.first)))


def ends_of_lives(run: str) -> sa.Subquery:
    """The first and the last entry of every host, instance and unit."""
    return (
        sa.select(sa.func.min(LIVES.c.id).label("first"), sa.func.max(LIVES.c.id).label("last"))
        .where(LIVES.c.run == run)
        .group_by(LIVES.c.what, LIVES.c.name)
        .subquery()
    )


def setting(connection: sa.Connection, run: str, key: str) -> Any:
    """The value of a setting; None where there is none."""
    mine = (SETTINGS.c.run == run) & (SETTINGS.c.key == key)
    found = connection.execute(sa.select(SETTINGS.c.value).where(mine)).scalar()
    return None if found is None else json.loads(found)


def _found(connection: sa.Connection, query: sa.Select[Any]) -> Rows:
    return [dict(row) for row in connection.execute(query).mappings()]


def _leases(connection: sa.Connection, run: str) -> tuple[Lease, ...]:
    """Open leases, and those ended last, in the order they were made in."""
    mine = sa.select(LEASES).where(LEASES.c.run == run)
    found = _found(connection, mine.where(LEASES.c.ended_s.is_(None)))
    found += _found(
        connection,
        mine.where(LEASES.c.ended_s.is_not(None)).order_by(LEASES.c.id.desc()).limit(LEASES_TAKEN_UP),
    )
    return tuple(lease_of(row) for row in sorted(found, key=lambda row: int(row["id"])))


def _charges(connection: sa.Connection, run: str, at_s: float) -> tuple[Charge, ...]:
    """Every charge so far, carried over as one: its amount is their exact sum.

    Databases add up floating point numbers; but there are few different amounts, so each is counted.
    """
    alike = (
        sa.select(CHARGES.c.amount, sa.func.count(), sa.func.sum(CHARGES.c.units))
        .where(CHARGES.c.run == run)
        .group_by(CHARGES.c.amount)
    )
    found = connection.execute(alike).all()
    if not found:
        return ()
    total = sum((Decimal(amount) * count for amount, count, _ in found), Decimal(0))
    return (Charge("", at_s, sum(int(units) for _, _, units in found), total, "carried over"),)


def _signals(connection: sa.Connection, run: str, window: int) -> tuple[Signal, ...]:
    """The last signals of each unit, oldest first, unit by unit."""
    mine = OBSERVATIONS.c.run == run
    since = (
        sa.select(TICKS.c.at_s)
        .where(TICKS.c.run == run)
        .order_by(TICKS.c.id.desc())
        .offset(LOOK_BACK * window)
        .limit(1)
    )
    since_s = connection.execute(since).scalar()
    if since_s is not None:
        # Walked backwards by number, so that it ends at the first row that is too old.
        older = sa.select(OBSERVATIONS.c.id).where(mine & (OBSERVATIONS.c.at_s < since_s))
        before = connection.execute(older.order_by(OBSERVATIONS.c.id.desc()).limit(1)).scalar()
        mine &= OBSERVATIONS.c.id > (before or 0)
    place = sa.func.row_number().over(partition_by=OBSERVATIONS.c.unit, order_by=OBSERVATIONS.c.id.desc())
    numbered = sa.select(OBSERVATIONS.c.id, place.label("place")).where(mine).subquery()
    newest = sa.select(numbered.c.id).where(numbered.c.place <= window)
    query = sa.select(OBSERVATIONS).where(OBSERVATIONS.c.id.in_(newest)).order_by(OBSERVATIONS.c.id)
    by_unit: dict[str, list[Signal]] = {}
    for row in _found(connection, query):
        by_unit.setdefault(row["unit"], []).append(signal_of(row))
    return tuple(signal for signals in by_unit.values() for signal in signals)


def _enacted(connection: sa.Connection, run: str) -> tuple[tuple[float, Action], ...]:
    newest = sa.select(ACTIONS).where((ACTIONS.c.run == run) & ENACTED).order_by(ACTIONS.c.id.desc())
    found = _found(connection, newest.limit(ACTIONS_TAKEN_UP))
    return tuple((row["at_s"], action_of(row)) for row in reversed(found))


def _intended(connection: sa.Connection, run: str) -> tuple[Action, ...]:
    query = sa.select(ACTIONS).where((ACTIONS.c.run == run) & INTENDED).order_by(ACTIONS.c.id)
    return tuple(action_of(row) for row in _found(connection, query))


def _scalings(connection: sa.Connection, run: str) -> dict[str, int]:
    kept = (
        sa.select(ACTIONS.c.unit, sa.func.count())
        .where((ACTIONS.c.run == run) & ENACTED & ACTIONS.c.kind.in_(SCALINGS))
        .group_by(ACTIONS.c.unit)
    )
    counts: dict[str, int] = {}
    trimmed: Mapping[str, Mapping[str, int]] = setting(connection, run, TRIMMED_ACTIONS) or {}
    for kind in SCALINGS:
        for unit, number in trimmed.get(kind, {}).items():
            counts[unit] = counts.get(unit, 0) + number
    for unit, number in connection.execute(kept):
        counts[unit] = counts.get(unit, 0) + number
    return counts


def _budgets(connection: sa.Connection, run: str) -> dict[str, float]:
    newest = sa.select(sa.func.max(BUDGETS.c.id)).where(BUDGETS.c.run == run).group_by(BUDGETS.c.unit)
    query = sa.select(BUDGETS.c.unit, BUDGETS.c.budget_s).where(BUDGETS.c.id.in_(newest))
    return {row.unit: row.budget_s for row in connection.execute(query.order_by(BUDGETS.c.id))}
