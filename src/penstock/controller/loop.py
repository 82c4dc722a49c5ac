"""The loop: observe, filter, decide, guard, enact, record, once an interval with one `now_s`.

The same loop drives the simulated cluster on a virtual clock and the Spark cluster on the machine's.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.clock import Clock
from penstock.controller.cluster import Cluster, Outcome
from penstock.controller.filtering import Filtering
from penstock.controller.guards import Verdict, guard
from penstock.controller.journal import END_OF_RUN, Journal, Restored, TickRecord, subject_of
from penstock.controller.state import WINDOW, State, failed_hosts
from penstock.infrastructure.deployment import INSTANCE_COUNTED, Deployment, HostState, InstanceState
from penstock.infrastructure.leases import Charge
from penstock.monitoring.measurements import Signal
from penstock.policies.actions import Action, Hold, LeaseHost, ReleaseHost, StartInstance
from penstock.policies.planning import Plan, projected
from penstock.policies.registry import make_policy
from penstock.policies.view import Policy, View
from penstock.topology.model import Choice, Topology

LOG = logging.getLogger("penstock.controller")


@dataclass(frozen=True, slots=True)
class NewBudgets:
    """A fresh distribution of the latency bounds, with the reason it was made."""

    budgets: Mapping[str, float]
    reason: str


Budgeting = Callable[[View], NewBudgets | None]
"""Distributes the latency bounds over the units; None where the present budgets still stand."""


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
    """Drives one cluster for one topology, by the policies its units chose."""

    def __init__(
        self,
        topology: Topology,
        cluster: Cluster,
        clock: Clock,
        journal: Journal,
        *,
        budgeting: Budgeting | None = None,
    ) -> None:
        self.topology = topology
        self.state = State(topology)
        self._cluster = cluster
        self._clock = clock
        self._journal = journal
        self._filtering = Filtering(topology)
        self._budgeting = budgeting
        self._groups = _policy_groups(topology)
        self._last_decided_s: float | None = None
        restored = journal.restore(WINDOW)
        if restored is not None:
            self._resume(restored)

    @property
    def last_decided_s(self) -> float | None:
        """When it last decided; None before the first time."""
        return self._last_decided_s

    def tick(self) -> Tick:
        """One turn: observe, filter, decide (when it is time), guard, record, enact, confirm."""
        now_s = self._clock.now_s()
        observation = self._cluster.observe(now_s)
        deployment = self._cluster.deployment()
        signals, filter_notices = self._filtering.signals(observation.measurements)
        self.state.remember(signals)
        charges, book_notices = self.state.reconcile(deployment, now_s)
        notices = (*observation.notices, *filter_notices, *book_notices)

        decided = self._is_time(now_s)
        verdicts: tuple[Verdict, ...] = ()
        new_budgets: NewBudgets | None = None
        if decided:
            new_budgets = self._rebudget(deployment, now_s)
            verdicts = self._decide(deployment, now_s)
            self._last_decided_s = now_s
        allowed = tuple(v.action for v in verdicts if v.refused is None and not isinstance(v.action, Hold))
        charges += self.state.book(allowed, now_s, deployment)
        self._record(now_s, decided, deployment, signals, verdicts, charges, new_budgets, notices)
        outcomes = self._enact(allowed, now_s)
        self._log(now_s, verdicts)
        return Tick(now_s, signals, deployment, verdicts, outcomes, notices)

    def run(self, until_s: float, each: Callable[[Tick], None] | None = None) -> None:
        """Tick every monitoring interval until an instant, and at that instant; `each` is called after each.

        A tick that took longer than the interval makes the loop leave out the ticks it missed.
        """
        start_s, interval_s = self._clock.now_s(), self.topology.loop.monitoring_s
        next_s = start_s
        while next_s <= until_s:
            self._clock.wait_until(next_s)
            tick = self.tick()
            if each is not None:
                each(tick)
            if next_s == until_s:
                break
            passed = max(next_s, self._clock.now_s()) - start_s
            # Multiples of the interval, not sums of it: sums drift.
            next_s = start_s + (math.floor(passed / interval_s + 1e-9) + 1) * interval_s
            if next_s > until_s - 1e-6 * interval_s:
                next_s = until_s

    def finish(self) -> None:
        """Release every host and end every lease: nothing is paid after the run."""
        now_s = self._clock.now_s()
        deployment = self._cluster.deployment()
        charges, notices = self.state.reconcile(deployment, now_s)
        releases = tuple(ReleaseHost(host, "the run is over") for host in self.state.ledger.open_leases())
        # What still runs is stopped with the run, so every lease ends here.
        charges += self.state.book(releases, now_s, Deployment())
        verdicts = tuple(Verdict(action, END_OF_RUN) for action in releases)
        self._record(now_s, False, deployment, (), verdicts, charges, None, notices)
        self._enact(releases, now_s)

    # -- the steps -------------------------------------------------------------------------------

    def _is_time(self, now_s: float) -> bool:
        if self._last_decided_s is None:
            return True
        return now_s - self._last_decided_s >= self.topology.loop.provisioning_s - 1e-6

    def _rebudget(self, deployment: Deployment, now_s: float) -> NewBudgets | None:
        if self._budgeting is None:
            return None
        found = self._budgeting(self.state.view(deployment, now_s, tuple(self.topology.unit_by_name)))
        if found is not None:
            self.state.budgets = dict(found.budgets)
        return found

    def _decide(self, deployment: Deployment, now_s: float) -> tuple[Verdict, ...]:
        """What the policies want, each seeing what the ones before it planned, and what the guards say."""
        view = self.state.view(deployment, now_s, ())
        wishes: list[tuple[str, Action]] = [("controller", action) for action in _housekeeping(view)]
        seen = _after(view, [action for _, action in wishes])
        for number, (policy, units) in enumerate(self._groups, 1):
            actions = policy.decide(replace(seen, units=units))
            wishes += [(policy.name, action) for action in actions]
            if number < len(self._groups):
                seen = _after(seen, actions)
        verdicts = guard(tuple(wishes), view)
        if not self.topology.loop.advisory:
            return verdicts
        return tuple(
            v if v.refused or isinstance(v.action, Hold) else replace(v, refused="advisory mode")
            for v in verdicts
        )

    def _enact(self, actions: Sequence[Action], now_s: float) -> tuple[Outcome, ...]:
        if not actions:
            return ()
        outcomes = self._cluster.enact(actions, now_s)
        failed = {
            (type(o.action).__name__, subject_of(o.action)): o.error for o in outcomes if o.error is not None
        }
        for outcome in outcomes:
            if outcome.error is not None:
                LOG.warning("%s failed: %s", outcome.action, outcome.error)
                self.state.undo(outcome.action)
        self._journal.confirm(now_s, failed)
        return outcomes

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
    ) -> None:
        members = deployment.instances.values()
        self._journal.record(
            TickRecord(
                at_s=now_s,
                decided=decided,
                next_host=self.state.next_host,
                next_instance=self.state.next_instance,
                hosts=len(deployment.hosts),
                hosts_up=sum(1 for host in deployment.hosts.values() if host.state is HostState.UP),
                bill=self.state.ledger.total,
                signals=signals,
                instances=Counter([i.unit for i in members if i.state in INSTANCE_COUNTED]),
                running=Counter([i.unit for i in members if i.state is InstanceState.RUNNING]),
                verdicts=verdicts,
                leases=self.state.taken_lease_changes(),
                charges=charges,
                budgets={} if new_budgets is None else new_budgets.budgets,
                budget_reason="" if new_budgets is None else new_budgets.reason,
                notices=notices,
            )
        )

    def _resume(self, restored: Restored) -> None:
        """Take up an earlier controller's books and say again what it may not have got to say."""
        self.state.restore(restored)
        self._last_decided_s = restored.last_decided_s
        if restored.intended:
            LOG.info(
                "resuming: saying %d actions again that may not have been enacted", len(restored.intended)
            )
            self._enact(restored.intended, self._clock.now_s())

    def _log(self, now_s: float, verdicts: Sequence[Verdict]) -> None:
        if not LOG.isEnabledFor(logging.INFO):
            return
        for verdict in verdicts:
            if isinstance(verdict.action, Hold):
                LOG.debug("%.0f s hold %s: %s", now_s, verdict.action.unit, verdict.action.reason)
            elif verdict.refused is None:
                LOG.info("%.0f s %s", now_s, described(verdict.action))
            else:
                LOG.info("%.0f s refused (%s): %s", now_s, verdict.refused, described(verdict.action))


