"""CPU readings of processes that look like executors, by the operating system's own count."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from penstock.machine.processes import wait_until
from penstock.spark.gateway.executors import Executor
from penstock.spark.session.readings import ExecutorProcesses

APPLICATION = "app-readings"
HALF_IDLE = """
import time
while True:
    begun_s = time.process_time()
    while time.process_time() - begun_s < 0.02: pass
    time.sleep(0.05)
"""


@pytest.fixture
def executor() -> Iterator[Executor]:
    """Something that looks like an executor of one core to whoever goes through the processes."""
    words = [sys.executable, "-c", HALF_IDLE, "--app-id", APPLICATION, "--executor-id", "1"]
    process = subprocess.Popen(words)
    try:
        yield Executor("1", "127.0.0.1", 1, 0.0, 0, 0, 0.0, 0)
    finally:
        process.kill()
        process.wait()


def test_an_executor_that_was_given_further_slots_is_read_as_a_share_of_all_of_them(
    executor: Executor,
) -> None:
    grown = replace(executor, cores=4)
    as_it_was, as_it_is = ExecutorProcesses(APPLICATION, 512), ExecutorProcesses(APPLICATION, 512)

    def both() -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float]]]:
        return as_it_was.readings([executor]), as_it_is.readings([grown])

    assert wait_until(lambda: all(both()), 20.0)
    time.sleep(1.0)  # what both read is the same second
    small, large = both()
    assert small["1"][0] > 0.05
    assert small["1"][0] / large["1"][0] == pytest.approx(4.0, rel=0.25)
