"""A unit goes from the run of one site to that of another: nothing lost, and never at both, whoever dies.

Both runs are real ones on simulated ground, asked over the real API as their services' peers do. Driver
processes are simulated, and the checkpoint is as Spark writes one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from fastapi.testclient import TestClient

from penstock.api.app import create_app
from penstock.api.client import Service
from penstock.api.peers import Peers
from penstock.api.runs import Runs
from penstock.errors import ClusterError, ConfigurationError
from penstock.machine.processes import wait_until
from penstock.providers.price_lists import Lists, list_of
from penstock.runs import commands
from penstock.runs.moving import STAYS_S
from penstock.runs.plan import Handed, Pending, RunPlan
from penstock.topology.file import dump_topology
from penstock.topology.model import Channel, Choice, LatencyBound, Operator, Sink, Topology, Unit
from tests.runs.test_changes import at_two_sites, with_operator, with_unit
from tests.runs.test_killed_amid_changes import Bomb, Stage, bomb  # noqa: F401
from tests.runs.test_pricing import Listed, listed, lists, looked_at  # noqa: F401

PATIENCE_S = 5.0
TOPIC = "t.read"


def a_chain(**changes: Any) -> Topology:
    """Three units in a row: the first at x, the last at y, and one without state that may be at either."""
    pair = at_two_sites()
    options = {"bootstrap": "127.0.0.1:1", "prefix": "t", **changes.pop("options", {})}
    counted = Operator("count", ("read",), "f:count", schema="number long")
    return replace(
        pair,
        operators=(pair.operators[0], replace(counted, **changes), Operator("kept", ("count",), "f:kept")),
        sinks=(Sink("out", ("kept",), "jsonl:out"),),
        units=(*pair.units, Unit("third", ("kept",), sites=("y",))),
        channels=(Channel("wan", "kafka", options),),
    )


class Asked(Service):
    """A site's service that is asked without a network, and may be out of reach."""

    clients: ClassVar[dict[str, TestClient]] = {}
    away: ClassVar[set[str]] = set()

    def get(self, path: str, **query: str | int) -> Any:
        if self.url in self.away:
            raise ClusterError(f"{self.url} does not answer")
        return self.clients[self.url].get(f"/api/v1{path}").json()


class Both:
    """The runs of two sites, and the services that ask each other."""

    def __init__(
        self,
        folder: Path,
        bomb: Bomb,  # noqa: F811
        topology: Topology,
        prices: Lists = list_of,
    ) -> None:
        how: dict[str, Any] = {"places": {"first": "x", "second": "x", "third": "y"}, "feed": False}
        runs = {site: Runs(folder / site) for site in ("x", "y")}
        self.stages = {
            site: Stage(folder / site / "pair", topology, bomb, prices, site=site, **how) for site in runs
        }
        for site in runs:
            runs[site]._started["pair"] = cast(Any, SimpleNamespace(poll=lambda: None))  # somebody runs it
        for site in runs:
            headers = {"Authorization": f"Bearer {runs[site].token}"}
            Asked.clients[site] = TestClient(create_app(runs[site]), headers=headers)
        Asked.away.clear()
        self.peers = {a: Peers(runs[a], [Asked(b, "")], answer_s=0.5) for a, b in (("x", "y"), ("y", "x"))}

    def turn(self) -> None:
        """Both controllers do something; the unit that goes never runs at both sites."""
        for stage in self.stages.values():
            stage.turn()
        assert len(self.at()) < 2, "it runs at both sites"

    def at(self) -> list[str]:
        """Where the unit that goes runs."""
        return [site for site, stage in self.stages.items() if "second" in stage.world.drivers]

    def plan(self, site: str) -> RunPlan:
        return self.stages[site].place.plan()

    def until(self, done: Callable[[], bool]) -> None:
        def turned() -> bool:
            self.turn()
            return done()

        assert wait_until(turned, PATIENCE_S, poll_s=0.005), [self.said(site) for site in self.stages]

    def tell(self, site: str, kind: str, to: str | None = None) -> None:
        subject = "second" if kind == "move-unit" else None
        commands.put(self.stages[site].place.commands, commands.Command(kind, "test", subject, to=to))

    def ask(self, site: str) -> list[str]:
        """Let a site's service ask, while the controllers go on."""
        told: list[str] = []
        asking = Thread(target=lambda: told.extend(self.peers[site].ask()))
        asking.start()
        self.until(lambda: not asking.is_alive())
        return told

    def said(self, site: str) -> str:
        return " ".join(self.stages[site].run.status().notices)

    def times_noted(self, site: str, text: str) -> int:
        """How many notices of a site's run have these words."""
        return sum(text in str(row["text"]) for row in self.stages[site].run.journal.rows("notice"))

    def has_read(self, site: str, offset: int) -> None:
        """The unit finishes a micro-batch that ends at an offset of its topic."""
        checkpoint = self.stages[site].place.units.checkpoint("second")
        for part in ("offsets", "commits"):
            (checkpoint / part).mkdir(parents=True, exist_ok=True)
        number = len(list((checkpoint / "commits").iterdir()))
        (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps({TOPIC: {'0': offset}})}")
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")

    def begins(self, site: str) -> dict[str, dict[str, int]]:
        return self.stages[site].place.units.begin("second")


