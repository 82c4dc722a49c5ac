"""Policy `auto`: keep the asked share of records within the SLO, at the least cost; nothing else to set.

Five parts, each in a file of its own. How the load may go within the time a decision takes to work
(`penstock.forecasts`); what a number of instances can do in each of these ways (`auto_capacity`); what a late
record is worth, from the account of those that were (`auto_account`); what a move is charged (`auto_moves`);
and where one instance more costs more than the late records it prevents (`auto_choice`). Paid hosts are kept
until their lease ends (`leasing`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from penstock.errors import ConfigurationError
from penstock.fleet.actions import Action
from penstock.fleet.deployment import InstanceState
from penstock.forecasts.forecasters import AHEAD, NEAR
from penstock.forecasts.outlook import WEIGHTS, Asked, Outlook, outlooks_of
from penstock.forecasts.record import Load
from penstock.infrastructure.placement import flavour_to_lease, held
from penstock.monitoring.measurements import Signal
from penstock.policies.auto_account import (
    COLD_BINS,
    REMEMBERED_S,
    Account,
    account_of,
    backlog_s,
    worth_of_late,
)
from penstock.policies.auto_capacity import (
    COLD_RECOVERY_LEADS,
    LEAST_RECOVERY_LEADS,
    RECOVERY_LEADS,
    Ability,
    Future,
)
from penstock.policies.auto_choice import (
    AGAIN,
    Choice,
    Prices,
    Tried,
    asked_again,
    fewer_instances,
    more_instances,
)
from penstock.policies.auto_moves import (
    LOOKED_BACK,
    PLANNED,
    charged_bins,
    most_charged_bins,
    moves_of,
    plain_moves,
    unpaid_share,
)
from penstock.policies.auto_words import weighed
from penstock.policies.leasing import give_back
from penstock.policies.planning import Plan, right
from penstock.policies.rate import Demand, demands, true_rate_per_s
from penstock.policies.view import View
from penstock.quantities import counted, figure, format_duration

CHANGED = 0.1
"""A rate that is off by more than this share has changed; less is the noise of measuring it."""
SPENT_FROM = 0.006
"""So much more kept than was asked for is more than needs to be kept."""
PLENTY = 0.0105
"""Where more than this was kept beyond what was asked for, nothing has to come at once."""
LEAVING = 0.15
"""A late record is worth at least this share of its usual worth where giving a host back would cause it.

