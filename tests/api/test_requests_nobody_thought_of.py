"""The API under requests that nobody thought of: no 5xx, no change without a token, nothing lost.

The OpenAPI document says what may be asked; schemathesis asks it, and much that may not be asked.
`PENSTOCK_REQUESTS=5000` asks that often in all; the suite asks a few hundred times.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from penstock.api.app import create_app
from penstock.api.runs import Runs
from penstock.controller.status import Status
from penstock.runs import commands
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from tests.runs.test_changes import a_pair

_FOLDER = tempfile.TemporaryDirectory(prefix="penstock-requests-")
RUNS = Runs(Path(_FOLDER.name) / "runs")
PLACE = RunFolder.at(RUNS.root / "shop")
PLACE.write_plan(RunPlan.of(a_pair(), "shop"))
PLACE.write_status(Status("shop", 1.0, (), (), "3", "EUR"))
APP = create_app(RUNS)
TOKEN = {"Authorization": f"Bearer {RUNS.token}"}
SCHEMA = schemathesis.openapi.from_dict(APP.openapi())
SCHEMA.app = APP
# A stream of events does not end while the run does not.
ASKABLE = SCHEMA.exclude(path_regex="/events$")
ENDPOINTS = len(list(ASKABLE.get_all_operations()))
ASKED = -(-int(os.environ.get("PENSTOCK_REQUESTS", "180")) // ENDPOINTS)
COUNTED = {"with the token": 0, "without": 0}


@pytest.fixture(scope="module", autouse=True)
def _counted() -> Iterator[None]:
    """`PENSTOCK_REQUESTS_TO` names a file for how many requests there were in the end."""
    yield
    if file := os.environ.get("PENSTOCK_REQUESTS_TO"):
        Path(file).write_text(json.dumps(COUNTED))


@ASKABLE.parametrize()
@settings(max_examples=ASKED, deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_no_request_is_answered_with_a_5xx_and_none_is_heard_without_the_token(case) -> None:
    case.path_parameters = {**(case.path_parameters or {})}
    if "name" in case.path_parameters and len(str(case.path_parameters["name"])) % 2:
        case.path_parameters["name"] = "shop"
    answer = case.call(headers=TOKEN)
    COUNTED["with the token"] += 1
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json()["errors"], "a refusal says why"
    commands.taken(PLACE.commands, pytest.fail)
    assert case.call(headers={"Authorization": "Bearer wrong"}).status_code == 401
    COUNTED["without"] += 1
    assert commands.taken(PLACE.commands, pytest.fail) == []
    assert RUNS.find("shop") is not None
    assert PLACE.plan() == RunPlan.of(a_pair(), "shop")