@pytest.fixture
def both(tmp_path: Path, bomb: Bomb) -> Both:  # noqa: F811
    return Both(tmp_path, bomb, a_chain())


def test_a_unit_goes_to_another_sites_run_and_back_and_reads_on_where_it_was(both: Both) -> None:
    both.has_read("x", 40)
    both.tell("x", "move-unit", "y")
    both.until(lambda: both.plan("x").revision == 2)
    assert both.at() == [], "the one it left is done, and the other one has not heard of it"
    assert both.plan("x").handed == {"second": Handed(1, "y", {"read": {"0": 40}})}

    assert both.ask("y") == ["pair: unit second is at site y, says revision 2 of site x"]
    both.until(lambda: both.at() == ["y"])
    assert (both.plan("y").revision, both.plan("y").places) == (2, both.plan("x").places)
    assert both.begins("y") == {"read": {"0": 40}}
    assert both.ask("y") == both.ask("x") == []

    both.has_read("y", 70)
    both.tell("y", "undo")
    both.until(lambda: both.plan("y").revision == 3)
    assert both.ask("x") == ["pair: unit second is at site x, says revision 3 of site y"]
    both.until(lambda: both.at() == ["x"])
    assert both.begins("x") == {"read": {"0": 70}}
    assert not (both.stages["x"].place.units.checkpoint("second") / "commits").exists(), "it begins anew"
    assert both.plan("x").handed["second"].number == 2


def test_one_that_read_nothing_yet_goes_on_where_it_was_to_begin(both: Both) -> None:
    both.has_read("x", 40)
    for here, there in (("x", "y"), ("y", "x")):
        both.tell(here, "move-unit", there)
        both.until(lambda here=here: both.plan(here).places["second"] != here)  # type: ignore[misc]
        both.ask(there)
        both.until(lambda there=there: both.at() == [there])  # type: ignore[misc]
    assert both.begins("x") == {"read": {"0": 40}}


def test_while_the_other_site_cannot_be_reached_it_waits(both: Both) -> None:
    Asked.away.add("x")
    both.tell("x", "move-unit", "y")
    both.until(lambda: both.plan("x").revision == 2)
    both.ask("y")
    for _ in range(10):
        both.turn()
    assert both.at() == []
    Asked.away.clear()
    both.ask("y")
    both.until(lambda: both.at() == ["y"])


def test_another_version_made_meanwhile_does_not_bring_it_back(both: Both) -> None:
    both.has_read("x", 40)
    changed = with_operator(a_chain(), "kept", slo_s=7.0)
    both.stages["y"].run.changing.begin(changed, Pending("meanwhile"))
    both.tell("x", "move-unit", "y")
    both.until(lambda: both.plan("x").revision == both.plan("y").revision == 2)
    both.ask("y")
    both.until(lambda: both.at() == ["y"])
    for _ in range(2):
        both.ask("x")
        both.ask("y")
    plans = [both.plan(site) for site in ("x", "y")]
    assert plans[0].topology == plans[1].topology
    assert plans[0].revision == plans[1].revision
    assert {plan.places["second"] for plan in plans} == {"y"}
    assert both.at() == ["y"]


