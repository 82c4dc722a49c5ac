"""One controller a run: a second one is refused, an older one ends itself, one without room comes back."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.clock import WallClock
from penstock.controller.journal import Journal
from penstock.errors import ClusterError
from penstock.fleet.ports import Submission, UnitReport, Wanted
from penstock.fleet.units import UnitState
from penstock.machine.locks import LockHeldError
from penstock.machine.processes import ChildProcesses, wait_until
from penstock.runs.folder import RunFolder
from penstock.runs.run import Run
from penstock.runs.service import EXIT_TAKEN_OVER, _watch, run_topology
from penstock.spark.drivers import Drivers
from penstock.spark.plane import SparkPlane
from penstock.spark.unit.driver import EXIT_SUPERSEDED
from penstock.spark.unit.heartbeat import Beat, HeartbeatServer, SupersededError
from penstock.topology.file import parse_topology
from tests.runs.controllers import TOPOLOGY, UNIT, a_java, a_plan

PATIENCE_S = 150.0

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PENSTOCK_JAVA", str(a_java(tmp_path / "java", "exec sleep 600")))


def drivers_of(place: RunFolder) -> Drivers:
    return Drivers(place.plan().label, place.units)


# -- a second one -----------------------------------------------------------------------------------------


def test_a_second_controller_of_a_run_is_refused_and_the_first_one_is_not_fenced(tmp_path: Path) -> None:
    place = RunFolder.at(tmp_path / "run")
    plan = a_plan(place)
    with place.lock(), Journal(place.journal, plan.name) as first:
        assert first.claim() == 1
        with pytest.raises(LockHeldError, match=rf"the run in .* is in use by process {os.getpid()}"):
            Run(plan, place).__enter__()
        assert first.claimed() == (1, 0), "whoever is refused has claimed nothing"
        assert not drivers_of(place).adopt()


def test_a_second_watcher_of_a_run_is_refused_before_it_writes_or_starts_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_JAVA", str(a_java(tmp_path / "another")))  # nothing waits for it
    place = RunFolder.at(tmp_path / "run")
    with place.lock():
        with pytest.raises(LockHeldError, match=rf"the run in .* is in use by process {os.getpid()}"):
            run_topology(parse_topology(TOPOLOGY), place.root, duration_s=1.0)
        assert place.earlier_plan() is None
        assert not place.log.exists()


# -- an older one -----------------------------------------------------------------------------------------


def test_a_controller_whose_run_was_taken_over_ends_itself_and_leaves_all_that_runs_alone(
    tmp_path: Path,
) -> None:
    place = RunFolder.at(tmp_path / "run")
    plan = a_plan(place)
    watched, until_s = ChildProcesses(f"{plan.label}-controller"), time.monotonic() + PATIENCE_S

    def taken_over() -> None:
        """Another controller takes the run once it goes on."""
        assert wait_until(lambda: place.status() is not None, PATIENCE_S)
        with Journal(place.journal, plan.name) as newer:
            newer.claim()

    def too_long() -> bool:
        assert time.monotonic() < until_s, place.log.read_text()
        return False

    newer = threading.Thread(target=taken_over)
    newer.start()
    try:
        with pytest.raises(ClusterError, match=r"another controller has taken the run in .* over"):
            _watch(watched, place, None, too_long, 120.0)
        assert watched.exit_code("controller") == EXIT_TAKEN_OVER
        assert "this one leaves everything to it" in place.log.read_text()
        assert drivers_of(place).adopt() == [UNIT], "its driver runs on: it is the newer one's now"
    finally:
        newer.join()
        watched.stop_all(5.0)
        left = drivers_of(place)
        left.adopt()
        left.stop(grace_s=0.0)


@pytest.fixture
def plane(tmp_path: Path) -> SparkPlane:
    """A plane that knows attempt 2 at its unit."""
    place = RunFolder.at(tmp_path / "run")
    a_plan(place)
    found = SparkPlane([UNIT], drivers_of(place), pytest.fail, WallClock())
    found.take_up(Submission(UNIT, 1, 2, Wanted()))
    return found


def a_beat(attempt: int) -> Beat:
    return Beat(attempt, UnitReport(UNIT, 1.0, UnitState.RUNNING, f"app-{attempt}", ()))


def test_the_plane_hears_the_newest_attempt_alone(plane: SparkPlane) -> None:
    for other in (1, 3):
        with pytest.raises(SupersededError, match=f"attempt 2 at unit unit runs, this is {other}"):
            plane.hear(a_beat(other))
        with pytest.raises(SupersededError, match=f"attempt 2 at unit unit runs, this is {other}"):
            plane.specification(UNIT, other)
    assert plane.last_report(UNIT) is None
    assert plane.reports(1.0) == ([], [])
    plane.hear(a_beat(2))
    assert [report.application for report in plane.reports(1.0)[0]] == ["app-2"]


def test_a_driver_of_an_older_attempt_ends_itself_before_it_touches_anything(
    tmp_path: Path, plane: SparkPlane
) -> None:
    folder = tmp_path / "run"
    server = HeartbeatServer(folder, plane.hear, plane.specification)
    server.start()
    try:
        command = [sys.executable, "-m", "penstock.spark.unit.driver", str(folder), UNIT, "1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    finally:
        server.stop()
    assert done.returncode == EXIT_SUPERSEDED, done.stderr
    assert "attempt 2 at unit unit runs, this is 1; this one ends" in done.stderr
    assert not (folder / "units" / UNIT).exists()


# -- one without room -------------------------------------------------------------------------------------


def fill(file: Path) -> None:
    """Write until there is no room for a byte."""
    with file.open("wb", buffering=0) as ballast:
        for size in (65_536, 512, 1):
            try:
                while ballast.write(b"x" * size):
                    pass
            except OSError:
                continue


def test_a_full_disk_is_waited_out_by_a_controller_that_starts_and_by_one_that_runs(
    tmp_path: Path, small_disk: Path
) -> None:
    place = RunFolder.at(small_disk / "run")
    plan = a_plan(place)
    place.log.symlink_to(tmp_path / "controller.log")  # where there is room
    ballast = small_disk / "ballast"
    fill(ballast)
    watched, until_s = ChildProcesses(f"{plan.label}-controller"), time.monotonic() + PATIENCE_S
    seen: list[tuple[int, float]] = []
    """The controller's process, and the instant of its newest status."""

    def goes_on() -> bool:
        status = place.status()
        if status is None or (seen and status.at_s == seen[-1][1]):
            return False
        seen.append((watched.records["controller"].pid, status.at_s))
        return True

    steps: list[tuple[Callable[[], bool], Callable[[], object]]] = [
        (lambda: place.log.read_text().count("; the controller is started again") >= 2, ballast.unlink),
        (goes_on, lambda: fill(ballast)),
        (lambda: "status and sources: [Errno 28]" in place.log.read_text(), ballast.unlink),
        (goes_on, lambda: None),
    ]

    def all_done() -> bool:
        assert time.monotonic() < until_s, (len(steps), place.log.read_text())
        if steps[0][0]():
            steps.pop(0)[1]()
        return not steps

    try:
        with pytest.raises(KeyboardInterrupt):  # how a watcher ends that is told to
            _watch(watched, place, None, all_done, 120.0)
        first, last = seen
        assert first[0] == last[0], "it was the same controller all the time"
    finally:
        watched.stop_all(30.0)
        left = drivers_of(place)
        left.adopt()
        left.stop(grace_s=0.0)
