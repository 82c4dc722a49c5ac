"""What the controller knows between two ticks: its books, the windows of signals, the history.

This is the one mutable place of the loop. Everything in it can be rebuilt from the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from penstock.controller.journal import Restored, subject_of
from penstock.infrastructure.deployment import HOST_ALIVE, Deployment, HostState, InstanceState
from penstock.infrastructure.leases import Charge, Lease, Ledger
from penstock.monitoring.measurements import Signal
from penstock.policies.actions import (
    Action,
    Hold,
    LeaseHost,
    MigrateInstance,
    ProlongLease,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.policies.view import ScalingEvent, View
from penstock.topology.model import Topology

WINDOW = 40
"""Signals kept for each unit: ten minutes at the usual monitoring interval."""
_LEAVES_SLOWLY = frozenset({InstanceState.RUNNING, InstanceState.RETIRING})
"""What does not serve yet is gone at once; these finish what they have begun."""
HISTORY = 1000
"""Scalings kept for policies to look back on."""


class State:
    """The controller's books and memory."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.ledger = Ledger()
        self.budgets: dict[str, float] = {}
        self.next_host = 1
        self.next_instance = 1
        self._windows: dict[str, deque[Signal]] = {}
        self._history: deque[ScalingEvent] = deque(maxlen=HISTORY)
        self._scalings: dict[str, int] = {}
        self._reconciled = False
        self._owed: list[Charge] = []
        """Charges made between two ticks, for the next one's record."""
        self._draining: set[str] = set()
        """Hosts whose release was said while instances were still leaving them: paid until they are gone."""
        self._changed_leases: dict[str, None] = {}
        """Hosts whose leases have changed, in the order of their first change."""

    # -- learning --------------------------------------------------------------------------------

    def remember(self, signals: Iterable[Signal]) -> None:
        """Add the newest signals to the windows."""
        for signal in signals:
            window = self._windows.get(signal.unit)
            if window is None:
                window = self._windows[signal.unit] = deque(maxlen=WINDOW)
            window.append(signal)

    def reconcile(self, deployment: Deployment, now_s: float) -> tuple[list[Charge], list[str]]:
        """Bring the books into line with what exists: pay started units, adopt hosts, close lost leases."""
        charges, self._owed, notices = self._owed, [], []
        open_leases, known = self.ledger.open_leases(), self.ledger.leases
        for host in deployment.hosts.values():
            if host.id in open_leases:
                if host.state is HostState.DRAINING:
                    self._draining.add(host.id)
                continue
            if host.state is HostState.UP and host.id in known:
                self.ledger.reopen(host.id)
                self._noted(host.id, None)
                notices.append(f"host {host.id} was released but still runs: its lease goes on")
            elif host.state in HOST_ALIVE and host.id not in known:
                site = self.topology.site_by_name[host.site]
                lease = Lease(
                    host.id, site.name, host.flavour.name, now_s, site.btu_s,
                    host.flavour.price_per_btu, currency=site.currency,
                )  # fmt: skip
                charges += self._noted(
                    host.id, self.ledger.lease(lease, "adopted: it runs but was not in the books")
                )
                notices.append(f"host {host.id} runs but was not in the books: adopted")
                self._take_name(host.id)
        if not self._reconciled:
            # What runs before our first look was named by somebody else, or by an earlier controller.
            for instance in deployment.instances:
                self._take_name(instance, of_host=False)
            self._reconciled = True
        for name in [host for host in open_leases if host not in deployment.hosts]:
            charges += self._noted(name, self.ledger.end(name, now_s))
            if name not in self._draining:
                notices.append(f"host {name} is leased but does not exist any more: lease ended")
            self._draining.discard(name)
        for charge in self.ledger.settle(now_s):
            charges += self._noted(charge.host, charge)
        return charges, notices

    def book(self, actions: Sequence[Action], now_s: float, deployment: Deployment) -> list[Charge]:
        """Enter actions that are about to be enacted: leases, charges, names taken, history.

        A host that instances are still leaving is paid until it is gone; an empty one until now.
        """
        charges: list[Charge] = []
        for action in actions:
            if isinstance(action, Hold):
                continue
            if isinstance(action, LeaseHost):
                site = self.topology.site_by_name[action.site]
                flavour = site.flavour(action.flavour)
                lease = Lease(
                    action.host, site.name, flavour.name, now_s, site.btu_s, flavour.price_per_btu,
                    currency=site.currency,
                )  # fmt: skip
                charges += self._noted(action.host, self.ledger.lease(lease, action.reason))
                self._take_name(action.host)
            elif isinstance(action, ProlongLease):
                charges += self._noted(action.host, self.ledger.prolong(action.host, now_s, action.reason))
            elif isinstance(action, ReleaseHost):
                if any(i.state in _LEAVES_SLOWLY for i in deployment.on_host(action.host)):
                    self._draining.add(action.host)
                else:
                    charges += self._noted(action.host, self.ledger.end(action.host, now_s))
            elif isinstance(action, StartInstance):
                self._take_name(action.instance, of_host=False)
            elif isinstance(action, MigrateInstance):
                self._take_name(action.replacement, of_host=False)
            self._count(action, now_s)
        return charges

    def undo(self, action: Action) -> None:
        """Take back what was booked for an action that failed.

        A lease the provider refused is paid back; the lease of a host that could not be given back goes on.
        """
        self._uncount(action)
        if isinstance(action, LeaseHost):
            self._owed += self._noted(action.host, self.ledger.void(action.host, "refused: paid back"))
        elif isinstance(action, ReleaseHost):
            self._draining.discard(action.host)
            if self.ledger.reopen(action.host):
                self._noted(action.host, None)

    def restore(self, restored: Restored) -> None:
        """Take up the books and the memory of an earlier controller of the same run."""
        self.ledger = Ledger(restored.leases, restored.charges)
        self.budgets = dict(restored.budgets)
        self.next_host = restored.next_host
        self.next_instance = restored.next_instance
        self.remember(restored.signals)
        for at_s, action in restored.actions:
            self._count(action, at_s)
        for action in restored.intended:
            self._count(action, restored.last_tick_s)

    # -- showing ---------------------------------------------------------------------------------

    def view(self, deployment: Deployment, now_s: float, units: tuple[str, ...]) -> View:
        """What a policy for these units sees."""
        return View(
            now_s=now_s,
            topology=self.topology,
            deployment=deployment,
            leases=self.ledger.open_leases(),
            windows={unit: tuple(window) for unit, window in self._windows.items()},
            budgets=dict(self.budgets),
            history=tuple(self._history),
            scalings=dict(self._scalings),
            units=units,
            next_host=self.next_host,
            next_instance=self.next_instance,
            interval_s=self.topology.loop.provisioning_s,
        )

    def taken_lease_changes(self) -> tuple[Lease, ...]:
        """Leases changed since the last call, to be written to the journal."""
        changed = tuple(self.ledger.leases[host] for host in self._changed_leases)
        self._changed_leases.clear()
        return changed

    # -- inside ----------------------------------------------------------------------------------

    def _noted(self, host: str, charge: Charge | None) -> list[Charge]:
        if host in self.ledger.leases:
            self._changed_leases[host] = None
        return [] if charge is None else [charge]

    def _count(self, action: Action, at_s: float) -> None:
        unit = getattr(action, "unit", None)
        self._history.append(ScalingEvent(at_s, type(action).__name__, unit, subject_of(action)))
        if isinstance(action, StartInstance | StopInstance):
            self._scalings[action.unit] = self._scalings.get(action.unit, 0) + 1

    def _uncount(self, action: Action) -> None:
        kind, subject = type(action).__name__, subject_of(action)
        event = next((e for e in reversed(self._history) if e.kind == kind and e.subject == subject), None)
        if event is None:
            return
        self._history.remove(event)
        if isinstance(action, StartInstance | StopInstance):
            self._scalings[action.unit] -= 1

    def _take_name(self, name: str, *, of_host: bool = True) -> None:
        """Number later hosts and instances beyond this one: a name is never given twice."""
        number = _number_at_end(name)
        if of_host:
            self.next_host = max(self.next_host, number + 1)
        else:
            self.next_instance = max(self.next_instance, number + 1)


def _number_at_end(name: str) -> int:
    """The number a name ends with, such as 12 of "cloud-h12"; 0 where it ends with none."""
    digits = len(name) - len(name.rstrip("0123456789"))
    return int(name[-digits:]) if 0 < digits <= 9 else 0


def failed_hosts(deployment: Deployment) -> tuple[str, ...]:
    """Hosts that died and must be given back, or they would be paid for ever."""
    return tuple(host.id for host in deployment.hosts.values() if host.state is HostState.FAILED)
