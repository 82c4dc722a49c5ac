"""Builders of views for policy tests: everything has a default, a test names only what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from penstock.fleet.deployment import Deployment, Host, HostState, Instance, InstanceState
from penstock.infrastructure.leases import Lease
from penstock.monitoring.measurements import Measurement, Signal
from penstock.policies.view import ScalingEvent, View
from penstock.topology.model import (
    HostFlavour,
    LoopSettings,
    Operator,
    Site,
    Source,
    Topology,
    Unit,
)

NOW_S = 6000.0


def a_topology(
    *,
    units: Iterable[str] = ("a",),
    cores: float = 1.0,
    memory_mib: int = 1024,
    slo_s: float = 0.75,
    host_cores: float = 4.0,
    host_memory_mib: int = 7168,
    btu_s: float = 3600.0,
    max_hosts: int = 10,
    min_instances: int = 1,
    max_instances: int = 50,
    slots: int = 1,
    chained: bool = False,
    ratio: float = 1.0,
) -> Topology:
    """A topology of units of one operator each, side by side or one after the other."""
    names = tuple(units)
    inputs = [("s",) if not chained or i == 0 else (names[i - 1],) for i in range(len(names))]
    return Topology(
        "t",
        (Source("s"),),
        tuple(
            Operator(name, source, slo_s=slo_s, cores=cores, memory_mib=memory_mib, ratio=ratio)
            for name, source in zip(names, inputs, strict=True)
        ),
        units=tuple(
            Unit(name, (name,), min_instances=min_instances, max_instances=max_instances, slots=slots)
            for name in names
        ),
        sites=(
            Site(
                "c",
                btu_s=btu_s,
                flavours=(HostFlavour("m", host_cores, host_memory_mib, Decimal(6)),),
                max_hosts=max_hosts,
            ),
        ),
        loop=LoopSettings(),
    )


def a_host(
    name: str,
    topology: Topology,
    *,
    images: Iterable[str] = (),
    state: HostState = HostState.UP,
    up_s: float = 0.0,
) -> Host:
    """A host of the topology's first flavour at its first site."""
    site = topology.sites[0]
    return Host(name, site.name, site.flavours[0], state, up_s, up_s, frozenset(images))


def an_instance(
    name: str,
    unit: str,
    host: str | None,
    topology: Topology,
    state: InstanceState = InstanceState.RUNNING,
) -> Instance:
    """An instance of a unit with the unit's needs."""
    return Instance(
        name, unit, host, state, topology.unit_cores(unit), topology.unit_memory_mib(unit), 0.0, 0.0
    )


def a_signal(
    unit: str = "a",
    *,
    at_s: float = NOW_S,
    waiting: int = 0,
    duration_s: float | None = 0.5,
    arrived: int = 150,
    processed: int = 150,
    service_s: float | None = 0.5,
    cpu_ratio: float | None = 0.5,
    beginning: bool = False,
) -> Signal:
    """What a unit did in the last 15 s."""
    return Signal(
        Measurement(
            unit,
            at_s,
            15.0,
            arrived=arrived,
            processed=processed,
            emitted=processed,
            waiting=waiting,
            duration_s=duration_s,
            service_s=service_s,
            beginning=beginning,
        ),
        cpu_ratio,
    )


def a_lease(host: str, topology: Topology, *, remaining_s: float = 1800.0, now_s: float = NOW_S) -> Lease:
    """A lease with so much paid time left."""
    site = topology.sites[0]
    flavour = site.flavours[0]
    return Lease(
        host, site.name, flavour.name, now_s + remaining_s - site.btu_s, site.btu_s, flavour.price_per_btu
    )


def a_view(
    topology: Topology | None = None,
    *,
    on: Mapping[str, Sequence[str]] | None = None,
    remaining_s: float | Mapping[str, float] = 1800.0,
    images: Mapping[str, Iterable[str]] | None = None,
    signals: Mapping[str, Sequence[Signal]] | None = None,
    scalings: Mapping[str, int] | None = None,
    history: tuple[ScalingEvent, ...] = (),
    interval_s: float = 60.0,
    units: tuple[str, ...] | None = None,
    now_s: float = NOW_S,
) -> View:
    """A view: `on` names for each host the units of the instances on it, in order."""
    topology = topology or a_topology()
    on = {"h1": ["a"]} if on is None else on
    hosts = [a_host(name, topology, images=(images or {}).get(name, ())) for name in on]
    instances = []
    for host, members in on.items():
        for unit in members:
            instances.append(an_instance(f"{unit}-{len(instances) + 1}", unit, host, topology))
    leases = {
        name: a_lease(
            name,
            topology,
            remaining_s=remaining_s[name] if isinstance(remaining_s, Mapping) else remaining_s,
            now_s=now_s,
        )
        for name in on
    }
    return View(
        now_s,
        topology,
        Deployment.of(hosts, instances),
        leases,
        {unit: tuple(window) for unit, window in (signals or {}).items()},
        history=history,
        scalings=scalings or {},
        units=units if units is not None else tuple(unit.name for unit in topology.units),
        next_host=100,
        next_instance=1000,
        interval_s=interval_s,
    )
