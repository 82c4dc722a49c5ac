"""How lives are written down and read back: hosts, instances and units as plain values for the journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from penstock.fleet.book import Living
from penstock.fleet.deployment import Host, HostState, Instance, InstanceState
from penstock.fleet.lives import Life
from penstock.fleet.units import UnitLife, UnitState
from penstock.topology.model import Topology

_OVER = frozenset({HostState.RELEASED, InstanceState.STOPPED, InstanceState.FAILED, UnitState.STOPPED})
"""States after which nothing more happens to a host that was given back, an instance or a unit."""


def life_of(living: Living, at_s: float) -> Life:
    """What is written down of a host, an instance or a unit."""
    what = _WHAT[type(living)]
    name = living.name if isinstance(living, UnitLife) else living.id
    over = living.state in _OVER and not (isinstance(living, Host) and living.state is HostState.FAILED)
    return Life(what, name, at_s, str(living.state), over, _payload(living))


def living_of(life: Life, topology: Topology) -> Living | None:
    """The host, instance or unit that was written down; None where the topology has no place for it."""
    return _READ[life.what](life, topology)


def _payload(living: Living) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, default in _DEFAULTS[type(living)]:
        value = getattr(living, name)
        # What is as it always is need not be written: a run has many lives.
        if value != default:
            values[name] = value
    if isinstance(living, Host):
        values["flavour"] = living.flavour.name
        if living.images:
            values["images"] = sorted(living.images)
    return values


def _host(life: Life, topology: Topology) -> Host | None:
    values = dict(life.payload)
    site = topology.site_by_name.get(values["site"])
    if site is None or all(flavour.name != values["flavour"] for flavour in site.flavours):
        return None
    values["flavour"] = site.flavour(values["flavour"])
    values["images"] = frozenset(values.get("images", ()))
    return Host(id=life.name, state=HostState(life.state), **values)


def _instance(life: Life, topology: Topology) -> Instance | None:
    if life.payload["unit"] not in topology.unit_by_name:
        return None
    return Instance(id=life.name, state=InstanceState(life.state), **life.payload)


def _unit(life: Life, topology: Topology) -> UnitLife | None:
    if life.name not in topology.unit_by_name:
        return None
    return UnitLife(name=life.name, state=UnitState(life.state), **life.payload)


_WHAT: Mapping[type[Living], str] = {Host: "host", Instance: "instance", UnitLife: "unit"}
_READ: Mapping[str, Callable[[Life, Topology], Living | None]] = {
    "host": _host,
    "instance": _instance,
    "unit": _unit,
}
_DEFAULTS: Mapping[type[Living], tuple[tuple[str, Any], ...]] = {
    kind: tuple((f.name, f.default) for f in fields(kind) if f.name not in ("id", "name", "state"))
    for kind in (Host, Instance, UnitLife)
}
