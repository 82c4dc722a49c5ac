"""Which version of the journal's tables a database holds, and how an older one becomes ours.

The tables that shipped first carry no version: they are version 1. A database is brought to ours in one
transaction, so that a process killed amid it leaves the old one. A newer one is refused: writing to it
would break what its own Penstock relies on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa

from penstock.controller.journal.tables import (
    BESIDE,
    ENACTED_INDEX,
    FLOWS,
    LEASE_INDEX,
    LEASES,
    METADATA,
    OBSERVATIONS,
    ON_TIME,
    SCHEMA,
    TICKS,
)
from penstock.errors import JournalError
from penstock.quantities import shown

VERSION = 5
"""The version of the tables in `tables`."""
DAMAGED = "the journal was damaged, or written by something else"
_LOCK = 0x70656E73
"""A number of our own for PostgreSQL's advisory locks: one process at a time makes or changes tables."""


def prepared(connection: sa.Connection) -> int:
    """Make the tables, or bring older ones to ours; the version that was found, 0 for none at all."""
    found = version_of(connection)
    if found == VERSION:
        return found
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # the driver begins none for a change of tables
    elif connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    found = version_of(connection)  # another process may have been faster
    if found > VERSION:
        raise JournalError(
            f"expected tables of version {VERSION} or older, got version {found}: "
            "the journal was written by a newer Penstock; use that one, or another journal"
        )
    if found == 0:
        METADATA.create_all(connection, checkfirst=False)
        connection.execute(SCHEMA.insert().values(version=VERSION))
    elif found < VERSION:
        for step in _STEPS[found - 1 :]:
            step(connection)
        connection.execute(SCHEMA.delete())
        connection.execute(SCHEMA.insert().values(version=VERSION))
    connection.commit()
    return found


def version_of(connection: sa.Connection) -> int:
    """The version of a database's tables; 0 where it has none of ours."""
    has_table = sa.inspect(connection).has_table
    if has_table(SCHEMA.name):
        found = connection.execute(sa.select(SCHEMA.c.version)).scalar() or 0
        if not isinstance(found, int) or found < 0:  # SQLite keeps what it is given, of any type
            raise JournalError(
                f"expected the number of a version of its tables, got {shown(found)}: {DAMAGED}"
            )
        return found
    return 1 if has_table(TICKS.name) else 0


def _from_1(connection: sa.Connection) -> None:
    """Add lives, settings, claims, hours and the version; a host has one lease.

    Two controllers on one journal could write a host's lease twice, each with its charges. The second is
    kept under a name of its own: the bill stays the sum of the leases.
    """
    METADATA.create_all(connection)  # those that are missing
    same = sa.func.count().over(partition_by=(LEASES.c.run, LEASES.c.host), order_by=LEASES.c.id)
    numbered = sa.select(LEASES.c.id, LEASES.c.host, same.label("number")).subquery()
    doubled = connection.execute(sa.select(numbered).where(numbered.c.number > 1)).all()
    for lease, host, number in doubled:
        renamed = LEASES.update().where(LEASES.c.id == lease).values(host=f"{host} (doubled, {number})")
        connection.execute(renamed)
    LEASE_INDEX.create(connection)
    ENACTED_INDEX.create(connection)


def _from_2(connection: sa.Connection) -> None:
    """Add what a filter was given, or gave, beside what an observation holds of it."""
    _add_columns(connection, BESIDE, "FLOAT")


def _from_3(connection: sa.Connection) -> None:
    """Add what came in by where it came from, and what went out by what it left behind."""
    _add_columns(connection, FLOWS, "VARCHAR")


def _from_4(connection: sa.Connection) -> None:
    """Add how many records kept the SLO."""
    _add_columns(connection, (ON_TIME,), "INTEGER")


def _add_columns(connection: sa.Connection, names: Sequence[str], kind: str) -> None:
    present = {column["name"] for column in sa.inspect(connection).get_columns(OBSERVATIONS.name)}
    for name in (name for name in names if name not in present):
        connection.exec_driver_sql(f"ALTER TABLE {OBSERVATIONS.name} ADD COLUMN {name} {kind}")


_STEPS: tuple[Callable[[sa.Connection], None], ...] = (_from_1, _from_2, _from_3, _from_4)
"""How to come from version n to n + 1, in order. Tables that change later need their old form written out."""
