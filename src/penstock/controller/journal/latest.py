"""The newest rows of a table: of a long run nobody reads all of them to show the last ones."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from penstock.controller.journal.tables import METADATA, OBSERVATIONS
from penstock.monitoring.health import PERIOD_S, told_healths


def latest_rows(
    connection: sa.Connection, run: str, table: str, most: int, since_s: float, until_s: float | None
) -> list[dict[str, Any]]:
    """So many rows of a run's table at most, the newest from `since_s` to `until_s`, oldest first."""
    found = METADATA.tables[table]
    wanted = sa.select(found).where(found.c.run == run, found.c.at_s >= since_s)
    if until_s is not None:
        wanted = wanted.where(found.c.at_s <= until_s)
    newest = connection.execute(wanted.order_by(found.c.id.desc()).limit(most)).mappings()
    rows = [dict(row) for row in newest][::-1]
    if found is OBSERVATIONS and rows:
        _tell_health(connection, run, rows)
    return rows


def _tell_health(connection: sa.Connection, run: str, rows: list[dict[str, Any]]) -> None:
    """Each observation with its unit's health, for which those of the period before it count, too."""
    first, seen = rows[0], OBSERVATIONS.c
    before = sa.and_(seen.run == run, seen.id < first["id"])
    period = sa.select(seen.unit, seen.at_s, seen.processed, seen.arrived)
    period = period.where(before, seen.at_s > first["at_s"] - PERIOD_S).order_by(seen.id)
    earlier = [dict(row) for row in connection.execute(period).mappings()]
    finished = connection.execute(sa.select(seen.unit).where(before, seen.processed > 0).distinct())
    told = told_healths([*earlier, *rows], finished.scalars())
    for row, health in zip(rows, told[len(earlier) :], strict=True):
        row["health"] = health
