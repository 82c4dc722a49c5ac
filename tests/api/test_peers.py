"""Services of several sites come to one version of a run, whoever was away when it was made."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
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


@contextmanager
def obeying(place: RunFolder) -> Iterator[None]:
    """Somebody who does what a run does with a change."""
    ended = threading.Event()

    def obey() -> None:
        while not ended.wait(0.02):
            for command in commands.taken(place.commands, pytest.fail):
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
def sites(tmp_path: Path) -> Iterator[dict[str, Peers]]:
    Directly.cut = False
    found = {}
    for site in ("x", "y"):
        runs = SERVED[site] = Runs(tmp_path / site)
        place = RunFolder.at(runs.root / "pair")
        place.write_plan(RunPlan.of(apart(), "pair", places=PLACES, site=site))
        place.write_status(Status("pair", 1.0, (), (), "0"))
    for site, other in (("x", "y"), ("y", "x")):
        found[site] = Peers(SERVED[site], [Directly(other, "token")])
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
