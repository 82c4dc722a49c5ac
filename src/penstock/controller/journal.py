"""The journal: the durable record of every observation, decision, action and charge.

SQLite in the run's folder by default, any SQLAlchemy URL (PostgreSQL) by choice. One tick is one
transaction written *before* anything is enacted, with every action marked as intended; a second, small
one marks what was done. A controller that dies between the two finds its intentions here, says them again
(enacting is idempotent) and keeps the same books. Reports, the command line and tests read this record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from penstock.controller.guards import Verdict
from penstock.errors import JournalError
from penstock.infrastructure.leases import Charge, Lease
from penstock.monitoring.measurements import Measurement, Signal
from penstock.policies import actions as action_types
from penstock.policies.actions import Action, Hold, LeaseHost, ProlongLease, ReleaseHost

END_OF_RUN = "end of run"
"""Stands where the policy's name stands for the releases that end a run."""

_METADATA = sa.MetaData()


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    table = sa.Table(
        name,
        _METADATA,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run", sa.String, nullable=False),
        sa.Column("at_s", sa.Float, nullable=False),
        *columns,
    )
    # Not for a SQLite file: it has one run as a rule, and an index that tells nothing apart costs a third.
    sa.Index(f"ix_{name}_run", table.c.run).ddl_if(dialect="postgresql")
    return table


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
_INTENDED = ACTIONS.c.status == sa.literal_column("'intended'")
# Few rows are intended at any time: confirming them must not read all the others, nor list them.
sa.Index("action_intended", ACTIONS.c.run, sqlite_where=_INTENDED, postgresql_where=_INTENDED)
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

_COLUMNS = {
    table.name: tuple(column.name for column in table.columns if column.name != "id")
    for table in _METADATA.sorted_tables
}
"""What a row consists of, in order, by table; the database numbers them itself."""

_ACTION_BY_NAME: Mapping[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        action_types.LeaseHost,
        action_types.ProlongLease,
        action_types.ReleaseHost,
        action_types.StartInstance,
        action_types.StopInstance,
        action_types.MigrateInstance,
        action_types.Hold,
    )
}


_ACTION_FIELDS = {kind: tuple(known.name for known in fields(kind)) for kind in _ACTION_BY_NAME.values()}


def subject_of(action: Action) -> str:
    """The host, instance or unit an action is about."""
    if isinstance(action, Hold):
        return action.unit
    if isinstance(action, LeaseHost | ProlongLease | ReleaseHost):
        return action.host
    return action.instance


BUFFERED_ROWS = 1024
"""Observations a buffered journal keeps in memory at most: more of them only make everything slower."""


