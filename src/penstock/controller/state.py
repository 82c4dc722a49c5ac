"""What the controller knows between two ticks: its books, the windows of signals, the history.

This is the one mutable place of the loop. Everything in it can be rebuilt from the journal.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal

from penstock.controller.journal import Recorder, Restored
from penstock.fleet.actions import ACTIONS, Action, LeaseHost, ProlongLease, ReleaseHost
from penstock.fleet.deployment import HOST_ALIVE, Deployment, HostState
from penstock.fleet.ports import Used
from penstock.fleet.times import MeasuredTimes, covering
from penstock.forecasts import LoadRecord
from penstock.forecasts.record import COARSE_DAYS, DEPTH
from penstock.forecasts.season import DAY_S, Season
from penstock.infrastructure.leases import Charge, Lease, Ledger
from penstock.infrastructure.metering import Held, InstanceMeter
from penstock.monitoring.health import PERIOD_S, health_over
from penstock.monitoring.measurements import Measurement, Signal
from penstock.policies.auto_lessons import lesson_of
from penstock.policies.registry import looks_back
from penstock.policies.view import Lesson, ScalingEvent, View
from penstock.topology.model import Topology

WINDOW = 40
"""Signals kept for each unit: ten minutes at the usual monitoring interval."""
HISTORY = 1000
"""Scalings kept for policies to look back on."""
LEADS = 50
"""Starts of a unit's instances from which its lead time is told."""


