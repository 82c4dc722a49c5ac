"""How policy `levels` grows and shrinks a unit: at the cheapest level that helps, and last in, first out.

Nothing that can stay is moved: slots are added to instances that run, instances to hosts that are there, and
a host is leased only where neither has room. What came last goes first, so that hosts empty.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.fleet.deployment import HostState, Instance
from penstock.levels.platform import HOST, INSTANCE, SLOT, PlatformProfile
from penstock.policies.planning import Plan


def slots_of(plan: Plan, unit: str) -> int:
    """The slots of a unit after everything planned so far."""
    return sum(plan.slots(instance) for instance in plan.instances(unit))


def grow(
    plan: Plan,
    unit: str,
    profile: PlatformProfile,
    reason: str,
    *,
    overloaded: Collection[str] = (),
    least_loaded: Mapping[str, float] | None = None,
) -> str | None:
    """One more slot for a unit at the cheapest level that helps; which level it was, None where none can.

    Hosts in `overloaded` take nothing more; the `least_loaded` (by CPU) is taken first, as in Algorithm 2 of
    the paper, and else the one in use for longest.
    """
    load = least_loaded or {}
    hosts = [host for host in plan.room if host not in overloaded]
    hosts.sort(key=lambda host: load.get(host, 0.0))
    for level in profile.cheapest_first():
        if level == SLOT and _grown_in_place(plan, unit, hosts, reason):
            return SLOT
        if level == INSTANCE:
            if plan.count(unit) >= plan.view.topology.unit_by_name[unit].max_instances:
                continue
            fitting = set(plan.candidates(unit, overloaded))
            chosen = next((host for host in hosts if host in fitting), None)
            if chosen is not None:
                plan.start_on(unit, chosen, f"{reason}; an instance on a host that is there")
                return INSTANCE
        if level == HOST:
            started = plan.start(unit, f"{reason}; no host that is there has room", exclude=plan.room.keys())
            return HOST if started else None
    return None


def _grown_in_place(plan: Plan, unit: str, hosts: list[str], reason: str) -> bool:
    topology = plan.view.topology
    most = topology.most_slots(unit)
    for host in hosts:
        for instance in plan.on_host(host):
            slots = plan.slots(instance)
            if instance.unit != unit or slots >= most:
                continue
            larger = topology.unit_shape(unit, slots + 1)
            if plan.room[host].holds(larger.cores - instance.cores, larger.memory_mib - instance.memory_mib):
                plan.resize(instance, slots + 1, f"{reason}; a slot more in {instance.id}")
                return True
    return False


def shrink(plan: Plan, unit: str, slots: int, reason: str, keep: Collection[str] = ()) -> int:
    """Take so many slots from a unit, those that came last first; how many were taken.

    Instances on the hosts in `keep` stay as they are: their time is paid.
    """
    taken = 0
    own = plan.view.topology.unit_by_name[unit].slots
    for instance in reversed(_by_age(plan, unit)):
        if taken >= slots:
            break
        if instance.host in keep:
            continue
        has, wanted = plan.slots(instance), slots - taken
        least = max(1, plan.view.topology.unit_by_name[unit].min_instances)
        if has <= wanted and plan.count(unit) > least:
            plan.stop(instance, reason)
            taken += has
        elif has > own:
            gone = min(wanted, has - own)
            plan.resize(instance, has - gone, reason)
            taken += gone
    return taken


def _by_age(plan: Plan, unit: str) -> list[Instance]:
    """The unit's instances, those on the hosts leased first in front, the oldest first."""
    order = {host: place for place, host in enumerate(plan.view.deployment.hosts)}
    return sorted(plan.instances(unit), key=lambda i: order.get(i.host or "", len(order)))


def paid_hosts(plan: Plan, shutdown_s: float) -> set[str]:
    """Hosts paid beyond the next decision and a shutdown: giving them back saves nothing."""
    view = plan.view
    until_s = view.now_s + view.interval_s + shutdown_s
    return {
        host
        for host, lease in view.leases.items()
        if lease.paid_until_s > until_s
        and host in view.deployment.hosts
        and view.deployment.hosts[host].state in (HostState.UP, HostState.STARTING, HostState.REQUESTED)
    }
