"""Runs of a service come back: after a reboot, without their watcher, and amid others that cannot be read."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock.api import client
from penstock.api.runs import Runs
from penstock.machine.processes import wait_until
from penstock.runs import commands
from penstock.runs.folder import RunFolder
from penstock.trying import PAUSES
from tests.runs.controllers import TOPOLOGY, a_java, a_plan

PATIENCE_S = 150.0
NAME = "waiting"

pytestmark = pytest.mark.timeout(500)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PENSTOCK_ARCHIVE", "off")
    monkeypatch.setenv("PENSTOCK_JAVA", str(a_java(tmp_path / "java", "exec sleep 600")))


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    """A service's runs, with one that runs; at the end it is told to stop."""
    found = Runs(tmp_path / "runs")
    found.start(NAME, TOPOLOGY, None, None)
    place = RunFolder(found.root / NAME)
    assert wait_until(lambda: place.status() is not None, PATIENCE_S), told(found)
    yield found
    if place.result() is None:
        commands.put(place.commands, commands.Command("stop", by="the test"))
        assert wait_until(lambda: place.result() is not None, PATIENCE_S), told(found)
    assert wait_until(lambda: not found.is_running(NAME, place), PATIENCE_S)


def told(runs: Runs) -> str:
    return (runs.root / ".topologies" / NAME / "run.log").read_text()


def processes(runs: Runs) -> tuple[psutil.Process, psutil.Process]:
    """The watcher and the controller of the run."""
    place = RunFolder(runs.root / NAME)
    watcher, controller = (lock.path.read_text() for lock in (place.watch_lock(), place.lock()))
    return psutil.Process(int(watcher)), psutil.Process(int(controller))


def gone(*ended: psutil.Process) -> bool:
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in ended)


def comes_back(runs: Runs) -> None:
    """The service's next looks start the run again, and it works."""
    place = RunFolder(runs.root / NAME)
    assert place.result() is None, "it is not over"
    taken: list[str] = []
    assert wait_until(lambda: taken.extend(runs.take_up()) or taken == [NAME], PATIENCE_S, poll_s=0.2)

    def works() -> bool:
        return place.age_s() < min(before, 5.0) and place.lock().in_use()

    before = place.age_s()
    assert wait_until(works, PATIENCE_S), told(runs)
    assert runs.take_up() == [], "it runs: nobody starts it a second time"


def test_a_machine_that_shuts_down_in_order_ends_no_run_for_good(runs: Runs) -> None:
    both = processes(runs)
    for process in both:  # as the machine does to all that is left
        process.send_signal(signal.SIGTERM)
    assert wait_until(lambda: gone(*both), PATIENCE_S), told(runs)
    comes_back(runs)


def test_a_run_whose_watcher_was_killed_stops_in_order_and_is_taken_up_again(runs: Runs) -> None:
    watcher, controller = processes(runs)
    watcher.kill()
    assert wait_until(lambda: gone(watcher, controller), PATIENCE_S), told(runs)
    comes_back(runs)


def test_what_a_person_tells_to_stop_is_over(runs: Runs) -> None:
    place = RunFolder(runs.root / NAME)
    commands.put(place.commands, commands.Command("stop", by="a person"))
    assert wait_until(lambda: place.result() is not None, PATIENCE_S), told(runs)
    assert wait_until(lambda: not runs.is_running(NAME, place), PATIENCE_S)
    assert runs.take_up() == []


def test_a_run_that_ends_again_and_again_is_left_to_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs, now_s, started = Runs(tmp_path / "runs"), 0.0, []
    place = RunFolder.at(runs.root / NAME)
    (place.root / "plan.json").write_text(a_text(tmp_path))
    monkeypatch.setattr(Runs, "_launch", lambda _, name, *__: started.append(name))
    monkeypatch.setattr("penstock.api.runs.time.monotonic", lambda: now_s)
    runs.take_up()
    assert started == [NAME]
    runs.take_up()
    assert started == [NAME], "after a pause"
    for _ in range(3000):
        now_s += 1.0
        runs.take_up()
    assert len(started) == PAUSES.most
    assert "does not stay up" in caplog.text


def a_text(folder: Path) -> str:
    """The text of a plan."""
    place = RunFolder.at(folder / "another")
    a_plan(place)
    return (place.root / "plan.json").read_text()


def test_a_run_that_cannot_be_read_keeps_no_other_one_from_coming_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, started = Runs(tmp_path / "runs"), []
    for name in ("a-torn-one", "newer", NAME):
        place = RunFolder.at(runs.root / name)
        (place.root / "plan.json").write_text(a_text(tmp_path / name))
    (runs.root / "a-torn-one" / "result.json").write_text('{"records_in": ')
    (runs.root / "newer" / "plan.json").write_text(json.dumps({"name": "newer", "of a later version": 1}))
    monkeypatch.setattr(Runs, "_launch", lambda _, name, *__: started.append(name))
    assert runs.take_up() == [NAME] == started


def a_service(folder: Path, *given: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock.cli.main", "serve", str(folder), "--port", "0", *given]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_service_ends_although_somebody_listens(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    place = RunFolder.at(folder / NAME)
    (place.root / "plan.json").write_text(a_text(tmp_path))
    with place.lock():  # somebody runs it
        service = a_service(folder)
        try:
            assert wait_until(lambda: (folder / client.SERVICE_FILE).exists(), PATIENCE_S)
            known = client.service_at(folder)
            assert wait_until(known.answers, PATIENCE_S)
            address = known.url.removeprefix("http://").rstrip("/").split(":")
            with socket.create_connection((address[0], int(address[1])), 10.0) as listening:
                ask = f"GET /api/v1/runs/{NAME}/events HTTP/1.1\r\nHost: x\r\n"
                listening.sendall(f"{ask}Authorization: Bearer {known.token}\r\n\r\n".encode())
                assert b"200" in listening.recv(1000)
                service.send_signal(signal.SIGTERM)
                service.wait(PATIENCE_S / 3)
        finally:
            service.kill()
            service.communicate()
    assert not (folder / client.SERVICE_FILE).exists()


def test_a_frozen_service_keeps_the_one_that_stood_by_from_nothing(tmp_path: Path) -> None:
    folder, journal = tmp_path / "runs", f"sqlite:///{tmp_path / 'pair.sqlite'}"
    first = a_service(folder, "--journal", journal)
    second = None
    try:
        assert wait_until(lambda: (folder / client.SERVICE_FILE).exists(), PATIENCE_S)
        of_first = client.service_at(folder)
        assert wait_until(of_first.answers, PATIENCE_S)
        second = a_service(folder, "--journal", journal)
        os.kill(first.pid, signal.SIGSTOP)

        def serves() -> bool:
            known = client.service_at(folder)
            return known.process is not None and known.process.pid == second.pid and known.answers()

        assert wait_until(serves, PATIENCE_S), "the one that stood by serves"
        os.kill(first.pid, signal.SIGCONT)
        first.wait(PATIENCE_S)
        assert "another service has taken over" in str(first.stdout.read() if first.stdout else "")
        assert serves(), "the older one took nothing of its with it"
    finally:
        for each in filter(None, (first, second)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGCONT)
            each.kill()
            each.communicate()
