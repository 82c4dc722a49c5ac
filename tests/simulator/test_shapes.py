"""Instances of several shapes: slots come and go in place, and no record is lost or doubled by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.controller.guards import guard
from penstock.fleet.actions import ResizeInstance, StartInstance
from penstock.fleet.deployment import InstanceState
from penstock.fleet.ports import Wanted
from penstock.fleet.wanting import wanted_of
from penstock.plain import from_json, to_json
from penstock.policies.planning import Plan, projected
from penstock.simulator.flows import flows_of
from penstock.simulator.station import Station
from penstock.topology.model import Topology, Unit
from tests.builders import a_flavour, a_site, a_topology, a_view, an_instance, an_operator


def shaped(most: int | None = 4, **unit: int) -> Topology:
    """One unit whose instances may grow."""
    units = [Unit("a", ("a",), max_slots=most, **unit)]
    return a_topology(operators=[an_operator("a", service_s=1.0)], units=units)


def a_station(service_s: float = 1.0) -> Station:
    topology = a_topology(operators=[an_operator("a", service_s=service_s)], units=["a"])
    return Station(flows_of(topology)[0][0], 1, np.random.default_rng(1))


def test_a_grown_instance_serves_more_at_a_time_from_that_instant_on() -> None:
    station = a_station()
    station.add_slots("one", 0.0)
    at = np.zeros(40)
    station.receive(at, at, 0)
    station.step(0.0, 10.0)
    assert station.done == 10 - 1 or station.done == 10
    before = station.done
    station.resize("one", 3, 10.0)
    station.step(10.0, 20.0)
    assert 29 <= station.done - before <= 31
    window = station.read(20.0, 10.0)
    assert window.names == ["one"]
    assert window.executed == [station.done]


def test_a_shrunk_instance_finishes_what_its_slots_hold() -> None:
    station = a_station(service_s=3.0)
    station.add_slots("one", 0.0, slots=4)
    at = np.zeros(12)
    station.receive(at, at, 0)
    station.step(0.0, 1.0)
    assert station.in_service == 4
    station.resize("one", 1, 1.0)
    assert station.in_service == 4, "what was begun is not thrown away"
    station.step(1.0, 4.0)
    station.read(4.0, 3.0)
    assert station.done == 4
    assert station.in_service == 1
    assert station.done + station.waiting + station.in_service == station.arrived


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["x", "y"]), st.integers(1, 6)), max_size=12), st.integers(1, 90))
def test_every_record_waits_is_in_service_or_done_however_instances_change(
    changes: list[tuple[str, int]], records: int
) -> None:
    station = a_station(service_s=0.7)
    station.add_slots("x", 0.0)
    station.add_slots("y", 2.0, slots=3)
    arrival = np.linspace(0.0, 20.0, records)
    station.receive(arrival, arrival, 0)
    now_s = 0.0
    for name, slots in changes:
        station.resize(name, slots, now_s)
        station.step(now_s, now_s + 1.3)
        now_s += 1.3
        station.read(now_s, 1.3)
        assert station.done + station.waiting + station.in_service == station.arrived
    station.remove_slots("x")
    for _ in range(80):
        station.step(now_s, now_s + 1.3)
        now_s += 1.3
    assert station.done == records


def test_a_larger_shape_needs_its_slots_cores_and_memory() -> None:
    topology = shaped(slot_memory_mib=100)
    assert (topology.unit_shape("a").cores, topology.unit_shape("a").memory_mib) == (1.0, 1024)
    assert (topology.unit_shape("a", 3).cores, topology.unit_shape("a", 3).memory_mib) == (3.0, 1224)
    assert topology.slots_of("a", 3.0) == 3
    assert topology.most_slots("a") == 4


def test_a_plan_resizes_in_place_and_counts_the_room() -> None:
    topology = shaped(slot_memory_mib=100)
    view = a_view(topology)
    plan = Plan(view)
    (instance,) = plan.instances("a")
    plan.resize(instance, 3, "more")
    assert plan.room["h1"].cores == 1.0
    assert plan.count("a") == 1
    after = projected(view, plan.actions)
    assert after.instances[instance.id].cores == 3.0
    assert after.instances[instance.id].memory_mib == 1224


def test_the_guards_refuse_slots_beyond_the_bound_or_the_host() -> None:
    topology = shaped(8)
    view = a_view(topology)
    name = view.instances("a")[0].id
    wishes = tuple(("p", ResizeInstance(name, "a", n, "")) for n in (4, 5, 9))
    told = [v.refused for v in guard(wishes, view)]
    assert told[0] is None
    assert "no room" in str(told[1])
    assert "from 1 to 8" in str(told[2])
    started = guard((("p", StartInstance("new", "a", "h1", "", slots=4)),), view)
    assert "no room" in str(started[0].refused)


def test_what_is_wanted_of_a_plane_names_the_slots_of_grown_instances_and_travels() -> None:
    topology = shaped()
    grown = replace(an_instance("a-1", cores=3.0), external_id="7")
    usual = replace(an_instance("a-2"), external_id="8")
    wanted = wanted_of(topology, "a", (grown, usual), None, (), False)
    assert wanted.slots == {"7": 3}
    assert from_json(Wanted, to_json(wanted)) == wanted


def test_a_moved_instance_keeps_its_slots() -> None:
    topology = a_topology(units=[Unit("a", ("a",), max_slots=4)], sites=[a_site(flavours=[a_flavour()])])
    grown = an_instance("a-9", cores=3.0, state=InstanceState.RUNNING)
    view = a_view(topology, on={"h2": []}, instances=[grown])
    plan = Plan(view)
    plan.migrate(grown, "h2", "away")
    (action,) = plan.actions
    assert action.starts is not None
    assert action.starts.slots == 3
