"""Emptying a host before its paid time ends: what the policies that think in leases share.

A host is worth keeping as long as it is paid. Shortly before the end of its lease it is either emptied
(some instances stop, the others move to hosts that stay) or kept for one more billing time unit. The
emptying is tried on a copy first: unless all of it works, nothing is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from penstock.fleet.deployment import HostState, Instance
from penstock.infrastructure.leases import Lease
from penstock.infrastructure.placement import Room
from penstock.policies.planning import Plan
from penstock.policies.view import View
from penstock.quantities import counted, format_duration

RoomChooser = Callable[[str, Mapping[str, Room]], str]
"""Picks one of the rooms, all of which hold an instance of the unit; returns its host."""


NOW_S = 0.5
"""What ends within so short a time is told to end now."""


@dataclass(frozen=True, slots=True)
class Emptying:
    """How a host becomes empty: what stops, what moves where, and what stops elsewhere to make room."""

    stops: tuple[Instance, ...] = ()
    moves: tuple[tuple[Instance, str], ...] = ()
    makes_room: tuple[Instance, ...] = ()


def window_s(lease: Lease, view: View, ratio: float, shutdown_s: float) -> float:
    """How long before the end of a lease its host is judged for the last time: the longest of three spans.

    Paper 000 says the last 5 % of the billing time unit. That is 30 s of 10 min, which a loop of 60 s
    would miss, so it is at least one decision interval and at least the time a shutdown takes.
    """
    return max(ratio * lease.btu_s, view.interval_s, shutdown_s)


def must_prolong(lease: Lease, view: View, ratio: float, shutdown_s: float) -> bool:
    """Whether a host that cannot be emptied has to be paid on now: there is no later chance to judge it."""
    last = lease.remaining_s(view.now_s) <= window_s(lease, view, ratio, shutdown_s)
    return last and lease.btu_s > view.interval_s


def hosts_at_lease_end(view: View, ratio: float, shutdown_s: float) -> tuple[str, ...]:
    """Hosts that are up and whose paid time ends soon, the earliest end first.

    Planned backwards from the paid end: what moving an instance away takes here, as measured, comes on top of
    the window in which a host is judged for the last time.
    """
    moving_s = view.times.emptying_s(moves=True, guess_s=shutdown_s)

    def first_window_s(host: str, lease: Lease) -> float:
        last_s = window_s(lease, view, ratio, shutdown_s)
        if not view.deployment.on_host(host):
            return last_s
        return max(last_s, min(moving_s + view.interval_s, lease.btu_s))

    ending = [
        (lease.paid_until_s, host)
        for host, lease in view.leases.items()
        if (known := view.deployment.hosts.get(host)) is not None
        and known.state is HostState.UP
        and lease.remaining_s(view.now_s) <= first_window_s(host, lease)
    ]
    return tuple(host for _, host in sorted(ending))


def emptied(
    plan: Plan,
    host: str,
    *,
    may_stop: Mapping[str, int],
    choose: RoomChooser,
    shutdown_s: float,
    exclude: Collection[str] = (),
    shrinkable: Sequence[Instance] = (),
    pending: Sequence[str] = (),
) -> Emptying | str:
    """How to empty a host, or the reason in words why it cannot be.

    `may_stop` says how many instances of each unit may stop; `shutdown_s` is how long one takes to stop,
    until it was measured; `exclude` names further hosts nothing moves to; `shrinkable` are instances
    elsewhere that may stop to make room, best first (they count against `may_stop` too); `pending` are
    units about to start an instance, which must still find room.
    """
    topology = plan.view.topology
    stoppable = dict(may_stop)
    rooms = {name: room for name, room in plan.room.items() if name != host and name not in exclude}
    site = plan.site_of.get(host)
    for other_unit in topology.units:
        if any(instance.host is None for instance in plan.instances(other_unit.name)) and site in {
            allowed.name for allowed in topology.sites_of(other_unit.name)
        }:
            return f"an instance of {other_unit.name} has no host yet and may be put on it"
    stops: list[Instance] = []
    stays: list[Instance] = []
    for instance in plan.on_host(host):
        if instance.unit not in plan.view.units:
            return f"{instance.id} on it belongs to another policy"
        if stoppable.get(instance.unit, 0) > 0:
            stoppable[instance.unit] -= 1
            stops.append(instance)
        else:
            stays.append(instance)

    moves: list[tuple[Instance, str]] = []
    makes_room: list[Instance] = []

    def placed(unit: str) -> str | None:
        """A host for one more instance of a unit, in the rooms as they are by now."""
        cores, memory_mib = topology.unit_cores(unit), topology.unit_memory_mib(unit)
        allowed = {site.name for site in topology.sites_of(unit)}
        fitting = {
            name: room
            for name, room in rooms.items()
            if plan.site_of[name] in allowed and room.holds(cores, memory_mib)
        }
        if fitting:
            target = choose(unit, fitting)
            rooms[target] = rooms[target].less(cores, memory_mib)
            return target
        for other in shrinkable:
            if other.host not in rooms or other.unit == unit or other in makes_room:
                continue
            if stoppable.get(other.unit, 0) < 1 or plan.site_of[other.host] not in allowed:
                continue
            wider = rooms[other.host].more(other.cores, other.memory_mib)
            if wider.holds(cores, memory_mib):
                stoppable[other.unit] -= 1
                makes_room.append(other)
                rooms[other.host] = wider.less(cores, memory_mib)
                return other.host
        return None

    # The largest first: they are the hardest to place.
    for instance in sorted(stays, key=lambda i: (-i.cores, -i.memory_mib, i.id)):
        target = placed(instance.unit)
        if target is None:
            return f"no other host has room for {instance.id}"
        moves.append((instance, target))
    for unit in pending:
        if placed(unit) is None:
            return f"{unit} is about to grow and no other host has room for it"
    lease = plan.view.leases.get(host)
    needed_s = 0.0
    if stops or moves:
        needed_s = plan.view.times.emptying_s(moves=bool(moves), guess_s=shutdown_s)
    if lease is not None and lease.btu_s > plan.view.interval_s:
        left_s = lease.remaining_s(plan.view.now_s)
        if left_s < needed_s:
            return (
                f"emptying it takes {format_duration(needed_s)} here and {format_duration(left_s)} are left"
            )
    return Emptying(tuple(stops), tuple(moves), tuple(makes_room))


def soon(left_s: float) -> str:
    """When a lease ends, in words."""
    return "now" if left_s < NOW_S else f"in {format_duration(left_s)}"


def carry_out(
    plan: Plan, host: str, emptying: Emptying, left: str, reasons: Mapping[str, str] | None = None
) -> None:
    """Plan the emptying: first what stops, then what moves, then the release of the host.

    `left` says in words when its paid time ends (`soon`), `reasons` why a unit has instances too many.
    """
    goes = f"{host} is given back, its lease ends {left}"
    why = {unit: f"; {reason}" for unit, reason in (reasons or {}).items()}
    for instance in emptying.makes_room:
        plan.stop(instance, f"makes room on {instance.host}: {goes}{why.get(instance.unit, '')}")
    for instance in emptying.stops:
        plan.stop(instance, f"not needed: {goes}{why.get(instance.unit, '')}")
    for instance, target in emptying.moves:
        plan.migrate(instance, target, goes)
    parts = [f"{counted(len(emptying.stops), 'instance')} not needed"] if emptying.stops else []
    parts += [f"room elsewhere for {counted(len(emptying.moves), 'instance')}"] if emptying.moves else []
    what = " and ".join(parts) or "nothing is on it"
    plan.release(host, f"its lease ends {left}: {what}")


def give_back(
    plan: Plan, surplus: Mapping[str, int], reasons: Mapping[str, str], shutdown_s: float = 30.0
) -> None:
    """Empty and release the hosts whose lease ends, as far as units have instances too many.

    `surplus` says how many instances of each unit may stop, `reasons` why. A host that cannot be emptied is
    prolonged; instances whose hosts are paid for longer stay.
    """
    view = plan.view
    left = dict(surplus)
    judged = hosts_at_lease_end(view, 0.0, shutdown_s)
    undecided = set(judged)
    for host in judged:
        undecided.discard(host)
        lease = view.leases[host]
        remaining = soon(lease.remaining_s(view.now_s))
        found = emptied(plan, host, may_stop=left, choose=_fullest, shutdown_s=shutdown_s, exclude=undecided)
        if isinstance(found, str):
            if must_prolong(lease, view, 0.0, shutdown_s):
                plan.prolong(host, f"needed: {found}; its lease would end {remaining}")
            continue
        for instance in found.stops:
            left[instance.unit] -= 1
        carry_out(plan, host, found, remaining, reasons)
    for unit, count in left.items():
        if count == surplus[unit] and count > 0:
            plan.hold(unit, f"{reasons[unit]}; kept while their hosts are paid")


def _fullest(unit: str, rooms: Mapping[str, Room]) -> str:
    """The room that is filled most, so that the others can become empty."""
    return min(rooms, key=lambda host: (rooms[host].cores, rooms[host].memory_mib, host))
