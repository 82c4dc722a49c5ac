"""What every registered policy keeps, whatever it decides: checked on views drawn at random."""

from __future__ import annotations

import ast
import inspect
import re
import time
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from functools import cache
from random import Random

import pytest

from penstock.fleet.actions import (
    Hold,
    LeaseHost,
    MigrateInstance,
    ProlongLease,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.fleet.deployment import (
    HOST_ALIVE,
    INSTANCE_COUNTED,
    Deployment,
    Host,
    HostState,
    Instance,
    InstanceState,
)
from penstock.infrastructure.leases import Lease
from penstock.infrastructure.placement import Room
from penstock.monitoring.measurements import InstanceReading, Measurement, Signal
from penstock.policies import view as view_module
from penstock.policies.registry import POLICIES, make_policy
from penstock.policies.view import ScalingEvent, View
from penstock.topology.model import Choice, HostFlavour, Operator, Site, Source, Topology, Unit
from tests.policies.views import a_signal, a_topology, a_view

every_policy = pytest.mark.parametrize("name", sorted(POLICIES))

NOW_S = 90_000.0


def _topology(dice: Random) -> Topology:
    count = dice.randint(1, 4)
    names = [f"u{i}" for i in range(count)]
    btu_s = dice.choice([1.0, 60.0, 600.0, 3600.0])
    sites = tuple(
        Site(
            site,
            btu_s=btu_s,
            flavours=(
                HostFlavour("small", 2.0, 2048, Decimal(1), max_hosts=dice.choice([None, 1, 3])),
                HostFlavour("large", 4.0, 8192, Decimal(3)),
            ),
            max_hosts=dice.randint(1, 6),
        )
        for site in ("here", "there")[: dice.randint(1, 2)]
    )
    operators, units = [], []
    for i, name in enumerate(names):
        before = dice.choice(["s", *names[:i]])
        needs = {
            "cores": dice.choice([0.1, 0.5, 1.0, 2.0]),
            "memory_mib": dice.choice([128, 512, 1500]),
        }
        operators.append(Operator(name, (before,), slo_s=0.5, ratio=dice.choice([0.1, 1.0, 3.0]), **needs))
        members = (name,)
        if dice.random() < 0.5:  # a unit of two operators
            operators.append(Operator(f"{name}x", (name,), slo_s=0.2, **needs))
            members = (name, f"{name}x")
        least = dice.randint(1, 3)
        units.append(
            Unit(
                name,
                members,
                sites=dice.choice([(), (sites[-1].name,)]),
                min_instances=least,
                max_instances=least + dice.randint(0, 8),
                initial_instances=least,
                slots=dice.randint(1, 2),
            )
        )
    return Topology("t", (Source("s"),), tuple(operators), units=tuple(units), sites=sites)


def _deployment(dice: Random, topology: Topology) -> tuple[Deployment, dict[str, Lease]]:
    hosts: dict[str, Host] = {}
    leases: dict[str, Lease] = {}
    for site in topology.sites:
        counts: Counter[str] = Counter()
        for _ in range(dice.randint(0, site.max_hosts)):
            flavour = dice.choice(site.flavours)
            if flavour.max_hosts is not None and counts[flavour.name] >= flavour.max_hosts:
                continue
            counts[flavour.name] += 1
            name = f"{site.name}-h{len(hosts) + 1}"
            state = dice.choice([HostState.UP] * 4 + [HostState.STARTING, HostState.DRAINING])
            images = frozenset(dice.choices([u.name for u in topology.units], k=2))
            hosts[name] = Host(name, site.name, flavour, state, 0.0, 0.0, images)
            spent = dice.randint(0, int(site.btu_s))
            leases[name] = Lease(
                name, site.name, flavour.name, NOW_S - spent, site.btu_s, flavour.price_per_btu
            )
    rooms = {name: Room(host.flavour.cores, host.flavour.memory_mib) for name, host in hosts.items()}
    instances: dict[str, Instance] = {}
    for unit in topology.units:
        cores, memory = topology.unit_cores(unit.name), topology.unit_memory_mib(unit.name)
        allowed = {site.name for site in topology.sites_of(unit.name)}
        for _ in range(dice.randint(0, unit.max_instances)):
            fitting = [
                h for h, room in rooms.items() if hosts[h].site in allowed and room.holds(cores, memory)
            ]
            if not fitting:
                break
            host = dice.choice(fitting)
            rooms[host] = rooms[host].less(cores, memory)
            name = f"{unit.name}-{len(instances) + 1}"
            state = dice.choice(
                [InstanceState.RUNNING] * 4 + [InstanceState.STARTING, InstanceState.RETIRING]
            )
            instances[name] = Instance(name, unit.name, host, state, cores, memory, 0.0, 0.0)
    return Deployment(hosts, instances), leases


def _windows(dice: Random, topology: Topology, deployment: Deployment) -> dict[str, tuple[Signal, ...]]:
    windows = {}
    for unit in topology.units:
        if dice.randint(0, 5) == 0:
            continue
        readings = tuple(InstanceReading(i.id, 0.5, 0.5) for i in deployment.of_unit(unit.name))
        window = []
        for back in range(dice.randint(1, 4), 0, -1):
            arrived = dice.randint(0, 3000)
            processed = dice.randint(0, 3000)
            known = processed > 0
            window.append(
                Signal(
                    Measurement(
                        unit.name,
                        NOW_S - 15.0 * (back - 1),
                        15.0,
                        arrived=arrived,
                        processed=processed,
                        emitted=processed,
                        waiting=dice.choice([0, 0, 1, 40, 51, 160, 260, 5000]),
                        duration_s=dice.uniform(0.01, 20.0) if known else None,
                        service_s=dice.choice([None, 0.05, 0.3]) if known else None,
                        arrival_cv=dice.choice([None, 1.0]),
                        service_cv=dice.choice([None, 0.3]),
                        readings=readings,
                    ),
                    dice.choice([None, 0.0, 0.05, 0.5, 0.95, 1.4]),
                    dice.choice([None, 0.3, 0.95]),
                    0.05,
                    0.05,
                    (dice.random() < 0.5),
                )
            )
        windows[unit.name] = tuple(window)
    return windows


@cache
def view_by(seed: int) -> View:
    """A view of a small cluster in any state: full hosts, ending leases, silent units, odd readings."""
    dice = Random(seed)
    topology = _topology(dice)
    deployment, leases = _deployment(dice, topology)
    names = [unit.name for unit in topology.units]
    return View(
        NOW_S,
        topology,
        deployment,
        leases,
        _windows(dice, topology, deployment),
        history=tuple(
            ScalingEvent(NOW_S - back, dice.choice(["StartInstance", "StopInstance"]), unit, f"{unit}-0")
            for back, unit in [(600.0, dice.choice(names)), (20.0, dice.choice(names))]
        ),
        scalings={name: dice.randint(0, 5) for name in names},
        units=tuple(names[: dice.randint(1, len(names))]),
        next_host=500,
        next_instance=5000,
        interval_s=dice.choice([15.0, 60.0]),
    )


def broken_promises(view: View, actions) -> list[str]:
    """Everything in these actions that no policy may do, in words."""
    topology, deployment = view.topology, view.deployment
    wrong = []
    rooms: dict[str, Room] = {}
    leased: dict[str, Counter[str]] = {site.name: Counter() for site in topology.sites}
    site_of = {}
    for host in deployment.hosts.values():
        if host.state in HOST_ALIVE:
            leased[host.site][host.flavour.name] += 1
            site_of[host.id] = host.site
            if host.state is not HostState.DRAINING:
                rooms[host.id] = Room(host.flavour.cores, host.flavour.memory_mib)
    members: dict[str, Instance] = {}
    for instance in deployment.instances.values():
        if instance.state in INSTANCE_COUNTED:
            members[instance.id] = instance
            if instance.host in rooms:
                rooms[instance.host] = rooms[instance.host].less(instance.cores, instance.memory_mib)
    counts = Counter(instance.unit for instance in members.values())
    names = set(deployment.instances) | set(deployment.hosts)

    def place(unit: str, instance: str, host: str | None) -> None:
        if instance in names:
            wrong.append(f"{instance} is not a new name")
        names.add(instance)
        cores, memory = topology.unit_cores(unit), topology.unit_memory_mib(unit)
        if host is not None:
            if host not in rooms:
                wrong.append(f"{instance} starts on {host}, which takes no instances")
            elif not rooms[host].holds(cores, memory):
                wrong.append(f"{instance} does not fit on {host}: {rooms[host]}")
            elif site_of[host] not in {site.name for site in topology.sites_of(unit)}:
                wrong.append(f"{instance} is on {host} at a site its unit may not use")
            else:
                rooms[host] = rooms[host].less(cores, memory)
        members[instance] = Instance(instance, unit, host, cores=cores, memory_mib=memory)

    def take_away(instance_id: str) -> None:
        instance = members.pop(instance_id, None)
        if instance is None:
            wrong.append(f"{instance_id} is not there to stop or move")
        elif instance.host in rooms:
            rooms[instance.host] = rooms[instance.host].more(instance.cores, instance.memory_mib)

    for action in actions:
        if not action.reason.strip():
            wrong.append(f"{action} has no reason")
        unit = getattr(action, "unit", None)
        if unit is not None and unit not in view.units:
            wrong.append(f"{action} is about a unit of another policy")
        if isinstance(action, StartInstance):
            counts[action.unit] += 1
            if counts[action.unit] > topology.unit_by_name[action.unit].max_instances:
                wrong.append(f"{action.unit} exceeds its bound")
            place(action.unit, action.instance, action.host)
        elif isinstance(action, StopInstance):
            counts[action.unit] -= 1
            if counts[action.unit] < max(1, topology.unit_by_name[action.unit].min_instances):
                wrong.append(f"{action.unit} has {counts[action.unit]} instances left")
            take_away(action.instance)
        elif isinstance(action, MigrateInstance):
            take_away(action.instance)
            place(action.unit, action.replacement, action.to_host)
        elif isinstance(action, LeaseHost):
            site = topology.site_by_name[action.site]
            flavour = site.flavour(action.flavour)
            leased[site.name][flavour.name] += 1
            if action.host in names:
                wrong.append(f"{action.host} is not a new name")
            if sum(leased[site.name].values()) > site.max_hosts:
                wrong.append(f"site {site.name} exceeds its {site.max_hosts} hosts")
            if flavour.max_hosts is not None and leased[site.name][flavour.name] > flavour.max_hosts:
                wrong.append(f"site {site.name} exceeds its {flavour.max_hosts} hosts of {flavour.name}")
            names.add(action.host)
            site_of[action.host] = site.name
            rooms[action.host] = Room(flavour.cores, flavour.memory_mib)
        elif isinstance(action, ReleaseHost):
            on_it = [i.id for i in members.values() if i.host == action.host]
            if on_it:
                wrong.append(f"{action.host} is released with {on_it} on it")
            if action.host not in deployment.hosts:
                wrong.append(f"{action.host} is not there to release")
            rooms.pop(action.host, None)
        elif isinstance(action, ProlongLease):
            if action.host not in view.leases:
                wrong.append(f"{action.host} has no lease to prolong")
        else:
            assert isinstance(action, Hold)
    return wrong


@every_policy
def test_no_bound_capacity_or_quota_is_ever_broken(name):
    for seed in range(300):
        view = view_by(seed)
        assert broken_promises(view, make_policy(Choice(name)).decide(view)) == [], f"seed {seed}"


@every_policy
def test_the_same_view_gives_the_same_actions(name):
    for seed in range(60):
        policy, view = make_policy(Choice(name)), view_by(seed)
        first = policy.decide(view)
        assert policy.decide(view) == first, f"seed {seed}"
        assert make_policy(Choice(name)).decide(view_by.__wrapped__(seed)) == first, f"seed {seed}"


def _later(view: View, by_s: float) -> View:
    """The same view, with every instant in it moved."""
    return replace(
        view,
        now_s=view.now_s + by_s,
        leases={h: replace(lease, started_s=lease.started_s + by_s) for h, lease in view.leases.items()},
        windows={
            unit: tuple(
                replace(s, measurement=replace(s.measurement, at_s=s.measurement.at_s + by_s)) for s in window
            )
            for unit, window in view.windows.items()
        },
        history=tuple(replace(event, at_s=event.at_s + by_s) for event in view.history),
    )


@every_policy
def test_nothing_depends_on_what_time_it_is(name):
    # Whole days, so that a policy may still go by the hour of the day.
    for seed in range(60):
        policy, view = make_policy(Choice(name)), view_by(seed)
        assert policy.decide(_later(view, 86_400.0 * 64)) == policy.decide(view), f"seed {seed}"


@every_policy
def test_the_wall_clock_is_never_read(name, monkeypatch):
    def forbidden(*_: object) -> float:
        raise AssertionError("a policy read the wall clock")

    for clock in ("time", "monotonic", "perf_counter", "time_ns", "sleep"):
        monkeypatch.setattr(time, clock, forbidden)
    view = a_view(signals={"a": [a_signal(waiting=300, duration_s=2.0, arrived=600)]})
    make_policy(Choice(name)).decide(view)


@every_policy
def test_a_policy_module_imports_no_clock_and_no_randomness(name):
    tree = ast.parse(inspect.getsource(inspect.getmodule(POLICIES[name])))
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not imported & {"time", "datetime", "random", "os", "secrets", "socket"}


NOT_FOR_PEOPLE = re.compile(
    r"\b1 (instances|hosts|slots|records)\b|\b0 (move|stop)\b|\w_s\b|\b(None|nan|inf)\b|[\[\]{}]"
    r"|\d\.\d{5}|\de[+-]?\d"
)
"""What was written for a program: a name of a variable, a plural of one, too many digits, an exponent."""


@every_policy
def test_reasons_are_words_for_people(name):
    for seed in range(100):
        for action in make_policy(Choice(name)).decide(view_by(seed)):
            assert action.reason, action
            assert not NOT_FOR_PEOPLE.search(action.reason), action.reason


@every_policy
def test_missing_data_holds(name):
    topology = a_topology(units=("a", "b"))
    view = a_view(topology, on={"h1": ["a", "b"]})
    actions = make_policy(Choice(name)).decide(view)
    assert all(isinstance(action, Hold) for action in actions)
    assert {action.unit for action in actions} == {"a", "b"}


@every_policy
def test_parameters_are_frozen_and_documented(name):
    policy = make_policy(Choice(name))
    assert isinstance(policy, view_module.Policy)
    assert hash(policy) == hash(make_policy(Choice(name)))
    assert (type(policy).__doc__ or "").strip()


@pytest.mark.parametrize(
    ("action", "complaint"),
    [
        (StopInstance("a-1", "a", "why"), "a has 0 instances left"),
        (StartInstance("a-9", "a", "h1", "why"), "does not fit on h1"),
        (StartInstance("a-9", "a", "h7", "why"), "takes no instances"),
        (StartInstance("b-2", "b", None, "why"), "not a new name"),
        (LeaseHost("h9", "c", "m", "why", "a"), "exceeds its 1 hosts"),
        (ReleaseHost("h1", "why"), "is released with"),
        (ProlongLease("h7", "why"), "has no lease"),
        (Hold("z", "why"), "unit of another policy"),
        (Hold("a", " "), "has no reason"),
        (MigrateInstance("a-7", "a-9", "a", None, "why"), "is not there"),
    ],
)
def test_the_checks_notice_what_no_policy_may_do(action, complaint):
    topology = a_topology(units=("a", "b"), max_hosts=1)
    view = a_view(topology, on={"h1": ["a", "b", "b", "b"]})
    assert any(complaint in told for told in broken_promises(view, (action,)))
