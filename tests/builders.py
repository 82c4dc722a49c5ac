"""Builders with defaults for tests of every room: a test names only what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from penstock.fleet.deployment import Deployment, Host, HostState, Instance, InstanceState
from penstock.infrastructure.leases import Lease
from penstock.monitoring.measurements import Measurement, Signal
from penstock.policies.view import ScalingEvent, View
from penstock.simulator.provider import SimulatedParameters
from penstock.topology.model import (
    Choice,
    HostFlavour,
    LoopSettings,
    Operator,
    Service,
    Sink,
    Site,
    Source,
    Topology,
    Unit,
)

NOW_S = 6000.0
AT_ONCE: Mapping[str, float] = {
    "host_start_least_s": 0.0, "host_start_most_s": 0.0, "instance_start_least_s": 0.0,
    "instance_start_most_s": 0.0, "image_pull_s": 0.0, "instance_stop_s": 0.0,
}  # fmt: skip
"""Parameters of a simulated provider whose hosts and instances start and stop at once."""


def a_flavour(
    name: str = "m", *, cores: float = 4.0, memory_mib: int = 8192, price: str = "6", **changes: Any
) -> HostFlavour:
    """A flavour of four cores."""
    return HostFlavour(name, cores, memory_mib, Decimal(price), **changes)


def a_site(
    name: str = "c",
    *,
    btu_s: float = 3600.0,
    flavours: Sequence[HostFlavour] | None = None,
    times: Mapping[str, float] | None = None,
    **changes: Any,
) -> Site:
    """A simulated site with one flavour; `times` are its provider's parameters."""
    known = tuple(flavours) if flavours is not None else (a_flavour(),)
    return Site(name, Choice("simulated", dict(times or {})), btu_s, known, **changes)


def an_operator(
    name: str,
    inputs: Sequence[str] = ("s",),
    *,
    service_s: float = 0.1,
    shape: str = "deterministic",
    cv: float = 0.25,
    memory_mib: int = 1024,
    **changes: Any,
) -> Operator:
    """An operator of one core whose every record takes the same time."""
    service = Service(service_s, cv, shape)
    return Operator(name, tuple(inputs), memory_mib=memory_mib, service=service, **changes)


def a_topology(
    *,
    operators: Sequence[Operator] | None = None,
    units: Sequence[Unit | str] = ("a",),
    chained: bool = False,
    sites: Sequence[Site] | None = None,
    sinks: Sequence[Sink] = (),
    per_s: float | None = 5.0,
    workload: Choice | None = None,
    policy: Choice | None = None,
    loop: LoopSettings | None = None,
    sources: Sequence[Source] | None = None,
    **of_units: Any,
) -> Topology:
    """A topology of one-operator units side by side (or `chained`) behind the source `s`.

    `units` may be names, which get `policy` and the fields in `of_units`, or units made by the test.
    """
    policy = policy or Choice("threshold")
    made = tuple(
        unit if isinstance(unit, Unit) else Unit(unit, (unit,), policy=policy, **of_units) for unit in units
    )
    if operators is None:
        names = [name for unit in made for name in unit.operators]
        before = [("s",) if i == 0 or not chained else (names[i - 1],) for i in range(len(names))]
        operators = [an_operator(name, inputs) for name, inputs in zip(names, before, strict=True)]
    if workload is None and per_s is not None:
        workload = Choice("constant", {"level_per_s": per_s})
    return Topology(
        "t",
        tuple(sources) if sources is not None else (Source("s", workload=workload),),
        tuple(operators),
        tuple(sinks),
        made,
        tuple(sites) if sites is not None else (a_site(),),
        loop=loop or LoopSettings(),
    )


def a_host(
    name: str = "h1",
    *,
    site: str = "c",
    flavour: HostFlavour | None = None,
    state: HostState = HostState.UP,
    up_s: float | None = 0.0,
    images: Iterable[str] = (),
) -> Host:
    """A host that is up."""
    return Host(name, site, flavour or a_flavour(), state, 0.0, up_s, frozenset(images))


def an_instance(
    name: str = "a-1",
    *,
    unit: str = "a",
    host: str | None = "h1",
    state: InstanceState = InstanceState.RUNNING,
    cores: float = 1.0,
    memory_mib: int = 1024,
) -> Instance:
    """A running instance of one core."""
    return Instance(name, unit, host, state, cores, memory_mib, 0.0, 0.0)


def a_lease(host: str = "h1", *, remaining_s: float = 1800.0, now_s: float = NOW_S, **changes: Any) -> Lease:
    """An open lease in its first billing time unit with so much paid time left."""
    lease = Lease(host, "c", "m", 0.0, 3600.0, Decimal(6))
    lease = replace(lease, **changes)
    return replace(lease, started_s=now_s + remaining_s - lease.btu_s)


def a_measurement(unit: str = "a", *, at_s: float = NOW_S, queue: int = 0, **changes: Any) -> Measurement:
    """What a unit did in the last 15 s: 75 records came and went."""
    known: dict[str, Any] = {
        "arrived": 75, "processed": 75, "emitted": 75, "duration_s": 0.1, "service_s": 0.1, **changes,
    }  # fmt: skip
    return Measurement(unit, at_s, 15.0, waiting=queue, **known)


def a_signal(
    unit: str = "a", *, at_s: float = NOW_S, queue: int = 0, cpu_ratio: float | None = 0.5, **changes: Any
) -> Signal:
    """The signal of such a measurement."""
    return Signal(a_measurement(unit, at_s=at_s, queue=queue, **changes), cpu_ratio)


def a_view(
    topology: Topology | None = None,
    *,
    on: Mapping[str, Sequence[str]] | None = None,
    queue: int | Mapping[str, int] | None = 0,
    now_s: float = NOW_S,
    hosts: Iterable[Host] = (),
    instances: Iterable[Instance] = (),
    remaining_s: float = 1800.0,
    history: tuple[ScalingEvent, ...] = (),
    **changes: Any,
) -> View:
    """A view: `on` names for each host the units of the instances on it; `queue` records wait for each unit.

    `hosts` and `instances` are there besides; `queue=None` means that nothing was measured yet.
    """
    topology = topology or a_topology()
    on = {"h1": ["a"]} if on is None else on
    site = topology.sites[0]
    known_hosts = [a_host(name, site=site.name, flavour=site.flavours[0]) for name in on] + list(hosts)
    known = [
        an_instance(
            f"{unit}-{host}-{number}",
            unit=unit,
            host=host,
            cores=topology.unit_cores(unit),
            memory_mib=topology.unit_memory_mib(unit),
        )
        for host, members in on.items()
        for number, unit in enumerate(members, 1)
    ]
    names = [unit.name for unit in topology.units]
    queues = {} if queue is None else queue if isinstance(queue, Mapping) else dict.fromkeys(names, queue)
    given: dict[str, Any] = {"units": tuple(names), "next_host": 100, "next_instance": 1000, **changes}
    return View(
        now_s,
        topology,
        Deployment.of(known_hosts, [*known, *instances]),
        {h.id: a_lease(h.id, remaining_s=remaining_s, now_s=now_s) for h in known_hosts},
        {unit: (a_signal(unit, at_s=now_s, queue=waiting),) for unit, waiting in queues.items()},
        history=history,
        **given,
    )


def start_times(**changes: float) -> SimulatedParameters:
    """A simulated provider's times: all at once but for what is given."""
    return SimulatedParameters(**{**AT_ONCE, **changes})
