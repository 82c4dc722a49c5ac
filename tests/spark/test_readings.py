"""CPU readings of processes that look like executors, by the operating system's own count."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import psutil
import pytest

from penstock.machine.processes import wait_until
from penstock.monitoring import InstanceReading
from penstock.spark.gateway.executors import Executor
from penstock.spark.session.readings import ExecutorProcesses, with_records

APPLICATION = "app-readings"
HALF_IDLE = """
import time
while True:
    begun_s = time.process_time()
    while time.process_time() - begun_s < 0.02: pass
    time.sleep(0.05)
"""


BUSY = "while True: pass"
BUSY_ONCE_TOLD = f"""
import subprocess, sys, time
sys.stdin.readline()
subprocess.Popen([sys.executable, "-c", {BUSY!r}])
time.sleep(60)
"""


@contextmanager
def an_executor(code: str) -> Iterator[tuple[Executor, subprocess.Popen[bytes]]]:
    """Something that looks like an executor of one core to whoever goes through the processes."""
    words = [sys.executable, "-c", code, "--app-id", APPLICATION, "--executor-id", "1"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        try:
            yield Executor("1", "127.0.0.1", 1, 0.0, 0, 0, 0.0, 0), process
        finally:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()


@pytest.fixture
def executor() -> Iterator[Executor]:
    """An executor that is busy now and then."""
    with an_executor(HALF_IDLE) as (found, _):
        yield found


def test_a_worker_born_after_its_executor_was_found_is_read_within_seconds() -> None:
    with an_executor(BUSY_ONCE_TOLD) as (young, process):
        processes = ExecutorProcesses(APPLICATION, 512)

        def cpu() -> float | None:
            return processes.readings([young]).get("1", (None, 0.0))[0]

        assert wait_until(lambda: cpu() == pytest.approx(0.0, abs=0.05), 20.0)
        assert process.stdin is not None
        process.stdin.close()  # tells it
        assert wait_until(lambda: (cpu() or 0.0) > 0.05, 15.0)


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


def test_records_are_ascribed_to_executors_by_the_time_their_tasks_took() -> None:
    readings = tuple(InstanceReading(name, 0.5) for name in ("1", "2", "3"))
    found = with_records(readings, {"1": 9.0, "2": 1.0, "gone": 5.0}, 1000)
    assert [reading.executed for reading in found] == [900, 100, 0]
    assert [reading.cpu_ratio for reading in found] == [0.5, 0.5, 0.5]
    assert [reading.executed for reading in with_records(readings, {"1": 1e6, "2": 0.1}, 10)] == [10, 1, 0]
    assert with_records(readings, {}, 1000) == readings
    assert with_records(readings, {"1": 1.0}, 0) == readings
