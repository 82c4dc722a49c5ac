"""Child processes: recorded, stopped with their descendants, and found again after a crash."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.errors import ClusterError
from penstock.machine.processes import (
    ChildProcesses,
    ProcessIdentity,
    ProcessRecord,
    end_orphans,
    read_records,
    wait_until,
)

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
PARENT = [
    sys.executable,
    "-c",
    "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    "print('ready', flush=True); time.sleep(600)",
]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True);"
    "time.sleep(600)",
]
OWNER = """
import os, sys
from pathlib import Path
from penstock.machine.processes import ChildProcesses, kept_by
folder = Path(sys.argv[1])
if int(sys.argv[2]):
    kept_by(int(sys.argv[2]))
children = ChildProcesses("crashing", folder=folder)
record = children.start("child", [sys.executable, "-c", "import time; time.sleep(600)"], log=folder / "log")
print(record.pid, flush=True)
sys.stdin.read()
"""


def crashed_owner(folder: Path, keeper: int = 0) -> ProcessIdentity:
    """A child whose owner was killed without a chance to stop it."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder), str(keeper)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    child = ProcessIdentity.of(int(owner.stdout.readline()))
    owner.kill()
    owner.wait()
    assert owner.stdin is not None
    owner.stdin.close()
    owner.stdout.close()
    return child


def test_a_child_and_its_descendants_are_gone_after_stop(tmp_path: Path) -> None:
    children = ChildProcesses("group", folder=tmp_path)
    record = children.start("parent", PARENT, log=tmp_path / "log")
    assert wait_until(lambda: "ready" in (tmp_path / "log").read_text(), 20)
    family = [record.pid, *(p.pid for p in psutil.Process(record.pid).children(recursive=True))]
    assert len(family) == 2

    children.stop("parent")

    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in family)
    assert read_records(tmp_path) == []


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    children = ChildProcesses("group", folder=tmp_path)
    record = children.start("stubborn", STUBBORN, log=tmp_path / "log")
    assert wait_until(lambda: "ready" in (tmp_path / "log").read_text(), 20)

    children.stop("stubborn", grace_s=0.2)

    assert not record.alive


def test_starting_a_running_child_again_changes_nothing(tmp_path: Path) -> None:
    children = ChildProcesses("group", folder=tmp_path)
    first = children.start("child", SLEEPER, log=tmp_path / "log")
    assert children.start("child", SLEEPER, log=tmp_path / "log") == first
    children.stop_all()
    children.stop_all()


def test_a_program_that_does_not_exist_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="could not start ghost"):
        ChildProcesses("group", folder=tmp_path).start("ghost", ["/no/such/program"], log=tmp_path / "log")


def test_what_a_crashed_owner_left_is_spared_while_somebody_is_there_who_starts_it_again(
    tmp_path: Path,
) -> None:
    child = crashed_owner(tmp_path, keeper=os.getpid())
    try:
        assert end_orphans(tmp_path) == []
        assert child.alive
        children = ChildProcesses("crashing", folder=tmp_path)
        assert list(children.adopt()) == ["child"], "the owner that was started again goes on with it"
    finally:
        children.stop_all()


def test_the_orphan_of_a_crashed_owner_is_ended_at_the_next_start(tmp_path: Path) -> None:
    child = crashed_owner(tmp_path)
    assert child.alive, "a crash leaves the child behind"

    ended = end_orphans(tmp_path)

    assert [record.process for record in ended] == [child]
    assert wait_until(lambda: not child.alive, 5)
    assert read_records(tmp_path) == []


def test_a_restarted_owner_adopts_what_still_runs(tmp_path: Path) -> None:
    child = crashed_owner(tmp_path)
    assert end_orphans(tmp_path, keep=("crashing",)) == []

    heir = ChildProcesses("crashing", folder=tmp_path)
    assert {name: record.process for name, record in heir.adopt().items()} == {"child": child}
    assert end_orphans(tmp_path) == [], "it has an owner again"
    heir.stop_all()

    assert not child.alive


