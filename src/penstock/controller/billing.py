"""The bill of a run, line by line: what each hour of each lease cost, for whom, and who decided it.

Everything is read from the journal. A lease's cost is spread evenly over its paid time and cut at full
hours. In each hour it goes to the units whose instances were on the host, by the share of the host's cores
they held; the rest was idle. Lines add up to the ledger exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from penstock.controller.journal import Journal
from penstock.controller.journal.rows import payload_of
from penstock.fleet.deployment import INSTANCE_ALIVE, InstanceState
from penstock.infrastructure.leases import PRICE_STEP, Charge, Lease
from penstock.topology.model import Topology

HOUR_S = 3600.0
IDLE = "(idle)"
"""Stands for the unit of time that was paid and held nothing."""
BY_RECORD = ("as the provider recorded it", "found at the provider, in no book")
"""Reasons of charges that brought the books into line with a provider's record."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Who decided on a lease, when and why."""

    at_s: float
    policy: str
    reason: str
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """What one unit's share of one hour of one lease cost."""

    run: str
    host: str
    site: str
    flavour: str
    unit: str
    """The unit that held the share; IDLE for what nobody held."""
    from_s: float
    until_s: float
    cost: Decimal
    currency: str
    price_per_hour: Decimal
    used_s: float
    """Seconds of the host that the share comes to."""
    decision: Decision
    operator: str = ""

    @property
    def hour_s(self) -> float:
        """Where the hour begins that it falls into."""
        return math.floor(self.from_s / HOUR_S) * HOUR_S


@dataclass(frozen=True, slots=True)
class Bill:
    """All lines of one or several runs."""

    lines: tuple[Line, ...]
    corrections: tuple[Charge, ...] = ()
    """What providers' records changed in the books."""

    @property
    def total(self) -> Decimal:
        """The sum of the lines."""
        return sum((line.cost for line in self.lines), Decimal(0))

    @property
    def idle(self) -> Decimal:
        """What was paid for time that held nothing."""
        return sum((line.cost for line in self.lines if line.unit == IDLE), Decimal(0))

    def by(self, *keys: str) -> dict[tuple[str, ...], Decimal]:
        """The cost by columns of the lines, such as "site" and "unit", in their order."""
        found: dict[tuple[str, ...], Decimal] = {}
        for line in self.lines:
            key = tuple(column(line, name) for name in keys)
            found[key] = found.get(key, Decimal(0)) + line.cost
        return dict(sorted(found.items()))

    def with_more(self, other: Bill) -> Bill:
        """This bill and another's lines."""
        return Bill(self.lines + other.lines, self.corrections + other.corrections)


def column(line: Line, name: str) -> str:
    """What stands in a column of a line; an hour by the number of its seconds since 1970, for sorting."""
    return f"{line.hour_s:015.0f}" if name == "hour" else str(getattr(line, name))


def bill_of(journal: Journal, topology: Topology | None = None) -> Bill:
    """The bill of a run. Without its topology, which tells cores, a host with anything on it is full."""
    decisions = _decisions(journal.rows("action", ("at_s", "kind", "subject", "policy", "reason", "unit")))
    charges = journal.charges()
    for charge in charges:
        decisions.setdefault(charge.host, Decision(charge.at_s, "", charge.reason))
    stays = _stays(journal.rows("life", ("at_s", "what", "name", "state", "payload")))
    lines: list[Line] = []
    for lease in journal.leases():
        if lease.units:  # none where it was refused
            decision = decisions.get(lease.host) or Decision(lease.started_s, "", "unknown")
            stay = stays.get(lease.host, ())
            lines += _lines(journal.run, lease, stay, _cores(topology, lease), decision)
    return Bill(tuple(lines), tuple(charge for charge in charges if charge.reason in BY_RECORD))


def by_operator(bill: Bill, topology: Topology) -> Bill:
    """The bill with a unit's lines divided evenly over its operators, which run in turn."""
    lines: list[Line] = []
    for line in bill.lines:
        unit = topology.unit_by_name.get(line.unit)
        names = unit.operators if unit is not None else (line.unit,)
        for name, cost in zip(names, _parts(line.cost, [1.0] * len(names)), strict=True):
            lines.append(replace(line, operator=name, cost=cost, used_s=line.used_s / len(names)))
    return replace(bill, lines=tuple(lines))


