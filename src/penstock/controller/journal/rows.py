"""What goes into the journal and comes out of it, and how each becomes a row and a row becomes it again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Any, Protocol

from penstock.controller.guards import Verdict
from penstock.controller.journal.migrations import DAMAGED
from penstock.errors import JournalError
from penstock.fleet.actions import ACTIONS, Action
from penstock.fleet.lives import Life
from penstock.infrastructure.leases import Charge, Lease
from penstock.monitoring.measurements import Counted, Measurement, Signal
from penstock.quantities import shown

END_OF_RUN = "end of run"
"""Stands where the policy's name stands for the releases that end a run."""

_ACTION_FIELDS = {kind: tuple(known.name for known in fields(kind)) for kind in ACTIONS.values()}
as_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
"""A value as plain JSON. One encoder for all: making one for each of ten thousands of lives costs more."""


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
    lives: Sequence[Life] = ()
    """What has become of hosts, instances and units since the last tick."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings to remember with this tick or not at all (see `Journal.remember`)."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restarted controller takes up again."""

    leases: tuple[Lease, ...]
    """Open leases and the last ended ones, in the order they were made in; `Journal.leases` has all."""
    charges: tuple[Charge, ...]
    """All charges, carried over as one whose amount is their exact sum; `Journal.charges` has each."""
    signals: tuple[Signal, ...]
    """The last signals of every unit."""
    actions: tuple[tuple[float, Action], ...]
    """The last enacted actions, oldest first."""
    intended: tuple[Action, ...]
    """Actions written down but not known to be enacted."""
    budgets: dict[str, float]
    next_host: int
    next_instance: int
    last_decided_s: float | None
    last_tick_s: float
    """The last tick on record: the one the intended actions are of."""
    lives: tuple[Life, ...] = ()
    """The newest entry of every host, instance and unit whose life is not over, oldest subject first."""
    scalings: dict[str, int] = field(default_factory=dict)
    """How many starts and stops of instances were enacted, by unit: all of them, not the last alone."""
    mode: str | None = None
    """How much it was told to do; None where nobody told it anything."""


Rates = tuple[list[float], list[float]]
"""Instants, oldest first, and the records that came in, a second, around each."""


@dataclass(frozen=True, slots=True)
class Past:
    """What was measured of the units' loads before a controller began."""

    recent: Sequence[Measurement] = ()
    """The newest measurements, oldest first."""
    loads: Mapping[str, Rates] = field(default_factory=dict)
    """By unit, its load over the last weeks in coarse steps, an earlier run's before this one's."""


class Recorder(Protocol):
    """What a controller writes to, and what an earlier one of the same run left."""

    def record(self, tick: TickRecord) -> None:
        """Put a tick on record; its allowed actions as intended."""

    def confirm(self, at_s: float, failed: Mapping[tuple[str, str], str]) -> None:
        """The intended actions were enacted, but for those in `failed` (by kind and subject)."""

    def restore(self, window: int) -> Restored | None:
        """What a restarted controller takes up; None where nothing is on record."""

    def past(self, recent_s: float, coarse_s: float) -> Past:
        """The units' loads: measurements over the one span, coarse steps over the other."""


def observation_row(
    run: str, signal: Signal, instances: Mapping[str, int], running: Mapping[str, int]
) -> tuple[Any, ...]:
    """A signal in the order of the table's columns."""
    m = signal.taken
    return (
        run, m.at_s, m.unit, m.interval_s, m.arrived, m.processed, m.emitted, m.waiting, m.in_service,
        m.duration_s, m.duration_p95_s, m.duration_p99_s, m.service_s, m.arrival_cv, m.service_cv,
        m.latency_s, m.latency_p95_s, signal.cpu_ratio, signal.memory_ratio, signal.cpu_std,
        signal.memory_std, signal.trusted, instances.get(m.unit, 0), running.get(m.unit, 0),
        signal.cpu_read_ratio, signal.memory_read_ratio, *_decided_on(signal),
        _counted(m.arrived_from), _counted(m.emitted_by), m.on_time,
    )  # fmt: skip


def _counted(counts: Sequence[Counted]) -> str | None:
    return as_json(dict(counts)) if counts else None


def _decided_on(signal: Signal) -> tuple[float | None, float | None, float | None]:
    """Arrivals, queue and duration as the policy saw them; None where a filter left them alone."""
    if signal.raw is None:
        return None, None, None
    seen, taken = signal.measurement, signal.raw
    return (
        None if seen.arrived == taken.arrived else seen.arrived,
        None if seen.waiting == taken.waiting else seen.waiting,
        None if seen.duration_s == taken.duration_s else seen.duration_s,
    )