def described(action: Action) -> str:
    """An action in one line: what, about whom, why."""
    verbs = {
        "LeaseHost": "lease", "ProlongLease": "prolong", "ReleaseHost": "release", "StartInstance": "start",
        "StopInstance": "stop", "MigrateInstance": "migrate", "Hold": "hold",
    }  # fmt: skip
    place = getattr(action, "to_host", None) or (action.host if isinstance(action, StartInstance) else None)
    where = f" on {place}" if place else ""
    return f"{verbs[type(action).__name__]} {subject_of(action)}{where}: {action.reason}"


def _policy_groups(topology: Topology) -> tuple[tuple[Policy, tuple[str, ...]], ...]:
    """Units that chose the same policy with the same parameters are decided for together."""
    groups: dict[Choice, list[str]] = {}
    for unit in topology.units:
        groups.setdefault(unit.policy, []).append(unit.name)
    return tuple((make_policy(choice), tuple(units)) for choice, units in groups.items())


def _housekeeping(view: View) -> tuple[Action, ...]:
    """What no policy has to think of: give failed hosts back, bring every unit to its least instances."""
    plan = Plan(view)
    for host in failed_hosts(view.deployment):
        plan.release(host, "the host failed")
    fresh = not view.windows and not view.history
    for unit in view.topology.units_in_order:
        least = max(1, unit.min_instances, unit.initial_instances if fresh else 0)
        while plan.count(unit.name) < min(least, unit.max_instances):
            count = plan.count(unit.name)
            if not plan.start(unit.name, f"{count} instances, {least} needed at least"):
                break
    return plan.actions


def _after(view: View, actions: Sequence[Action]) -> View:
    """The view once these actions are planned: the next policy must not plan on the same room."""
    if all(isinstance(action, Hold) for action in actions):
        return view
    return replace(
        view,
        deployment=projected(view, actions),
        next_host=view.next_host + sum(isinstance(a, LeaseHost) for a in actions),
        next_instance=view.next_instance
        + sum(type(a).__name__ in ("StartInstance", "MigrateInstance") for a in actions),
    )
