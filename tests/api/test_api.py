"""The service's API: nobody without its token, every mistake told, nothing changed by a mistake."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from penstock.api.app import _events, create_app
from penstock.api.runs import Runs
from penstock.channels.lookups import history
from penstock.channels.subscriptions import publish_to_subscribers
from penstock.controller.status import Status
from penstock.runs import commands
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.simulator import simulate
from penstock.topology.file import dump_topology, parse_topology
from penstock.topology.model import Choice, Unit
from tests.runs.test_changes import a_pair, with_operator, with_unit
from tests.runs.test_telling import a_status

BASE = "/api/v1/runs"
OFFICE = f"{BASE}/shop/streams/read/subscribers/office"


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    found = Runs(tmp_path / "runs")
    place = RunFolder.at(found.root / "shop")
    place.write_plan(RunPlan.of(a_pair(), "shop"))
    place.write_status(Status("shop", 1.0, (), (), "3", "EUR"))
    return found


@pytest.fixture
def client(runs: Runs) -> Iterator[TestClient]:
    with TestClient(create_app(runs), headers={"Authorization": f"Bearer {runs.token}"}) as found:
        yield found


class Controller(threading.Thread):
    """Obeys as a run does at its ticks: takes commands, and goes on with the next version."""

    def __init__(self, place: RunFolder) -> None:
        super().__init__(daemon=True)
        self.place = place
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.05):
            for command in commands.taken(self.place.commands, pytest.fail):
                plan = self.place.plan()
                if command.revision == plan.revision:
                    self.place.write_plan(plan.changed(parse_topology(str(command.topology)), ()))
                else:
                    notice = commands.refusal(command, "stale")
                    self.place.write_status(Status("shop", 2.0, (), (), "3", notices=(notice,)))


@pytest.fixture
def obeyed(runs: Runs) -> Iterator[None]:
    controller = Controller(RunFolder(runs.root / "shop"))
    controller.start()
    yield
    controller.ended.set()
    controller.join()


EVERY = [
    ("GET", "/api/v1/openapi.json"), ("GET", BASE), ("POST", BASE), ("GET", f"{BASE}/shop"),
    ("GET", f"{BASE}/shop/topology"), ("POST", f"{BASE}/shop/preview"), ("POST", f"{BASE}/shop/apply"),
    ("POST", f"{BASE}/shop/commands"), ("GET", f"{BASE}/shop/journal/tick"), ("GET", f"{BASE}/shop/bill"),
    ("GET", f"{BASE}/shop/undo"),
    ("GET", f"{BASE}/shop/events"), ("GET", f"{BASE}/shop/streams"), ("GET", f"{BASE}/shop/lookups"),
    ("GET", f"{BASE}/shop/log"),
    ("GET", OFFICE), ("PUT", OFFICE), ("DELETE", OFFICE), ("POST", f"{OFFICE}/done"),
    ("GET", f"{BASE}/shop/lookups/prices"), ("PUT", f"{BASE}/shop/lookups/prices"),
    ("GET", f"{BASE}/shop/budgets"), ("PUT", f"{BASE}/shop/budgets"),
    ("POST", f"{BASE}/shop/budgets/first/cost"), ("GET", "/api/v1/budgets"), ("PUT", "/api/v1/budgets"),
    ("DELETE", "/api/v1/budgets"), ("POST", "/api/v1/budgets/distribute"),
]  # fmt: skip
NAMED = {
    "name": "shop",
    "table": "tick",
    "operator": "read",
    "subscriber": "office",
    "lookup": "prices",
    "unit": "first",
}


def test_the_list_above_is_every_way_in(client: TestClient) -> None:
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    known = {(method.upper(), path.format(**NAMED)) for path in paths for method in paths[path]}
    assert known == {one for one in EVERY if one[1] != "/api/v1/openapi.json"}


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", "Basic c2hvcA=="])
@pytest.mark.parametrize(("method", "path"), EVERY)
def test_nobody_gets_in_without_the_token(runs: Runs, method: str, path: str, header: str | None) -> None:
    with TestClient(create_app(runs)) as stranger:
        headers = {} if header is None else {"Authorization": header}
        assert stranger.request(method, path, headers=headers).status_code == 401
    assert commands.taken(runs.root / "shop" / "commands", pytest.fail) == []


@pytest.mark.parametrize("what", ["films", "live", "money", "topology", "tell", "apply", "none"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_of_the_page_nobody_sees_more_than_its_files_without_the_token(
    runs: Runs, client: TestClient, method: str, what: str
) -> None:
    with TestClient(create_app(runs)) as stranger:
        for path in ("/", "/page/shop/", "/page/shop/main.js", "/runs.js", "/page/shop/vendor/uPlot.js"):
            shown = stranger.get(path)
            assert (shown.status_code, runs.token in shown.text) == (200, False), path
            assert "default-src 'none'" in shown.headers["content-security-policy"]
        for path in (f"/page/shop/data/{what}", f"/page/shop/data/../data/{what}", f"/page//data/{what}"):
            assert stranger.request(method, path, json={"kind": "stop"}).status_code == 401, path
        assert stranger.get("/page/../token").status_code == 401
        assert stranger.get("/page/shop/vendor/..%2f..%2f__init__.py").status_code == 401
    assert client.get("/page/shop/vendor/..%2f..%2f__init__.py").status_code == 404
    assert commands.taken(runs.root / "shop" / "commands", pytest.fail) == []


def test_the_page_of_a_run_of_which_nothing_is_known_yet_says_so(client: TestClient) -> None:
    assert client.get("/page/shop/data/films").status_code == 409
    assert client.get("/page/none/data/films").status_code == 404


def test_the_token_is_the_owner_s_alone(runs: Runs) -> None:
    runs.token  # noqa: B018
    assert (runs.root / "token").stat().st_mode & 0o077 == 0


def test_a_run_that_cannot_be_read_hides_no_other_one(runs: Runs, client: TestClient) -> None:
    for name, file in (("newer", "plan.json"), ("torn", "result.json")):
        place = RunFolder.at(runs.root / name)
        place.write_plan(RunPlan.of(a_pair(), name))
        (place.root / file).write_text('{"of a later version": 1}')
    listed = {run["name"]: run for run in client.get(BASE).json()}
    assert {name: run["phase"] == "unreadable" for name, run in listed.items()} == {
        "newer": True,
        "shop": False,
        "torn": True,
    }
    assert "cannot be read" in listed["torn"]["asks"][0]


def test_runs_are_listed_and_shown(client: TestClient) -> None:
    (only,) = client.get(BASE).json()
    more: dict[str, object] = {"bill": "3", "asks": [], "site": None, "hosts": 0}
    assert only == {"name": "shop", "topology": "pair", "revision": 1, "phase": "interrupted", **more}
    assert client.get(f"{BASE}/shop").json()["currency"] == "EUR"
    shown = client.get(f"{BASE}/shop/topology").json()
    assert parse_topology(shown["text"]) == a_pair()
    assert client.get(f"{BASE}/none").status_code == 404
    assert client.get(f"{BASE}/..%2f..%2fetc").status_code in (404, 422)


def test_a_change_is_previewed_applied_and_refused_where_it_is_stale(
    client: TestClient, obeyed: None
) -> None:
    wish = {"topology": dump_topology(with_operator(a_pair(), "read", function="f:new")), "revision": 1}
    shown = client.post(f"{BASE}/shop/preview", json=wish).json()
    assert (shown["restarts"], shown["untouched"], shown["refused"]) == (["first"], ["second"], [])
    assert client.get(f"{BASE}/shop/topology").json()["revision"] == 1

    done = client.post(f"{BASE}/shop/apply", json=wish)
    assert (done.status_code, done.json()["revision"]) == (200, 2)
    again = client.post(f"{BASE}/shop/apply", json=wish)
    assert again.status_code == 409
    assert "revision 2 runs" in again.json()["errors"][0]


def test_applying_what_runs_already_touches_nothing(client: TestClient, runs: Runs) -> None:
    done = client.post(f"{BASE}/shop/apply", json={"topology": dump_topology(a_pair())})
    assert (done.status_code, done.json()["revision"], done.json()["changes"]) == (200, 1, [])
    assert commands.taken(runs.root / "shop" / "commands", pytest.fail) == []


def test_two_people_applying_at_once_one_wins_and_the_other_is_told(client: TestClient, obeyed: None) -> None:
    wishes = [
        {"topology": dump_topology(with_unit(a_pair(), "first", max_instances=n)), "revision": 1}
        for n in (7, 8)
    ]
    codes: list[int] = []

    def send(wish: dict[str, Any]) -> None:
        codes.append(client.post(f"{BASE}/shop/apply", json=wish).status_code)

    people = [threading.Thread(target=send, args=(wish,)) for wish in wishes]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert sorted(codes) == [200, 409]


def test_an_invalid_topology_changes_nothing_and_every_mistake_is_listed(
    client: TestClient, runs: Runs
) -> None:
    text = dump_topology(a_pair()).replace("threshold", "treshold").replace("f:read", "f read")
    answer = client.post(f"{BASE}/shop/apply", json={"topology": text})
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) >= 2
    assert commands.taken(runs.root / "shop" / "commands", pytest.fail) == []


def test_what_cannot_be_changed_while_it_runs_is_refused_with_the_reason(client: TestClient) -> None:
    text = dump_topology(with_operator(a_pair(), "count", stateful=False))
    answer = client.post(f"{BASE}/shop/apply", json={"topology": text})
    assert answer.status_code == 409
    assert "would give up state" in answer.json()["errors"][0]


def test_commands_reach_the_controller_s_inbox(client: TestClient, runs: Runs) -> None:
    RunFolder(runs.root / "shop").write_status(a_status())
    told = {"kind": "drain", "subject": "h1", "reason": "maintenance"}
    assert client.post(f"{BASE}/shop/commands", json=told).status_code == 202
    assert client.post(f"{BASE}/shop/commands", json={"kind": "drain"}).status_code == 409
    assert client.post(f"{BASE}/shop/commands", json={"kind": "explode"}).status_code == 422
    moved = {"kind": "move", "subject": "a-1", "to": "h2"}
    assert client.post(f"{BASE}/shop/commands", json=moved).status_code == 202
    only, move = commands.taken(runs.root / "shop" / "commands", pytest.fail)
    assert (only.kind, only.subject, only.by) == ("drain", "h1", "the API")
    assert (move.kind, move.subject, move.to) == ("move", "a-1", "h2")


def test_who_asks_for_a_change_goes_on_record(client: TestClient, runs: Runs) -> None:
    place, asks = runs.root / "shop", {"by": "ada", "reason": "less load"}

    def told(answer: Any) -> str:
        assert answer.status_code in (200, 202), answer.text
        (only,) = commands.taken(place / "commands", pytest.fail)
        return only.by

    assert told(client.post(f"{BASE}/shop/commands", json={"kind": "pause", **asks})) == "ada, over the API"
    given = {"budgets_s": {"first": 1.0}, **asks}
    assert told(client.put(f"{BASE}/shop/budgets", json=given)) == "ada, over the API"
    priced = {"value": 1, **asks}
    assert told(client.put(f"{BASE}/shop/lookups/prices", json=priced)) == "ada, over the API"
    assert history(place / "lookups", "prices")[0].by == "ada, over the API"
    for wrong in ("a" * 101, "ada\n2026-01-01 refused: stop", "\x00"):
        answer = client.post(f"{BASE}/shop/commands", json={"kind": "pause", "by": wrong})
        assert answer.status_code == 422, wrong
    assert commands.taken(place / "commands", pytest.fail) == []


def test_single_values_are_set_in_the_version_that_runs(client: TestClient, runs: Runs, obeyed: None) -> None:
    wish = {"set": {"units.first.policy.up_queue": 70, "loop.cooldown": "2 min"}, "revision": 1, "by": "ada"}
    shown = client.post(f"{BASE}/shop/preview", json=wish).json()
    assert (shown["revision"], shown["restarts"], len(shown["changes"])) == (1, [], 2)
    done = client.post(f"{BASE}/shop/apply", json=wish)
    assert (done.status_code, done.json()["revision"]) == (200, 2), done.text
    now = RunFolder(runs.root / "shop").plan().read_topology()
    assert now.unit_by_name["first"].policy == Choice("threshold", {"up_queue": 70})
    assert now == replace(
        with_unit(a_pair(), "first", policy=now.unit_by_name["first"].policy),
        loop=replace(a_pair().loop, cooldown_s=120.0),
    )
    stale = client.post(f"{BASE}/shop/apply", json={**wish, "set": {"units.first.max_instances": 3}})
    assert (stale.status_code, "revision 2 runs" in stale.text) == (409, True)
    nothing = client.post(f"{BASE}/shop/apply", json={})
    assert (nothing.status_code, nothing.json()["changes"]) == (200, [])


def test_values_that_cannot_be_are_all_told_and_nothing_is_changed(client: TestClient, runs: Runs) -> None:
    nowhere = {
        "sources..workload": 1,
        "loop.cooldown.x.y": 2,
        "latency_bounds.0.bound": "1 s",
        "units.first": 3,
    }
    answer = client.post(f"{BASE}/shop/apply", json={"set": nowhere})
    assert answer.status_code == 422
    wrong = {"units.first.policy.up_queue": "many", "units.first.max_instances": -1, "units.first.colour": 1}
    answer = client.post(f"{BASE}/shop/apply", json={"set": wrong})
    assert (answer.status_code, len(answer.json()["errors"]) >= 3) == (422, True), answer.text
    assert commands.taken(runs.root / "shop" / "commands", pytest.fail) == []


def test_too_large_a_request_is_refused(client: TestClient) -> None:
    assert client.post(f"{BASE}/shop/apply", content=b"x" * (2 << 20)).status_code == 413


def test_events_tell_the_status_until_the_end(client: TestClient, runs: Runs) -> None:
    place = RunFolder(runs.root / "shop")
    (place.root / "result.json").write_text("{}")
    # A torn result counts as none; a whole one ends the stream.
    place.write_result(simulate(a_pair(), duration_s=60.0))
    with client.stream("GET", f"{BASE}/shop/events") as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines[0] == "event: status"
    assert json.loads(lines[1].removeprefix("data: "))["bill"] == "3"
    assert lines[-2] == "event: end"


def test_events_end_where_nobody_runs_the_run_any_more(client: TestClient, runs: Runs) -> None:
    for file in ("status.json", "plan.json"):
        os.utime(runs.root / "shop" / file, (1.0, 1.0))
    with client.stream("GET", f"{BASE}/shop/events") as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert (lines[0], lines[-2]) == ("event: status", "event: end")


def test_events_give_a_sign_of_life_while_nothing_changes(runs: Runs) -> None:
    async def heard() -> list[str]:
        found = _events(runs, RunFolder(runs.root / "shop"), alive_s=0.1)
        return [(await anext(found)).partition("\n")[0] for _ in range(2)]

    assert asyncio.run(heard()) == ["event: status", ": still here"]


def test_of_a_table_the_newest_rows_of_a_time_are_told_as_all_of_them_would_be(
    client: TestClient, runs: Runs
) -> None:
    place = RunFolder(runs.root / "shop")
    with place.opened() as journal:
        simulate(a_pair(), duration_s=300.0, journal=journal)
        rows = [{k: v for k, v in r.items() if k not in ("id", "run")} for r in journal.rows("observation")]
    middle_s = rows[len(rows) // 2]["at_s"]
    for query, expected in (
        ({}, rows),
        ({"limit": 3}, rows[-3:]),
        ({"until_s": middle_s, "limit": 5}, [r for r in rows if r["at_s"] <= middle_s][-5:]),
        ({"since_s": middle_s, "until_s": middle_s}, [r for r in rows if r["at_s"] == middle_s]),
        ({"since_s": 1e9}, []),
    ):
        assert client.get(f"{BASE}/shop/journal/observation", params=query).json()["rows"] == expected


def test_somebody_outside_subscribes_reads_says_how_far_it_is_and_leaves(
    client: TestClient, runs: Runs
) -> None:
    place = OFFICE
    assert client.get(place).status_code == 409
    assert client.put(place, json={"most_records": 50}).json()["waiting"] == 0
    stream = runs.root / "shop" / "channels" / "files" / "read"
    assert [folder.name for folder in stream.iterdir()] == ["~office"], "beside the units that read it"
    part = runs.root / "part.json"
    part.write_text('{"record_id": "a"}\n{"record_id": "b"}\n')
    publish_to_subscribers(stream, [part], 2, 0, "me")
    (listed,) = client.get(f"{BASE}/shop/streams").json()
    assert (listed["operator"], listed["subscribers"][0]["waiting"]) == ("read", 2)
    batch = client.get(place).json()
    assert [record["record_id"] for record in batch["records"]] == ["a", "b"]
    assert client.post(f"{place}/done", json={"number": batch["number"]}).json()["waiting"] == 0
    assert client.delete(place).status_code == 200
    assert client.get(place).status_code == 409
    wrong = client.put(f"{BASE}/shop/streams/count/subscribers/office", json={})
    assert wrong.status_code == 409
    assert "those of operators that another unit reads: read" in wrong.json()["errors"][0]


def test_who_subscribed_to_a_stream_that_ends_is_named_beforehand_and_reads_what_waits(
    client: TestClient, runs: Runs
) -> None:
    client.put(OFFICE, json={})
    place = RunFolder(runs.root / "shop")
    part = runs.root / "part.json"
    part.write_text('{"record_id": "a"}\n')
    publish_to_subscribers(place.units.channels / "files" / "read", [part], 1, 0, "me")
    merged = replace(a_pair(), units=(Unit("all", ("read", "count")),))
    found = client.post(f"{BASE}/shop/preview", json={"topology": dump_topology(merged)}).json()
    assert any("office subscribed to it" in state for state in found["given_up"])
    place.write_plan(place.plan().changed(merged, ()))
    (listed,) = client.get(f"{BASE}/shop/streams").json()
    assert (listed["ended"], listed["subscribers"][0]["waiting"]) == (True, 1)
    batch = client.get(OFFICE).json()
    assert [record["record_id"] for record in batch["records"]] == ["a"]
    assert client.post(f"{OFFICE}/done", json={"number": batch["number"]}).json()["waiting"] == 0
    assert client.delete(OFFICE).status_code == 200
    assert client.get(f"{BASE}/shop/streams").json() == []


def test_a_look_up_is_given_further_versions_and_each_is_put_on_record(
    client: TestClient, runs: Runs
) -> None:
    place = f"{BASE}/shop/lookups/prices"
    assert client.get(place).status_code == 409
    assert client.put(place, json={"value": {"apple": 1}}).json()["version"] == 1
    assert client.put(place, json={"value": {"apple": 2}, "reason": "sale"}).json()["version"] == 2
    assert client.get(place).json() == {"name": "prices", "version": 2, "value": {"apple": 2}}
    assert [each["version"] for each in client.get(f"{BASE}/shop/lookups").json()] == [2]
    told = commands.taken(runs.root / "shop" / "commands", pytest.fail)
    assert [(command.kind, command.subject, command.reason) for command in told] == [
        ("lookup", "prices", "version 1"),
        ("lookup", "prices", "version 2: sale"),
    ]