What is left of the account pays for starting later, not for coming and going.
"""
SETTLED_LEADS = 2.0
"""So many lead times after the last start nothing is given back: what it does is not seen yet."""
MOST_LEAD_BINS = NEAR // 2
"""Where what is decided takes more intervals than this to serve, longer bins are looked at closely."""
LEAST_SLACK = 0.05
"""A record may always wait for this share of the SLO, even where its work alone takes longer."""


@dataclass(frozen=True, slots=True)
class Auto:
    """Keep the asked share of records within the SLO at the least cost; nothing else has to be set."""

    name: ClassVar[str] = "auto"
    decides_on: ClassVar[tuple[str, ...]] = ("arrivals", "service", "waiting")
    looks_back: ClassVar[bool] = True
    keep: float = 0.99
    """The share of records that must stay within the SLO, or within the unit's budget."""
    late_costs: float | None = None
    """What a late record costs; where given, bill plus this is made least, and `keep` is not looked at."""

    def __post_init__(self) -> None:
        if not 0.5 <= self.keep < 1:
            raise ConfigurationError(f"keep is a share from 0.5 to below 1, such as 0.99, got {self.keep}")
        if self.late_costs is not None and self.late_costs < 0:
            raise ConfigurationError(f"late_costs is 0 or more, got {self.late_costs}")

    def decide(self, view: View) -> tuple[Action, ...]:
        """Bring every unit to the number of instances that costs least."""
        plan = Plan(view)
        loads, outlooks = _demands(view), _outlooks(view)
        surplus: dict[str, int] = {}
        reasons: dict[str, str] = {}
        moved = moves_of(view, view.interval_s)
        shared = _shared_hosts(view)
        for unit in view.units:
            self._decide(
                plan, unit, loads.get(unit), outlooks.get(unit), moved.get(unit, 0), shared, surplus, reasons
            )
        give_back(plan, surplus, reasons)
        return plan.actions

    def _decide(
        self, plan: Plan, unit: str, demand: Demand | None, outlook: Outlook | None, moved: int,
        shared: set[str], surplus: dict[str, int], reasons: dict[str, str],
    ) -> None:  # fmt: skip
        view, bounds = plan.view, plan.view.topology.unit_by_name[unit]
        count, least = plan.count(unit), max(1, bounds.min_instances)
        if count < least:
            plan.grow(unit, least, f"up: {counted(count, 'instance')} of at least {least}")
            return
        seen = _seen(plan, unit, demand, outlook, self.keep, moved)
        if isinstance(seen, str):
            plan.hold(unit, seen)
            return
        lesson = view.lessons.get(unit)
        most = bounds.max_instances
        if lesson is not None:
            most = min(most, max(least, lesson.enough))
            if count > most:
                _stop(plan, unit, count - most, f"down from {count} to {most}: {lesson.told}")
                return
        prices = self._prices(plan, unit, seen)
        if prices is None:
            plan.hold(unit, "no site has a host that would hold it")
            return
        times_s = np.array(AHEAD) * seen.outlook.bin_s
        far = seen.outlook.ways_per_s
        up = more_instances(seen.future, seen.ability, prices, count, most, times_s, far, view.interval_s)
        if up.count > count:
            plan.grow(unit, up.count, f"up from {count} to {up.count}: {seen.told(up, self)}")
            return
        newest_s = max(i.requested_s for i in plan.instances(unit))
        if seen.settled_s > view.now_s - newest_s:
            plan.hold(unit, f"{right(count)}: {seen.told(up, self)}")
            return
        alone = all(instance.host not in shared for instance in plan.instances(unit))
        step = prices.per_host if prices.priced and alone else 1
        spendable_s = seen.spendable_s(self.keep) if self.late_costs is None else 0.0
        down = fewer_instances(
            seen.future, seen.ability, prices, count, least, step, times_s, seen.outlook.peaks_per_s,
            seen.present_per_s, seen.headroom(prices), spendable_s,
            seen.outlook.known * seen.outlook.bin_s if prices.priced else math.inf,
        )  # fmt: skip
        if down.count < count and asked_again(
            seen.future, seen.ability, prices, count, down.count, times_s, far, view.interval_s,
            seen.present_per_s,
        ):  # fmt: skip
            given = Tried(down.count, down.costs, down.late, AGAIN)
            down = replace(down, count=count, late=down.late_if_unchanged, costs=0.0, tried=(given,))
        if down.count < count and not prices.priced:
            reason = f"down from {count} to {down.count}: {seen.told(down, self)}"
            _stop(plan, unit, count - down.count, reason)
        elif down.count < count:
            surplus[unit] = count - down.count
            reasons[unit] = f"down from {count} to {down.count}: {seen.told(down, self)}"
        else:
            bound = f" (no more than {most}: {lesson.told})" if lesson is not None and count >= most else ""
            plan.hold(unit, f"{right(count)}{bound}: {seen.told(up, self, down)}")

    def _prices(self, plan: Plan, unit: str, seen: _Seen) -> Prices | None:
        topology = plan.view.topology
        found = flavour_to_lease(topology, unit, {}, wanted=1)
        if isinstance(found, str):
            return None
        site, flavour = found
        cores, memory_mib = topology.unit_cores(unit), topology.unit_memory_mib(unit)
        per_host = max(1, held(flavour, cores, memory_mib))
        host_per_s = float(site.price_per_step(flavour)) / site.step_s
        room = sum(
            int(min(r.cores / cores + 1e-9, r.memory_mib / max(memory_mib, 1)))
            for r in (plan.room[host] for host in plan.candidates(unit))
        )
        priced, minimum_s = host_per_s > 0, site.least_steps * site.step_s
        rescale_bins = seen.rescale_bins
        if not priced:
            # Somebody else pays for the hosts: what counts is how many instances there are.
            host_per_s, per_host, minimum_s, room = 1.0, 1, plan.view.interval_s, 0
            rescale_bins *= unpaid_share(seen.lead_s / seen.outlook.bin_s)
        rescale_bins = min(rescale_bins, seen.most_rescale_bins)
        late = by_leaving = self.late_costs
        if late is None or by_leaving is None:
            per_record = host_per_s / per_host / seen.ability.rate_per_s
            waits_s = math.inf if seen.outlook.unheard else seen.future.backlog / max(seen.now_per_s, 1e-9)
            late = worth_of_late(seen.account, self.keep, per_record, seen.lead_s, waits_s)
            by_leaving = LEAVING * per_record / (1.0 - self.keep)
        return Prices(
            host_per_s, per_host, minimum_s, late, priced, room, rescale_bins, seen.prompt, by_leaving
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is known of a unit when it is decided on."""

    outlook: Outlook
    future: Future
    ability: Ability
    account: Account
    lead_s: float
    now_per_s: float
    rescale_bins: float
    """What a move is charged where hosts cost us something."""
    most_rescale_bins: float
    """No move is charged more than this."""
    present_per_s: float
    """What surely comes now: the lower of the newest measurement and the last interval."""
    warm: bool
    """Whether more is known of the load than its beginning."""

    def spendable_s(self, keep: float) -> float:
        """What the account has left beyond what a rise that nothing foretold may take, where it is much."""
        # Where hardly more may be late at all, only nearly all of that is much.
        if self.account.saved < (SPENT_FROM if 1.0 - keep > 2 * SPENT_FROM else 0.95 * (1.0 - keep)):
            return 0.0
        return self.account.balance_s - self.lead_s - self.future.recovery_s

    @property
    def settled_s(self) -> float:
        """How long after a start nothing is given back: until it serves, and what it did is seen.

        At the very beginning nothing was asked for on account of what the load did.
        """
        return SETTLED_LEADS * max(self.lead_s, self.future.bin_s) if self.warm else 0.0

    @property
    def prompt(self) -> float:
        """Whether what comes anyway comes at once: not where a hundredth more was kept than was asked for."""
        return 0.0 if self.account.saved > PLENTY else 1.0

    @property
    def ahead(self) -> int:
        """Bins of the outlook until what is decided now serves, as far as they are looked at one by one."""
        return min(NEAR, max(1, math.ceil(self.lead_s / self.outlook.bin_s)))

    def headroom(self, prices: Prices) -> float:
        """How far above the load the capacity is held, at what a late record is worth."""
        ahead = self.ahead
        per_record = prices.instance_per_s / self.ability.rate_per_s
        share = min(0.995, max(0.5, 1.0 - per_record / max(prices.late, 1e-300)))
        return max(1.0, self.outlook.quantile(share, ahead - 1) / self.outlook.quantile(0.5, ahead - 1))

    def told(self, choice: Choice, policy: Auto, other: Choice | None = None) -> str:
        """The numbers that made a decision, in one sentence; `other` has more numbers that were tried."""
        ahead = self.ahead
        low, high = (self.outlook.quantile(share, ahead - 1) for share in (0.5, policy.keep))
        kept, late = self.account.kept, f"{figure(choice.late_if_unchanged)} records would be late"
        if choice.late_if_unchanged != choice.late:
            late += f" without it, {figure(choice.late)} with it"
        asked = f", {policy.keep * 100:.4g}% asked; 1,000 late records are worth"
        if policy.late_costs is not None:
            asked = "; 1,000 late records cost"
        return (
            f"{figure(self.now_per_s)}/s now, {figure(low)} to {figure(high)}/s expected in "
            f"{format_duration(ahead * self.outlook.bin_s)} ({self.outlook.forecaster}); an instance takes "
            f"{figure(self.ability.rate_per_s)}/s; {late}; "
            f"{'nothing' if kept is None else f'{kept:.2%}'} kept so far{asked}"
            f" {figure(1000 * choice.worth)}{weighed(choice, other)}"
        )


def _outlooks(view: View) -> Mapping[str, Outlook]:
    """How the load of each unit may go, where anything of it is known: all of them at once."""
    asked = {
        unit: Asked(load, math.ceil(view.lead_time_s(unit) / load.bin_s + 0.5), view.seasons.get(unit))
        for unit in view.units
        if (load := view.loads.get(unit)) is not None and len(load)
    }
    return dict(zip(asked, outlooks_of(list(asked.values())), strict=True))


def _seen(
    plan: Plan, unit: str, demand: Demand | None, outlook: Outlook | None, keep: float, moved: int
) -> _Seen | str:
    view = plan.view
    load, signal = view.loads.get(unit), view.latest(unit)
    if load is None or signal is None or outlook is None or demand is None:
        return "load not known yet"
    ability = _ability(view, unit)
    if ability is None:
        return "processing rate not known yet"
    lead_s = view.lead_time_s(unit)
    lead_bins = lead_s / load.bin_s
    # A predecessor that holds something back, or works something off, will send more than it does now.
    arriving = max(signal.measurement.arrival_rate_per_s, 1e-9)
    held_back = max(1.0, min(10.0, demand.incoming_per_s / arriving))
    outlook = outlook.scaled(held_back)
    # What is decided now must serve within what is looked at closely: else it would seem to change nothing.
    longer = max(1.0, lead_bins / MOST_LEAD_BINS)
    bin_s = longer * load.bin_s
    members = plan.instances(unit)
    starting = [i.requested_s + lead_s - view.now_s for i in members if i.state is not InstanceState.RUNNING]
    coming = np.full(NEAR, float(len(members) - len(starting)))
    if starting:
        # How much of each bin each of them serves.
        ready = np.maximum(0.0, starting) / bin_s
        coming += np.clip(np.arange(1.0, NEAR + 1.0)[:, None] - ready, 0.0, 1.0).sum(axis=1)
    future = Future(
        outlook.next_bins(longer),
        WEIGHTS,
        bin_s,
        float(signal.measurement.waiting),
        coming,
        lead_s / bin_s,
        recovery_leads(keep, lead_s, cold=len(load) < COLD_BINS),
    )
    now_per_s = signal.measurement.arrival_rate_per_s
    able_per_s = ability.rate_per_s * float(coming[-1])
    waits_s = backlog_s(future.backlog, able_per_s, now_per_s, ability.slack_s, lead_s, future.recovery_s)
    charged, most_charged = _charged(plan, unit, load, ability.rate_per_s, moved)
    return _Seen(
        outlook,
        future,
        ability,
        account_of(load, keep, waits_s),
        lead_s,
        now_per_s,
        charged / longer,
        most_charged / longer,
        held_back * min(now_per_s, float(load.rate_per_s[-1])),
        len(load) >= COLD_BINS,
    )


def _charged(plan: Plan, unit: str, load: Load, rate_per_s: float, moved: int) -> tuple[float, float]:
    """Intervals that what comes or goes is charged with, and the most of them that is worth charging."""
    loads = load.rate_per_s[-LOOKED_BACK:]
    held_per_s = None
    if len(load) < LOOKED_BACK:
        # What a unit begins with was nobody's decision: both rules begin with it.
        bounds = plan.view.topology.unit_by_name[unit]
        first = max(1, bounds.min_instances, bounds.initial_instances)
        held_per_s, moved = first * PLANNED * rate_per_s, max(0, moved - first)
    plain = plain_moves(loads, rate_per_s, held_per_s)
    return charged_bins(moved, plain), most_charged_bins(moved, plain, loads, rate_per_s, held_per_s)


def recovery_leads(keep: float, lead_s: float, *, cold: bool = False) -> float:
    """In how many lead times a backlog is worked off: within what may be late in a day, but for some bounds.

    What gathered before the first instances served is worked off slowly, for half of those that do it fast
    would go at once.
    """
    may_last = (1.0 - keep) * REMEMBERED_S / max(lead_s, 1.0)
    return min(COLD_RECOVERY_LEADS if cold else RECOVERY_LEADS, max(LEAST_RECOVERY_LEADS, may_last))


def _ability(view: View, unit: str) -> Ability | None:
    window = view.window(unit)
    slots = view.topology.unit_by_name[unit].slots
    running = sum(1 for i in view.instances(unit) if i.state is InstanceState.RUNNING)
    since_s = view.now_s - max(view.interval_s, 60.0)
    recent = [s for s in window if s.at_s > since_s] or list(window[-4:])
    before = window[: len(window) - len(recent)]
    rate, *spent = _rate(recent, running, slots)
    if rate is None and not any(s.measurement.processed for s in recent):
        # Nothing is done because nothing comes: what an instance can do is what it could.
        known = (true_rate_per_s(s, running, slots) for s in reversed(window))
        rate = next((each for each in known if each is not None), None)
    if rate is None:
        return None
    # Over the whole window it is known better, unless it has changed.
    longer, *_ = _rate(before, running, slots, *spent)
    if longer is not None and abs(longer / rate - 1.0) < CHANGED and window[-1].measurement.service_s:
        rate = longer
    service_s = slots / rate
    measured = [s.measurement for s in recent]
    service_cv = _mean([m.service_cv for m in measured if m.service_cv is not None], 1.0)
    arrival_cv = _mean([m.arrival_cv for m in measured if m.arrival_cv is not None], 1.0)
    # What a record spends here when nothing waits, beside the work on it: the micro-batch's own time.
    overheads = [
        s.measurement.duration_s - (s.measurement.service_s or 0.0)
        for s in window
        if s.measurement.duration_s is not None and s.measurement.service_s is not None
    ]
    overhead_s = max(0.0, min(overheads, default=0.0))
    slo_s = view.slo_s(unit)
    slack_s = slo_s - overhead_s - service_s * (1.0 + service_cv)
    variation = (arrival_cv**2 + service_cv**2) / 2.0
    return Ability(rate, slots, service_s, max(slack_s, LEAST_SLACK * slo_s), variation)


def _rate(
    signals: Sequence[Signal], running: int, slots: int, total: float = 0.0, weight: float = 0.0
) -> tuple[float | None, float, float]:
    """The mean rate of one instance, by the records it was measured on; the sums it is made of, to add to."""
    for signal in signals:
        rate = true_rate_per_s(signal, running, slots)
        if rate is not None and signal.measurement.processed:
            total += signal.measurement.processed / rate
            weight += signal.measurement.processed
    return (weight / total if total > 0 else None), total, weight


def _demands(view: View) -> Mapping[str, Demand]:
    newest = {u.name: s[-1].measurement for u in view.topology.units if (s := view.window(u.name))}
    return demands(view.topology, newest, 2.0 * view.interval_s)


def _shared_hosts(view: View) -> set[str]:
    """Hosts with instances of several units."""
    members = view.deployment.counted_by_host.items()
    return {host for host, instances in members if len({instance.unit for instance in instances}) > 1}


def _mean(values: list[float], otherwise: float) -> float:
    return math.fsum(values) / len(values) if values else otherwise


def _stop(plan: Plan, unit: str, number: int, reason: str) -> None:
    """Stop instances that do not help, the newest first; their hosts go when their lease ends."""
    for instance in reversed(plan.instances(unit)[-number:]):
        plan.stop(instance, reason)