@dataclass(frozen=True, slots=True)
class _Stay:
    """An instance's time on a host."""

    unit: str
    cores: float
    from_s: float
    until_s: float

    def within_s(self, from_s: float, until_s: float) -> float:
        return max(0.0, min(self.until_s, until_s) - max(self.from_s, from_s))


def _decisions(rows: Iterable[Mapping[str, Any]]) -> dict[str, Decision]:
    found: dict[str, Decision] = {}
    for row in rows:
        if row["kind"] == "LeaseHost" and row["subject"]:
            found[row["subject"]] = Decision(row["at_s"], row["policy"], row["reason"], row["unit"])
    return found


def _stays(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[_Stay]]:
    """Every instance's times on hosts, by host."""
    alive = {str(state) for state in INSTANCE_ALIVE}
    since: dict[str, tuple[str, str, float, float]] = {}
    found: dict[str, list[_Stay]] = {}
    for row in rows:
        if row["what"] != "instance":
            continue
        name, at_s = row["name"], row["at_s"]
        payload = payload_of(row) if isinstance(row["payload"], str) else row["payload"]
        host = payload.get("host") if row["state"] in alive else None
        waits = row["state"] == str(InstanceState.REQUESTED)
        before = since.get(name)
        if before is not None and (before[0] != host or waits):
            found.setdefault(before[0], []).append(_Stay(before[1], before[2], before[3], at_s))
            del since[name]
        if host is not None and not waits and name not in since:
            since[name] = (host, payload["unit"], float(payload.get("cores", 1.0)), at_s)
    for host, unit, cores, from_s in since.values():
        found.setdefault(host, []).append(_Stay(unit, cores, from_s, math.inf))
    return found


def _lines(
    run: str, lease: Lease, stays: Sequence[_Stay], cores: float | None, decision: Decision
) -> Iterator[Line]:
    spans = list(_hours(lease.started_s, lease.paid_until_s))
    costs = _parts(lease.cost, [until_s - from_s for from_s, until_s in spans])
    hourly = (lease.price_per_btu * Decimal(str(HOUR_S)) / Decimal(str(lease.btu_s))).quantize(PRICE_STEP)
    ended_s = lease.ended_s if lease.ended_s is not None else math.inf
    for (from_s, until_s), cost in zip(spans, costs, strict=True):
        held: dict[str, float] = {}
        for stay in stays:
            seconds = stay.within_s(from_s, min(until_s, ended_s))
            if seconds > 0:
                held[stay.unit] = held.get(stay.unit, 0.0) + seconds * (stay.cores if cores else 1.0)
        room = (cores or 1.0) * (until_s - from_s)
        if cores is None and held:
            room = sum(held.values())
        free = max(0.0, room - sum(held.values()))
        shares = {**held, **({IDLE: free} if free > 1e-9 * room or not held else {})}
        whole = sum(shares.values())
        for (unit, share), part in zip(shares.items(), _parts(cost, list(shares.values())), strict=True):
            yield Line(
                run, lease.host, lease.site, lease.flavour, unit, from_s, until_s, part, lease.currency,
                hourly, (until_s - from_s) * share / whole, decision,
            )  # fmt: skip


def _hours(from_s: float, until_s: float) -> Iterator[tuple[float, float]]:
    """A span cut at full hours."""
    while until_s - from_s > 1e-6:
        end_s = min(until_s, (math.floor(from_s / HOUR_S + 1e-9) + 1) * HOUR_S)
        yield from_s, end_s
        from_s = end_s


def _parts(amount: Decimal, weights: Sequence[float]) -> list[Decimal]:
    """An amount divided by weights, to the finest price; what rounding leaves goes to the last."""
    whole = sum(weights)
    parts = [(amount * Decimal(repr(weight / whole))).quantize(PRICE_STEP) for weight in weights[:-1]]
    return [*parts, amount - sum(parts, Decimal(0))]


def _cores(topology: Topology | None, lease: Lease) -> float | None:
    site = topology.site_by_name.get(lease.site) if topology is not None else None
    flavours = site.flavours if site is not None else ()
    return next((flavour.cores for flavour in flavours if flavour.name == lease.flavour), None)
