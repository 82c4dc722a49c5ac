"""The difference between two versions: typed, complete, and empty for equal ones."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings

from penstock.topology.difference import (
    Added,
    FilterChanged,
    FunctionChanged,
    InputsRewired,
    OperatorAdded,
    OperatorMoved,
    OperatorRemoved,
    OrderChanged,
    PolicyChanged,
    PriceChanged,
    Removed,
    Resized,
    SettingChanged,
    UnitMoved,
    difference,
)
from penstock.topology.file import dump_topology, parse_topology
from penstock.topology.model import (
    Choice,
    HostFlavour,
    LatencyBound,
    LoopSettings,
    Operator,
    Sink,
    Site,
    Source,
    Unit,
)
from tests.topology.strategies import a_topology, topologies

OLD = a_topology()
PARSE, COUNT = OLD.operators
ALL = OLD.units[0]
CLOUD, EDGE = OLD.sites


def operators(*changed: Operator):
    return a_topology(operators=changed)


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (a_topology(name="other"), (SettingChanged("topology", "", "name", "small", "other"),)),
        (operators(replace(PARSE, cores=2.0), COUNT), (Resized("operator", "parse", "cores", 1.0, 2.0),)),
        (
            operators(PARSE, replace(COUNT, memory_mib=1024)),
            (Resized("operator", "count", "memory_mib", 512, 1024),),
        ),
        (
            operators(PARSE, replace(COUNT, inputs=("parse", "clicks"))),
            (InputsRewired("operator", "count", ("parse",), ("parse", "clicks")),),
        ),
        (
            operators(replace(PARSE, slo_s=1.0), COUNT),
            (SettingChanged("operator", "parse", "slo_s", 0.5, 1.0),),
        ),
        (
            operators(replace(PARSE, function="jobs:parse"), COUNT),
            (FunctionChanged("operator", "parse", None, "jobs:parse"),),
        ),
        (
            a_topology(
                operators=(PARSE, COUNT, Operator("late", ("count",))),
                units=(replace(ALL, operators=("parse", "count", "late")),),
            ),
            (OperatorAdded("late", "all"),),
        ),
        (
            operators(PARSE, COUNT, Operator("late", ("count",))),
            (OperatorAdded("late", "late"), Added("unit", "late")),
        ),
        (
            a_topology(
                operators=(PARSE,),
                units=(replace(ALL, operators=("parse",)),),
                sinks=(Sink("out", ("parse",)),),
            ),
            (OperatorRemoved("count", "all"), InputsRewired("sink", "out", ("count",), ("parse",))),
        ),
        (
            a_topology(units=(replace(ALL, operators=("parse",)), Unit("own", ("count",)))),
            (OperatorMoved("count", "all", "own"), Added("unit", "own")),
        ),
        (a_topology(units=(replace(ALL, sites=("edge",)),)), (UnitMoved("all", (), ("edge",)),)),
        (
            a_topology(units=(replace(ALL, policy=Choice("threshold", {"up_queue": 30})),)),
            (PolicyChanged("all", ALL.policy, Choice("threshold", {"up_queue": 30})),),
        ),
        (
            a_topology(units=(replace(ALL, filter=Choice("kalman")),)),
            (FilterChanged("all", Choice("none"), Choice("kalman")),),
        ),
        (
            a_topology(units=(replace(ALL, max_instances=9, slots=2),)),
            (Resized("unit", "all", "max_instances", 50, 9), Resized("unit", "all", "slots", 1, 2)),
        ),
        (a_topology(sites=(CLOUD,)), (Removed("site", "edge"),)),
        (a_topology(sites=(EDGE, CLOUD)), (OrderChanged("sites", ("cloud", "edge"), ("edge", "cloud")),)),
        (
            a_topology(
                sites=(replace(CLOUD, flavours=(HostFlavour("small", 8.0, 8192, Decimal("0.2")),)), EDGE)
            ),
            (
                PriceChanged("cloud", "small", Decimal("0.1"), Decimal("0.2")),
                Resized("flavour", "cloud/small", "cores", 4.0, 8.0),
            ),
        ),
        (
            a_topology(sites=(replace(CLOUD, btu_s=60.0), EDGE)),
            (SettingChanged("site", "cloud", "btu_s", 600.0, 60.0),),
        ),
        (
            a_topology(sources=(Source("clicks", workload=Choice("square")),)),
            (SettingChanged("source", "clicks", "workload", Choice("sine"), Choice("square")),),
        ),
        (
            a_topology(latency_bounds=(LatencyBound(2.0),)),
            (SettingChanged("topology", "", "latency_bounds", (), (LatencyBound(2.0),)),),
        ),
        (
            a_topology(loop=LoopSettings(cooldown_s=30.0)),
            (SettingChanged("loop", "", "cooldown_s", 0.0, 30.0),),
        ),
    ],
)
def test_a_change_is_told_by_its_type(new, expected):
    assert difference(OLD, new) == expected


@settings(max_examples=15, deadline=None)
@given(topologies())
def test_equal_topologies_have_no_difference(topology):
    assert difference(topology, parse_topology(dump_topology(topology))) == ()


@settings(max_examples=25, deadline=None)
@given(topologies(), topologies())
def test_the_difference_is_empty_exactly_where_both_are_equal(old, new):
    changes = difference(old, new)
    assert (changes == ()) == (old == new)
    assert all(str(change) for change in changes)
    assert len(set(map(str, changes))) == len(changes)


@settings(max_examples=15, deadline=None)
@given(topologies(), topologies())
def test_there_and_back_tell_as_many_additions_as_removals(old, new):
    there, back = difference(old, new), difference(new, old)
    assert {c.name for c in there if isinstance(c, OperatorAdded)} == {
        c.name for c in back if isinstance(c, OperatorRemoved)
    }
    assert {(c.kind, c.name) for c in there if isinstance(c, Added)} == {
        (c.kind, c.name) for c in back if isinstance(c, Removed)
    }
    assert len(there) == len(back)


def test_changes_read_as_sentences():
    new = a_topology(
        units=(replace(ALL, sites=("edge",), policy=Choice("fixed")),),
        sites=(CLOUD, Site("edge", flavours=EDGE.flavours, max_hosts=3)),
    )
    assert [str(change) for change in difference(OLD, new)] == [
        "unit all may be at edge instead of every site",
        "unit all: policy threshold(up_queue=20) → fixed",
        "site edge: max_hosts 100 → 3",
    ]
