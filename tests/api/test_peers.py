"""Services of several sites come to one version of a run, whoever was away when it was made."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.api.client import Service
from penstock.api.peers import Peers
from penstock.api.runs import Runs
from penstock.controller.status import Status
from penstock.errors import ClusterError
from penstock.runs import commands
from penstock.runs.folder import HEARD_S, RunFolder
from penstock.runs.plan import RunPlan
from penstock.topology.file import parse_topology
from tests.runs.test_changes import with_operator
from tests.topology.test_part import PLACES, apart


class Directly(Service):
    """A service that is asked without a network, and can be cut off."""

    cut = False

    def get(self, path: str, **query: str | int) -> Any:
        if Directly.cut:
            raise ClusterError(f"{self.url} does not answer")
        if path == "/runs":
            about = {"site": self.url, "phase": "running", "hosts": 2}
            return [{"name": name, **about} for name, _ in SERVED[self.url]]
        plan = RunFolder(SERVED[self.url].root / "pair").plan()
        return {
            "revision": plan.revision,
            "text": plan.topology,
            "places": dict(plan.places),
            "site": plan.site,
        }


SERVED: dict[str, Runs] = {}


class Hand:
    """A clock that is set by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def refusing(place: RunFolder, tries: list[str], news: list[str]) -> Iterator[None]:
    """Somebody who does what a run does with a change that cannot be."""
    ended = threading.Event()

    def refuse() -> None:
        while not ended.wait(0.02):
            for command in commands.taken(place.commands, news.append):
                tries.append(command.reason)
                said = commands.refusal(command, "there are hosts of it")
                place.write_status(Status("pair", 2.0, (), (), "0", notices=(said,)))

    thread = threading.Thread(target=refuse, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def obeying(place: RunFolder, told: Callable[[str], None] = pytest.fail) -> Iterator[None]:
    """Somebody who does what a run does with a change."""
    ended = threading.Event()

    def obey() -> None:
        while not ended.wait(0.02):
            for command in commands.taken(place.commands, told):
                plan = place.plan()
                changed = plan.changed(parse_topology(str(command.topology)), (), command.places)
                place.write_plan(replace(changed, revision=command.as_revision or changed.revision))

    thread = threading.Thread(target=obey, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def served(tmp_path: Path) -> dict[str, Runs]:
    Directly.cut = False
    for site in ("x", "y"):
        runs = SERVED[site] = Runs(tmp_path / site)
        place = RunFolder.at(runs.root / "pair")
        place.write_plan(RunPlan.of(apart(), "pair", places=PLACES, site=site))
        place.write_status(Status("pair", 1.0, (), (), "0"))
    return SERVED


@pytest.fixture
def sites(served: dict[str, Runs]) -> Iterator[dict[str, Peers]]:
    found = {}
    for site, other in (("x", "y"), ("y", "x")):
        found[site] = Peers(served[site], [Directly(other, "token")])
    with obeying(plan_of("x")), obeying(plan_of("y")):
        yield found


def plan_of(site: str) -> RunFolder:
    return RunFolder(SERVED[site].root / "pair")


def change(site: str, how: str, times: int = 1) -> None:
    for _ in range(times):
        plan = plan_of(site).plan()
        plan_of(site).write_plan(plan.changed(with_operator(plan.read_topology(), "count", on_error=how), ()))


def test_a_site_takes_what_another_has_changed_with_its_number(sites: dict[str, Peers]) -> None:
    assert sites["x"].ask() == []
    change("x", "skip", times=2)
    assert sites["y"].ask() == ["pair goes on with revision 3 of site x"]
    assert (plan_of("y").plan().revision, plan_of("y").plan().topology) == (3, plan_of("x").plan().topology)
    assert sites["y"].ask() == sites["x"].ask() == []


def test_a_site_that_was_cut_off_comes_by_what_it_missed(sites: dict[str, Peers]) -> None:
    Directly.cut = True
    change("x", "skip")
    assert sites["y"].ask() == ["x does not answer"]
    assert sites["y"].ask() == [], "it is told once"
    assert plan_of("y").plan().revision == 1
    Directly.cut = False
    assert sites["y"].ask() == [
        "the service at x answers again",
        "pair goes on with revision 2 of site x",
    ]


def test_two_versions_of_one_number_become_one(sites: dict[str, Peers]) -> None:
    change("x", "skip")
    change("y", "retry")
    told = [*sites["x"].ask(), *sites["y"].ask()]
    assert len(told) == 1, told
    assert plan_of("x").plan().topology == plan_of("y").plan().topology
    assert plan_of("x").plan().revision == plan_of("y").plan().revision == 2


def test_a_run_is_told_which_sites_answer_and_how_many_hosts_they_have(sites: dict[str, Peers]) -> None:
    assert plan_of("x").neighbours() == {}
    sites["x"].ask()
    assert plan_of("x").neighbours() == {"y": 2}
    file = plan_of("x").root / "neighbours.json"
    long_ago_s = time.time() - HEARD_S
    os.utime(file, (long_ago_s, long_ago_s))
    assert plan_of("x").neighbours() == {}, "nobody has asked for a while"
    sites["x"].ask()
    Directly.cut = True
    sites["x"].ask()
    assert plan_of("x").neighbours() == {}, "it did not answer"


def test_a_version_a_site_cannot_take_is_told_once_and_tried_again_after_growing_pauses(
    served: dict[str, Runs],
) -> None:
    clock, tries, news = Hand(), list[str](), list[str]()
    peers = Peers(served["y"], [Directly("x", "token")], now_s=clock)
    change("x", "skip")
    told, tried_s = [], []
    with refusing(plan_of("y"), tries, news):
        for second in range(0, 300, 3):
            clock.now_s, before = float(second), len(tries)
            told += peers.ask()
            tried_s += [second] * (len(tries) - before)
        assert tried_s == [0, 3, 9, 21, 45, 93, 153, 213, 273]
        change("x", "retry")
        told += peers.ask()
        assert tries[-1] == "revision 3 of site x", "another version has tries of its own"
        deadline_s = time.monotonic() + 20.0
        while len(news) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.02)
    assert [said.partition(" cannot be taken")[0] for said in told] == [
        "revision 2 of site x",
        "revision 3 of site x",
    ]
    assert "there are hosts of it" in told[0]
    assert news == told, "the run's news say it as well"


def test_a_version_that_could_not_be_taken_is_taken_once_what_was_in_its_way_is_gone(
    served: dict[str, Runs],
) -> None:
    clock = Hand()
    peers = Peers(served["y"], [Directly("x", "token")], now_s=clock)
    change("x", "skip")
    with refusing(plan_of("y"), [], []):
        assert len(peers.ask()) == 1
    clock.now_s = 3.0
    with obeying(plan_of("y"), told=lambda _: None):
        assert peers.ask() == ["pair goes on with revision 2 of site x"]
        assert peers.ask() == []


@pytest.mark.parametrize(
    "said", [{"detail": "odd"}, [{"name": "pair", "hosts": None, "site": "y", "phase": "running"}], [7]]
)
def test_a_peer_that_answers_oddly_is_told_once_and_asked_again(
    served: dict[str, Runs], said: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Directly, "get", lambda *_, **__: said)
    peers = Peers(served["x"], [Directly("y", "token")])
    (told,) = peers.ask()
    assert "cannot be understood" in told
    assert peers.ask() == []
    monkeypatch.undo()
    assert any("answers again" in news for news in peers.ask())