def test_only_the_run_it_is_at_lets_a_unit_go(both: Both) -> None:
    both.tell("y", "move-unit", "y")
    both.until(lambda: "tell the one it is at" in both.said("y"))
    both.tell("x", "move-unit", "y")
    both.until(lambda: both.plan("x").revision == 2)
    both.tell("x", "undo")
    both.until(lambda: "from site y to x" in both.said("x"))
    assert both.at() == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"stateful": True}, "the state of operator count is in this one's folder"),
        ({"options": {"deduplicate": "1 min"}}, "the ids it remembers of read"),
    ],
)
def test_what_lies_in_the_folder_of_its_run_keeps_a_unit_there(
    changes: dict[str, Any],
    why: str,
    tmp_path: Path,
    bomb: Bomb,  # noqa: F811
) -> None:
    stage = Stage(tmp_path / "x", a_chain(**changes), bomb, places={"second": "x"}, site="x", feed=False)
    with pytest.raises(ConfigurationError, match=why):
        stage.run.changing.begin(stage.run.topology, Pending("test", places={"second": "y"}))
    roams = tuple(replace(unit, sites=()) for unit in stage.run.topology.units)
    topology = stage.run.topology = replace(stage.run.topology, units=roams)
    with pytest.raises(ConfigurationError, match="what it reads of numbers lies on this one's disk"):
        stage.run.changing.begin(topology, Pending("test", places={"first": "y"}))


