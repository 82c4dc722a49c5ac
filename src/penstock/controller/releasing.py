"""Releases that run late: no host that was told to go is paid for another billing time unit by accident.

A release is planned backwards from the paid end of the lease, with measured times. Where it takes longer
all the same, what retires is ended at once; and where something on the host still waits for its replacement,
the release is taken back and the lease prolonged on purpose: a replacement comes before a retirement.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.fleet.actions import Action, ProlongLease
from penstock.fleet.deployment import HostState, InstanceState
from penstock.fleet.fleet import Fleet
from penstock.infrastructure.leases import Lease

LAST_TICKS = 2
"""A drain is judged for the last time so many ticks before the paid end: one to act, one to see it done."""


def late_drains(fleet: Fleet, leases: Mapping[str, Lease], now_s: float, tick_s: float) -> tuple[Action, ...]:
    """Hurry or take back what would not be empty before its paid end; the leases to prolong for it."""
    actions: list[Action] = []
    deployment = fleet.deployment()
    for host in deployment.hosts.values():
        if host.state is not HostState.DRAINING or host.leaving:
            continue
        lease = leases.get(host.id)
        # Where a unit is hardly longer than a tick, there is nothing to win by haste.
        if lease is None or lease.btu_s <= 2 * LAST_TICKS * tick_s:
            continue
        left_s = lease.remaining_s(now_s)
        if left_s > LAST_TICKS * tick_s:
            continue
        members = deployment.on_host(host.id)
        staying = [i.id for i in members if i.state is not InstanceState.RETIRING]
        if staying:
            late = (
                f"the replacement of {', '.join(staying[:3])} does not serve yet and {left_s:.0f} s are paid"
            )
            if host.asked:
                actions.append(ProlongLease(host.id, f"paid on until it is empty, as was asked: {late}"))
            else:
                fleet.kept(host.id)
                actions.append(ProlongLease(host.id, f"kept {host.id}: {late}"))
        elif members:
            fleet.hurry(host.id)
            if left_s <= tick_s:
                fleet.let_go(host.id)
    return tuple(actions)
