"""No sequence of actions, crashes and loads loses or doubles a record, or overfills a host."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.clock import VirtualClock
from penstock.controller import Controller, Journal, Tick
from penstock.fleet.actions import (
    LeaseHost,
    MigrateInstance,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.fleet.deployment import HOST_ALIVE, HostState, InstanceState
from penstock.fleet.fleet import Fleet
from penstock.fleet.ports import Ground
from penstock.simulator import Fault, SimulatedPlane, SimulationSettings
from penstock.topology.model import Choice, LoopSettings, Topology, Unit
from tests.builders import a_flavour, a_site, a_topology, an_operator
from tests.grounds import SimulatedSteps

UNITS = ("a", "b", "d")
HOSTS = st.sampled_from([f"h{n}" for n in range(1, 5)])
SOME_HOST = st.none() | HOSTS
REASON = st.just("")


def about(unit: str) -> st.SearchStrategy[Any]:
    """Actions about the instances of a unit."""
    names, of_unit = st.sampled_from([f"{unit}-{n}" for n in range(1, 6)]), st.just(unit)
    return st.one_of(
        st.builds(StartInstance, names, of_unit, SOME_HOST, REASON),
        st.builds(StopInstance, names, of_unit, REASON),
        st.builds(MigrateInstance, names, names, of_unit, SOME_HOST, REASON),
    )


STEPS = st.lists(
    st.one_of(
        st.builds(LeaseHost, HOSTS, st.just("c"), st.just("m"), REASON),
        st.builds(ReleaseHost, HOSTS, REASON),
        *(about(unit) for unit in UNITS),
        st.floats(0.1, 40.0),
    ),
    max_size=40,
)
FAULTS = st.lists(
    st.builds(
        Fault,
        st.floats(0.0, 400.0),
        st.sampled_from(["instance_crash", "host_crash", "host_slowdown"]),
        factor=st.floats(0.5, 5.0),
        duration_s=st.floats(0.0, 100.0),
    ),
    max_size=6,
).map(tuple)


def a_topology_with_everything(per_s: float, **changes: Any) -> Topology:
    """Fan-out, fan-in, ratios, slots, random service times, small hosts."""
    operators = [
        an_operator("a", service_s=0.2, shape="lognormal", ratio=1.5),
        an_operator("b", ["a"], service_s=0.4, shape="exponential", ratio=0.3),
        an_operator("d", ["a", "b"], service_s=0.1, cores=0.5),
    ]
    units = [
        Unit("a", ("a",), slots=2, **changes),
        Unit("b", ("b",), **changes),
        Unit("d", ("d",), **changes),
    ]
    site = a_site(btu_s=120.0, flavours=[a_flavour(cores=3.0, memory_mib=4096)], max_hosts=4)
    return a_topology(operators=operators, units=units, sites=[site], per_s=per_s)


def check(plane: SimulatedPlane, fleet: Fleet) -> None:
    """Records are whole; and the fleet, having just looked, has in its book what runs."""
    for unit, station in plane.stations.items():
        assert station.arrived == station.waiting + station.in_service + station.done, unit
        assert station.waiting >= 0
    a, b, d = (plane.stations[unit] for unit in UNITS)
    coming = {unit: sum(part[0].size for part in plane.stations[unit]._inbox) for unit in UNITS}
    assert a.arrived == plane.traffic.emitted_by_sources["s"]
    assert b.arrived + coming["b"] == int(a.done * 1.5 + 1e-6)
    assert d.arrived + coming["d"] == int(a.done * 1.5 + 1e-6) + int(b.done * 0.3 + 1e-6)
    assert plane.traffic.delivered == d.done
    deployment = fleet.deployment()
    for host in deployment.hosts.values():
        inside = [i for i in deployment.on_host(host.id) if i.state is not InstanceState.REQUESTED]
        assert sum(i.cores for i in inside) <= host.flavour.cores + 1e-9
        assert sum(i.memory_mib for i in inside) <= host.flavour.memory_mib
        assert host.state is not HostState.FAILED or not inside
    for instance in deployment.instances.values():
        assert instance.state is InstanceState.REQUESTED or instance.host in deployment.hosts


def check_bound(plane: SimulatedPlane, fleet: Fleet) -> None:
    """What serves or starts is in the book, each under one name, and nothing else is."""
    deployment = fleet.deployment()
    for unit, station in plane.stations.items():
        bound = [
            i.external_id for i in deployment.instances.values()
            if i.unit == unit and i.external_id is not None
        ]  # fmt: skip
        assert sorted(station._owners) == sorted(bound)


@settings(max_examples=60, deadline=None)
@given(STEPS, FAULTS, st.floats(0.1, 20.0), st.sampled_from(["regular", "poisson"]))
def test_random_actions_and_faults_keep_every_record_and_every_host_whole(
    steps, faults, per_s, process
) -> None:
    """Straight at the cluster, past every guard."""
    cluster = SimulatedSteps(
        a_topology_with_everything(per_s), SimulationSettings(seed=2, process=process, faults=faults)
    )
    now_s = 0.0
    for step in steps:
        if isinstance(step, float):
            now_s += step
            cluster.observe(now_s)
        else:
            cluster.enact([step], now_s)
            cluster.observe(now_s)
        check(cluster.plane, cluster.fleet)
    # What is wanted is said until it is seen: by then everything is.
    for later_s in (200.0, 400.0, 500.0):
        cluster.observe(now_s + later_s)
    check(cluster.plane, cluster.fleet)
    check_bound(cluster.plane, cluster.fleet)


@settings(max_examples=25, deadline=None)
@given(
    FAULTS,
    st.sampled_from(["threshold", "btu", "pesp", "rate", "fixed"]),
    st.floats(0.5, 30.0),
    st.sampled_from([1.0, 120.0, 3600.0]),
)
def test_the_loop_keeps_records_hosts_and_books_whole_under_any_policy(faults, policy, per_s, btu_s) -> None:
    topology = a_topology_with_everything(per_s, policy=Choice(policy), initial_instances=2, max_instances=5)
    topology = Topology(
        topology.name, topology.sources, topology.operators, units=topology.units,
        sites=(a_site(btu_s=btu_s, flavours=[a_flavour(cores=3.0, price="0.7")], max_hosts=4),),
        loop=LoopSettings(provisioning_s=30.0),
    )  # fmt: skip
    clock = VirtualClock()
    plane = SimulatedPlane(topology, SimulationSettings(seed=2, faults=faults))
    journal = Journal("sqlite://", "r", buffered=True)
    controller = Controller(topology, Ground(plane, plane.providers), clock, journal)
    ledger = controller.state.ledger

    def each(tick: Tick) -> None:
        check(plane, controller.fleet)
        deployment = tick.deployment
        assert ledger.total == sum((lease.cost for lease in ledger.leases.values()), Decimal(0))
        assert set(ledger.open_leases()) <= set(controller.fleet.deployment().hosts)
        assert sum(host.state in HOST_ALIVE for host in deployment.hosts.values()) <= 4
        for unit in topology.units:
            migrating = sum(1 for i in deployment.of_unit(unit.name) if i.replaces is not None)
            assert len(deployment.of_unit(unit.name)) - migrating <= unit.max_instances

    controller.run(480.0, each)
    controller.finish()
    assert ledger.open_leases() == {}
    assert ledger.total == sum((charge.amount for charge in journal.charges()), Decimal(0))
    assert journal.leases() == tuple(ledger.leases.values())
