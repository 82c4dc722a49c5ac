"""The page's server: the token, loopback alone, live events, commands."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.controller.journal import Journal
from penstock.controller.mode import Mode
from penstock.machine.bounded import BoundedServer
from penstock.machine.processes import wait_until
from penstock.page.server import PageServer
from penstock.page.shown import Shown
from tests.page.runs import PacedSimulation, a_finished_run, many_units


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    run = a_finished_run(tmp_path_factory.mktemp("page") / "run", minutes=20)
    with PageServer([Shown(run)]) as server:
        yield server


def asked(
    server: PageServer, path: str, *, token: str | None = "own", method: str = "GET", body: str | None = None,
    **headers: str,
) -> tuple[int, Any]:  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    given = {} if token is None else {"Authorization": f"Bearer {server.token if token == 'own' else token}"}
    connection.request(method, path, body, {**given, **headers})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    kind = answer.headers.get_content_type()
    return answer.status, json.loads(content) if kind == "application/json" else content


def test_data_needs_the_token_and_files_do_not(server: PageServer) -> None:
    assert asked(server, "/data/films", token=None)[0] == 401
    assert asked(server, "/data/films", token="wrong")[0] == 401
    assert asked(server, "/data/films")[0] == 200
    status, page = asked(server, "/", token=None)
    assert status == 200
    assert b"Penstock" in page
    assert server.token.encode() not in page


def test_the_page_names_no_other_host(server: PageServer) -> None:
    static = Path("src/penstock/page/static")
    root = Path(__file__).parents[2] / static
    for path in [*root.glob("*.js"), *root.glob("*.css"), *root.glob("*.html")]:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, path
        assert "https://" not in text, path
        assert asked(server, f"/{path.name}", token=None)[0] == 200


def test_another_host_name_a_way_out_of_the_folder_and_a_strange_question_are_refused(
    server: PageServer,
) -> None:
    assert asked(server, "/", Host="evil.example")[0] == 403
    for path in ("/../server.py", "/%2e%2e/server.py", "/vendor", "/nothing.js"):
        assert asked(server, path)[0] == 404
    for path in ("/data/nothing", "/data/moment?at=x", "/data/money?run=7", "/data/moment"):
        assert asked(server, path)[0] == 404
    assert asked(server, "/data/forecast?unit=nobody&at=1")[0] == 400
    assert asked(server, "/data/tell", method="POST", body='{"kind": "pause"}')[0] == 400


@pytest.mark.parametrize(
    "begun",
    [
        b"GET / HT",
        b"POST /data/tell HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_who_does_not_end_a_request_is_cut_off_and_keeps_no_thread(
    server: PageServer, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(BoundedServer, "longest_request_s", 0.5)
    before = threading.active_count()
    slow = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(8)]
    for connection in slow:
        connection.sendall(begun)
    for connection in slow:
        with contextlib.suppress(ConnectionError):
            while connection.recv(65_536):
                pass
        connection.close()
    assert wait_until(lambda: threading.active_count() <= before, 10)
    assert asked(server, "/data/films")[0] == 200


def test_a_request_without_an_end_is_refused_unread(server: PageServer) -> None:
    for length in ("-1", str(2**40)):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(
                f"POST /data/tell HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode()
            )
            assert b" 413 " in connection.recv(200)


def test_it_listens_on_loopback_alone(server: PageServer) -> None:
    own = [c for c in psutil.Process().net_connections("tcp") if c.laddr and c.laddr.port == server.port]
    assert {c.laddr.ip for c in own if c.status == psutil.CONN_LISTEN} == {"127.0.0.1"}


def events(server: PageServer, after: int, most: int, seconds: float = 20.0) -> list[dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=seconds)
    connection.request(
        "GET", f"/data/live?after={after}", headers={"Authorization": f"Bearer {server.token}"}
    )
    answer = connection.getresponse()
    found: list[dict[str, Any]] = []
    until = time.monotonic() + seconds
    while len(found) < most and time.monotonic() < until:
        line = answer.readline()
        if not line:
            break
        if line.startswith(b"data: "):
            found.append(json.loads(line[6:]))
    connection.close()
    return found


def test_a_run_that_goes_on_is_told_as_it_goes_and_so_is_its_end(tmp_path: Path) -> None:
    with (
        PacedSimulation(tmp_path / "run", many_units(2), ticks=60, pace_s=0.05) as simulation,
        PageServer([Shown(simulation.folder.root)]) as server,
    ):
        _, films = asked(server, "/data/films")
        first = films[0]["delta"]
        news = events(server, first["tick"], 10_000)
    ticks = first["ticks"]["at"] + [at for one in news for at in one["delta"]["ticks"]["at"]]
    assert len(set(ticks)) >= 60
    assert [one["live"] for one in news][-1] is False
    assert news[-1]["result"]["records_in"] > 0


def test_a_command_reaches_the_controllers_folder(tmp_path: Path) -> None:
    with (
        PacedSimulation(tmp_path / "run", many_units(1), ticks=100_000, pace_s=0.05) as simulation,
        PageServer([Shown(simulation.folder.root)]) as server,
    ):
        order = json.dumps({"kind": "pause", "reason": "night"})
        assert asked(server, "/data/tell", token=None, method="POST", body=order)[0] == 401
        assert simulation.running_controller().mode is Mode.ACT
        status, told = asked(server, "/data/tell", method="POST", body=order)
        assert status == 200, told
        assert asked(server, "/data/tell", method="POST", body='{"kind": "explode"}')[0] == 400
        assert wait_until(lambda: simulation.running_controller().mode is Mode.PAUSE, 20.0)
        assert asked(server, "/data/tell", method="POST", body='{"kind": "advise"}')[0] == 200
        assert wait_until(lambda: simulation.running_controller().mode is Mode.ADVISE, 20.0)
    with Journal(simulation.folder.journal, simulation.topology.name) as journal:
        assert [row["text"] for row in journal.rows("notice")] == [
            "told from outside: pause, told by the page: night",
            "told from outside: advise, told by the page",
        ]


def test_a_hundred_watching_pages_hear_everything_for_little(tmp_path: Path) -> None:
    with (
        PacedSimulation(tmp_path / "run", many_units(9), ticks=100_000, pace_s=1.0) as simulation,
        PageServer([Shown(simulation.folder.root)]) as server,
    ):
        tick = asked(server, "/data/films")[1][0]["delta"]["tick"]
        heard: list[int] = []
        watchers = [
            threading.Thread(target=lambda: heard.append(len(events(server, tick, 4, 30.0))))
            for _ in range(100)
        ]
        for one in watchers:
            one.start()
        for one in watchers:
            one.join(60)
    assert heard.count(4) == 100


def test_the_command_ends_by_ctrl_c_even_where_a_shell_started_it_in_its_background(tmp_path: Path) -> None:
    run = a_finished_run(tmp_path / "run", minutes=5)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a shell does for what it starts with &
    try:
        command = [sys.executable, "-u", "-m", "penstock.cli.main", "page", str(run)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            assert process.stdout is not None
            assert "http://127.0.0.1:" in process.stdout.readline()
            assert "Ctrl-C ends it" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()
