"""The loop: observe, reconcile, filter, decide, guard, record, enact, confirm; one `now_s` a turn.

Nothing acts while it looks, and nothing is enacted that is not recorded. The same loop drives the simulator
on a virtual clock, a Spark cluster on the machine's, and an attached session: below it is the fleet, and
below the fleet whatever ground it is given.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.clock import Clock
from penstock.controller import deciding
from penstock.controller.enacting import carry_out, log, never_said
from penstock.controller.filtering import Filtering, filtered_by
from penstock.controller.guards import Verdict, guard
from penstock.controller.journal import END_OF_RUN, MODE, Recorder, Restored, TickRecord
from penstock.controller.mode import Mode
from penstock.controller.paying import Paying
from penstock.controller.releasing import late_drains
from penstock.controller.room import Room
from penstock.controller.state import WINDOW, State
from penstock.errors import FencedError, JournalError, JournalUnavailableError
from penstock.fleet.actions import Action, ReleaseHost
from penstock.fleet.deployment import Deployment, HostState
from penstock.fleet.fleet import Fleet
from penstock.fleet.keeping import life_of, living_of
from penstock.fleet.limits import Limits, Orders
from penstock.fleet.ports import Ground, UnitReport
from penstock.infrastructure.leases import Charge
from penstock.monitoring.measurements import Measurement, Signal
from penstock.policies.planning import MOST_STARTS
from penstock.policies.view import View
from penstock.topology.model import Topology

LOG = logging.getLogger("penstock.controller")

ASKED_EVERY_S = 0.25
"""How often a waiting loop asks whether it shall end."""


@dataclass(frozen=True, slots=True)
class NewBudgets:
    """A fresh distribution of the latency bounds, with the reason it was made."""

    budgets: Mapping[str, float]
    reason: str


Budgeting = Callable[[View], NewBudgets | None]
"""Distributes the latency bounds over the units; None where the present budgets still stand."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether an action was accepted; `error` says in words why not."""

    action: Action
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """What one turn of the loop saw and did."""

    at_s: float
    signals: tuple[Signal, ...]
    deployment: Deployment
    verdicts: tuple[Verdict, ...]
    outcomes: tuple[Outcome, ...]
    notices: tuple[str, ...]


