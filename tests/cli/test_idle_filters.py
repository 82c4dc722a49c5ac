"""Where a filter changes nothing, the commands say so; labels of near points stand on different sides."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.compare import Cell, Row, _found, cheapest, label_positions, same_lines
from penstock.policies.registry import POLICIES, why_filter_is_idle
from penstock.topology.model import Choice, Unit
from tests.cli.test_commands import SMALLEST, penstock


def a_row(policy: str, filter_: str, cost: float = 5.0, relaxed: float = 0.9) -> Row:
    return Row(Cell(policy, filter_, 600.0), cost, 1.5, 6.0, 0.8, relaxed, 1.0, 4.0, 60.0)


@pytest.mark.parametrize("name", [name for name in POLICIES if hasattr(POLICIES[name], "decides_on")])
def test_a_policy_that_does_not_decide_on_utilisation_never_reads_it(name: str) -> None:
    module = inspect.getmodule(POLICIES[name])
    assert module is not None
    reads = any(word in inspect.getsource(module) for word in (".cpu_ratio", ".memory_ratio"))
    assert reads == ("utilisation" in POLICIES[name].decides_on)


@pytest.mark.parametrize(
    ("policy", "filter_", "idle"),
    [("fixed", "kalman", True), ("fixed", "none", False), ("threshold", "kalman", False)],
)
def test_an_idle_filter_is_noticed(policy: str, filter_: str, idle: bool) -> None:
    unit = Unit("u", ("a",), policy=Choice(policy), filter=Choice(filter_))
    assert (why_filter_is_idle(unit) is not None) == idle


def test_check_says_where_a_filter_has_no_effect(tmp_path: Path) -> None:
    file = tmp_path / "idle.yaml"
    file.write_text("filter: kalman\npolicy: fixed\n" + SMALLEST.read_text())
    said = penstock("check", file, folder=tmp_path)
    assert "filter kalman has no effect" in said
    assert "policy fixed decides on nothing measured" in said


def test_compare_says_which_filters_made_no_difference() -> None:
    rows = [
        a_row("fixed", "none"),
        a_row("fixed", "kalman"),
        a_row("btu", "none"),
        a_row("btu", "kalman"),
    ]
    fixed, btu = same_lines(rows)
    assert "fixed: filters none, kalman give the same line, it decides on nothing measured" in fixed
    assert "decisions would not have been others" in btu
    assert same_lines([a_row("utilisation", "none"), a_row("utilisation", "kalman", cost=6.0)]) == []


def test_labels_of_near_points_stand_on_different_sides() -> None:
    rows = [a_row("threshold", str(i)) for i in range(6)] + [a_row("rate", "none", cost=50.0, relaxed=0.1)]
    found = label_positions(rows)
    assert len(set(found[:4])) == 4
    assert found[4:6] == [None, None]
    assert found[6] == found[0]


def test_compare_tells_first_what_the_asked_share_costs_at_least() -> None:
    rows = [replace(a_row("rate", "none", cost=7.0), real_time=0.99), a_row("threshold", "none", cost=2.0)]
    assert cheapest(rows, 0.95) is rows[0]
    assert "the cheapest that keeps 95% within the SLO: rate" in _found(rows, 0.95)
    assert "none keeps 99.9% of the records" in _found(rows, 0.999)
    assert "rate with filter none is nearest with 99.0%" in _found(rows, 0.999)
