"""Guards: what every policy's wishes must pass, whatever the policy.

Each guard looks at one proposed action and returns a reason to refuse it, or None. They run in a fixed
order on a running tally of what was already allowed in this tick, so two wishes that are harmless alone
cannot together break a bound. A refused action is recorded with its reason; it is never dropped silently.
A unit below its least instances is repaired, not scaled: neither cooldown nor blackout stops that. A move
makes no unit larger, and one off a host that its provider takes away is a repair as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from penstock.fleet.actions import (
    ACTIONS,
    Action,
    Hold,
    LeaseHost,
    MigrateInstance,
    ProlongLease,
    ReleaseHost,
    ResizeInstance,
    Started,
)
from penstock.fleet.deployment import INSTANCE_COUNTED, HostState, InstanceState
from penstock.infrastructure.placement import Room
from penstock.policies.view import View
from penstock.quantities import counted

SECONDS_A_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """An action with what the guards say: `refused` is None where it may be enacted."""

    action: Action
    policy: str
    refused: str | None = None


@dataclass
class _Tally:
    """What this tick has allowed so far, on top of what exists."""

    view: View
    counts: dict[str, int] = field(default_factory=dict)
    """Instances of the units that something was allowed for; `count` knows the others."""
    started: dict[str, int] = field(default_factory=dict)
    stopped: dict[str, int] = field(default_factory=dict)
    room: dict[str, Room] = field(default_factory=dict)
    """Room on each host that takes instances."""
    site_of: dict[str, str] = field(default_factory=dict)
    """The site of each host leased in this tick."""
    occupants: dict[str, set[str]] = field(default_factory=dict)
    leased: dict[str, dict[str, int]] = field(default_factory=dict)
    spent: dict[str, Decimal] = field(default_factory=dict)
    """What the leases allowed so far cost at once, by site."""
    refused_hosts: set[str] = field(default_factory=set)
    released_hosts: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    """Instances that were allowed to stop or to move away."""
    new: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Unit and host of the instances that were allowed to start."""
    moves: dict[str, list[str]] = field(default_factory=dict)
    """Instances that are wished to move to a host, by the host's name."""

    def count(self, unit: str) -> int:
        """Instances of a unit after what was allowed so far."""
        found = self.counts.get(unit)
        return len(self.view.deployment.of_unit(unit)) if found is None else found

    def place_of(self, instance: str) -> tuple[str, str | None] | None:
        """Unit and host of an instance that serves or will serve; None where there is none of this name."""
        if instance in self.gone:
            return None
        if instance in self.new:
            return self.new[instance]
        known = self.view.deployment.instances.get(instance)
        return None if known is None or known.state not in INSTANCE_COUNTED else (known.unit, known.host)

    def inside(self, host: str) -> set[str]:
        """Names of the instances on a host, free to be changed."""
        if host not in self.occupants:
            known = self.view.deployment.counted_by_host.get(host, ())
            self.occupants[host] = {instance.id for instance in known}
        return self.occupants[host]


def guard(wishes: tuple[tuple[str, Action], ...], view: View) -> tuple[Verdict, ...]:
    """Judge every wish, given as (policy, action), in order."""
    deployment = view.deployment
    leased = {site: dict(counts) for site, counts in deployment.leased.items()}
    tally = _Tally(view, room=dict(deployment.room), leased=leased)
    for _, action in wishes:
        if isinstance(action, MigrateInstance) and action.to_host is not None:
            tally.moves.setdefault(action.to_host, []).append(action.instance)
    verdicts = []
    for policy, action in wishes:
        if not action.changes:
            verdicts.append(Verdict(action, policy))
            continue
        refused = _refusal(action, view, tally)
        if refused is None:
            _count(action, view, tally)
        elif isinstance(action, LeaseHost):
            tally.refused_hosts.add(action.host)
        verdicts.append(Verdict(action, policy, refused))
    return tuple(verdicts)


def _refusal(action: Action, view: View, tally: _Tally) -> str | None:
    if isinstance(action, ProlongLease):
        return None if action.host in view.leases else f"host {action.host} has no lease"
    if isinstance(action, ReleaseHost):
        return _release_refusal(action, view, tally)
    if isinstance(action, LeaseHost):
        return _lease_refusal(action, view, tally)
    if isinstance(action, Hold) or action.unit not in view.topology.unit_by_name:
        return f"unknown unit {action.unit}"
    if isinstance(action, ResizeInstance):
        return _resize_refusal(action, view, tally)
    unit, new, leaving = action.unit, action.starts, action.leaves
    if leaving is not None:
        place = tally.place_of(leaving)
        if place is None or place[0] != unit:
            return f"instance {leaving} of unit {unit} is not there"
        if _in_blackout(view) and not _taken_away(leaving, view):
            return "blackout hours"
    if new is None:
        return _shrink_refusal(unit, view, tally)
    growth = _growth_refusal(unit, view, tally) if action.scales else None
    return _name_refusal(new.instance, view, tally) or growth or _room_refusal(new, view, tally)


