"""Binding: which of the plane's instances is which of the fleet's.

The fleet names instances; a plane may have ids of its own and place them itself, as Spark does with
executors. An instance that was asked for is bound to one that shows up: to the one that bears its name
where the plane knows names, else to one on the host it was meant for, else to whoever came first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.fleet.deployment import Host, HostState, Instance, InstanceState
from penstock.fleet.ports import SeenInstance

_GONE = (HostState.DRAINING, HostState.FAILED)


@dataclass(frozen=True, slots=True)
class Bound:
    """What a report came to."""

    shown: tuple[SeenInstance, ...]
    """The report itself, to know it again."""
    changes: tuple[tuple[Instance | None, Instance], ...]
    """Instances before (None where one was found that nobody had asked for) and after."""
    surplus: tuple[str, ...] = ()
    """Instances, by the plane's ids, that nobody asked for: they shall go."""
    plugs: tuple[str, ...] = ()
    """Instances that came up on a host that is to go.

    While the one they were asked for is still missing they stay: they take the room in which the next one
    would come up as well, on a plane that places by itself.
    """
    strays: Mapping[str, str | None] = field(default_factory=dict)
    """The hosts of all that are nobody's, by the plane's ids."""
    named: bool = False
    """Whether the plane knows the fleet's names."""


def bind(
    members: Mapping[str, Instance],
    shown: tuple[SeenInstance, ...],
    hosts: Mapping[str, Host],
    now_s: float,
    *,
    adopted: Callable[[SeenInstance], Instance] | None = None,
    anew: bool = False,
    follow: bool = False,
) -> Bound:
    """Bring a unit's instances into line with what its plane shows.

    `adopted` makes an instance of what nobody asked for (the first sight of a job that ran before); `anew`
    says that the unit's application is another one, so nothing of what was bound is there any more. With
    `follow` the plane is not ours to change: what is gone is gone, and nothing is surplus.
    """
    unbound = {seen.id: seen for seen in shown}
    after: dict[str, Instance] = {}
    waiting: list[Instance] = []
    for instance in members.values():
        if instance.external_id is None:
            if instance.state is InstanceState.REQUESTED:
                waiting.append(instance)
        elif not anew and (seen := unbound.pop(instance.external_id, None)) is not None:
            if instance.state is InstanceState.STARTING and seen.state is InstanceState.RUNNING:
                after[instance.id] = instance.moved(
                    InstanceState.RUNNING, running_s=now_s if seen.since_s is None else seen.since_s
                )
        elif instance.state is InstanceState.RETIRING or follow:
            after[instance.id] = instance.moved(InstanceState.STOPPED)
        else:
            after[instance.id] = wished = lost(instance, now_s)
            waiting.append(wished)
    strays: dict[str, str | None] = {}
    plugs: list[str] = []
    for seen in unbound.values():
        host = _host_at(seen.address, hosts)
        chosen = _chosen(seen, host, waiting, hosts)
        if chosen is None and adopted is not None and seen.state is not InstanceState.RETIRING:
            chosen = adopted(seen)
        if chosen is None:
            strays[seen.id] = host
            if waiting and host is not None and hosts[host].state in _GONE and seen.name is None:
                plugs.append(seen.id)
            continue
        waiting = [instance for instance in waiting if instance is not chosen]
        after[chosen.id] = _granted(chosen, seen, host, now_s)
    if not waiting:
        plugs.clear()
    changes = tuple((members.get(name), instance) for name, instance in after.items())
    surplus = tuple(
        seen.id
        for seen in unbound.values()
        if seen.id in strays and seen.id not in plugs and seen.state is not InstanceState.RETIRING
    )
    named = any(seen.name is not None for seen in shown)
    return Bound(shown, changes, surplus, tuple(plugs), strays, named)


def lost(instance: Instance, now_s: float, host: str | None = None) -> Instance:
    """An instance that was lost: the wish for it stands, under its name; `host` is where it is wanted now."""
    if instance.state is not InstanceState.REQUESTED:
        instance = instance.moved(InstanceState.REQUESTED)
    return replace(instance, external_id=None, running_s=None, requested_s=now_s, host=host or instance.host)


def _host_at(address: str | None, hosts: Mapping[str, Host]) -> str | None:
    if address is None or address in hosts:
        return address
    return next((host.id for host in hosts.values() if host.address == address), None)


def _chosen(
    seen: SeenInstance, host: str | None, waiting: Sequence[Instance], hosts: Mapping[str, Host]
) -> Instance | None:
    if seen.name is not None:
        return next((i for i in waiting if i.id == seen.name), None)
    if host is not None and hosts[host].state in _GONE:
        return None
    meant = next((i for i in waiting if i.host == host), None)
    return meant or (waiting[0] if waiting else None)


def _granted(instance: Instance, seen: SeenInstance, host: str | None, now_s: float) -> Instance:
    state = InstanceState.STARTING if seen.state is InstanceState.STARTING else InstanceState.RUNNING
    running_s = None
    if state is InstanceState.RUNNING:
        running_s = now_s if seen.since_s is None else seen.since_s
    return instance.moved(state, host=host or instance.host, external_id=seen.id, running_s=running_s)
