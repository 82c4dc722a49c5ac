"""The journal: the durable record of every observation, decision, action and charge.

SQLite in the run's folder by default, any SQLAlchemy URL (PostgreSQL) by choice. One tick is one
transaction written *before* anything is enacted, with every action marked as intended; a second, small
one marks what was done. A controller that dies between the two finds its intentions here, says them again
(enacting is idempotent) and keeps the same books. Reports, the command line and tests read this record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
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

_METADATA = sa.MetaData()


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    return sa.Table(
        name,
        _METADATA,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run", sa.String, nullable=False, index=True),
        sa.Column("at_s", sa.Float, nullable=False),
        *columns,
    )


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
            "latency_s", "latency_p95_s", "cpu_ratio", "memory_ratio",
        )
    ),
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


def subject_of(action: Action) -> str:
    """The host, instance or unit an action is about."""
    if isinstance(action, Hold):
        return action.unit
    if isinstance(action, LeaseHost | ProlongLease | ReleaseHost):
        return action.host
    return action.instance


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


class Journal:
    """The record of one run. `buffered` keeps ticks in memory until `flush`, for simulated runs."""

    def __init__(self, url: str | Path, run: str = "run", *, buffered: bool = False) -> None:
        text = str(url)
        self._url = text if "://" in text else f"sqlite:///{text}"
        self.run = run
        self._buffered = buffered
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._known_leases: dict[str, Lease] = {}
        try:
            self._engine = sa.create_engine(self._url)
            if self._engine.dialect.name == "sqlite" and not buffered:
                sa.event.listen(self._engine, "connect", _write_ahead)
            _METADATA.create_all(self._engine)
            self._connection = self._engine.connect()
        except SQLAlchemyError as error:
            raise JournalError(f"cannot open the journal {self._url}: {error}") from error

    # -- writing ---------------------------------------------------------------------------------

    def record(self, tick: TickRecord) -> None:
        """Put a tick on record in one transaction; its allowed actions as intended."""
        run, at_s = self.run, tick.at_s
        self._add(TICKS, {
            "run": run, "at_s": at_s, "decided": tick.decided, "next_host": tick.next_host,
            "next_instance": tick.next_instance, "hosts": tick.hosts, "hosts_up": tick.hosts_up,
            "bill": str(tick.bill),
        })  # fmt: skip
        for signal in tick.signals:
            self._add(OBSERVATIONS, _observation_row(run, signal, tick.instances, tick.running))
        for verdict in tick.verdicts:
            self._add(ACTIONS, _action_row(run, at_s, verdict))
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

    def confirm(self, at_s: float, failed: Mapping[str, str]) -> None:
        """Mark the tick's intended actions as enacted, those in `failed` (by subject) as failed."""
        if self._buffered:
            for row in self._rows.get(ACTIONS.name, ()):
                if row["status"] == "intended":
                    error = failed.get(row["subject"])
                    row["status"] = "enacted" if error is None else "failed"
                    row["refused"] = row["refused"] or error
            return
        with self._errors():
            intended = (ACTIONS.c.run == self.run) & (ACTIONS.c.status == "intended")
            for subject, error in failed.items():
                self._connection.execute(
                    ACTIONS.update()
                    .where(intended & (ACTIONS.c.subject == subject))
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
        """Write what is still in memory, in one transaction."""
        with self._errors():
            for table in _METADATA.sorted_tables:
                rows = self._rows.pop(table.name, None)
                if not rows:
                    continue
                if table is LEASES:
                    hosts = {row["host"] for row in rows}
                    self._connection.execute(
                        LEASES.delete().where((LEASES.c.run == self.run) & LEASES.c.host.in_(hosts))
                    )
                    rows = list({row["host"]: row for row in rows}.values())
                self._connection.execute(table.insert(), rows)
            self._connection.commit()

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

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Every row of a table of this run, oldest first: tick, observation, action, lease, charge, …"""
        self.flush()
        found = _METADATA.tables[table]
        with self._errors():
            result = self._connection.execute(
                sa.select(found).where(found.c.run == self.run).order_by(found.c.id)
            )
            return [dict(row) for row in result.mappings()]

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
        )


class _JournalErrors:
    """Turns database errors into JournalError, rolling back what was half written."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None:
            self._journal._connection.rollback()
        if isinstance(error, SQLAlchemyError):
            cause = getattr(error, "orig", None) or error
            raise JournalError(f"cannot use the journal {self._journal._url}: {cause}") from error


def _write_ahead(connection: Any, _: object) -> None:
    """SQLite's write-ahead log: readers (the page, another terminal) do not block the loop."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def _observation_row(
    run: str, signal: Signal, instances: Mapping[str, int], running: Mapping[str, int]
) -> dict[str, Any]:
    m = signal.measurement
    return {
        "run": run, "at_s": m.at_s, "unit": m.unit, "interval_s": m.interval_s, "arrived": m.arrived,
        "processed": m.processed, "emitted": m.emitted, "waiting": m.waiting, "in_service": m.in_service,
        "duration_s": m.duration_s, "duration_p95_s": m.duration_p95_s, "duration_p99_s": m.duration_p99_s,
        "service_s": m.service_s, "arrival_cv": m.arrival_cv, "service_cv": m.service_cv,
        "latency_s": m.latency_s, "latency_p95_s": m.latency_p95_s, "cpu_ratio": signal.cpu_ratio,
        "memory_ratio": signal.memory_ratio, "instances": instances.get(m.unit, 0),
        "running": running.get(m.unit, 0),
    }  # fmt: skip


_MEASURED = (
    "unit", "at_s", "interval_s", "arrived", "processed", "emitted", "waiting", "in_service", "duration_s",
    "duration_p95_s", "duration_p99_s", "service_s", "arrival_cv", "service_cv", "latency_s", "latency_p95_s",
)  # fmt: skip


def _signal_of(row: Mapping[str, Any]) -> Signal:
    measurement = Measurement(**{name: row[name] for name in _MEASURED})
    return Signal(measurement, row["cpu_ratio"], row["memory_ratio"])


def _action_row(run: str, at_s: float, verdict: Verdict) -> dict[str, Any]:
    action = verdict.action
    status = "refused" if verdict.refused else "held" if isinstance(action, Hold) else "intended"
    return {
        "run": run, "at_s": at_s, "kind": type(action).__name__, "policy": verdict.policy,
        "unit": getattr(action, "unit", None), "subject": subject_of(action), "reason": action.reason,
        "status": status, "refused": verdict.refused, "payload": json.dumps(asdict(action)),
    }  # fmt: skip


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
