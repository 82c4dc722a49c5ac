"""Who serves where, kept up to date: what did not change is not counted anew.

A deployment can work out these tables from its hosts and instances. The book knows which units and hosts
have changed since it was last asked, and with ten thousand instances that is the difference.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.fleet.deployment import (
    Deployment,
    Host,
    Instance,
    InstanceState,
    Tables,
    counted,
    room_on,
)
from penstock.infrastructure.placement import Room


class KeptTables:
    """The tables of a book's present deployment."""

    def __init__(self) -> None:
        self._by_unit: dict[str, tuple[Instance, ...]] = {}
        self._running: dict[str, int] = {}
        self._on_host: dict[str, dict[str, Instance]] = {}
        self._by_host: dict[str, tuple[Instance, ...]] = {}
        self._room: dict[str, Room] = {}
        self._stale: set[str] = set()

    def changed(self, unit: str) -> None:
        """An instance of the unit came, went or changed."""
        self._stale.add(unit)

    def changed_host(self, host: str) -> None:
        """A host came, went or changed."""
        self._room.pop(host, None)

    def deployment(
        self,
        hosts: Mapping[str, Host],
        instances: Mapping[str, Instance],
        members: Mapping[str, Mapping[str, Instance]],
    ) -> Deployment:
        """A deployment of these hosts and instances, with its tables; `members` are the instances by unit."""
        for unit in self._stale:
            self._count(unit, members[unit])
        self._stale.clear()
        room = {}
        for name, host in hosts.items():
            if host.takes:
                found = self._room.get(name)
                if found is None:
                    found = self._room[name] = room_on(host, self._by_host.get(name, ()))
                room[name] = found
        tables = Tables(dict(self._by_unit), dict(self._running), dict(self._by_host), room)
        return Deployment(dict(hosts), dict(instances), tables)

    def _count(self, unit: str, members: Mapping[str, Instance]) -> None:
        before, after = self._by_unit.pop(unit, ()), counted(members.values())
        self._running.pop(unit, None)
        if after:
            self._by_unit[unit] = after
        running = len([i for i in members.values() if i.state is InstanceState.RUNNING])
        if running:
            self._running[unit] = running
        kept = {instance.id: instance for instance in after}
        hosts: set[str] = set()
        for instance in before:
            now = kept.get(instance.id)
            if now is instance:
                del kept[instance.id]
            elif instance.host is not None and (now is None or now.host != instance.host):
                del self._on_host[instance.host][instance.id]
                hosts.add(instance.host)
        for instance in kept.values():
            if instance.host is not None:
                self._on_host.setdefault(instance.host, {})[instance.id] = instance
                hosts.add(instance.host)
        for host in hosts:
            inside = self._on_host[host]
            self._by_host[host] = tuple(inside.values())
            self._room.pop(host, None)
            if not inside:
                del self._on_host[host], self._by_host[host]
