"""Single values of a topology, set by their path in its file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.errors import TopologyError
from penstock.topology.file import parse_topology
from penstock.topology.model import Choice, LatencyBound, Operator, Source, Topology, Unit
from penstock.topology.setting import with_values

TOPOLOGY = Topology(
    "t",
    (Source("s", workload=Choice("constant", {"level_per_s": 5.0})),),
    (Operator("a.b", ("s",)), Operator("plain", ("a.b",))),
    latency_bounds=(LatencyBound(4.0),),
    units=(Unit("plain", ("plain",)), Unit("a.b", ("a.b",), max_instances=4)),
)


def after(**values: Any) -> Topology:
    return parse_topology(with_values(TOPOLOGY, {path.replace("__", "."): v for path, v in values.items()}))


def test_nothing_set_changes_nothing() -> None:
    assert parse_topology(with_values(TOPOLOGY, {})) == TOPOLOGY


def test_a_unit_that_the_file_leaves_out_and_one_with_a_dot_in_its_name_are_found() -> None:
    plain, dotted = TOPOLOGY.units
    found = after(units__plain__max_instances=7, units__a__b__max_instances=3)
    assert found.units == (replace(plain, max_instances=7), replace(dotted, max_instances=3))


def test_a_choice_gets_a_parameter_and_a_bound_in_a_list_another_value() -> None:
    found = after(units__plain__policy="threshold", latency_bounds__0__bound="2 s")
    assert found.unit_by_name["plain"].policy == Choice("threshold")
    assert found.latency_bounds == (LatencyBound(2.0),)
    again = parse_topology(with_values(found, {"units.plain.policy.up_queue": 9}))
    assert again.unit_by_name["plain"].policy == Choice("threshold", {"up_queue": 9})


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "units..policy",
        "latency_bounds.1.bound",
        "latency_bounds.x",
        "units.a.b.max_instances.c",
        f"latency_bounds.{'9' * 5000}.bound",
    ],
)
def test_a_path_that_leads_nowhere_is_told(path: str) -> None:
    with pytest.raises(TopologyError, match="expected keys of a topology file"):
        with_values(TOPOLOGY, {path: 1})