_MEASURED = (
    "unit", "at_s", "interval_s", "arrived", "processed", "emitted", "waiting", "in_service", "duration_s",
    "duration_p95_s", "duration_p99_s", "service_s", "arrival_cv", "service_cv", "latency_s", "latency_p95_s",
    "on_time",
)  # fmt: skip


def signal_of(row: Mapping[str, Any]) -> Signal:
    """The signal that a row of the observations holds."""
    measurement = Measurement(**{name: row[name] for name in _MEASURED})
    return Signal(
        measurement, row["cpu_ratio"], row["memory_ratio"], row["cpu_std"], row["memory_std"], row["trusted"]
    )


def action_row(run: str, at_s: float, verdict: Verdict) -> list[Any]:
    """A decision in the order of the table's columns: refused, held, or intended until it is done."""
    action, refused = verdict.action, verdict.refused
    unit, reason, policy = action.unit, action.reason, verdict.policy
    if not action.changes:
        status = "refused" if refused else "held"
        # A hold's columns say everything already.
        return [run, at_s, action.kind, policy, unit, action.subject, reason, status, refused, "{}"]
    status = "refused" if refused else "intended"
    payload = as_json({name: getattr(action, name) for name in _ACTION_FIELDS[type(action)]})
    return [run, at_s, action.kind, policy, unit, action.subject, reason, status, refused, payload]


def action_of(row: Mapping[str, Any]) -> Action:
    """The action that a row holds."""
    try:
        action: Action = ACTIONS[row["kind"]](**payload_of(row))
    except (KeyError, TypeError) as error:
        raise _damaged("an action", row["kind"], error) from None
    return action


def payload_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row holds beside its columns; JournalError where that is no mapping."""
    try:
        payload = json.loads(row["payload"])
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged("a mapping as JSON", row["payload"], error) from None
    if not isinstance(payload, dict):
        raise _damaged("a mapping as JSON", payload)
    return payload


def amount_of(row: Mapping[str, Any], name: str) -> Decimal:
    """The amount of money in a column; JournalError where there is none."""
    try:
        amount = Decimal(row[name])
    except (ArithmeticError, ValueError, TypeError) as error:
        raise _damaged(f"an amount of money as {name}", row[name], error) from None
    if not amount.is_finite():
        raise _damaged(f"an amount of money as {name}", row[name])
    return amount


def _number(row: Mapping[str, Any], name: str) -> Any:
    """The number in a column; JournalError where there is none."""
    value = row[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _damaged(f"a number as {name}", value)
    return value


def _damaged(expected: str, found: object, error: Exception | None = None) -> JournalError:
    """SQLite keeps what it is given, of any type: what is read is not always what we wrote."""
    reason = "" if error is None else f" ({type(error).__name__})"
    return JournalError(f"expected {expected}, got {shown(found)}{reason}: {DAMAGED}")


def life_row(run: str, life: Life) -> tuple[Any, ...]:
    """An entry of a life in the order of the table's columns."""
    payload = as_json(dict(life.payload)) if life.payload else "{}"
    return (run, life.at_s, life.what, life.name, life.state, life.over, payload)


def life_of(row: Mapping[str, Any]) -> Life:
    """The entry of a life that a row holds."""
    return Life(row["what"], row["name"], row["at_s"], row["state"], bool(row["over"]), payload_of(row))


def charge_row(run: str, charge: Charge) -> dict[str, Any]:
    """A charge by column."""
    return {
        "run": run, "at_s": charge.at_s, "host": charge.host, "units": charge.units,
        "amount": str(charge.amount), "reason": charge.reason,
    }  # fmt: skip


def charge_of(row: Mapping[str, Any]) -> Charge:
    """The charge that a row holds."""
    return Charge(
        row["host"], _number(row, "at_s"), _number(row, "units"), amount_of(row, "amount"), row["reason"]
    )


def lease_row(run: str, lease: Lease) -> dict[str, Any]:
    """A lease by column."""
    return {
        "run": run, "at_s": lease.started_s, "host": lease.host, "site": lease.site,
        "flavour": lease.flavour, "btu_s": lease.btu_s, "price_per_btu": str(lease.price_per_btu),
        "units": lease.units, "ended_s": lease.ended_s, "currency": lease.currency,
    }  # fmt: skip


def lease_of(row: Mapping[str, Any]) -> Lease:
    """The lease that a row holds."""
    return Lease(
        row["host"], row["site"], row["flavour"], _number(row, "at_s"), _number(row, "btu_s"),
        amount_of(row, "price_per_btu"), _number(row, "units"),
        None if row["ended_s"] is None else _number(row, "ended_s"), row["currency"],
    )  # fmt: skip


def enacted_kinds(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many actions of each kind were enacted, from rows of the action table."""
    counts = dict.fromkeys((name for name, kind in ACTIONS.items() if kind.changes), 0)
    for row in rows:
        if row["status"] == "enacted":
            counts[row["kind"]] += 1
    return counts