def _resize_refusal(action: ResizeInstance, view: View, tally: _Tally) -> str | None:
    place, known = tally.place_of(action.instance), view.deployment.instances.get(action.instance)
    if place is None or known is None or place[0] != action.unit:
        return f"instance {action.instance} of unit {action.unit} is not there"
    least, most = view.topology.unit_by_name[action.unit].slots, view.topology.most_slots(action.unit)
    if not least <= action.slots <= most:
        return f"bound: from {least} to {counted(most, 'slot')} an instance"
    if _in_blackout(view):
        return "blackout hours"
    shape, room = view.topology.unit_shape(action.unit, action.slots), tally.room.get(place[1] or "")
    if room is None or room.holds(shape.cores - known.cores, shape.memory_mib - known.memory_mib):
        return None
    return f"host {place[1]} has no room: {room.cores:g} cores and {room.memory_mib} MiB are left"


def _name_refusal(instance: str, view: View, tally: _Tally) -> str | None:
    if instance in view.deployment.instances or instance in tally.new:
        return f"instance {instance} exists already"
    return None


def _growth_refusal(unit: str, view: View, tally: _Tally) -> str | None:
    """Why a unit may not have one more instance; a unit below its least always may."""
    bounds = view.topology.unit_by_name[unit]
    count = tally.count(unit)
    if count >= bounds.max_instances:
        return f"bound: at most {counted(bounds.max_instances, 'instance')}"
    if count < max(1, bounds.min_instances):
        return None
    return "blackout hours" if _in_blackout(view) else _pace_refusal(unit, tally.started, view)


def _shrink_refusal(unit: str, view: View, tally: _Tally) -> str | None:
    """Why a unit may not have one instance less."""
    least = max(1, view.topology.unit_by_name[unit].min_instances)
    if tally.count(unit) <= least:
        return f"bound: at least {counted(least, 'instance')}"
    signal, most = view.latest(unit), view.topology.loop.hold_backlog
    kept = 0 if signal is None else signal.measurement.kept_slots
    if (tally.count(unit) - 1) * view.topology.unit_by_name[unit].slots < kept:
        return f"real time: {counted(kept, 'slot')} must be there all the time"
    if most is not None and signal is not None:
        # A micro-batch takes a whole backlog at once: what it works on is not worked off yet.
        waiting = signal.measurement.waiting + signal.measurement.in_service
        if waiting > most:
            return f"backlog: {waiting} waiting or in work > {most}, no shrinking while it drains"
    return _pace_refusal(unit, tally.stopped, view)


def _pace_refusal(unit: str, done: dict[str, int], view: View) -> str | None:
    """Cooldown between scalings and the largest step within one tick."""
    loop = view.topology.loop
    if loop.cooldown_s > 0:
        for event in reversed(view.history):
            if event.unit == unit and ACTIONS[event.kind].scales:
                since_s = view.now_s - event.at_s
                if since_s < loop.cooldown_s:
                    return f"cooldown: scaled {since_s:.0f} s ago, {loop.cooldown_s:g} s wanted"
                break
    if loop.largest_step is not None and done.get(unit, 0) >= loop.largest_step:
        return f"largest step: {counted(loop.largest_step, 'instance')} in one tick"
    return None


def _room_refusal(new: Started, view: View, tally: _Tally) -> str | None:
    unit, host = new.unit, new.host
    if host is None:
        return None
    if host in tally.refused_hosts:
        return f"host {host} was refused"
    room = tally.room.get(host)
    if room is None:
        return f"host {host} takes no instances"
    site = tally.site_of.get(host) or view.deployment.hosts[host].site
    if all(site != allowed.name for allowed in view.topology.sites_of(unit)):
        return f"host {host} is at site {site}, where unit {unit} may not run"
    shape = view.topology.unit_shape(unit, new.slots)
    if not room.holds(shape.cores, shape.memory_mib):
        return f"host {host} has no room: {room.cores:g} cores and {room.memory_mib} MiB are left"
    return None


