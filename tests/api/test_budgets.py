"""Latency budgets across services: each is asked over HTTP what a budget costs there, and is given one."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn
from fastapi.testclient import TestClient

from penstock.api.app import create_app
from penstock.api.runs import Runs
from penstock.clock import VirtualClock
from penstock.controller import Controller
from penstock.fleet.ports import Ground
from penstock.runs import commands
from penstock.runs.coordinating import cost_of
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.simulator.plane import SimulatedPlane
from penstock.topology.file import dump_topology
from penstock.topology.model import (
    Channel,
    Choice,
    LatencyBound,
    LoopSettings,
    Operator,
    Service,
    Sink,
    Source,
    Topology,
    Unit,
)
from tests.builders import a_flavour, a_site

BOUND_S = 4.0


def a_unit(name: str, given: str, mean_s: float) -> Operator:
    return Operator(name, (given,), "f:f", service=Service(mean_s))


WHOLE = Topology(
    "ride",
    (Source("cars", workload=Choice("constant", {"level_per_s": 5.0})),),
    (a_unit("speed", "cars", 0.1), a_unit("average", "speed", 0.4)),
    (Sink("out", ("average",)),),
    (Unit("near", ("speed",), max_instances=9), Unit("far", ("average",), max_instances=9)),
    (a_site("edge"), a_site("cloud")),
    latency_bounds=(LatencyBound(BOUND_S),),
    loop=LoopSettings(monitoring_s=1.0, provisioning_s=5.0),
)


def part(unit: str, operator: str) -> Topology:
    """What one service runs of it: one unit, fed by a source of its own, without the bound."""
    own = replace(WHOLE.operator_by_name[operator], inputs=("cars",))
    return replace(
        WHOLE, name=unit, operators=(own,), units=(WHOLE.unit_by_name[unit],), latency_bounds=(),
        sinks=(Sink("out", (operator,)),),
    )  # fmt: skip


def a_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Site:
    """A service of one run: API, controller and journal are real; where units run is simulated."""

    def __init__(self, root: Path, unit: str, operator: str) -> None:
        self.runs, self.unit = Runs(root), unit
        topology = part(unit, operator)
        self.place = RunFolder.at(self.runs.root / "own")
        self.place.write_plan(RunPlan.of(topology, unit))
        self.clock = VirtualClock()
        self.plane = SimulatedPlane(topology)
        self.journal = self.place.opened()
        self.journal.claim()
        self.controller = Controller(
            topology, Ground(self.plane, self.plane.providers), self.clock, self.journal
        )

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            for command in commands.taken(self.place.commands, pytest.fail):
                assert command.kind == commands.BUDGET
                self.controller.give_budgets(command.budgets_s, command.reason)
            self.controller.tick()
            self.clock.wait_until(self.clock.now_s() + 1.0)

    def budget_s(self) -> float | None:
        return self.controller.state.budgets.get(self.unit)


@contextmanager
def served(runs: Runs, port: int) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(create_app(runs), port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline_s = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline_s:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}/api/v1/runs/own"
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[tuple[Site, Site]]:
    both = Site(tmp_path / "edge", "near", "speed"), Site(tmp_path / "cloud", "far", "average")
    for site in both:
        site.tick(90)
    yield both
    for site in both:
        site.journal.close()


def test_a_bound_is_distributed_over_two_services_and_a_silent_one_keeps_its_last_budget(
    sites: tuple[Site, Site], tmp_path: Path
) -> None:
    near, far = sites
    coordinating = Runs(tmp_path / "coordinating")
    token = {"Authorization": f"Bearer {coordinating.token}"}
    ports = a_free_port(), a_free_port()
    with (
        TestClient(create_app(coordinating), headers=token) as client,
        served(near.runs, ports[0]) as near_url,
    ):
        members = {
            "near": {"run": near_url, "token": near.runs.token},
            "far": {"run": f"http://127.0.0.1:{ports[1]}/api/v1/runs/own", "token": far.runs.token},
        }
        assert client.get("/api/v1/budgets").status_code == 409
        wish = {"topology": dump_topology(WHOLE), "members": members, "every_s": 3600}
        one = {**wish, "members": {"near": members["near"]}}
        refused = client.put("/api/v1/budgets", json=one)
        assert (refused.status_code, "far" in refused.text) == (409, True)
        assert client.put("/api/v1/budgets", json=wish).status_code == 202
        with served(far.runs, ports[1]):
            first = client.post("/api/v1/budgets/distribute").json()
        assert first["problem"] is None
        assert first["silent"] == {}
        assert 0 < first["requests"] < 1000
        given = first["budgets_s"]
        assert sum(given.values()) <= BOUND_S + 1e-6
        assert given["far"] > given["near"], "what has four times the work needs more of the bound"
        for site in sites:
            site.tick()
            assert site.budget_s() == pytest.approx(given[site.unit])
        rows = near.journal.rows("budget")
        assert "asked of every unit" in rows[-1]["reason"]

        second = client.post("/api/v1/budgets/distribute").json()
        assert set(second["silent"]) == {"far"}
        assert second["budgets_s"]["far"] == pytest.approx(given["far"])
        assert sum(second["budgets_s"].values()) <= BOUND_S + 1e-6
        far.tick()
        assert far.budget_s() == pytest.approx(given["far"])
        near.tick()
        assert near.budget_s() == pytest.approx(second["budgets_s"]["near"])
        assert client.get("/api/v1/budgets").json()["budgets_s"] == second["budgets_s"]
        assert client.delete("/api/v1/budgets").status_code == 200
        assert client.get("/api/v1/budgets").status_code == 409


def test_a_cost_falls_with_the_budget_and_is_none_where_it_cannot_be_kept(sites: tuple[Site, Site]) -> None:
    near, _ = sites
    with TestClient(create_app(near.runs), headers={"Authorization": f"Bearer {near.runs.token}"}) as client:

        def asked(latency_s: float) -> float | None:
            answer = client.post("/api/v1/runs/own/budgets/near/cost", json={"latency_s": latency_s})
            found: float | None = answer.json()["cost"]
            return found

        costs = [asked(latency_s) for latency_s in (0.2, 0.5, 5.0)]
        assert asked(0.01) is None
        assert all(cost is not None and cost > 0 for cost in costs)
        assert costs == sorted(costs, key=lambda cost: -(cost or 0))
        assert client.get("/api/v1/runs/own/budgets").json()["budgets_s"]["near"] > 0
        wrong = client.put("/api/v1/runs/own/budgets", json={"budgets_s": {"none": 1.0}})
        assert (wrong.status_code, "no unit none" in wrong.text) == (409, True)


APART = replace(
    WHOLE,
    operators=(replace(WHOLE.operators[0], schema="speed double"), WHOLE.operators[1]),
    units=(
        Unit("near", ("speed",), ("edge",), max_instances=9, channel="wan"),
        Unit("far", ("average",), ("edge", "cloud"), max_instances=9),
    ),
    sites=(a_site("edge", distance_s={"cloud": 0.5}), a_site("cloud", flavours=[a_flavour(price="3")])),
    channels=(Channel("wan", "kafka", {"bootstrap": "127.0.0.1:1"}),),
)


def a_run_at(root: Path, site: str, **places: str) -> Runs:
    """A service that has the run of one site, with its units at these places."""
    runs = Runs(root / site)
    place = RunFolder.at(runs.root / "own")
    place.write_plan(replace(RunPlan.of(APART, "ride"), site=site, places=places))
    return runs


def test_a_unit_costs_what_it_costs_at_the_site_it_is_at(tmp_path: Path) -> None:
    both = Runs(tmp_path / "both")
    place = RunFolder.at(both.root / "own")
    costs = []
    for site in ("edge", "cloud"):
        place.write_plan(replace(RunPlan.of(APART, "ride"), places={"near": "edge", "far": site}))
        costs.append(cost_of(place, "far", 2.0))
    assert costs[0] == pytest.approx(2 * costs[1])


def test_a_unit_that_went_to_another_site_s_run_is_found_there(tmp_path: Path) -> None:
    here, there = (a_run_at(tmp_path, site, near="edge", far="cloud") for site in ("edge", "cloud"))
    coordinating = Runs(tmp_path / "coordinating")
    token = {"Authorization": f"Bearer {coordinating.token}"}
    with (
        TestClient(create_app(coordinating), headers=token) as client,
        served(here, a_free_port()) as here_url,
        served(there, a_free_port()) as there_url,
    ):
        before = {"run": here_url, "token": here.token}
        wish = {"topology": dump_topology(APART), "members": dict.fromkeys(("near", "far"), before)}
        assert client.put("/api/v1/budgets", json=wish).status_code == 202
        lost = client.post("/api/v1/budgets/distribute").json()
        assert list(lost["silent"]) == ["far"], lost
        assert "it is at site cloud" in lost["silent"]["far"]

        wish |= {"runs": [{"run": there_url, "token": there.token}]}
        assert client.put("/api/v1/budgets", json=wish).status_code == 202
        found = client.post("/api/v1/budgets/distribute").json()
    assert found["silent"] == {}
    assert sum(found["budgets_s"].values()) <= BOUND_S - 0.5 + 1e-6, "the way between sites takes its part"
    given = [commands.taken(runs.root / "own" / "commands", pytest.fail)[-1] for runs in (here, there)]
    assert [list(command.budgets_s) for command in given] == [["near"], ["far"]]