@dataclass(frozen=True, slots=True)
class TickRecord:
    """Everything one tick puts on record."""

    at_s: float
    decided: bool
    next_host: int
    next_instance: int
    hosts: int
    hosts_up: int
    bill: Decimal
    signals: Sequence[Signal] = ()
    instances: Mapping[str, int] = field(default_factory=dict)
    running: Mapping[str, int] = field(default_factory=dict)
    verdicts: Sequence[Verdict] = ()
    leases: Sequence[Lease] = ()
    """Leases that are new or have changed."""
    charges: Sequence[Charge] = ()
    budgets: Mapping[str, float] = field(default_factory=dict)
    budget_reason: str = ""
    notices: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restarted controller takes up again."""

    leases: tuple[Lease, ...]
    charges: tuple[Charge, ...]
    signals: tuple[Signal, ...]
    actions: tuple[tuple[float, Action], ...]
    """Enacted actions of the past, oldest first."""
    intended: tuple[Action, ...]
    """Actions written down but not known to be enacted."""
    budgets: dict[str, float]
    next_host: int
    next_instance: int
    last_decided_s: float | None
    last_tick_s: float
    """The last tick on record: the one the intended actions are of."""


class Journal:
    """The record of one run. `buffered` keeps ticks in memory until `flush`, for simulated runs."""

    def __init__(self, url: str | Path, run: str = "run", *, buffered: bool = False) -> None:
        self.run = run
        self._buffered = buffered
        self._rows: dict[str, list[Any]] = {}
        """What is not written yet, by table: rows as tuples or, where there are few, by column."""
        self._inserts: dict[str, Any] = {}
        """Compiled inserts, by table: every row of a table has the same columns."""
        self._intended: list[dict[str, Any]] = []
        """Buffered rows of actions that are not confirmed yet."""
        address = str(url)
        try:
            parsed = _parsed(address)
            # Never in an error message: the password.
            address = parsed.render_as_string(hide_password=True)
            self._engine = sa.create_engine(parsed)
            if self._engine.dialect.name == "sqlite" and not buffered:
                sa.event.listen(self._engine, "connect", _write_ahead)
            _METADATA.create_all(self._engine)
            self._connection = self._engine.connect()
            self._leased = set(
                self._connection.execute(sa.select(LEASES.c.host).where(LEASES.c.run == run)).scalars()
            )
            """Hosts whose leases are written already."""
            self._connection.commit()
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            raise JournalError(
                f"cannot open the journal {address}: {cause}{_likely_cause(address)}"
            ) from error
        except ModuleNotFoundError as error:
            raise JournalError(
                f"cannot open the journal {address}: the package {error.name} is not installed; "
                'PostgreSQL needs: pip install "penstock[postgresql]"'
            ) from error
        self._address = address

    # -- writing ---------------------------------------------------------------------------------

    def record(self, tick: TickRecord) -> None:
        """Put a tick on record in one transaction; its allowed actions as intended."""
        if len(self._rows.get(OBSERVATIONS.name, ())) >= BUFFERED_ROWS:
            self.flush()
        run, at_s = self.run, tick.at_s
        self._add(TICKS, {
            "run": run, "at_s": at_s, "decided": tick.decided, "next_host": tick.next_host,
            "next_instance": tick.next_instance, "hosts": tick.hosts, "hosts_up": tick.hosts_up,
            "bill": str(tick.bill),
        })  # fmt: skip
        observed = self._rows.setdefault(OBSERVATIONS.name, [])
        for signal in tick.signals:
            observed.append(_observation_row(run, signal, tick.instances, tick.running))
        for verdict in tick.verdicts:
            row = _action_row(run, at_s, verdict)
            self._add(ACTIONS, row)
            if self._buffered and row["status"] == "intended":
                self._intended.append(row)
        for lease in tick.leases:
            self._add(LEASES, _lease_row(run, lease))
        for charge in tick.charges:
            self._add(CHARGES, {
                "run": run, "at_s": charge.at_s, "host": charge.host, "units": charge.units,
                "amount": str(charge.amount), "reason": charge.reason,
            })  # fmt: skip
        for unit, budget_s in tick.budgets.items():
            self._add(BUDGETS, {
                "run": run, "at_s": at_s, "unit": unit, "budget_s": budget_s, "reason": tick.budget_reason,
            })  # fmt: skip
        for text in tick.notices:
            self._add(NOTICES, {"run": run, "at_s": at_s, "text": text})
        if not self._buffered:
            self.flush()

    def confirm(self, at_s: float, failed: Mapping[tuple[str, str], str]) -> None:
        """Mark the tick's intended actions as enacted, those in `failed` (by kind and subject) as failed."""
        if self._intended:
            for row in self._intended:
                error = failed.get((row["kind"], row["subject"]))
                row["status"] = "enacted" if error is None else "failed"
                row["refused"] = error
            self._intended.clear()
            return
        with self._errors():
            intended = (ACTIONS.c.run == self.run) & _INTENDED
            for (kind, subject), error in failed.items():
                self._connection.execute(
                    ACTIONS.update()
                    .where(intended & (ACTIONS.c.kind == kind) & (ACTIONS.c.subject == subject))
                    .values(status="failed", refused=error)
                )
            self._connection.execute(ACTIONS.update().where(intended).values(status="enacted"))
            self._connection.commit()

    def notice(self, at_s: float, text: str) -> None:
        """Put a piece of news on record."""
        self._add(NOTICES, {"run": self.run, "at_s": at_s, "text": text})
        if not self._buffered:
            self.flush()

    def flush(self) -> None:
        """Write what is still in memory, in one transaction; where that fails, it stays in memory."""
        if not self._rows:
            return
        with self._errors():
            for table in _METADATA.sorted_tables:
                rows = self._rows.get(table.name)
                if rows and table is LEASES:
                    self._write_leases({row["host"]: row for row in rows})
                elif rows:
                    self._insert(table, rows)
            self._connection.commit()
        self._leased.update(row["host"] for row in self._rows.get(LEASES.name, ()))
        self._rows.clear()
        self._intended.clear()

    def _insert(self, table: sa.Table, rows: list[Any]) -> None:
        """Insert rows, each with all columns, without what SQLAlchemy does for every single one."""
        compiled = self._inserts.get(table.name)
        if compiled is None:
            # Inline: nobody asks for the number each row is given.
            compiled = table.insert().inline().compile(self._engine, column_keys=_COLUMNS[table.name])
            self._inserts[table.name] = compiled
        values: Any = rows
        if not compiled.positional and isinstance(rows[0], tuple):
            values = [dict(zip(_COLUMNS[table.name], row, strict=True)) for row in rows]
        elif compiled.positional and isinstance(rows[0], dict):
            values = list(map(itemgetter(*_COLUMNS[table.name]), rows))
        self._connection.exec_driver_sql(str(compiled), values)

    def _write_leases(self, rows: Mapping[str, dict[str, Any]]) -> None:
        """A lease is one row for all its life, so that leases stay in the order they were made in."""
        new = [row for host, row in rows.items() if host not in self._leased]
        changed = [
            {"the_host": host, "units": row["units"], "ended_s": row["ended_s"]}
            for host, row in rows.items()
            if host in self._leased
        ]
        if new:
            self._connection.execute(LEASES.insert(), new)
        if changed:
            mine = (LEASES.c.run == self.run) & (LEASES.c.host == sa.bindparam("the_host"))
            self._connection.execute(LEASES.update().where(mine), changed)

    def close(self) -> None:
        """Write what is still in memory and let the database go."""
        self.flush()
        self._connection.close()
        self._engine.dispose()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add(self, table: sa.Table, row: dict[str, Any]) -> None:
        self._rows.setdefault(table.name, []).append(row)

    def _errors(self) -> _JournalErrors:
        return _JournalErrors(self)

    # -- reading ---------------------------------------------------------------------------------

    @property
    def empty(self) -> bool:
        """Whether nothing of this run is on record yet."""
        self.flush()
        with self._errors():
            first = sa.select(TICKS.c.id).where(TICKS.c.run == self.run).limit(1)
            return self._connection.execute(first).first() is None

    def rows(self, table: str, columns: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Every row of a table of this run, oldest first: tick, observation, action, lease, charge, …

        Only the named columns, where some are named: a long run has many rows.
        """
        self.flush()
        found = _METADATA.tables[table]
        wanted: list[Any] = [found.c[name] for name in columns] or [found]
        with self._errors():
            result = self._connection.execute(
                sa.select(*wanted).where(found.c.run == self.run).order_by(found.c.id)
            )
            names = tuple(result.keys())
            return [dict(zip(names, row, strict=True)) for row in result]

    def leases(self) -> tuple[Lease, ...]:
        """Every lease of the run."""
        return tuple(_lease_of(row) for row in self.rows("lease"))

    def charges(self) -> tuple[Charge, ...]:
        """Every charge of the run, oldest first."""
        return tuple(
            Charge(row["host"], row["at_s"], row["units"], Decimal(row["amount"]), row["reason"])
            for row in self.rows("charge")
        )

    def restore(self, window: int) -> Restored | None:
        """What a restarted controller takes up; None where the journal has nothing of this run."""
        ticks = self.rows("tick")
        if not ticks:
            return None
        actions = self.rows("action")
        decided = [tick["at_s"] for tick in ticks if tick["decided"]]
        by_unit: dict[str, list[Signal]] = {}
        for row in self.rows("observation"):
            by_unit.setdefault(row["unit"], []).append(_signal_of(row))
        return Restored(
            self.leases(),
            self.charges(),
            tuple(signal for signals in by_unit.values() for signal in signals[-window:]),
            tuple((row["at_s"], _action_of(row)) for row in actions if row["status"] == "enacted"),
            tuple(_action_of(row) for row in actions if row["status"] == "intended"),
            {row["unit"]: row["budget_s"] for row in self.rows("budget")},
            ticks[-1]["next_host"],
            ticks[-1]["next_instance"],
            decided[-1] if decided else None,
            ticks[-1]["at_s"],
        )


class _JournalErrors:
    """Turns database errors into JournalError, rolling back what was half written."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            return
        with suppress(SQLAlchemyError):  # the first error is the one to tell
            self._journal._connection.rollback()
        if isinstance(error, SQLAlchemyError):
            cause = getattr(error, "orig", None) or error
            address = self._journal._address
            raise JournalError(
                f"cannot use the journal {address}: {cause}{_likely_cause(address)}"
            ) from error


def _parsed(address: str) -> sa.URL:
    """A database's URL; a plain path is a SQLite file. PostgreSQL is spoken to by psycopg 3."""
    url = sa.make_url(address if "://" in address else f"sqlite:///{address}")
    return url.set(drivername="postgresql+psycopg") if url.drivername in ("postgresql", "postgres") else url


def _likely_cause(address: str) -> str:
    """What is probably wrong with a SQLite file, in words; empty where nothing is known."""
    path = Path(address.removeprefix("sqlite:///"))
    if not address.startswith("sqlite:///"):
        return ""
    if not path.parent.is_dir():
        return f"; the folder {path.parent} does not exist"
    if path.is_dir():
        return "; it is a folder, expected a file"
    if path.exists() and not os.access(path, os.W_OK):
        return "; the file may not be written"
    return "" if os.access(path.parent, os.W_OK) else f"; the folder {path.parent} may not be written"


def _write_ahead(connection: Any, _: object) -> None:
    """SQLite's write-ahead log: readers (the page, another terminal) do not block the loop."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def _observation_row(
    run: str, signal: Signal, instances: Mapping[str, int], running: Mapping[str, int]
) -> tuple[Any, ...]:
    """A signal in the order of the table's columns."""
    m = signal.measurement
    return (
        run, m.at_s, m.unit, m.interval_s, m.arrived, m.processed, m.emitted, m.waiting, m.in_service,
        m.duration_s, m.duration_p95_s, m.duration_p99_s, m.service_s, m.arrival_cv, m.service_cv,
        m.latency_s, m.latency_p95_s, signal.cpu_ratio, signal.memory_ratio, signal.cpu_std,
        signal.memory_std, signal.trusted, instances.get(m.unit, 0), running.get(m.unit, 0),
    )  # fmt: skip


_MEASURED = (
    "unit", "at_s", "interval_s", "arrived", "processed", "emitted", "waiting", "in_service", "duration_s",
    "duration_p95_s", "duration_p99_s", "service_s", "arrival_cv", "service_cv", "latency_s", "latency_p95_s",
)  # fmt: skip


def _signal_of(row: Mapping[str, Any]) -> Signal:
    measurement = Measurement(**{name: row[name] for name in _MEASURED})
    return Signal(
        measurement, row["cpu_ratio"], row["memory_ratio"], row["cpu_std"], row["memory_std"], row["trusted"]
    )


def _action_row(run: str, at_s: float, verdict: Verdict) -> dict[str, Any]:
    action = verdict.action
    status = "refused" if verdict.refused else "held" if isinstance(action, Hold) else "intended"
    return {
        "run": run, "at_s": at_s, "kind": type(action).__name__, "policy": verdict.policy,
        "unit": getattr(action, "unit", None), "subject": subject_of(action), "reason": action.reason,
        "status": status, "refused": verdict.refused,
        "payload": _payload(action),
    }  # fmt: skip


def _payload(action: Action) -> str:
    """All there is to an action, to make it again; a hold's columns say everything already."""
    if isinstance(action, Hold):
        return "{}"
    return json.dumps({name: getattr(action, name) for name in _ACTION_FIELDS[type(action)]})


def _action_of(row: Mapping[str, Any]) -> Action:
    action: Action = _ACTION_BY_NAME[row["kind"]](**json.loads(row["payload"]))
    return action


def _lease_row(run: str, lease: Lease) -> dict[str, Any]:
    return {
        "run": run, "at_s": lease.started_s, "host": lease.host, "site": lease.site,
        "flavour": lease.flavour, "btu_s": lease.btu_s, "price_per_btu": str(lease.price_per_btu),
        "units": lease.units, "ended_s": lease.ended_s, "currency": lease.currency,
    }  # fmt: skip


def _lease_of(row: Mapping[str, Any]) -> Lease:
    return Lease(
        row["host"], row["site"], row["flavour"], row["at_s"], row["btu_s"],
        Decimal(row["price_per_btu"]), row["units"], row["ended_s"], row["currency"],
    )  # fmt: skip


def enacted_kinds(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many actions of each kind were enacted, from rows of the action table."""
    counts = dict.fromkeys((name for name in _ACTION_BY_NAME if name != "Hold"), 0)
    for row in rows:
        if row["status"] == "enacted":
            counts[row["kind"]] += 1
    return counts
