"""A provider that changes its list makes a run move a unit, by the way every change goes, and no more.

The run is the real one on a simulated ground; the list is a table that the test writes.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import count
from pathlib import Path

import pytest

from penstock.controller.journal import Journal, database
from penstock.errors import UnavailableError
from penstock.fleet.deployment import InstanceState
from penstock.infrastructure.siting import too_dear
from penstock.machine.processes import wait_until
from penstock.providers.price_lists import PriceList
from penstock.runs.pricing import KEPT, LOOK_S, Pricing, interval_s
from penstock.topology.model import Site, Topology
from tests.controller.test_journal_away import locked
from tests.runs.test_changes import at_two_sites
from tests.runs.test_killed_amid_changes import Bomb, Stage, bomb  # noqa: F401

PATIENCE_S = 10.0


class Listed:
    """The lists of two sites, an hour of whose flavour costs what the test says."""

    def __init__(self, **prices: str) -> None:
        self.prices, self.asked = prices, 0
        self.away: Exception | None = None

    def __call__(self, site: Site) -> PriceList:
        def fetch(flavours: object) -> dict[str, tuple[Decimal, str]]:
            self.asked += 1
            if self.away is not None:
                raise self.away
            return {"m": (Decimal(self.prices[site.name]), "EUR")}

        return PriceList("a list", fetch)


def listed(topology: Topology) -> Topology:
    """The same topology with prices that are by a list."""
    sites = (
        replace(
            site, currency="EUR", btu_s=3600.0, flavours=tuple(replace(f, listed=True) for f in site.flavours)
        )
        for site in topology.sites
    )
    return replace(topology, sites=tuple(sites))


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Listed:
    numbers = count()  # hours pass in no time: a list that is kept would be a fresh one
    monkeypatch.setattr(
        "penstock.providers.price_lists.cache_folder", lambda: tmp_path / f"cache-{next(numbers)}"
    )
    return Listed(x="4", y="4")


@pytest.fixture
def stage(lists: Listed, tmp_path: Path, bomb: Bomb) -> Stage:  # noqa: F811
    return Stage(tmp_path / "run", listed(at_two_sites()), bomb, prices=lists, places={"second": "x"})


def looked_at(stage: Stage, lists: Listed) -> None:
    """Let the time pass until the lists are looked at, and what they say was decided on."""
    asked, interval = lists.asked, interval_s(stage.run.topology)
    assert interval is not None
    for _ in range(200):
        stage.turn()
        if serving(stage):
            break
    assert serving(stage), stage.run.running_controller().fleet.deployment()
    stage.clock.wait_until(stage.clock.now_s() + interval)
    stage.turn()
    assert wait_until(lambda: lists.asked >= asked + 2, PATIENCE_S, poll_s=0.01)  # two sites

    def settled() -> bool:
        stage.turn()
        waits = stage.run._moving._pricing
        return not waits._asking and waits._new is None and stage.place.plan().pending is None

    assert wait_until(settled, PATIENCE_S, poll_s=0.01)


def serving(stage: Stage) -> bool:
    """Whether every unit's instances all serve, with one at least."""
    instances = stage.run.running_controller().fleet.deployment().instances.values()
    return all(i.state is InstanceState.RUNNING for i in instances) and {i.unit for i in instances} == {
        "first",
        "second",
    }


def place(stage: Stage) -> str:
    return stage.place.plan().places["second"]


def test_a_unit_leaves_a_site_whose_list_price_rises_by_a_change_that_says_why(
    stage: Stage, lists: Listed
) -> None:
    lists.prices["x"] = "4.9"
    looked_at(stage, lists)
    assert (place(stage), stage.place.plan().revision) == ("x", 1), "1.225 times is not worth a move"

    lists.prices["x"] = "6"
    looked_at(stage, lists)
    plan = stage.place.plan()
    assert (place(stage), plan.revision, plan.places["first"]) == ("y", 2, "x")
    assert plan.read_topology().site_by_name["x"].flavours[0].price_per_btu == Decimal(6)
    said = " ".join(stage.run.status().notices)
    assert "unit second goes to site y: an instance costs" in said
    assert "1.50 times" in said
    assert plan.before is not None, "it can be undone"