class Controller:
    """Drives the fleet of one topology, by the policies its units chose."""

    def __init__(
        self,
        topology: Topology,
        ground: Ground,
        clock: Clock,
        journal: Recorder,
        *,
        budgeting: Budgeting | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.topology = topology
        self.state = State(topology)
        self.fleet = Fleet(topology, limits)
        self._ground = ground
        self.paying = Paying(ground.providers)
        self._clock = clock
        self._journal = journal
        self._filtering = Filtering(topology)
        self._budgeting = budgeting
        self._groups = deciding.policy_groups(topology)
        self._last_decided_s: float | None = None
        self._rest_follows = False
        """Whether more was to be started than one decision starts: the next turn decides again."""
        self.mode = self._mode_kept = Mode.of(topology)
        self._asked: list[Action] = []
        self._given_budgets: NewBudgets | None = None
        self.room = Room()
        self._unsaid: tuple[Orders, tuple[Action, ...]] | None = None
        """Orders that could not be recorded, so they were not said."""
        self._journal_away = False
        self._ends = False
        self._late_news: list[str] = []
        """What happened after a tick's record was made."""
        restored = journal.restore(WINDOW)
        if restored is not None:
            self._resume(restored)
        self.state.recall(journal)

    @property
    def last_decided_s(self) -> float | None:
        """When it last decided; None before the first time."""
        return self._last_decided_s

    def change(
        self,
        topology: Topology,
        revision: int,
        restarts: Collection[str] = (),
        budgeting: Budgeting | None = None,
        attempts: Mapping[str, int] | None = None,
    ) -> None:
        """Go on with another version of the topology from the next tick on, nothing lost.

        Units in `restarts` are submitted anew; the others go on as they are, decided for by what the new
        version says of them. `attempts` is how often new ones were submitted when they were there before.
        """
        if filtered_by(topology) != filtered_by(self.topology):
            self._filtering = Filtering(topology)
        if self.topology.loop.advisory != topology.loop.advisory:
            self.mode = Mode.of(topology)
        self.topology = topology
        self._groups = deciding.policy_groups(topology)
        self._budgeting = budgeting
        self.state.change(topology)
        if any(unit.name not in self.fleet.units for unit in topology.units):
            self._last_decided_s = None  # what is new is decided for at once
        self.fleet.change(topology, revision, restarts, self._clock.now_s(), attempts)

    def tick(self) -> Tick:
        """One turn: observe, reconcile, filter, decide (when it is time), guard, record, enact, confirm."""
        now_s = self._clock.now_s()
        reports, news = self._ground.plane.reports(now_s)
        notices = [*self._late_news, *news, *self._observe(reports, now_s)]
        self._late_news.clear()
        signals, filter_notices = self._filtering.signals(self._measured(reports))
        self.state.remember(signals)
        charges, book_notices = self.state.reconcile(self.fleet.deployment(), now_s)
        corrections, news = self.paying.settle(self.state, now_s)
        charges += corrections
        notices += [*filter_notices, *book_notices, *news, *self.state.budget_news(now_s)]
        self._asked += self.paying.noticed(self.fleet.deployment(), self._asked, now_s)

        decided = self._unsaid is None and self._is_time(now_s)
        asked = self._what_was_asked(now_s)
        verdicts = self._unfinished_releases(now_s) + asked
        new_budgets, self._given_budgets = self._given_budgets, None
        if decided:
            new_budgets = self._rebudget(now_s) or new_budgets
            verdicts += self._decide(now_s, asked)
            self._last_decided_s = now_s
        deployment = self.fleet.deployment()
        allowed = tuple(v.action for v in verdicts if v.refused is None and v.action.changes)
        if decided:
            self._rest_follows = len([action for action in allowed if action.starts]) >= MOST_STARTS
        refused = self._apply(allowed, now_s)
        charges += self.state.book([a for a in allowed if (a.kind, a.subject) not in refused], now_s)
        orders = self.fleet.orders(now_s)
        charges += self.state.returned((host.id for host in orders.delete), now_s)
        recorded = self._record(now_s, decided, deployment, signals, verdicts, charges, new_budgets, notices)
        outcomes = self._enact(orders, allowed, refused, now_s) if recorded else self._put_by(orders, allowed)
        self.paying.keep(self.fleet, now_s)
        log(now_s, verdicts)
        return Tick(now_s, signals, deployment, verdicts, outcomes, tuple(notices))

    def run(
        self,
        until_s: float = math.inf,
        each: Callable[[Tick], None] | None = None,
        stopped: Callable[[], bool] | None = None,
        *,
        tick: Callable[[], Tick] | None = None,
    ) -> None:
        """Tick every monitoring interval until an instant, and at that instant; `each` is called after each.

        A tick that took longer than the interval makes the loop leave out the ticks it missed. `stopped` is
        asked some times a second, and ends it. `tick` is what a turn is, where somebody does more than that.
        """
        turn = tick or self.tick
        next_s = start_s = self._clock.now_s()
        while next_s <= until_s:
            if not self._wait(next_s, stopped):
                return
            seen = turn()
            interval_s = self.topology.loop.monitoring_s
            if each is not None:
                each(seen)
            if next_s == until_s:
                break
            passed = max(next_s, self._clock.now_s()) - start_s
            # Multiples of the interval, not sums of it: sums drift.
            next_s = start_s + (math.floor(passed / interval_s + 1e-9) + 1) * interval_s
            if next_s > until_s - 1e-6 * interval_s:
                next_s = until_s

    def finish(self) -> None:
        """Release every host and end every lease: nothing is paid after the run, on record or not."""
        now_s, self._ends = self._clock.now_s(), True
        self.mode = Mode.of(self.topology)  # what was told ends with the run
        deployment = self.fleet.deployment()
        unsaid, self._unsaid = self._unsaid, None
        too_late = {} if unsaid is None else never_said(unsaid[1])
        for kind, subject in too_late:
            self.state.undo(kind, subject)
        charges, notices = self.state.reconcile(deployment, now_s)
        charges += self.state.settled(deployment, now_s)
        releases = tuple(ReleaseHost(host, "the run is over") for host in self.state.ledger.open_leases())
        for action in releases:
            self.fleet.apply(action, now_s)
        charges += self.state.book(releases, now_s)
        # What still runs is stopped with the run, so every lease ends here.
        charges += self.state.returned((action.host for action in releases), now_s)
        verdicts = tuple(Verdict(action, END_OF_RUN) for action in releases)
        self._record(now_s, False, deployment, (), verdicts, charges, None, notices)
        # On record or not: nobody will look after them any more, and they cost money.
        leased = tuple(host for host in deployment.hosts.values() if host.leased)
        outcomes = self._enact(Orders(delete=leased), releases, too_late, now_s)
        told = [f"host {done.action.subject} was given back" for done in outcomes if done.error is None]
        if self.paying:
            left, now_s = self.paying.close(), self._clock.now_s()
            corrections, news = self.paying.settle(self.state, now_s)
            self._record(now_s, False, self.fleet.deployment(), (), (), corrections, None, [*news, *left])
            told += left
        if self._journal_away:
            LOG.error("the end of the run is not on record: %s", "; ".join(told) or "no host was leased")

    def settle(self) -> None:
        """Put on record what metered instances have used and not paid yet, so that a result counts it."""
        now_s, deployment = self._clock.now_s(), self.fleet.deployment()
        charges = self.state.settled(deployment, now_s)
        if charges:
            self._record(now_s, False, deployment, (), (), charges, None, ())

    # -- the steps -------------------------------------------------------------------------------

    def _wait(self, until_s: float, stopped: Callable[[], bool] | None) -> bool:
        """Wait for an instant; False where `stopped` says to end before."""
        if stopped is None:
            self._clock.wait_until(until_s)
            return True
        while not stopped():
            now_s = self._clock.now_s()
            if now_s >= until_s:
                return True
            self._clock.wait_until(min(until_s, now_s + ASKED_EVERY_S))
        return False

    def _observe(self, reports: Sequence[UnitReport], now_s: float) -> list[str]:
        hosts = self.paying.hosts(now_s)
        notices = [notice for report in reports for notice in report.notices]
        return notices + self.fleet.observed(hosts, reports, now_s)

    def _measured(self, reports: Sequence[UnitReport]) -> tuple[Measurement, ...]:
        """What was measured, with the fleet's names of instances."""
        return tuple(
            self.fleet.named(report.measurement) for report in reports if report.measurement is not None
        )

    def _unfinished_releases(self, now_s: float) -> tuple[Verdict, ...]:
        """Releases that would run into the next billing time unit: hurried, or taken back on purpose."""
        leases, every_s = self.state.ledger.open_leases(), self.topology.loop.monitoring_s
        return tuple(Verdict(a, "controller") for a in late_drains(self.fleet, leases, now_s, every_s))

    def ask(self, action: Action) -> None:
        """Have an action of somebody outside done at the next tick, as far as the guards let it pass."""
        self._asked.append(action)

    def give_budgets(self, budgets_s: Mapping[str, float], reason: str) -> None:
        """Have units keep these latencies from the next tick on."""
        self.state.budgets |= {u: s for u, s in budgets_s.items() if u in self.topology.unit_by_name}
        self._given_budgets = NewBudgets(dict(self.state.budgets), reason)

    def _what_was_asked(self, now_s: float) -> tuple[Verdict, ...]:
        """Actions from outside, and what they need to be done."""
        view = self._view(now_s)
        asked, self._asked = [*self._asked, *self.room.leases(view)], []
        if not asked:
            return ()
        verdicts = guard(deciding.asked_for(view, asked, self.room.hosts), view)
        # A host that cannot go yet, because there is no room for what is on it, is asked for again. One that
        # its provider takes away is noticed again anyway.
        refused = {v.action.subject for v in verdicts if v.refused is not None and v.action in asked}
        stays = {name for name, host in view.deployment.hosts.items() if host.taken_s is None}
        self._asked = [action for action in asked if action.subject in refused & stays]
        return verdicts

    def _apply(self, actions: Sequence[Action], now_s: float) -> dict[tuple[str, str], str]:
        """Enter allowed actions into the fleet; what it cannot take, with the reason."""
        refused = {}
        for action in actions:
            problem = self.fleet.apply(action, now_s)
            if problem is not None:
                refused[action.kind, action.subject] = problem
        return refused

    def _is_time(self, now_s: float) -> bool:
        if self.mode is Mode.PAUSE:
            return False
        if self._last_decided_s is None or self._rest_follows:
            return True
        return now_s - self._last_decided_s >= self.topology.loop.provisioning_s - 1e-6

    def _view(self, now_s: float, units: tuple[str, ...] = ()) -> View:
        found = self.state.view(self.fleet.deployment(), now_s, units, self.fleet.times)
        return replace(found, withheld=self.paying.withheld(now_s)) if self.paying else found

    def _rebudget(self, now_s: float) -> NewBudgets | None:
        if self._budgeting is None:
            return None
        found = self._budgeting(self._view(now_s, tuple(self.topology.unit_by_name)))
        if found is not None:
            self.state.budgets = dict(found.budgets)
        return found

    def _decide(self, now_s: float, asked: Sequence[Verdict] = ()) -> tuple[Verdict, ...]:
        """What the policies want, each seeing what those before it planned, and what the guards say."""
        view = deciding.after(self._view(now_s), deciding.begun_by(asked))
        wishes: list[tuple[str, Action]] = [("controller", action) for action in deciding.housekeeping(view)]
        seen = deciding.after(view, [action for _, action in wishes])
        for number, (policy, units) in enumerate(self._groups, 1):
            actions = policy.decide(replace(seen, units=units))
            wishes += [(policy.name, action) for action in actions]
            if number < len(self._groups):
                seen = deciding.after(seen, actions)
        verdicts = guard(tuple(wishes), view)
        verdicts = deciding.keeping(verdicts) if self.room.keeps(view, self.fleet.units) else verdicts
        if self.mode is Mode.ACT:
            return verdicts
        return tuple(
            v if v.refused or not v.action.changes else replace(v, refused="advisory mode") for v in verdicts
        )

    def _enact(
        self,
        orders: Orders,
        actions: tuple[Action, ...],
        refused: Mapping[tuple[str, str], str],
        now_s: float,
    ) -> tuple[Outcome, ...]:
        if self._unsaid is not None:
            before, earlier = self._unsaid
            orders, actions, self._unsaid = before.with_more(orders), (*earlier, *actions), None
        enacted = carry_out(orders, self.fleet, self._ground, now_s)
        for kind, subject in enacted.failed:
            self.state.undo(kind, subject)
        failed = {**refused, **enacted.failed}
        if actions or failed:
            self._written(lambda: self._journal.confirm(now_s, failed))
        for (kind, subject), problem in refused.items():
            LOG.warning("%s %s failed: %s", kind, subject, problem)
        return tuple(Outcome(action, failed.get((action.kind, action.subject))) for action in actions)

    def _put_by(self, orders: Orders, actions: tuple[Action, ...]) -> tuple[Outcome, ...]:
        """Keep orders until they can be recorded: what is not on record is not enacted."""
        if self._unsaid is not None:
            before, earlier = self._unsaid
            orders, actions = before.with_more(orders), (*earlier, *actions)
        self._unsaid = (orders, actions)
        return ()

    def _record(
        self,
        now_s: float,
        decided: bool,
        deployment: Deployment,
        signals: Sequence[Signal],
        verdicts: Sequence[Verdict],
        charges: Sequence[Charge],
        new_budgets: NewBudgets | None,
        notices: Sequence[str],
    ) -> bool:
        """Put the tick on record; False where the journal cannot take it now (it keeps it for later)."""
        # A controller that comes back goes on as it was told.
        settings = {MODE: self.mode.value} if self.mode is not self._mode_kept else {}
        self._mode_kept = self.mode
        tick = TickRecord(
            at_s=now_s,
            decided=decided,
            next_host=self.state.next_host,
            next_instance=self.state.next_instance,
            hosts=len(deployment.hosts),
            hosts_up=len([h for h in deployment.hosts.values() if h.state is HostState.UP]),
            bill=self.state.ledger.total,
            signals=signals,
            instances={unit: len(members) for unit, members in deployment.by_unit.items()},
            running=deployment.running,
            verdicts=verdicts,
            leases=self.state.taken_lease_changes(),
            charges=charges,
            budgets={} if new_budgets is None else new_budgets.budgets,
            budget_reason="" if new_budgets is None else new_budgets.reason,
            notices=notices,
            lives=[life_of(living, now_s) for living in self.fleet.taken_changes()],
            settings=settings,
        )
        return self._written(lambda: self._journal.record(tick))

    def _written(self, write: Callable[[], None]) -> bool:
        """Write to the journal; False where it cannot take it now (it keeps it for later)."""
        try:
            write()
        except JournalError as error:
            passes = isinstance(error, JournalUnavailableError)
            if isinstance(error, FencedError) or not (passes or self._ends):
                raise
            if not self._journal_away:
                # Written down with the next tick, once there is a journal again.
                self._late_news.append(
                    f"the journal cannot be written, nothing is decided until it can: {error}"
                )
                LOG.warning("%s", self._late_news[-1])
            self._journal_away = True
            return False
        self._journal_away = False
        return True

    def _resume(self, restored: Restored) -> None:
        """Take up an earlier controller's books; what it may not have got to say is said again."""
        now_s = self._clock.now_s()
        self.state.restore(restored)
        known = (living_of(life, self.topology) for life in restored.lives)
        self.fleet.restore((living for living in known if living is not None), now_s)
        self._last_decided_s = restored.last_decided_s
        if restored.mode is not None:
            self.mode = self._mode_kept = Mode(restored.mode)
        if restored.intended:
            # They are in the fleet already, which says what it wants until it is seen.
            LOG.info("resuming: %d actions may not have been enacted", len(restored.intended))
            self._written(lambda: self._journal.confirm(now_s, {}))
