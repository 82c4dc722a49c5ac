"""The journal's tables: what a row of each consists of, in SQLite and PostgreSQL alike."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

METADATA = sa.MetaData()


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    table = sa.Table(
        name,
        METADATA,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run", sa.String, nullable=False),
        sa.Column("at_s", sa.Float, nullable=False),
        *columns,
    )
    # Not for a SQLite file: it has one run as a rule, and an index that tells nothing apart costs a third.
    sa.Index(f"ix_{name}_run", table.c.run).ddl_if(dialect="postgresql")
    return table


BESIDE = (
    "cpu_read_ratio", "memory_read_ratio", "arrived_filtered", "waiting_filtered", "duration_filtered_s",
)  # fmt: skip
"""The other side of what a filter changed: utilisation as it was read, where the row has the estimate; what
the policy decided on, where the row has what was measured. NULL where no filter was between them."""
FLOWS = ("arrived_from", "emitted_by")
"""Records of an observation by where they came from and what they left behind, as JSON; NULL where that is
not known or one's alone."""
ON_TIME = "on_time"
"""Records of an observation that kept the SLO; NULL where they were not counted one by one."""
TICKS = _table(
    "tick",
    sa.Column("decided", sa.Boolean, nullable=False),
    sa.Column("next_host", sa.Integer, nullable=False),
    sa.Column("next_instance", sa.Integer, nullable=False),
    sa.Column("hosts", sa.Integer, nullable=False),
    sa.Column("hosts_up", sa.Integer, nullable=False),
    sa.Column("bill", sa.String, nullable=False),
)
OBSERVATIONS = _table(
    "observation",
    sa.Column("unit", sa.String, nullable=False),
    sa.Column("interval_s", sa.Float, nullable=False),
    *(sa.Column(name, sa.Integer) for name in ("arrived", "processed", "emitted", "waiting", "in_service")),
    *(
        sa.Column(name, sa.Float)
        for name in (
            "duration_s", "duration_p95_s", "duration_p99_s", "service_s", "arrival_cv", "service_cv",
            "latency_s", "latency_p95_s", "cpu_ratio", "memory_ratio", "cpu_std", "memory_std",
        )
    ),
    sa.Column("trusted", sa.Boolean, nullable=False),
    sa.Column("instances", sa.Integer),
    sa.Column("running", sa.Integer),
    *(sa.Column(name, sa.Float) for name in BESIDE),
    *(sa.Column(name, sa.String) for name in FLOWS),
    sa.Column(ON_TIME, sa.Integer),
)  # fmt: skip
ACTIONS = _table(
    "action",
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("policy", sa.String, nullable=False),
    sa.Column("unit", sa.String),
    sa.Column("subject", sa.String),
    sa.Column("reason", sa.String, nullable=False),
    # refused (by a guard), held, intended (written, not yet enacted), enacted, failed
    sa.Column("status", sa.String, nullable=False),
    sa.Column("refused", sa.String),
    sa.Column("payload", sa.String, nullable=False),
)
INTENDED = ACTIONS.c.status == sa.literal_column("'intended'")
# Few rows are intended at any time: confirming them must not read all the others, nor list them.
sa.Index("action_intended", ACTIONS.c.run, sqlite_where=INTENDED, postgresql_where=INTENDED)
ENACTED = ACTIONS.c.status == sa.literal_column("'enacted'")
ENACTED_INDEX = sa.Index(
    "action_enacted", ACTIONS.c.run, ACTIONS.c.id, sqlite_where=ENACTED, postgresql_where=ENACTED
)
"""Among a month's holds the enacted ones are few: a restarted controller finds them without the others."""
LIVES = _table(
    "life",
    sa.Column("what", sa.String, nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("over", sa.Boolean, nullable=False),
    sa.Column("payload", sa.String, nullable=False),
)
LEASES = _table(
    "lease",
    sa.Column("host", sa.String, nullable=False),
    sa.Column("site", sa.String, nullable=False),
    sa.Column("flavour", sa.String, nullable=False),
    sa.Column("btu_s", sa.Float, nullable=False),
    sa.Column("price_per_btu", sa.String, nullable=False),
    sa.Column("units", sa.Integer, nullable=False),
    sa.Column("ended_s", sa.Float),
    sa.Column("currency", sa.String, nullable=False),
)
LEASE_INDEX = sa.Index("lease_host", LEASES.c.run, LEASES.c.host, unique=True)
"""A host is leased once: a lease is one row for all its life, in the order leases were made in."""
CHARGES = _table(
    "charge",
    sa.Column("host", sa.String, nullable=False),
    sa.Column("units", sa.Integer, nullable=False),
    sa.Column("amount", sa.String, nullable=False),
    sa.Column("reason", sa.String, nullable=False),
)
BUDGETS = _table(
    "budget",
    sa.Column("unit", sa.String, nullable=False),
    sa.Column("budget_s", sa.Float, nullable=False),
    sa.Column("reason", sa.String, nullable=False),
)
NOTICES = _table("notice", sa.Column("text", sa.String, nullable=False))
HOURS = _table(
    "observation_hour",
    sa.Column("unit", sa.String, nullable=False),
    sa.Column("observations", sa.Integer, nullable=False),
    *(sa.Column(name, sa.Float) for name in ("interval_s", "arrived", "processed", "emitted")),  # sums
    sa.Column("waiting_most", sa.Integer),
    *(
        sa.Column(name, sa.Float)  # means, but for the most
        for name in ("waiting", "duration_s", "latency_s", "latency_most_s", "cpu_ratio", "memory_ratio",
                     "instances", "running")
    ),
)  # fmt: skip
"""What is left of old observations: one row a unit and hour; `at_s` is where the hour begins."""
SETTINGS = sa.Table(
    "setting",
    METADATA,
    sa.Column("run", sa.String, primary_key=True),
    sa.Column("key", sa.String, primary_key=True),
    sa.Column("value", sa.String, nullable=False),
)
"""Small durable facts of a run, by key: the newest value alone, as JSON."""

CLAIMS = sa.Table(
    "claim",
    METADATA,
    sa.Column("run", sa.String, primary_key=True),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("written", sa.Integer, nullable=False),
)
"""Who may write: the controller that raised the epoch last. `written` numbers its transactions."""
SCHEMA = sa.Table("schema", METADATA, sa.Column("version", sa.Integer, nullable=False))
"""Which version of these tables a database holds; one row."""

RECORDS = (TICKS, OBSERVATIONS, ACTIONS, LIVES, LEASES, CHARGES, BUDGETS, NOTICES)
"""The tables that a tick's record goes to, in the order they are written in."""
COLUMNS = {
    table.name: tuple(column.name for column in table.columns if column.name != "id")
    for table in (*RECORDS, SETTINGS)
}
"""What a row consists of, in order, by table; the database numbers them itself."""
_KEYS = {LEASES.name: ("run", "host"), SETTINGS.name: ("run", "key"), CLAIMS.name: ("run",)}


def written(table: sa.Table, dialect: str, **changed: Any) -> Any:
    """The statement that writes a row: a row there is already under its key is changed in its place.

    `changed` says what becomes of such a row's columns; each takes its new value where nothing is said.
    """
    keys = _KEYS.get(table.name)
    if keys is None:
        return table.insert().inline()  # inline: nobody asks for the number each row is given
    statement = (postgresql if dialect == "postgresql" else sqlite).insert(table).inline()
    new = {name: statement.excluded[name] for name in COLUMNS.get(table.name, ()) if name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_={**new, **changed})