def _lease_refusal(action: LeaseHost, view: View, tally: _Tally) -> str | None:
    if action.host in view.deployment.hosts or action.host in view.leases or action.host in tally.room:
        return f"host {action.host} exists already"
    site = view.topology.site_by_name.get(action.site)
    if site is None:
        return f"unknown site {action.site}"
    flavours = tally.leased.get(action.site, {})
    if sum(flavours.values()) >= site.max_hosts:
        return f"quota: site {site.name} has its {counted(site.max_hosts, 'host')}"
    flavour = next((f for f in site.flavours if f.name == action.flavour), None)
    if flavour is None:
        return f"site {site.name} has no flavour {action.flavour}"
    if flavour.max_hosts is not None and flavours.get(flavour.name, 0) >= flavour.max_hosts:
        return (
            f"quota: site {site.name} has its {counted(flavour.max_hosts, 'host')} of flavour {flavour.name}"
        )
    withheld = view.withheld.get((site.name, flavour.name))
    if withheld is not None:
        return withheld
    left = view.left.get(site.name)
    if left is not None and left < site.first_price(flavour) + tally.spent.get(site.name, 0):
        return f"budget: {max(left, Decimal(0)):f} of {site.budget:f} are left at site {site.name}"
    moving = tally.moves.get(action.host, ())
    if not moving and action.unit is not None and action.unit in view.topology.unit_by_name:
        # A host for an instance that will be refused would be paid for nothing.
        return _growth_refusal(action.unit, view, tally)
    if _in_blackout(view) and not any(_taken_away(instance, view) for instance in moving):
        return "blackout hours"
    return None


def _release_refusal(action: ReleaseHost, view: View, tally: _Tally) -> str | None:
    if action.host not in view.deployment.hosts:
        return f"host {action.host} is not there"
    if not view.deployment.hosts[action.host].leased:
        return f"host {action.host} belongs to the cluster manager"
    if action.host in tally.released_hosts:
        return f"host {action.host} is released already"
    host, occupants = view.deployment.hosts[action.host], tally.inside(action.host)
    if host.taken_s is not None:
        # What does not serve yet on a host that is taken away never will: it keeps nobody there.
        known = view.deployment.instances
        occupants = {i for i in occupants if i in known and known[i].state is not InstanceState.REQUESTED}
    if occupants and host.state is not HostState.FAILED:
        return f"host {action.host} is not empty: {', '.join(sorted(occupants)[:3])}"
    return None


def _in_blackout(view: View) -> bool:
    hour = (view.now_s % SECONDS_A_DAY) / 3600.0
    return any(
        start <= hour < end if start <= end else hour >= start or hour < end
        for start, end in view.topology.loop.blackout
    )


def _taken_away(instance: str, view: View) -> bool:
    """Whether an instance is on a host that its provider takes away."""
    known = view.deployment.instances.get(instance)
    host = view.deployment.hosts.get(known.host or "") if known is not None else None
    return host is not None and host.taken_s is not None


def _count(action: Action, view: View, tally: _Tally) -> None:
    if isinstance(action, LeaseHost):
        site = view.topology.site_by_name[action.site]
        flavour = site.flavour(action.flavour)
        tally.spent[site.name] = tally.spent.get(site.name, Decimal(0)) + site.first_price(flavour)
        flavours = tally.leased.setdefault(action.site, {})
        flavours[flavour.name] = flavours.get(flavour.name, 0) + 1
        tally.room[action.host] = Room(flavour.cores, flavour.memory_mib)
        tally.site_of[action.host] = action.site
    elif isinstance(action, ReleaseHost):
        tally.room.pop(action.host, None)
        tally.released_hosts.add(action.host)
    new, leaving = action.starts, action.leaves
    if action.scales and action.unit is not None:
        change, done = (1, tally.started) if new is not None else (-1, tally.stopped)
        tally.counts[action.unit] = tally.count(action.unit) + change
        done[action.unit] = done.get(action.unit, 0) + 1
    if leaving is not None and action.unit is not None:
        _leave(leaving, action.unit, view, tally)
    if new is not None:
        _enter(new, view, tally)
    if isinstance(action, ResizeInstance):
        known = view.deployment.instances[action.instance]
        shape = view.topology.unit_shape(action.unit, action.slots)
        if known.host in tally.room:
            room = tally.room[known.host]
            tally.room[known.host] = room.less(shape.cores - known.cores, shape.memory_mib - known.memory_mib)


def _enter(new: Started, view: View, tally: _Tally) -> None:
    instance, unit, host = new.instance, new.unit, new.host
    tally.new[instance] = (unit, host)
    tally.gone.discard(instance)
    if host is not None:
        tally.inside(host).add(instance)
        shape = view.topology.unit_shape(unit, new.slots)
        tally.room[host] = tally.room[host].less(shape.cores, shape.memory_mib)


def _leave(instance: str, unit: str, view: View, tally: _Tally) -> None:
    place = tally.place_of(instance)
    tally.gone.add(instance)
    host = None if place is None else place[1]
    if host is not None:
        tally.inside(host).discard(instance)
        if host in tally.room:
            known = view.deployment.instances.get(instance)
            cores = view.topology.unit_cores(unit) if known is None else known.cores
            memory_mib = view.topology.unit_memory_mib(unit) if known is None else known.memory_mib
            tally.room[host] = tally.room[host].more(cores, memory_mib)
