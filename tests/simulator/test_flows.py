"""Units of several operators: the work of a record on its way through, and what leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.simulator.flows import Edge, Entry, distance_s, flows_of
from penstock.topology.model import Sink, Unit
from tests.builders import a_site, a_topology, an_operator


def test_work_adds_up_along_the_way_weighted_by_the_ratios() -> None:
    topology = a_topology(
        operators=[
            an_operator("a", service_s=0.1, ratio=0.5, shape="lognormal", cv=0.25),
            an_operator("b", ["a"], service_s=0.4, ratio=3.0, shape="exponential"),
            an_operator("c", ["a", "b"], service_s=1.0, ratio=0.25),
        ],
        units=[Unit("u", ("a", "b", "c"))],
        sinks=[Sink("out", ("c",))],
    )
    (flow,), entries = flows_of(topology)
    (way,) = flow.ways
    # One record at a, half a one at b; at c the half from a and 0.5 × 3 from b.
    assert way.mean_s == pytest.approx(0.1 + 0.5 * 0.4 + 2.0 * 1.0)
    # Exponential times spread by their mean, deterministic ones not at all.
    variance = 0.25**2 * 0.1**2 + 0.5 * 0.4**2
    assert way.cv == pytest.approx(variance**0.5 / way.mean_s)
    assert flow.edges == (Edge(0, 0.5, None, 0, "c"),)
    assert entries == (Entry("s", "u", 0),)


def test_a_unit_has_a_way_for_each_operator_that_takes_records_from_outside() -> None:
    topology = a_topology(
        operators=[an_operator("a"), an_operator("b", ["a"]), an_operator("c", ["s", "b"], service_s=0.3)],
        units=[Unit("u", ("a", "c")), Unit("v", ("b",))],
    )
    flows, entries = flows_of(topology)
    by_unit = {flow.unit: flow for flow in flows}
    assert [way.operator for way in by_unit["u"].ways] == ["a", "c"]
    assert {(e.source, e.unit, e.way) for e in entries} == {("s", "u", 0), ("s", "u", 1)}
    assert by_unit["v"].edges == (Edge(0, 1.0, "u", 1, "b"),)
    assert Edge(1, 1.0, None, 0, "c") in by_unit["u"].edges
    assert by_unit["u"].producers == ("s", "b")


def test_a_dead_end_lets_its_records_out_whatever_its_ratio() -> None:
    (flow,), _ = flows_of(a_topology(operators=[an_operator("a", ratio=0.0)]))
    assert flow.edges == (Edge(0, 1.0, None, 0, "a"),)


@pytest.mark.parametrize(("known_at", "delay_s"), [("near", 0.05), ("far", 0.05), (None, 0.0)])
def test_the_distance_between_sites_is_known_from_either(known_at: str | None, delay_s: float) -> None:
    other = {"near": "far", "far": "near"}
    near, far = (
        replace(a_site(name), distance_s={other[name]: 0.05} if name == known_at else {})
        for name in ("near", "far")
    )
    assert distance_s(near, far) == distance_s(far, near) == delay_s
    assert distance_s(near, near) == 0.0
