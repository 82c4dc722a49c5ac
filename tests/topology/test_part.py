"""Some units of a topology as a topology of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.errors import ConfigurationError
from penstock.runs.changes import preview
from penstock.runs.part import at_site, here
from penstock.runs.plan import RunPlan
from penstock.runs.run import require_runnable
from penstock.topology.model import Channel, Topology
from penstock.topology.part import crossing, part_of
from tests.runs.test_changes import a_pair, at_two_sites, with_operator, with_unit

PLACES = {"first": "x", "second": "y"}
KAFKA = (Channel("wan", "kafka", {"bootstrap": "10.0.0.1:9092"}),)


def apart() -> Topology:
    """The pair over two sites, with a channel that both reach."""
    return replace(with_unit(at_two_sites(), "second", sites=("y",)), channels=KAFKA)


def test_a_part_reads_what_comes_from_elsewhere_as_a_source() -> None:
    found = part_of(apart(), ["second"], ["y"])
    assert [unit.name for unit in found.units] == ["second"]
    assert [(source.name, source.workload) for source in found.sources] == [("read", None)]
    assert [sink.name for sink in found.sinks] == ["out"]
    assert [site.name for site in found.sites] == ["y"]


def test_all_units_are_the_topology_itself() -> None:
    topology = a_pair()
    assert part_of(topology, ["first", "second"], ["c"]) is topology


def test_a_stream_between_sites_crosses() -> None:
    assert list(crossing(apart(), PLACES)) == [("read", "second")]
    assert list(crossing(apart(), {"first": "y", "second": "y"})) == []


def test_a_site_runs_its_own_units_alone() -> None:
    assert list(here(apart(), {}, "x").unit_by_name) == ["first"]
    assert list(here(apart(), {}, "y").unit_by_name) == ["second"]
    assert here(apart(), {}, None) == apart()


def test_a_part_can_be_run_although_what_it_reads_is_nobodys_source_there() -> None:
    for site in ("x", "y"):
        require_runnable(apart(), part=here(apart(), {}, site))


def test_what_crosses_sites_does_not_lie_on_one_machines_disk() -> None:
    over_files = with_unit(at_two_sites(), "second", sites=("y",))
    with pytest.raises(ConfigurationError, match="give its unit a kafka channel"):
        here(over_files, {}, "x")
    with pytest.raises(ConfigurationError, match="no site z; it has x, y"):
        here(over_files, {}, "z")


def test_a_change_is_made_at_each_site_for_its_own_units() -> None:
    old = apart()
    new = with_operator(old, "count", on_error="skip")
    found = preview(old, new, places=PLACES)
    assert found.restarts == ("second",)
    plans = {site: RunPlan.of(old, "pair", places=PLACES, site=site) for site in ("x", "y")}
    assert at_site(found, old, new, plans["y"]).restarts == ("second",)
    elsewhere = at_site(found, old, new, plans["x"])
    assert (elsewhere.restarts, elsewhere.drains, elsewhere.changes) == ((), (), found.changes)
    assert not elsewhere.refused


def test_sites_with_runs_of_their_own_do_not_move_units_between_them() -> None:
    old = apart()
    new = with_unit(old, "second", sites=("x",))
    plan = RunPlan.of(old, "pair", places=PLACES, site="x")
    found = at_site(preview(old, new, places=PLACES), old, new, plan)
    assert any("each site has a run of its own" in reason for reason in found.refused)
