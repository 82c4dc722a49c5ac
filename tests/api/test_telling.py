"""Commands over the API: each is answered with its number, or refused where it cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from penstock.api.app import create_app
from penstock.api.runs import Runs
from penstock.runs import commands
from tests.runs.test_changes import at_two_sites, with_unit
from tests.runs.test_telling import NOT_THERE, a_place

RUN = "/api/v1/runs/shop"


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    runs = Runs(tmp_path)
    place = a_place(tmp_path / "shop")
    place.write_plan(place.plan())
    return TestClient(create_app(runs), headers={"Authorization": f"Bearer {runs.token}"})


@pytest.mark.parametrize("command", [command for command, _ in NOT_THERE], ids=str)
def test_what_cannot_be_done_is_answered_with_the_reason(
    client: TestClient, tmp_path: Path, command: commands.Command
) -> None:
    asked = {"kind": command.kind, "subject": command.subject, "to": command.to, "revision": command.revision}
    answer = client.post(f"{RUN}/commands", json=asked)
    assert (answer.status_code, len(answer.json()["errors"])) == (409, 1)
    assert commands.taken(tmp_path / "shop" / "commands", pytest.fail) == []


def test_a_command_is_answered_with_the_number_its_refusal_has(client: TestClient, tmp_path: Path) -> None:
    answer = client.post(f"{RUN}/commands", json={"kind": "drain", "subject": "h1", "revision": 1})
    (said,) = commands.taken(tmp_path / "shop" / "commands", pytest.fail)
    assert (answer.status_code, answer.json()) == (202, {"errors": [], "id": said.id})
    assert said.revision == 1


def test_what_undo_would_do_is_shown(client: TestClient, tmp_path: Path) -> None:
    assert client.get(f"{RUN}/undo").status_code == 409
    place = a_place(tmp_path / "shop")
    place.write_plan(place.plan().changed(with_unit(at_two_sites(), "second", max_instances=7), ()))
    shown = client.get(f"{RUN}/undo").json()
    assert (shown["revision"], shown["untouched"]) == (2, ["first", "second"])
    assert any("7" in change for change in shown["changes"])
    stale = client.post(f"{RUN}/commands", json={"kind": "undo", "revision": 1})
    assert (stale.status_code, "revision 2 runs" in stale.text) == (409, True)
    place.write_plan(replace(place.plan(), before=None))
    assert client.get(f"{RUN}/undo").status_code == 409
