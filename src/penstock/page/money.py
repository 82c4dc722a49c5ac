"""Where the money of a run went: by unit, site, flavour and hour, and what was paid for nothing.

A lease's cost is spread evenly over the time it pays for. While an instance is on the host it takes the
share of the host's cores that it holds; what nobody holds, and what was paid beyond the host's end, is idle.
Units and idle time together are the bill.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.infrastructure.leases import Charge, Lease
from penstock.topology.model import Topology

HOUR_S = 3600.0
_THERE = frozenset({"starting", "running", "retiring"})
"""The states in which an instance holds cores of its host."""


@dataclass(frozen=True, slots=True)
class Stay:
    """One instance on one host, from when until when."""

    unit: str
    host: str
    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Hosted:
    """Which instances were on which host."""

    stays: Mapping[str, tuple[Stay, ...]]

    @staticmethod
    def read(rows: Iterable[Mapping[str, Any]], end_s: float) -> Hosted:
        """From the entries of instances' lives, oldest first."""
        begun: dict[str, tuple[str, str, float]] = {}
        found: dict[str, list[Stay]] = {}

        def leave(name: str, at_s: float) -> None:
            unit, host, from_s = begun.pop(name)
            found.setdefault(host, []).append(Stay(unit, host, from_s, at_s))

        for row in rows:
            payload = json.loads(row["payload"])
            name, host = row["name"], payload.get("host")
            there = row["state"] in _THERE and host is not None
            if name in begun and (not there or begun[name][1] != host):
                leave(name, row["at_s"])
            if there and name not in begun:
                begun[name] = (payload["unit"], host, row["at_s"])
        for name in list(begun):
            leave(name, end_s)
        return Hosted({host: tuple(stays) for host, stays in found.items()})


@dataclass(frozen=True, slots=True)
class Spent:
    """A bill, taken apart. Amounts are floats: the exact ones are the ledger's."""

    total: float
    idle: float
    idle_ratio: float
    by_unit: dict[str, float]
    by_site: dict[str, float]
    by_flavour: dict[str, float]
    by_hour: list[dict[str, Any]] = field(default_factory=list)
    """For each hour of the run: what was charged in it, by site."""
    hosts: int = 0


def spent(
    leases: Sequence[Lease],
    charges: Sequence[Charge],
    hosted: Hosted,
    topology: Topology,
    start_s: float,
    end_s: float,
) -> Spent:
    """Take a run's bill apart."""
    paid = [lease for lease in leases if lease.units]
    by_unit = dict.fromkeys(topology.unit_by_name, 0.0)
    by_site: dict[str, float] = {}
    by_flavour: dict[str, float] = {}
    idle = 0.0
    for lease in paid:
        cost = float(lease.cost)
        by_site[lease.site] = by_site.get(lease.site, 0.0) + cost
        key = f"{lease.site} / {lease.flavour}"
        by_flavour[key] = by_flavour.get(key, 0.0) + cost
        used = 0.0
        for unit, share in _shares(lease, hosted, topology).items():
            by_unit[unit] = by_unit.get(unit, 0.0) + cost * share
            used += share
        idle += cost * (1.0 - used)
    total = float(sum(charge.amount for charge in charges))
    return Spent(
        total,
        idle,
        idle / total if total else 0.0,
        by_unit,
        by_site,
        by_flavour,
        _hours(charges, {lease.host: lease.site for lease in leases}, start_s, end_s),
        len(paid),
    )


def _shares(lease: Lease, hosted: Hosted, topology: Topology) -> dict[str, float]:
    """By unit, the share of what a lease pays for that its instances held; together at most 1."""
    until_s = lease.paid_until_s if lease.ended_s is None else min(lease.ended_s, lease.paid_until_s)
    site = topology.site_by_name.get(lease.site)
    known = {flavour.name: flavour.cores for flavour in site.flavours} if site is not None else {}
    held: dict[str, float] = {}
    for stay in hosted.stays.get(lease.host, ()):
        width_s = min(stay.until_s, until_s) - max(stay.from_s, lease.started_s)
        if width_s > 0 and stay.unit in topology.unit_by_name:
            held[stay.unit] = held.get(stay.unit, 0.0) + width_s * topology.unit_cores(stay.unit)
    all_s = known.get(lease.flavour, 1.0) * lease.units * lease.btu_s
    shares = {unit: core_s / all_s for unit, core_s in held.items()}
    # Instances of a flavour that was changed meanwhile may hold more than there is.
    over = max(1.0, sum(shares.values()))
    return {unit: share / over for unit, share in shares.items()}


def _hours(
    charges: Sequence[Charge], sites: Mapping[str, str], start_s: float, end_s: float
) -> list[dict[str, Any]]:
    count = max(1, int((end_s - start_s) // HOUR_S) + 1)
    found: list[dict[str, float]] = [{} for _ in range(count)]
    for charge in charges:
        hour = min(count - 1, max(0, int((charge.at_s - start_s) // HOUR_S)))
        site = sites.get(charge.host, "")
        found[hour][site] = found[hour].get(site, 0.0) + float(charge.amount)
    return [{"hour": number, "by_site": amounts} for number, amounts in enumerate(found)]