def found(pricing: Pricing, topology: Topology, at_s: float) -> tuple[Topology, Topology] | None:
    """What the next look comes to."""
    pricing.look(topology, at_s)
    pricing.look(topology, at_s + 1e6)
    assert wait_until(lambda: not pricing._found.empty(), PATIENCE_S, poll_s=0.01)
    return pricing.look(topology, at_s + 1e6)


def test_prices_that_were_decided_on_move_nobody_again_also_after_an_undo_and_a_restart(
    lists: Listed, tmp_path: Path
) -> None:
    topology, said = listed(at_two_sites()), list[str]()
    places = {"first": "x", "second": "x"}
    lists.prices["x"] = "6"
    with Journal(tmp_path / "journal.sqlite", "pair") as journal:
        pricing = Pricing(journal, said.append, lists)
        prices = found(pricing, topology, 0.0)
        assert prices is not None
        assert too_dear(*prices, "second", places) is not None
        pricing.decided()
        assert pricing.look(topology, 2e6) is None
    with Journal(tmp_path / "journal.sqlite", "pair") as journal:
        pricing = Pricing(journal, said.append, lists)
        assert found(pricing, topology, 3e6) is None, "the version before runs again: somebody wants it so"
        lists.prices["x"] = "8"
        prices = found(pricing, topology, 5e6)
        assert prices is not None
        assert too_dear(*prices, "second", places) is None, "it was dear before"
    assert said == []


def test_a_journal_that_is_locked_puts_prices_off_and_ends_nothing(
    lists: Listed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WAIT_S", 0.05)
    topology, path = listed(at_two_sites()), tmp_path / "journal.sqlite"
    lists.prices["x"] = "6"
    # Without a log that is written ahead, whoever locks the file locks readers out as well.
    with Journal(path, "pair", buffered=True) as journal:
        pricing = Pricing(journal, pytest.fail, lists)
        with locked(path):
            assert found(pricing, topology, 0.0) is None
        assert pricing.look(topology, 2e6) is not None, "the same, once it can be read"
    with Journal(path, "pair") as journal:
        pricing = Pricing(journal, pytest.fail, lists)
        assert found(pricing, topology, 0.0) is not None
        with locked(path):
            pricing.decided()
        assert pricing.look(topology, 2e6) is None
    with Journal(path, "pair") as journal:
        assert journal.recall(KEPT)["x"] == {"m": "6.0"}, "written once it could be"


@pytest.mark.parametrize("why", [UnavailableError("the list is away"), ValueError("no number is there")])
def test_a_list_that_cannot_be_read_moves_nobody_is_told_once_and_is_asked_again(
    stage: Stage, lists: Listed, why: Exception
) -> None:
    lists.away = why
    asked, interval = lists.asked, interval_s(stage.run.topology)
    assert interval is not None
    for _ in range(2):
        asked = lists.asked
        stage.clock.wait_until(stage.clock.now_s() + interval)

        def answered(before: int = asked) -> bool:
            stage.turn()
            return lists.asked > before and not stage.run._moving._pricing._asking

        assert wait_until(answered, PATIENCE_S, poll_s=0.01)
    told = [notice for notice in stage.run.status().notices if "prices stay as they were" in notice]
    assert len(told) == 1
    assert place(stage) == "x"


def test_lists_are_not_looked_at_sooner_than_a_move_pays() -> None:
    topology = listed(at_two_sites())
    assert interval_s(topology) == 5 * 3600.0, "at 1.25 times it takes five billing units to save one"
    short = replace(topology, sites=tuple(replace(site, btu_s=60.0) for site in topology.sites))
    assert interval_s(short) == LOOK_S
    assert interval_s(at_two_sites()) is None, "nothing is by a list"