class State:
    """The controller's books and memory."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.ledger = Ledger()
        self._meter = InstanceMeter(topology.site_by_name)
        self.budgets: dict[str, float] = {}
        self.next_host = 1
        self.next_instance = 1
        self._windows: dict[str, deque[Signal]] = {}
        self._finished: set[str] = set()
        """Units that have finished a record since this controller began to look."""
        self._history: deque[ScalingEvent] = deque(maxlen=HISTORY)
        self._scalings: dict[str, int] = {}
        looking = [unit.name for unit in topology.units if looks_back(unit.policy)]
        self._loads = {unit: LoadRecord(topology.loop.provisioning_s) for unit in looking}
        """What came to each unit whose policy looks back; nobody else's past is kept."""
        self._leads: dict[str, deque[float]] = {}
        """How long each unit's instances lately took from the decision until they served.

        Those on hosts that were there already start much faster; a plan that leases must not count on it.
        """
        self._lessons: dict[str, Lesson] = {}
        self.seasons: dict[str, Season] = {}
        """What each unit's load usually does, where an earlier run's journal tells it."""
        self._reconciled = False
        self._last_known_s: float | None = None
        """The last tick of an earlier controller, until the first of this one."""
        self._reconciled_s = -math.inf
        self._owed: list[Charge] = []
        """Charges made between two ticks, for the next one's record."""
        self._spent_up: set[str] = set()
        """Sites of which it was told that their budget is spent."""
        self._changed_leases: dict[str, None] = {}
        """Hosts whose leases have changed, in the order of their first change."""

    def change(self, topology: Topology) -> None:
        """Go on with another version of the topology; what was learned of units that stay is kept."""
        self.topology = topology
        looking = [unit.name for unit in topology.units if looks_back(unit.policy)]
        interval_s = topology.loop.provisioning_s
        self._loads = {unit: self._loads.get(unit) or LoadRecord(interval_s) for unit in looking}
        self._windows = {
            unit: window for unit, window in self._windows.items() if unit in topology.unit_by_name
        }
        self.budgets = {unit: s for unit, s in self.budgets.items() if unit in topology.unit_by_name}

    # -- learning --------------------------------------------------------------------------------

    def remember(self, signals: Iterable[Signal], *, recorded: bool = False) -> None:
        """Add the newest signals to the windows, and to the loads unless those have them already."""
        for signal in signals:
            window = self._windows.get(signal.unit)
            if window is None:
                window = self._windows[signal.unit] = deque(maxlen=WINDOW)
            window.append(signal)
            if signal.measurement.processed:
                self._finished.add(signal.unit)
            if not recorded:
                self._add_load(signal.taken)

    def recall(self, journal: Recorder) -> None:
        """Take up what an earlier controller, or an earlier run, measured of the units' loads."""
        if not self._loads:
            return
        past = journal.past(DEPTH * self.topology.loop.provisioning_s, COARSE_DAYS * DAY_S)
        for measurement in past.recent:
            self._add_load(measurement)
        for unit, (times_s, rates_per_s) in past.loads.items():
            if unit in self._loads:
                self._loads[unit].recall(times_s, rates_per_s)

    def _add_load(self, measurement: Measurement) -> None:
        unit = measurement.unit
        record = self._loads.get(unit)
        if record is not None:
            slo_s = self.topology.unit_slo_s(unit)
            record.add(measurement, self.budgets.get(unit, slo_s), slo_s)

    def reconcile(self, deployment: Deployment, now_s: float) -> tuple[list[Charge], list[str]]:
        """Bring the books into line with what exists: pay started units, adopt hosts, close lost leases."""
        charges, self._owed, notices = self._owed, [], []
        for unit in self._loads:
            for instance in deployment.of_unit(unit):
                if instance.running_s is not None and self._reconciled_s < instance.running_s <= now_s:
                    span_s = instance.running_s - instance.requested_s
                    self._leads.setdefault(unit, deque(maxlen=LEADS)).append(max(0.0, span_s))
        self._reconciled_s = now_s
        open_leases, known = self.ledger.open_leases(), self.ledger.leases
        for host in deployment.hosts.values():
            if host.id in open_leases or host.leaving or not host.leased:
                continue
            if host.state is HostState.UP and host.id in known:
                self.ledger.reopen(host.id)
                self._noted(host.id, None)
                notices.append(f"host {host.id} was released but still runs: its lease goes on")
            elif host.state in HOST_ALIVE and host.id not in known:
                charges += self._noted(
                    host.id, self._lease(host.id, host.site, host.flavour.name, now_s, "adopted")
                )
                notices.append(f"host {host.id} runs but was not in the books: adopted")
                self._take_name(host.id)
        if not self._reconciled:
            # What runs before our first look was named by somebody else, or by an earlier controller.
            for name in deployment.instances:
                self._take_name(name, of_host=False)
            self._reconciled = True
        # What an earlier controller saw last and nobody sees now is paid until then: who knows since when
        # it is gone, while nobody looked.
        gone_s, self._last_known_s = self._last_known_s or now_s, None
        for name in [host for host in open_leases if host not in deployment.hosts]:
            charges += self._noted(name, self.ledger.end(name, min(gone_s, now_s)))
            notices.append(f"host {name} is leased but does not exist any more: lease ended")
        for charge in self.ledger.settle(now_s):
            charges += self._noted(charge.host, charge)
        return charges + self._metered(deployment, now_s), notices

    def settled(self, deployment: Deployment, now_s: float) -> list[Charge]:
        """What instances on hosts that nobody leases have used and not paid yet: the run is over."""
        return self._metered(deployment, now_s, end=True)

    def book(self, actions: Sequence[Action], now_s: float) -> list[Charge]:
        """Enter actions that are about to be enacted: leases, charges, names taken, history."""
        charges: list[Charge] = []
        for action in actions:
            if isinstance(action, LeaseHost):
                charges += self._noted(
                    action.host, self._lease(action.host, action.site, action.flavour, now_s, action.reason)
                )
                self._take_name(action.host)
            elif isinstance(action, ProlongLease):
                charges += self._noted(action.host, self.ledger.prolong(action.host, now_s, action.reason))
            if action.starts is not None:
                self._take_name(action.starts.instance, of_host=False)
            if action.changes:
                self._count(action.kind, action.subject, action.unit, now_s, action.scales)
        return charges

    def returned(self, hosts: Iterable[str], now_s: float) -> list[Charge]:
        """End the leases of hosts that are given back now: nothing is on them any more."""
        charges: list[Charge] = []
        for host in hosts:
            if host in self.ledger.open_leases():
                charges += self._noted(host, self.ledger.end(host, now_s))
        return charges

    def recorded(self, site_name: str, used: Used, now_s: float) -> list[Charge]:
        """Bring a lease into line with its provider's record of it, which is what will be billed."""
        site, known = self.topology.site_by_name[site_name], self.ledger.leases.get(used.host)
        if any(flavour.name == used.flavour for flavour in site.flavours):
            lease = Lease.at(site, site.flavour(used.flavour), used.host, used.from_s)
        elif known is not None:  # its flavour was taken away since
            lease = replace(known, started_s=used.from_s, units=site.least_steps)
        else:
            return []
        lease = lease.ended(used.until_s)
        if used.until_s <= used.from_s:
            lease = replace(lease, units=0)
        if known is not None:
            lease = replace(lease, price_per_btu=known.price_per_btu)
        reason = "as the provider recorded it" if known is not None else "found at the provider, in no book"
        return self._noted(used.host, self.ledger.correct(lease, now_s, reason))

    def undo(self, kind: str, subject: str) -> None:
        """Take back what was booked for an action that failed, by its kind and what it is about.

        A lease the provider refused is paid back; the lease of a host that could not be given back goes on.
        """
        self._uncount(kind, subject)
        if kind == LeaseHost.kind:
            self._owed += self._noted(subject, self.ledger.void(subject, "refused: paid back"))
        elif kind == ReleaseHost.kind and self.ledger.reopen(subject):
            self._noted(subject, None)

    def restore(self, restored: Restored) -> None:
        """Take up the books and the memory of an earlier controller of the same run."""
        self.ledger = Ledger(restored.leases, restored.charges)
        self.budgets = dict(restored.budgets)
        self.next_host = restored.next_host
        self.next_instance = restored.next_instance
        self._last_known_s = restored.last_tick_s
        self.remember(restored.signals, recorded=True)
        for at_s, action in restored.actions:
            self._history.append(ScalingEvent(at_s, action.kind, action.unit, action.subject))
        self._scalings = dict(restored.scalings)
        for action in restored.intended:
            self._count(action.kind, action.subject, action.unit, restored.last_tick_s, action.scales)

    # -- showing ---------------------------------------------------------------------------------

    def view(
        self, deployment: Deployment, now_s: float, units: tuple[str, ...], times: MeasuredTimes | None = None
    ) -> View:
        """What a policy for these units sees; signals that are too old to decide on are left out."""
        oldest_s = now_s - self.topology.loop.longest_signal_age_s
        found = View(
            now_s=now_s,
            topology=self.topology,
            deployment=deployment,
            leases=self.ledger.open_leases(),
            windows={
                unit: tuple(window) for unit, window in self._windows.items() if window[-1].at_s >= oldest_s
            },
            budgets=dict(self.budgets),
            history=tuple(self._history),
            scalings=dict(self._scalings),
            units=units,
            next_host=self.next_host,
            next_instance=self.next_instance,
            interval_s=self.topology.loop.provisioning_s,
            times=times or MeasuredTimes(),
            loads={unit: self._loads[unit].load() for unit in self._loads if unit in self._windows},
            seasons={**self._own_seasons(), **self.seasons},
            lead_s={unit: covering(spans) for unit, spans in self._leads.items()},
            lessons=self._lessons,
            left=self.left(now_s),
        )
        lessons = {unit: lesson_of(found, unit) for unit in found.loads}
        self._lessons = {unit: lesson for unit, lesson in lessons.items() if lesson is not None}
        return replace(found, lessons=self._lessons)

    def health(self, unit: str, now_s: float, over_s: float = PERIOD_S) -> float | None:
        """What a unit executed over what came to it in the last `over_s`; None where it is not known yet."""
        if unit not in self._finished:
            return None
        return health_over(s.taken for s in self._windows.get(unit, ()) if s.at_s > now_s - over_s)

    def _own_seasons(self) -> dict[str, Season]:
        """What the units' loads usually do, as this run has seen it."""
        found = {unit: record.season() for unit, record in self._loads.items()}
        return {unit: season for unit, season in found.items() if season is not None}

    def left(self, now_s: float) -> dict[str, Decimal]:
        """What may still be spent on leases, by site, where it has a budget."""
        return {
            site.name: site.budget - self.ledger.spent(site.name, now_s)
            for site in self.topology.sites
            if site.budget
        }

    def budget_news(self, now_s: float) -> list[str]:
        """Sites whose budget does not pay for one more host, and those for which it does again."""
        news = []
        for name, left in self.left(now_s).items():
            site = self.topology.site_by_name[name]
            short = left < min(site.first_price(flavour) for flavour in site.flavours)
            if short and name not in self._spent_up:
                self._spent_up.add(name)
                spent = f"{site.budget - left:f} of {site.budget:f} {site.currency}".rstrip()
                news.append(f"site {name}: its budget is spent ({spent} in 30 days): no host is added")
            elif not short and name in self._spent_up:
                self._spent_up.discard(name)
                news.append(f"site {name}: its budget pays for hosts again")
        return news

    def taken_lease_changes(self) -> tuple[Lease, ...]:
        """Leases changed since the last call, to be written to the journal."""
        changed = tuple(self.ledger.leases[host] for host in self._changed_leases)
        self._changed_leases.clear()
        return changed

    # -- inside ----------------------------------------------------------------------------------

    def _metered(self, deployment: Deployment, now_s: float, *, end: bool = False) -> list[Charge]:
        used = []
        for host in deployment.hosts.values():
            if not host.leased:
                members = [i for i in deployment.by_host.get(host.id, ()) if i.running_s is not None]
                cores, memory_mib = sum(i.cores for i in members), sum(i.memory_mib for i in members)
                used.append(Held(host.id, host.site, cores, memory_mib))
        charges = self._meter.charged(used, now_s, end=end) if used else []
        self.ledger.book(charges)
        return charges

    def _noted(self, host: str, charge: Charge | None) -> list[Charge]:
        if host in self.ledger.leases:
            self._changed_leases[host] = None
        return [] if charge is None else [charge]

    def _lease(
        self, host: str, site_name: str, flavour_name: str, now_s: float, reason: str
    ) -> Charge | None:
        site = self.topology.site_by_name[site_name]
        flavour = site.flavour(flavour_name)
        return self.ledger.lease(Lease.at(site, flavour, host, now_s), reason)

    def _count(self, kind: str, subject: str, unit: str | None, at_s: float, scales: bool) -> None:
        self._history.append(ScalingEvent(at_s, kind, unit, subject))
        if scales and unit is not None:
            self._scalings[unit] = self._scalings.get(unit, 0) + 1

    def _uncount(self, kind: str, subject: str) -> None:
        event = next((e for e in reversed(self._history) if e.kind == kind and e.subject == subject), None)
        if event is None:
            return
        self._history.remove(event)
        if event.unit is not None and ACTIONS[kind].scales:
            self._scalings[event.unit] -= 1

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
