"""Changing a topology while it runs: what is told beforehand, and what the loop and its fleet make of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import VirtualClock
from penstock.controller import Controller, Journal
from penstock.errors import ConfigurationError
from penstock.fleet.actions import LeaseHost, StartInstance
from penstock.fleet.fleet import Fleet
from penstock.fleet.ports import Ground, UnitReport
from penstock.fleet.units import UnitState
from penstock.runs.changes import Preview, preview, producers, require_possible
from penstock.runs.part import at_site
from penstock.runs.plan import RunPlan
from penstock.simulator.plane import SimulatedPlane
from penstock.topology.model import (
    Channel,
    Choice,
    LatencyBound,
    LoopSettings,
    Operator,
    Sink,
    Source,
    Topology,
    Unit,
)
from tests.builders import a_flavour, a_site

READ = Operator("read", ("numbers",), "f:read", schema="number long")
COUNT = Operator("count", ("read",), "f:count", stateful=True)


def a_pair(**changes: Any) -> Topology:
    """Two units in a row: the first without state, the second with it."""
    found = Topology(
        "pair",
        (Source("numbers", workload=Choice("constant", {"level_per_s": 5.0}), schema="number long"),),
        (READ, COUNT),
        (Sink("out", ("count",), "jsonl:out"),),
        (Unit("first", ("read",), policy=Choice("threshold")), Unit("second", ("count",))),
        (a_site(),),
    )
    return replace(found, **changes)


def with_unit(topology: Topology, name: str, **changes: Any) -> Topology:
    return replace(
        topology,
        units=tuple(replace(u, **changes) if u.name == name else u for u in topology.units),
    )


def with_operator(topology: Topology, name: str, **changes: Any) -> Topology:
    return replace(
        topology,
        operators=tuple(replace(o, **changes) if o.name == name else o for o in topology.operators),
    )


ALERT = Operator("alert", ("read",), "f:alert")


def with_alerts(topology: Topology) -> Topology:
    return replace(
        topology, operators=(*topology.operators, ALERT), units=(*topology.units, Unit("third", ("alert",)))
    )


def test_an_equal_version_changes_nothing() -> None:
    found = preview(a_pair(), a_pair())
    assert found.changes == found.restarts == found.starts == found.stops == found.refused == ()
    assert found.lines() == ["nothing changes"]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: with_unit(t, "first", policy=Choice("rate")),
        lambda t: with_unit(t, "second", max_instances=3),
        lambda t: with_operator(t, "count", slo_s=9.0),
        lambda t: replace(t, latency_bounds=(LatencyBound(5.0),)),
        lambda t: replace(t, loop=LoopSettings(monitoring_s=3.0)),
        lambda t: replace(t, sites=(replace(t.sites[0], max_hosts=3),)),
        lambda t: replace(
            t,
            sites=(
                replace(t.sites[0], flavours=(replace(t.sites[0].flavours[0], price_per_btu=Decimal(9)),)),
            ),
        ),
    ],
)
def test_what_only_the_loop_looks_at_stops_nobody(change: Callable[[Topology], Topology]) -> None:
    found = preview(a_pair(), change(a_pair()))
    assert found.changes
    assert (found.restarts, found.refused) == ((), ())
    assert found.untouched == ("first", "second")


def test_another_function_starts_its_own_unit_again_and_no_other() -> None:
    found = preview(a_pair(), with_operator(a_pair(), "read", function="f:read_better"))
    assert (found.restarts, found.untouched, found.refused) == (("first",), ("second",), ())
    assert "started again, keeping their state: first" in found.lines()


def test_another_size_of_an_instance_starts_its_unit_again() -> None:
    found = preview(a_pair(), with_operator(a_pair(), "count", memory_mib=2048))
    assert (found.restarts, found.refused) == (("second",), ())


def test_another_trigger_starts_its_unit_again() -> None:
    found = preview(a_pair(), with_unit(a_pair(), "second", trigger_s=2.0))
    assert (found.restarts, found.untouched, found.refused) == (("second",), ("first",), ())


def test_a_further_unit_starts_and_the_one_it_reads_from_sends_to_it_as_well() -> None:
    found = preview(a_pair(), with_alerts(a_pair()))
    assert (found.starts, found.restarts, found.untouched) == (("third",), ("first",), ("second",))
    back = preview(with_alerts(a_pair()), a_pair())
    assert (back.stops, back.restarts, back.refused) == (("third",), ("first",), ())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: replace(t, name="other"), "the topology is called pair"),
        (lambda t: with_operator(t, "count", function="f:count_better"), "may not fit another function"),
        (lambda t: with_operator(t, "count", stateful=False), "it has none in the next version"),
        (lambda t: with_operator(t, "count", inputs=("numbers",)), "or other inputs"),
        (lambda t: with_operator(t, "read", schema="word string"), "may not fit other columns"),
        (lambda t: replace(t, units=(Unit("all", ("read", "count")),)), "count: it goes to unit all"),
        (lambda t: replace(t, sources=(replace(t.sources[0], share=2.0),)), "sources stay as they are"),
        (lambda t: replace(t, sites=(a_site("elsewhere"),)), "cannot be taken away"),
        (
            lambda t: replace(
                t, sites=(replace(t.sites[0], flavours=(replace(t.sites[0].flavours[0], cores=9.0),)),)
            ),
            "give another size another name",
        ),
    ],
)
def test_what_would_lose_records_or_state_is_refused(
    change: Callable[[Topology], Topology], reason: str
) -> None:
    found = preview(a_pair(), change(a_pair()))
    with pytest.raises(ConfigurationError, match=reason):
        require_possible(found)


def test_a_flavour_is_taken_away_again_unless_there_are_hosts_of_it() -> None:
    present = a_pair()
    site = present.sites[0]
    more = replace(present, sites=(replace(site, flavours=(*site.flavours, a_flavour("large"))),))
    known = {(site.name, site.flavours[0].name)}
    assert preview(more, present, leased=known).refused == ()
    for leased in ({*known, (site.name, "large")}, None):
        with pytest.raises(ConfigurationError, match="while there are hosts of it"):
            require_possible(preview(more, present, leased=leased))


def test_state_is_given_up_where_that_was_asked_for_and_only_then() -> None:
    found = preview(a_pair(), with_operator(a_pair(), "count", function="f:count_better"))
    assert (found.renewals, found.restarts, found.untouched) == (("second",), (), ("first",))
    assert any(line.startswith("given up: state of operator count") for line in found.lines())
    require_possible(found, give_up_state=True)


def test_units_are_split_merged_and_renamed_and_streams_that_end_are_read_first() -> None:
    stateless = with_operator(a_pair(), "count", stateful=False)
    merged = replace(stateless, units=(Unit("first", ("read", "count")),))
    found = preview(stateless, merged)
    assert (found.restarts, found.stops, found.refused) == (("first",), ("second",), ())
    assert found.ending == (("read", "second"),)
    assert producers(stateless, "second", found.ending) == {"first"}, "it ends after what it reads has"
    split = preview(merged, stateless)
    assert (split.restarts, split.starts, split.drains) == (("first",), ("second",), ("first",))
    renamed = preview(merged, replace(merged, units=(Unit("one", ("read", "count")),)))
    assert (renamed.starts, renamed.stops, renamed.ending) == (("one",), ("first",), (("numbers", "first"),))


COPY = Operator("copy", ("read",), schema="number long")
LOOK = Operator("look", ("read",), schema="number long")


def beside(**inputs: str) -> Topology:
    """Three units: one reads, one works behind it, one looks and keeps; `inputs` are of other operators."""
    operators = (READ, COPY, LOOK, Operator("keep", ("read",)))
    return a_pair(
        operators=tuple(replace(o, inputs=(inputs.get(o.name, *o.inputs),)) for o in operators),
        sinks=(Sink("out", ("copy",), "jsonl:out"), Sink("seen", ("look",), "jsonl:seen")),
        units=(Unit("front", ("read",)), Unit("middle", ("copy",)), Unit("side", ("look", "keep"))),
    )


def in_turns(found: Preview, old: Topology) -> list[set[str]]:
    """Who finishes together, one after the other."""
    turns: list[set[str]] = []
    while now := found.may_drain(old, set().union(*turns)) - set().union(*turns):
        turns.append(now)
    return turns


def test_who_is_rewired_waits_for_all_on_its_ways_and_the_preview_says_who_stops_for_it() -> None:
    old, new = beside(), beside(look="copy")
    found = preview(old, new)
    assert (found.ending, found.refused) == ((), ()), "another operator reads on what it read"
    assert found.emptied == (("read", "middle"), ("read", "side"))
    assert found.restarts == found.drains == ("front", "middle", "side")
    assert in_turns(found, old) == [{"front"}, {"middle", "side"}]
    assert found.lines()[-1] == (
        "operator look gets its records by another way, each by one of them: front, middle, side finish one "
        "after the other; front would not stop otherwise"
    )
    back = preview(new, old)
    assert in_turns(back, new) == [{"front"}, {"middle"}, {"side"}], "what middle wrote is read at the end"
    assert back.held(new) == set(), "the source may go on: nobody reads what front has not"


def test_a_source_waits_where_the_ways_part_and_who_writes_it_alone_can_say_so() -> None:
    old, new = beside(), beside(look="numbers")
    found = preview(old, new)
    assert (found.held(old), found.refused) == ({"numbers"}, ())
    assert in_turns(found, old) == [{"front"}, {"side"}]
    assert found.untouched == ("middle",)
    direct = beside(look="numbers", keep="numbers")
    moved = replace(direct, units=(Unit("front", ("read", "keep")), direct.units[1], Unit("side", ("look",))))
    assert preview(direct, moved).refused == ()
    unfed = preview(direct, moved, fed=False)
    assert "operator keep would get the records of source numbers by another way" in unfed.refused[0]


def test_sites_with_runs_of_their_own_do_not_wait_for_each_other_to_read_a_stream_to_its_end() -> None:
    sites = {"front": "x", "middle": "y", "side": "x"}
    old, new = (
        replace(
            over_a_broker(t),
            sites=(a_site("x"), a_site("y")),
            units=tuple(replace(u, sites=(sites[u.name],)) for u in t.units),
        )
        for t in (beside(), beside(look="copy"))
    )
    plan = RunPlan.of(old, "apart", site="x")
    found = at_site(preview(old, new), old, new, plan)
    assert any("from read to unit middle has to be empty for it" in reason for reason in found.refused)
    assert found.emptied == (("read", "side"),)


def test_other_columns_are_taken_up_once_those_on_their_way_are_read() -> None:
    stateless = with_operator(a_pair(), "count", stateful=False)
    found = preview(stateless, with_operator(stateless, "read", schema="word string"))
    assert (found.drains, found.ending, found.refused) == (("first", "second"), (("read", "second"),), ())


def test_what_only_starts_an_application_again_waits_for_nobody() -> None:
    found = preview(a_pair(), with_operator(a_pair(), "count", memory_mib=2048))
    assert found.drains == ()


def test_sources_that_somebody_else_writes_keep_their_readers() -> None:
    stateless = with_operator(a_pair(), "count", stateful=False)
    renamed = replace(stateless, units=(Unit("one", ("read",)), stateless.units[1]))
    assert preview(stateless, renamed).refused == ()
    assert "somebody else writes" in preview(stateless, renamed, fed=False).refused[0]


def over_a_broker(topology: Topology, **options: Any) -> Topology:
    kafka = Channel("bus", "kafka", {"bootstrap": "localhost:9092", **options})
    return replace(topology, channels=(kafka,))


def test_over_a_broker_units_are_split_and_begin_anew_as_over_files() -> None:
    pair = over_a_broker(with_alerts(a_pair()))
    unread = preview(over_a_broker(a_pair()), pair)
    assert (unread.refused, unread.restarts) == ((), ("first", "second")), "its reader has to know of another"
    moved = replace(pair, units=(pair.units[0], pair.units[1], Unit("fourth", ("alert",))))
    found = preview(pair, moved)
    assert (found.refused, found.starts, found.stops) == ((), ("fourth",), ("third",))
    assert "first" in found.drains, "who writes says how far its topic goes"
    counted = preview(pair, with_operator(pair, "count", function="f:count_better"))
    assert (counted.refused, counted.renewals) == ((), ("second",))


def test_inputs_stay_where_ids_are_remembered_or_the_checkpoint_is_out_of_reach() -> None:
    known = with_operator(with_alerts(a_pair()), "count", schema="number long")
    rewired = with_operator(known, "alert", inputs=("read", "count"))
    before, after = (over_a_broker(t, deduplicate="1 min") for t in (known, rewired))
    assert "unit third remembers ids" in preview(before, after).refused[0]
    elsewhere = replace(a_site(), storage="hdfs://name:9000/runs")
    before, after = (replace(over_a_broker(t), sites=(elsewhere,)) for t in (known, rewired))
    assert "unit third has its checkpoint at hdfs://name:9000/runs" in preview(before, after).refused[0]


def test_a_topic_of_another_site_is_not_begun_by_an_operator_that_was_there_before() -> None:
    pair = over_a_broker(with_alerts(a_pair()))
    pair = replace(
        pair,
        sites=(a_site("here"), a_site("there")),
        units=tuple(replace(u, sites=("there" if u.name == "first" else "here",)) for u in pair.units),
    )
    moved = replace(pair, units=(*pair.units[:2], replace(pair.units[2], name="fourth")))
    plan = RunPlan.of(pair, "apart", site="here")
    found = at_site(preview(pair, moved), pair, moved, plan)
    assert any("would begin to read read, which another site writes" in reason for reason in found.refused)


def test_a_unit_that_drains_is_submitted_again_only_when_told_to() -> None:
    fleet = Fleet(a_pair())
    fleet.orders(0.0)
    fleet.observed({}, [UnitReport("first", 1.0, UnitState.RUNNING, "app-1")], 1.0)
    fleet.drain(["first"])
    assert "first" in fleet.orders(2.0).tell
    assert fleet.wanted("first").drain
    assert not fleet.wanted("second").drain
    news = fleet.observed({}, [UnitReport("first", 3.0, UnitState.DRAINED, "app-1")], 3.0)
    assert (news, fleet.units["first"].state) == ([], UnitState.DRAINED)
    assert "first" not in fleet.orders(900.0).submit
    fleet.drain(())
    fleet.restart("first", 2, 901.0)
    assert "first" in fleet.orders(902.0).submit
    assert not fleet.wanted("first").drain


def test_columns_may_be_added_behind_those_there_are() -> None:
    found = preview(a_pair(), with_operator(a_pair(), "read", schema="number long, word string"))
    assert (found.restarts, found.refused) == (("first", "second"), ())


def test_a_loop_goes_on_with_another_version_and_restarts_only_what_it_must(tmp_path: Path) -> None:
    clock, topology = VirtualClock(), a_pair()
    plane = SimulatedPlane(topology)
    with Journal(tmp_path / "journal.db", "r") as journal:
        controller = Controller(topology, Ground(plane, plane.providers), clock, journal)
        controller.run(300.0)
        before = controller.fleet.deployment()
        attempts = {name: life.attempt for name, life in controller.fleet.units.items()}
        changed = with_unit(
            with_operator(topology, "read", function="f:new"), "second", policy=Choice("rate")
        )
        controller.change(changed, 2, ("first",))
        assert controller.fleet.units["first"].state is UnitState.SUBMITTED
        controller.run(clock.now_s() + 300.0)
        lives = controller.fleet.units
        assert {name: (life.state, life.revision) for name, life in lives.items()} == {
            "first": (UnitState.RUNNING, 2),
            "second": (UnitState.RUNNING, 1),
        }
        assert lives["first"].attempt == attempts["first"] + 1
        assert lives["second"].attempt == attempts["second"]
        assert plane._attempts == {name: life.attempt for name, life in lives.items()}, "it was submitted"
        second = [i.id for i in before.of_unit("second")]
        assert second[0] in controller.fleet.deployment().instances
        policies = {
            row["policy"] for row in journal.rows("action") if row["at_s"] > 300 and row["unit"] == "second"
        }
        assert "rate" in policies


def test_a_unit_that_comes_back_goes_on_counting_its_attempts() -> None:
    fleet = Fleet(with_alerts(a_pair()))
    fleet.orders(0.0)
    assert fleet.units["third"].attempt == 1
    fleet.change(a_pair(), 2, (), 1.0)
    fleet.change(with_alerts(a_pair()), 3, (), 2.0, {"third": 1})
    assert "third" in fleet.orders(3.0).submit
    assert fleet.units["third"].attempt == 2, "what is heard of the first is not taken for it"


def test_a_unit_that_is_gone_leaves_nothing_in_the_books(tmp_path: Path) -> None:
    clock, topology = VirtualClock(), with_alerts(a_pair())
    plane = SimulatedPlane(topology)
    with Journal(tmp_path / "journal.db", "r") as journal:
        controller = Controller(topology, Ground(plane, plane.providers), clock, journal)
        controller.run(120.0)
        controller.change(a_pair(), 2, ("first",))
        controller.run(clock.now_s() + 120.0)
        assert set(controller.fleet.units) == {"first", "second"}
        assert not [i for i in controller.fleet.deployment().instances.values() if i.unit == "third"]
        assert [life.state for life in journal.lives() if life.name == "third"] == []


def test_a_plan_counts_versions_and_knows_the_one_before(tmp_path: Path) -> None:
    first = RunPlan.of(a_pair(), "r")
    second = first.changed(with_operator(a_pair(), "read", function="f:new"), ("first",))
    assert (second.revision, second.revisions, second.before) == (2, {"first": 2}, first.topology)
    again = RunPlan("r", second.topology).going_on(second)
    assert (again.revision, again.revisions, again.before) == (2, {"first": 2}, first.topology)


def at_two_sites(**prices: str) -> Topology:
    """The pair, whose second unit may be at either of two sites."""
    sites = tuple(
        a_site(name, flavours=[a_flavour(price=prices.get(name, "4"))], max_hosts=3) for name in ("x", "y")
    )
    return with_unit(with_unit(a_pair(sites=sites), "first", sites=("x",)), "second", sites=("x", "y"))


def test_a_unit_that_shall_go_to_another_site_drains_and_starts_again_there() -> None:
    topology = at_two_sites()
    found = preview(topology, topology, places={"first": "x", "second": "x"}, to={"second": "y"})
    assert [str(change) for change in found.changes] == ["unit second goes from site x to y"]
    assert (found.restarts, found.drains, found.untouched) == (("second",), ("second",), ("first",))
    assert found.places == {"first": "x", "second": "y"}
    assert not found.refused


def test_a_unit_leaves_a_site_it_may_not_be_at_any_more() -> None:
    topology = at_two_sites()
    found = preview(topology, with_unit(topology, "second", sites=("y",)), places={"second": "x"})
    assert "unit second goes from site x to y" in found.lines()
    assert found.places["second"] == "y"


def test_a_unit_leaves_a_site_that_becomes_too_dear_by_a_change() -> None:
    before, after = at_two_sites(), at_two_sites(x="9")
    assert preview(before, after, places={"second": "x"}).places == {"first": "x", "second": "y"}


def test_a_unit_does_not_go_where_its_checkpoint_is_out_of_reach() -> None:
    topology = at_two_sites()
    elsewhere = replace(topology.sites[1], master="spark://there:7077", storage="hdfs://names/penstock")
    topology = replace(topology, sites=(topology.sites[0], elsewhere))
    found = preview(topology, topology, places={"second": "x"}, to={"second": "y"})
    assert "its checkpoint lies in the folder of the run" in found.refused[0]


def test_instances_at_a_site_that_a_unit_has_left_are_over() -> None:
    topology = with_unit(at_two_sites(), "second", sites=("x",))
    fleet = Fleet(topology)
    fleet.apply(LeaseHost("x-h1", "x", "m", "test"), 0.0)
    fleet.apply(StartInstance("second-1", "second", "x-h1", "test"), 0.0)
    moved = with_unit(topology, "second", sites=("y",))
    fleet.change(moved, 2, ("second",), 1.0)
    assert not fleet.deployment().instances
    assert fleet.units["second"].state is UnitState.SUBMITTED


def test_what_a_change_costs_is_told_beforehand() -> None:
    # An instance of one core costs a share of its host: 1.5 an hour, and each unit has 1 to 50.
    found = preview(a_pair(), with_unit(a_pair(), "second", max_instances=3))
    assert found.costs == ("with the most instances an hour costs 79.5 instead of 150",)
    assert found.lines()[-1] == f"cost: {found.costs[0]}"
    more = preview(a_pair(), with_unit(a_pair(), "second", min_instances=2))
    assert more.costs == ("with the least instances an hour costs 4.5 instead of 3",)
    assert preview(a_pair(), with_unit(a_pair(), "second", policy=Choice("rate"))).costs == ()
