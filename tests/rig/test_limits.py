"""CPU is read as a share of the host's own limit, and not of a core it does not have."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import pytest

from penstock.machine.processes import wait_until
from penstock.machine.quota import cores_allowed
from penstock.rig.availability import unavailable
from penstock.rig.rig import Rig, RigHost
from penstock.rig.testing import rig
from penstock.spark.gateway.executors import Executor
from penstock.spark.session.readings import ExecutorProcesses

__all__ = ["rig"]

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
APPLICATION = "app-of-the-limits-test"
BUSY = "while True: pass"
HALF_IDLE = """
import time
while True:
    end_s = time.monotonic() + 0.1
    begun_s = time.process_time()
    while time.process_time() - begun_s < 0.01 and time.monotonic() < end_s: pass
    time.sleep(0.1)
"""


def limited(rig: Rig, name: str, cores: float) -> RigHost:
    if "control groups, version" not in rig.status()["limits"]:
        pytest.skip(rig.status()["limits"])
    host = rig.host(name, cores=cores)
    assert host is not None
    return host


def executor_on(host: RigHost, number: str, program: str, folder: Path) -> Executor:
    """Something that looks like an executor to whoever goes through the processes."""
    words = [sys.executable, "-c", program, "--app-id", APPLICATION, "--executor-id", number]
    # As one word, or what enters the host would look like an executor too.
    host.start("bash", "-c", f"exec {shlex.join(words)}", log=folder / f"{number}.log")
    return Executor(number, host.address, 1, 0.0, 0, 0, 0.0, 0)


def read(executors: list[Executor]) -> dict[str, float]:
    """CPU ratios over a second, once all of them are seen."""
    processes = ExecutorProcesses(APPLICATION, 512)

    def all_seen() -> bool:
        processes._unseen.clear()
        processes.readings(executors)
        return len(processes._processes) == len(executors)

    assert wait_until(all_seen, 20.0)
    processes.readings(executors)
    time.sleep(1.5)
    return {name: cpu for name, (cpu, _) in processes.readings(executors).items()}


def test_an_executor_that_has_all_of_its_host_is_at_100_percent(rig: Rig, tmp_path: Path) -> None:
    host = limited(rig, "fifth", 0.2)
    limit = cores_allowed(host.pid)
    assert limit is not None
    assert limit[1] == pytest.approx(0.2)
    ratios = read([executor_on(host, "71", BUSY, tmp_path)])
    rig.remove("fifth")
    assert ratios["71"] > 0.85


def test_executors_of_one_host_share_its_limit(rig: Rig, tmp_path: Path) -> None:
    host = limited(rig, "shared", 0.4)
    one, other = executor_on(host, "72", BUSY, tmp_path), executor_on(host, "73", HALF_IDLE, tmp_path)
    ratios = read([one, other])
    rig.remove("shared")
    # 0.2 cores each, of which the second takes at most half: the first is given the rest and is full.
    assert ratios["72"] > 0.85
    assert ratios["73"] < 0.7
