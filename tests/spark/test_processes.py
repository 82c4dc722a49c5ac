"""Child processes: recorded, stopped with their descendants, and found again after a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from penstock.errors import ClusterError
from penstock.spark.processes import (
    ChildProcesses,
    ProcessRecord,
    end_orphans,
    is_running,
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
from penstock.spark.processes import ChildProcesses
folder = Path(sys.argv[1])
children = ChildProcesses("crashing", folder=folder)
record = children.start("child", [sys.executable, "-c", "import time; time.sleep(600)"], log=folder / "log")
print(record.pid, record.started_s, flush=True)
sys.stdin.read()
"""


def crashed_owner(folder: Path) -> tuple[int, float]:
    """A child whose owner was killed without a chance to stop it: its pid and start time."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pid, started_s = owner.stdout.readline().split()
    owner.kill()
    owner.wait()
    assert owner.stdin is not None
    owner.stdin.close()
    owner.stdout.close()
    return int(pid), float(started_s)


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


def test_the_orphan_of_a_crashed_owner_is_ended_at_the_next_start(tmp_path: Path) -> None:
    pid, started_s = crashed_owner(tmp_path)
    assert is_running(pid, started_s), "a crash leaves the child behind"

    ended = end_orphans(tmp_path)

    assert [record.pid for record in ended] == [pid]
    assert wait_until(lambda: not is_running(pid, started_s), 5)
    assert read_records(tmp_path) == []


def test_a_restarted_owner_adopts_what_still_runs(tmp_path: Path) -> None:
    pid, started_s = crashed_owner(tmp_path)
    assert end_orphans(tmp_path, keep=("crashing",)) == []

    heir = ChildProcesses("crashing", folder=tmp_path)
    assert {name: record.pid for name, record in heir.adopt().items()} == {"child": pid}
    assert end_orphans(tmp_path) == [], "it has an owner again"
    heir.stop_all()

    assert not is_running(pid, started_s)


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


def test_a_process_that_got_a_dead_ones_pid_is_never_touched(tmp_path: Path) -> None:
    bystander = subprocess.Popen(SLEEPER)
    try:
        other_start_s = psutil.Process(bystander.pid).create_time() - 100
        record = ProcessRecord("old", "old", bystander.pid, other_start_s, "token", None, 999_999_999, 1.0)
        group = ChildProcesses("old", folder=tmp_path)
        group._write(record)

        assert end_orphans(tmp_path) == []
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_signal_reaches_the_child_alone(tmp_path: Path) -> None:
    children = ChildProcesses("group", folder=tmp_path)
    children.start("child", SLEEPER, log=tmp_path / "log")
    children.signal("child", signal.SIGKILL)
    assert wait_until(lambda: not children.alive("child"), 5)
    assert children.exit_code("child") == -signal.SIGKILL
    children.stop_all()
    assert os.listdir(tmp_path) == ["log"]
