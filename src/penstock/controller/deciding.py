"""What stands around the policies' decisions: who decides for whom, what nobody has to think of, and what
the next policy sees once the one before has planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from penstock.controller.guards import Verdict
from penstock.fleet.actions import Action, LeaseHost, MigrateInstance, ReleaseHost, StartInstance
from penstock.fleet.deployment import INSTANCE_COUNTED, HostState, Instance
from penstock.policies.planning import Plan, projected
from penstock.policies.registry import make_policy
from penstock.policies.view import Policy, View
from penstock.quantities import counted
from penstock.topology.model import Choice, Topology

BEGINNING = (LeaseHost.kind, StartInstance.kind)


def policy_groups(topology: Topology) -> tuple[tuple[Policy, tuple[str, ...]], ...]:
    """Units that chose the same policy with the same parameters are decided for together."""
    groups: dict[Choice, list[str]] = {}
    for unit in topology.units:
        groups.setdefault(unit.policy, []).append(unit.name)
    return tuple((make_policy(choice), tuple(units)) for choice, units in groups.items())


def housekeeping(view: View) -> tuple[Action, ...]:
    """What no policy has to think of: give failed hosts back, bring every unit to its least instances."""
    plan = Plan(view)
    for host in view.deployment.hosts.values():
        if host.state is HostState.FAILED and not host.leaving:
            plan.release(host.id, "the host failed")
    # Until a unit runs nothing but starts has happened; many of them take more than one decision. Those that
    # were started are not wanted again where they are gone: a controller that comes back knows nothing else.
    fresh = not view.windows and all(event.kind in BEGINNING for event in view.history)
    begun = Counter(event.unit for event in view.history if event.kind == StartInstance.kind)
    for unit in view.topology.units_in_order:
        first = unit.initial_instances if fresh and begun[unit.name] < unit.initial_instances else 0
        least = max(1, unit.min_instances, first)
        while plan.count(unit.name) < min(least, unit.max_instances):
            count = plan.count(unit.name)
            reason = f"{counted(count, 'instance')}, {least} needed at least"
            if not plan.start(unit.name, reason, wanted=least - count):
                break
    return plan.actions


def asked_for(
    view: View, asked: Sequence[Action], kept: Collection[str] = ()
) -> tuple[tuple[str, Action], ...]:
    """What somebody outside asked for, with what it takes.

    A host that is to go is emptied first: what is on it moves where it can. An instance that is to move goes
    to the host that was named, else where there is room, else to a host leased for it. Hosts that are `kept`
    for somebody are only taken where no other can be had.
    """
    leases = [action for action in asked if isinstance(action, LeaseHost)]
    plan = Plan(after(view, leases))  # further hosts get other names than those
    wishes: list[tuple[str, Action]] = [("asked", lease) for lease in leases]
    for action in asked:
        before = len(plan.actions)
        if isinstance(action, ReleaseHost):
            for instance in plan.on_host(action.host):
                _move(plan, instance, None, action.reason, kept)
        elif isinstance(action, MigrateInstance):
            known = view.deployment.instances.get(action.instance)
            _move(plan, known, action.to_host, action.reason, kept)
        wishes += [("asked", planned) for planned in plan.actions[before:]]
        if not isinstance(action, MigrateInstance | LeaseHost):
            wishes.append(("asked", action))
    return tuple(wishes)


def _move(
    plan: Plan, instance: Instance | None, to_host: str | None, reason: str, kept: Collection[str]
) -> None:
    if instance is None or instance.state not in INSTANCE_COUNTED:
        return  # it is gone meanwhile, or goes
    targets = plan.candidates(instance.unit, exclude=() if instance.host is None else (instance.host,))
    if to_host is not None and to_host not in targets:
        plan.hold(instance.unit, f"{instance.id} stays: there is no room for it on {to_host} ({reason})")
        return
    free = [host for host in targets if host not in kept]
    target = to_host or (free[0] if free else plan.lease(instance.unit, reason))
    target = target or (targets[0] if targets else None)
    if target is not None:
        plan.migrate(instance, target, reason)


def room_for(view: View, units: Sequence[str], reason: str) -> tuple[list[str], list[Action]]:
    """Hosts with room for one instance more of each of these units, and the leases that takes."""
    plan, hosts = Plan(view), []
    for unit in units:
        candidates = plan.candidates(unit)
        host = candidates[0] if candidates else plan.lease(unit, reason)
        if host is not None:
            plan.start_on(unit, host, reason)  # so that the next one does not count on the same room
            hosts.append(host)
    # Nobody's: a unit that may have one instance only still has room beside it for the one that follows.
    return hosts, [replace(action, unit=None) for action in plan.actions if isinstance(action, LeaseHost)]


def keeping(verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """The verdicts, by which no host is given back although nothing known is on it."""
    return tuple(
        replace(v, refused="kept for the next version of a unit")
        if isinstance(v.action, ReleaseHost) and v.refused is None
        else v
        for v in verdicts
    )


def begun_by(verdicts: Sequence[Verdict]) -> list[Action]:
    """What is done of this, but for hosts that are to go: they are there until they are empty."""
    return [v.action for v in verdicts if v.refused is None and not isinstance(v.action, ReleaseHost)]


def after(view: View, actions: Sequence[Action]) -> View:
    """The view once these actions are planned: the next policy must not plan on the same room."""
    if not any(action.changes for action in actions):
        return view
    starts = sum(action.starts is not None for action in actions)
    return replace(
        view,
        deployment=projected(view, actions),
        next_host=view.next_host + sum(isinstance(a, LeaseHost) for a in actions),
        next_instance=view.next_instance + starts,
        started=view.started + starts,
    )