def test_wherever_either_controller_dies_it_arrives_once(tmp_path: Path, bomb: Bomb) -> None:  # noqa: F811
    def gone(folder: Path) -> Both:
        both = Both(folder, bomb, a_chain())
        both.has_read("x", 40)
        bomb.armed = True

        def left() -> bool:
            plan = both.plan("x")
            waits = list(both.stages["x"].place.commands.glob("*.json"))
            if plan.places["second"] == "x" and plan.pending is None and not waits:
                both.tell("x", "move-unit", "y")  # a command that was taken and not yet begun is forgotten
            return plan.places["second"] == "y"

        both.until(left)
        while both.plan("y").places["second"] != "y":
            both.ask("y")
        both.until(lambda: both.at() == ["y"] and both.stages["y"].all_run())
        bomb.armed = False
        return both

    gone(tmp_path / "whole")
    steps, names = bomb.steps, list(bomb.names)
    for at in range(0, steps, max(1, steps // 40)):
        bomb.at, bomb.steps, bomb.names = at, 0, []
        both = gone(tmp_path / str(at))
        where = f"died {names[at]} (step {at})"
        assert both.begins("y") == {"read": {"0": 40}}, where
        assert both.plan("x").handed == both.plan("y").handed, where
        assert both.plan("y").handed["second"].number == 1, where


def test_a_run_whose_only_unit_has_gone_goes_on_with_none(tmp_path: Path, bomb: Bomb) -> None:  # noqa: F811
    chain = a_chain()
    units = tuple(replace(unit, sites=("y",)) if unit.name == "first" else unit for unit in chain.units)
    chain, places = replace(chain, units=units), {"second": "x"}
    stage = Stage(tmp_path / "x", chain, bomb, places=places, site="x", feed=False)
    stage.run.changing.begin(chain, Pending("test", places={"second": "y"}))
    for _ in range(10):
        stage.turn()
    stage.die()
    stage.turn()
    assert (stage.world.drivers, stage.place.plan().places["second"]) == ({}, "y")
    assert stage.run.result().units == {}


def test_a_unit_that_fails_where_it_came_to_goes_back(both: Both) -> None:
    both.has_read("x", 40)
    both.tell("x", "move-unit", "y")
    both.until(lambda: both.plan("x").revision == 2)
    both.ask("y")
    there = both.stages["y"]
    both.until(lambda: both.at() == ["y"] and there.all_run())
    there.fail("second")

    def sent_back() -> bool:
        there.run._require_healthy()
        return both.plan("y").places["second"] == "x"

    both.until(sent_back)
    assert both.ask("x") == ["pair: unit second is at site x, says revision 3 of site y"]
    both.until(lambda: both.at() == ["x"])
    assert both.begins("x") == {"read": {"0": 40}}


def test_budgets_reach_the_units_at_a_site_though_the_bound_is_in_the_text_of_all(
    tmp_path: Path,
    bomb: Bomb,  # noqa: F811
) -> None:
    both = Both(tmp_path, bomb, replace(a_chain(), latency_bounds=(LatencyBound(9.0),)))

    def given(site: str, **budgets_s: float) -> int:
        body = {"budgets_s": budgets_s}
        return Asked.clients[site].put("/api/v1/runs/pair/budgets", json=body).status_code

    def kept(site: str) -> dict[str, float]:
        for _ in range(2):
            both.turn()
        return dict(both.stages[site].run.running_controller().state.budgets)

    def asked(site: str) -> set[str]:
        return set(Asked.clients[site].get("/api/v1/runs/pair/budgets").json()["budgets_s"])

    assert (given("x", second=2.0), given("y", second=2.0)) == (202, 409)
    assert (kept("x"), kept("y")) == ({"second": 2.0}, {})
    assert (asked("x"), asked("y")) == ({"first", "second"}, {"third"})
    both.tell("x", "move-unit", "y")
    both.until(lambda: both.plan("x").revision == 2)
    both.ask("y")
    both.until(lambda: both.at() == ["y"])
    assert (given("x", second=3.0), given("y", second=3.0)) == (409, 202)
    assert kept("y") == {"second": 3.0}
    late = commands.Command(commands.BUDGET, "on its way when it left", budgets_s={"second": 4.0})
    commands.put(both.stages["x"].place.commands, late)
    both.until(lambda: "there is no unit second here" in both.said("x"))


def test_a_run_that_distributes_the_bound_itself_takes_no_budgets(tmp_path: Path, bomb: Bomb) -> None:  # noqa: F811
    runs = Runs(tmp_path)
    Stage(tmp_path / "pair", replace(a_chain(), latency_bounds=(LatencyBound(9.0),)), bomb, feed=False)
    client = TestClient(create_app(runs), headers={"Authorization": f"Bearer {runs.token}"})
    refused = client.put("/api/v1/runs/pair/budgets", json={"budgets_s": {"second": 2.0}})
    assert (refused.status_code, "bounds of its own" in refused.text) == (409, True)


def test_a_preview_tells_what_happens_at_the_site_it_is_asked_of(both: Both) -> None:
    def shown(site: str, topology: Topology) -> dict[str, Any]:
        wish = {"topology": dump_topology(topology)}
        found: dict[str, Any] = Asked.clients[site].post("/api/v1/runs/pair/preview", json=wish).json()
        return found

    other = with_operator(a_chain(), "read", function="f:other")
    here, there = shown("x", other), shown("y", other)
    assert (here["restarts"], here["untouched"]) == (["first"], ["second"])
    assert (there["restarts"], there["untouched"], there["drains"]) == ([], ["third"], [])
    assert here["refused"] == there["refused"] == []
    columns = with_operator(a_chain(), "count", schema="word string")
    assert "crosses sites with runs of their own" in shown("x", columns)["refused"][0]


def wants(instances: int) -> Choice:
    return Choice("fixed", {"instances": instances})


def a_crowd(**changes: Any) -> Topology:
    """The chain, whose unit in the middle wants more hosts than its first site has."""
    found = with_unit(a_chain(**changes), "second", policy=wants(20), max_instances=20)
    sites = tuple(replace(site, max_hosts={"x": 3, "y": 9}[site.name]) for site in found.sites)
    return replace(found, sites=sites)


def test_a_unit_whose_site_is_full_goes_to_another_sites_run_by_itself(tmp_path: Path, bomb: Bomb) -> None:  # noqa: F811
    both = Both(tmp_path, bomb, a_crowd())
    both.has_read("x", 40)
    both.until(lambda: "no other site has room for it and answers" in both.said("x"))
    for _ in range(30):
        both.turn()
    assert both.at() == ["x"], "nothing was heard of the other site"
    assert both.times_noted("x", "no other site has room for it") == 1

    assert both.ask("x") == []
    both.until(lambda: both.plan("x").places["second"] == "y")
    both.ask("y")
    both.until(lambda: both.at() == ["y"])
    assert both.times_noted("x", "site x has had no host for it at 3 decisions); drained in") == 1
    assert both.begins("y") == {"read": {"0": 40}}


def test_a_unit_does_not_go_to_a_site_that_is_full_as_well_or_answers_no_more(
    tmp_path: Path,
    bomb: Bomb,  # noqa: F811
) -> None:
    crowd = a_crowd()
    full = replace(crowd, sites=tuple(replace(site, max_hosts=3) for site in crowd.sites))
    for case, topology in (("full", full), ("silent", crowd)):
        both = Both(tmp_path / case, bomb, topology)
        Asked.away.update({"y"} if case == "silent" else ())
        both.ask("x")
        for _ in range(60):
            both.turn()
        assert both.at() == ["x"], case
        assert both.plan("x").pending is None, case


def test_a_unit_that_has_come_stays_for_a_while_where_it_is_no_better_off(
    tmp_path: Path,
    bomb: Bomb,  # noqa: F811
) -> None:
    both = Both(tmp_path, bomb, with_unit(a_crowd(), "second", max_instances=60, policy=wants(60)))
    both.ask("x")
    both.until(lambda: both.plan("x").places["second"] == "y")
    both.ask("y")
    both.until(lambda: both.at() == ["y"])
    there = both.stages["y"]
    came_s = there.clock.now_s()
    for _ in range(60):
        both.turn()
    both.ask("y")
    for _ in range(60):
        both.turn()
    assert there.clock.now_s() < came_s + STAYS_S
    assert both.at() == ["y"]


def test_a_unit_without_an_instance_for_long_ends_and_goes_to_another_sites_run(both: Both) -> None:
    both.has_read("x", 40)
    here = both.stages["x"]
    both.until(lambda: len(here.run.running_controller().fleet.deployment().instances) == 2)
    here.world.barren = True
    here.world.hosts.clear()
    for _ in range(3):
        both.turn()
    both.ask("x")
    here.clock.wait_until(here.clock.now_s() + 310.0)
    both.until(lambda: both.plan("x").places["second"] == "y")
    assert both.at() == [], "its driver has ended when its run says that it has left"
    both.ask("y")
    assert both.times_noted("x", "it has had no instance at site x for 300 s") == 1
    both.until(lambda: both.at() == ["y"])
    assert both.begins("y") == {"read": {"0": 40}}


def test_a_unit_whose_site_has_become_too_dear_goes_to_another_sites_run(
    tmp_path: Path,
    bomb: Bomb,  # noqa: F811
    lists: Listed,  # noqa: F811
) -> None:
    both = Both(tmp_path, bomb, listed(a_chain()), lists)
    both.has_read("x", 40)
    both.ask("x")
    lists.prices["x"] = "6"
    looked_at(both.stages["x"], lists)
    both.until(lambda: both.plan("x").places["second"] == "y")
    both.ask("y")
    both.until(lambda: both.at() == ["y"])
    assert both.times_noted("x", "unit second goes to site y: an instance costs") == 1
    assert both.plan("x").topology == both.plan("y").topology
    assert both.begins("y") == {"read": {"0": 40}}


STAYS = "it stays: the state of operator count is in this one's folder"


def test_of_a_unit_that_cannot_leave_a_full_site_it_is_said_once(tmp_path: Path, bomb: Bomb) -> None:  # noqa: F811
    both = Both(tmp_path, bomb, a_crowd(stateful=True))
    both.ask("x")
    both.until(lambda: both.times_noted("x", STAYS) > 0)
    for _ in range(60):
        both.turn()
    assert (both.times_noted("x", STAYS), both.times_noted("x", "could not be moved")) == (1, 0)
    assert (both.plan("x").revision, both.plan("x").pending, both.at()) == (1, None, ["x"])


def test_of_a_unit_that_cannot_leave_a_site_that_is_too_dear_it_is_said_once(
    tmp_path: Path,
    bomb: Bomb,  # noqa: F811
    lists: Listed,  # noqa: F811
) -> None:
    both = Both(tmp_path, bomb, listed(a_chain(stateful=True)), lists)
    both.ask("x")
    lists.prices["x"] = "6"
    for _ in range(2):
        looked_at(both.stages["x"], lists)
    assert both.times_noted("x", STAYS) == 1
    assert (both.plan("x").revision, both.plan("x").pending, both.at()) == (1, None, ["x"])
