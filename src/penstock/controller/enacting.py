"""Saying what is wanted to whoever is below the fleet, and noting what was refused.

Everything here was recorded before. Saying it twice changes nothing, so an order that may not have been
heard is simply said again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.controller.guards import Verdict
from penstock.errors import ClusterError
from penstock.fleet.actions import Action, LeaseHost, ProlongLease, ReleaseHost, StartInstance, described
from penstock.fleet.fleet import Fleet
from penstock.fleet.limits import Orders
from penstock.fleet.ports import Ground, Submission

LOG = logging.getLogger("penstock.controller")


@dataclass
class Enacted:
    """What came of orders."""

    failed: dict[tuple[str, str], str] = field(default_factory=dict)
    """Why an action failed, by its kind and the host or instance it is about."""


def carry_out(orders: Orders, fleet: Fleet, ground: Ground, now_s: float) -> Enacted:
    """Say all orders; the fleet learns what was refused."""
    enacted = Enacted()
    for host in orders.create:
        try:
            ground.providers[host.site].create(host.id, host.flavour, now_s)
        except ClusterError as error:
            LOG.warning("host %s was refused: %s", host.id, error)
            enacted.failed[LeaseHost.kind, host.id] = str(error)
            for instance in fleet.refuse(host.id, str(error)):
                enacted.failed[StartInstance.kind, instance] = f"host {host.id} was refused"
    for host in orders.delete:
        try:
            ground.providers[host.site].delete(host.id, now_s)
        except ClusterError as error:
            LOG.warning("host %s could not be given back: %s", host.id, error)
            enacted.failed[ReleaseHost.kind, host.id] = str(error)
            fleet.not_deleted(host.id)
    for unit in orders.submit:
        try:
            life = fleet.units[unit]
            ground.plane.submit(Submission(unit, life.revision, life.attempt, fleet.wanted(unit)))
        except ClusterError as error:
            LOG.warning("unit %s could not be submitted: %s", unit, error)
            fleet.put_off(unit, str(error), now_s)
    for unit in orders.tell:
        ground.plane.tell(unit, fleet.wanted(unit), now_s)
    return enacted


def never_said(actions: Iterable[Action]) -> dict[tuple[str, str], str]:
    """Actions of a run that ended before they could be recorded, as failures: nobody was told of them.

    Hosts are given back at the end all the same, and a lease is prolonged by keeping it.
    """
    why = "the run ended before it could be recorded"
    return {(a.kind, a.subject): why for a in actions if not isinstance(a, ReleaseHost | ProlongLease)}


def log(now_s: float, verdicts: Sequence[Verdict]) -> None:
    """Write what was decided and what the guards said into the log, in words."""
    if not LOG.isEnabledFor(logging.INFO):
        return
    for verdict in verdicts:
        if not verdict.action.changes:
            LOG.debug("%.0f s hold %s: %s", now_s, verdict.action.unit, verdict.action.reason)
        elif verdict.refused is None:
            LOG.info("%.0f s %s", now_s, described(verdict.action))
        else:
            LOG.info("%.0f s refused (%s): %s", now_s, verdict.refused, described(verdict.action))
