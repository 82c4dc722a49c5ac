"""What a unit's query is made of, without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.channels.model import Stream
from penstock.errors import ConfigurationError
from penstock.runs.run import require_runnable
from penstock.spark.unit.plan import generated_sources, is_fed, plan_unit
from penstock.topology.model import Channel, Choice, Operator, Sink, Site, Source, Topology, Unit

from .conftest import a_topology, one_operator


def test_operators_of_one_unit_cross_no_channel():
    topology = a_topology(
        [Operator("a", ("numbers",)), Operator("b", ("a",))],
        [Sink("out", ("b",))],
        [Unit("u", ("a", "b"))],
    )

    plan = plan_unit(topology, "u")

    assert [given.name for given in plan.inputs] == ["numbers"]
    assert [(outlet.operator, outlet.streams) for outlet in plan.outlets] == [("b", ())]


def test_an_edge_between_units_becomes_a_stream_on_both_sides():
    topology = a_topology(
        [Operator("a", ("numbers",), schema="x long"), Operator("b", ("a",))],
        [],
        [Unit("first", ("a",)), Unit("second", ("b",))],
    )

    crossing = Stream("a", "second", "x long")
    assert plan_unit(topology, "first").outlets[0].streams == (crossing,)
    assert plan_unit(topology, "second").inputs[0].stream == crossing


def test_several_consumers_of_an_operator_are_one_outlet():
    topology = a_topology(
        [Operator("a", ("numbers",), schema="x long"), Operator("b", ("a",)), Operator("c", ("a",))],
        [Sink("out", ("a",))],
    )

    (outlet,) = plan_unit(topology, "a").outlets

    assert [stream.consumer for stream in outlet.streams] == ["b", "c"]
    assert [sink.name for sink in outlet.sinks] == ["out"]


def test_records_are_by_the_runs_clock_where_a_feeder_is_behind_them():
    fed = a_topology([Operator("a", ("numbers",)), Operator("b", ("read",)), Operator("c", ("a", "b"))], [])
    topology = replace(fed, sources=(*fed.sources, Source("read", function="functions:numbers")))

    found = {name: is_fed(topology, name) for name in ("numbers", "read", "a", "b", "c")}
    assert found == {"numbers": True, "read": False, "a": True, "b": False, "c": True}


def test_a_crossing_edge_without_a_schema_is_told():
    topology = a_topology([Operator("a", ("numbers",)), Operator("b", ("a",))], [])

    with pytest.raises(ConfigurationError, match="operator a: its records cross to another unit"):
        plan_unit(topology, "a")


def test_a_source_with_neither_function_nor_workload_is_told():
    topology = Topology("t", (Source("s"),), (Operator("a", ("s",)),))

    with pytest.raises(ConfigurationError, match="source s: expected a function"):
        plan_unit(topology, "a")


def test_an_unknown_channel_is_told_with_the_known_ones():
    topology = a_topology(
        [Operator("a", ("numbers",))],
        [],
        [Unit("u", ("a",), channel="pipe")],
        channels=(Channel("files"),),
    )

    with pytest.raises(ConfigurationError, match="unknown channel 'pipe'; known: files"):
        plan_unit(topology, "u")


@pytest.mark.parametrize(
    ("stateful", "branching"), [(False, "a"), (True, None)], ids=["stateless ways", "a stateful way"]
)
def test_ways_part_behind_the_last_operator_they_share(stateful, branching):
    topology = a_topology(
        [Operator("a", ("numbers",)), Operator("b", ("a",)), Operator("c", ("a",), stateful=stateful)],
        [Sink("one", ("b",)), Sink("two", ("c",))],
        [Unit("u", ("a", "b", "c"))],
    )

    assert plan_unit(topology, "u").branching == branching


def test_generated_sources_name_the_units_that_read_them():
    assert generated_sources(one_operator()) == {"numbers": ("unit",)}


def test_a_site_with_a_master_of_its_own_must_say_what_its_machines_share():
    topology = replace(one_operator(), sites=(Site("far", Choice("local"), master="spark://far:7077"),))

    with pytest.raises(ConfigurationError, match=r"site far: .*spark://far:7077 must share checkpoints"):
        require_runnable(topology)
