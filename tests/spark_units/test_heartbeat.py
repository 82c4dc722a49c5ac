"""Heartbeats: what goes over, what is refused, and that nobody gets in without the run's token."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigurationError
from penstock.fleet.deployment import InstanceState
from penstock.fleet.ports import SeenInstance, UnitReport, Wanted, WantedInstance
from penstock.fleet.units import UnitState
from penstock.monitoring import InstanceReading, Measurement
from penstock.plain import plain, to_json
from penstock.spark.unit import heartbeat
from penstock.spark.unit.heartbeat import (
    ADDRESS_FILE,
    LARGEST_BYTES,
    MOST_AT_ONCE,
    Beat,
    HeartbeatClient,
    HeartbeatServer,
    SupersededError,
)
from penstock.spark.unit.specification import UnitSpecification, topology_text

from .conftest import one_operator

WANTED = Wanted((WantedInstance("unit-1", "h1", 1.0, 512),), retire=("4",))
REPORT = UnitReport(
    "unit", 1.0, UnitState.RUNNING, "app-1", (SeenInstance("0", InstanceState.RUNNING, "127.0.0.11", 1.0),),
    Measurement("unit", 1.0, 1.0, 20, 10, waiting=3, readings=(InstanceReading("0", 0.5, None, 10),)),
    ("a notice",), "why it failed",
)  # fmt: skip
SPECIFICATION = UnitSpecification(
    "run",
    "unit",
    2,
    1,
    topology_text(one_operator()),
    "spark://x",
    "folder",
    WANTED,
    settings={"spark.a": "b"},
)


class Controller:
    """Hears beats; knows attempt 2 of one unit."""

    def __init__(self) -> None:
        self.heard: list[Beat] = []

    def hear(self, beat: Beat) -> Wanted:
        if beat.attempt != 2:
            raise SupersededError("attempt 2 at unit unit runs")
        self.heard.append(beat)
        return WANTED

    def specification(self, unit: str, attempt: int) -> UnitSpecification:
        if unit != "unit":
            raise ConfigurationError(f"unknown unit {unit!r}")
        return SPECIFICATION


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    found = Controller()
    server = HeartbeatServer(tmp_path, found.hear, found.specification)
    server.start()
    yield found
    server.stop()


def address(folder: Path) -> dict[str, str]:
    known: dict[str, str] = json.loads((folder / ADDRESS_FILE).read_text())
    return known


def ask(folder: Path, body: bytes, method: str = "POST", **headers: str) -> tuple[int, str]:
    host, _, port = address(folder)["url"].removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    try:
        connection.request(method, "/report" if method == "POST" else "/units/unit/2", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def with_token(folder: Path, body: bytes) -> tuple[int, str]:
    return ask(folder, body, Authorization=f"Bearer {address(folder)['token']}")


def test_a_report_goes_over_and_what_is_wanted_comes_back(tmp_path: Path, controller: Controller) -> None:
    client = HeartbeatClient(tmp_path, "unit", 2)
    assert client.specification(lambda _: True) == SPECIFICATION
    assert SPECIFICATION.read_topology() == one_operator()
    assert client.send(REPORT) == WANTED
    assert controller.heard == [Beat(2, REPORT)]


def test_a_controller_that_comes_back_elsewhere_is_found(tmp_path: Path) -> None:
    client, found = HeartbeatClient(tmp_path, "unit", 2), Controller()
    assert client.send(REPORT) is None, "nobody is there yet"
    for _ in range(2):
        server = HeartbeatServer(tmp_path, found.hear, found.specification)
        server.start()
        assert client.send(REPORT) == WANTED
        server.stop()
        assert client.send(REPORT) is None
    assert len(found.heard) == 2


def test_an_older_attempt_is_told_to_end(tmp_path: Path, controller: Controller) -> None:
    with pytest.raises(SupersededError, match="attempt 2"):
        HeartbeatClient(tmp_path, "unit", 1).send(REPORT)
    assert controller.heard == []


def test_the_token_is_for_the_owner_alone(tmp_path: Path, controller: Controller) -> None:
    mode = stat.S_IMODE((tmp_path / ADDRESS_FILE).stat().st_mode)
    assert mode == 0o600


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer"}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_nobody_gets_in_without_the_token(
    tmp_path: Path, controller: Controller, headers: dict[str, str], method: str
) -> None:
    code, _ = ask(tmp_path, to_json(Beat(2, REPORT)).encode(), method, **headers)
    assert code == 401
    assert controller.heard == []


def changed(**measured: Any) -> bytes:
    beat = plain(Beat(2, REPORT))
    beat["report"]["measurement"].update(measured)
    return json.dumps(beat).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"attempt": 2}',
        b"[" * 100_000,
        changed(processed=-1),
        changed(arrived=10**18),
        changed(waiting="many"),
        changed(duration_s=float("nan")),
        changed(latency_s=float("inf")),
        changed(readings=[{"instance": "0", "cpu_ratio": 10_000_000.0}]),
        changed(readings="all"),
        changed(unknown=1),
        changed(interval_s=None),
    ],
)
def test_what_is_no_report_is_refused_and_changes_nothing(
    tmp_path: Path, controller: Controller, body: bytes
) -> None:
    code, told = with_token(tmp_path, body)
    assert (code, told[:19]) == (400, "not a unit's report")
    assert controller.heard == []
    assert with_token(tmp_path, to_json(Beat(2, REPORT)).encode())[0] == 200, "it goes on"


def test_a_body_that_is_too_large_is_refused_unread(tmp_path: Path, controller: Controller) -> None:
    host, _, port = address(tmp_path)["url"].removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        token = address(tmp_path)["token"]
        connection.sendall(
            f"POST /report HTTP/1.0\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Length: {LARGEST_BYTES + 1}\r\n\r\n".encode()
        )
        assert b" 400 " in connection.recv(200)


def test_half_sent_requests_do_not_keep_others_out(tmp_path: Path, controller: Controller) -> None:
    host, _, port = address(tmp_path)["url"].removeprefix("http://").partition(":")
    slow = [socket.create_connection((host, int(port)), timeout=10) for _ in range(3 * MOST_AT_ONCE)]
    try:
        for connection in slow:
            connection.sendall(b"POST /report HTTP/1.0\r\nContent-Length: 100\r\n\r\nhalf")
        client = HeartbeatClient(tmp_path, "unit", 2)
        for _ in range(20):
            if client.send(REPORT) == WANTED:
                break
        assert controller.heard, "those who say nothing are dropped after a while, and others get through"
    finally:
        for connection in slow:
            connection.close()


def test_a_captured_report_is_not_heard_again(tmp_path: Path, controller: Controller) -> None:
    captured = to_json(Beat(2, REPORT, 5)).encode()
    assert with_token(tmp_path, captured)[0] == 200
    for body in (captured, to_json(Beat(2, REPORT, 4)).encode()):
        code, told = with_token(tmp_path, body)
        assert (code, "was heard before" in told) == (400, True)
    assert controller.heard == [Beat(2, REPORT, 5)]
    assert with_token(tmp_path, to_json(Beat(2, REPORT, 6)).encode())[0] == 200


def test_a_request_that_trickles_is_ended_as_a_whole(
    tmp_path: Path, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat._Server, "longest_request_s", 0.5)
    host, _, port = address(tmp_path)["url"].removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"POST /report HTTP/1.0\r\n")
        began_s = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() < began_s + 10.0:
                connection.sendall(b"x")
                time.sleep(0.1)
        assert time.monotonic() - began_s < 8.0, "it was cut off, though it never fell silent"


def test_a_driver_of_an_older_attempt_is_told_to_end_whatever_was_heard_since(
    tmp_path: Path, controller: Controller
) -> None:
    assert with_token(tmp_path, to_json(Beat(2, REPORT, 7)).encode())[0] == 200
    assert with_token(tmp_path, to_json(Beat(1, REPORT, 3)).encode())[0] == 409


def test_a_server_whose_thread_died_listens_again_at_the_same_address(tmp_path: Path) -> None:
    found = Controller()
    server = HeartbeatServer(tmp_path, found.hear, found.specification)
    server.start()
    try:
        assert not server.revive(), "it listens"
        server._server.shutdown()
        server._thread.join(5)
        assert not server.alive
        before = address(tmp_path)

        assert server.revive()
        assert HeartbeatClient(tmp_path, "unit", 2).send(REPORT) is not None
        assert address(tmp_path) == before
    finally:
        server.stop()