def test_the_child_of_a_living_owner_and_a_persistent_one_are_left_alone(tmp_path: Path) -> None:
    mine = ChildProcesses("mine", folder=tmp_path)
    lasting = ChildProcesses("lasting", folder=tmp_path, persistent=True)
    records = [group.start("child", SLEEPER, log=tmp_path / "log") for group in (mine, lasting)]
    try:
        assert end_orphans(tmp_path) == []
        assert all(record.alive for record in records)
    finally:
        mine.stop_all()
        lasting.stop_all()


@pytest.mark.parametrize("other", [{"start_ticks": 1}, {"boot": "an earlier boot"}])
def test_a_process_that_got_a_dead_ones_pid_is_never_touched(tmp_path: Path, other: dict[str, Any]) -> None:
    bystander = subprocess.Popen(SLEEPER)
    try:
        earlier = replace(ProcessIdentity.of(bystander.pid), **other)
        owner = ProcessIdentity(999_999_999, 1, earlier.boot)
        ChildProcesses("old", folder=tmp_path)._write(
            ProcessRecord("old", "old", earlier, "token", None, owner)
        )

        assert not earlier.alive
        assert end_orphans(tmp_path) == []
        assert bystander.poll() is None
        assert read_records(tmp_path) == [], "the record is of no use any more"
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize("step_s", [1.0, -3600.0, 365 * 86400.0])
def test_a_step_of_the_clock_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    """Linux tells the boot's wall-clock time anew after a step, so every start in wall-clock time moves."""
    group = ChildProcesses("group", folder=tmp_path)
    record = group.start("child", SLEEPER, log=tmp_path / "log")
    try:
        told, now_s, before_s = psutil.boot_time(), time.time, psutil.Process(record.pid).create_time()
        monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: told + step_s)
        monkeypatch.setattr(time, "time", lambda: now_s() + step_s)
        assert psutil.Process(record.pid).create_time() == pytest.approx(before_s + step_s), "it is stepped"

        assert record.alive
        assert not record.orphaned
        assert read_records(tmp_path) == [record]
        assert end_orphans(tmp_path) == [], "its owner lives"
        assert group.alive("child")
        assert ChildProcesses("group", folder=tmp_path).adopt() == {"child": record}
    finally:
        group.stop_all()
    assert not record.alive


def test_a_zombie_does_not_run() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    identity = ProcessIdentity.of(child.pid)
    assert wait_until(lambda: not identity.alive, 20), "it ended and was not waited for"
    assert psutil.pid_exists(child.pid)
    child.wait()


def test_records_are_for_their_owner_alone(tmp_path: Path) -> None:
    place = tmp_path / "records"
    place.mkdir(mode=0o755)
    group = ChildProcesses("group", folder=place)
    group.start("child", SLEEPER, log=tmp_path / "log")
    try:
        (file,) = place.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    finally:
        group.stop_all()


def test_a_signal_reaches_the_child_alone(tmp_path: Path) -> None:
    children = ChildProcesses("group", folder=tmp_path)
    children.start("child", SLEEPER, log=tmp_path / "log")
    children.signal("child", signal.SIGKILL)
    assert wait_until(lambda: not children.alive("child"), 5)
    assert children.exit_code("child") == -signal.SIGKILL
    children.stop_all()
    assert os.listdir(tmp_path) == ["log"]


def test_a_child_that_cannot_be_written_down_does_not_run(tmp_path: Path) -> None:
    records = tmp_path / "records"
    children = ChildProcesses("group", folder=records)
    records.rmdir()
    started = {process.pid for process in psutil.Process().children()}

    with pytest.raises(ClusterError, match="its record cannot be written"):
        children.start("child", SLEEPER, log=tmp_path / "log")
    assert {process.pid for process in psutil.Process().children()} <= started
    assert children.records == {}
