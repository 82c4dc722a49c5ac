"""Slots added to a running executor, and taken away again: real tasks show it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.machine.processes import wait_until
from penstock.spark.gateway.executors import ExecutorControl
from penstock.spark.gateway.slots import ExecutorSlots

pytestmark = pytest.mark.spark


def most_at_once(spark: Any, tasks: int) -> int:
    """How many tasks of a job ran at the same time, at most."""

    def work(part: Any) -> Any:
        began_s = time.time()
        time.sleep(0.6)
        yield began_s, time.time()

    spans = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(work).collect()
    return max(sum(begin <= at < end for begin, end in spans) for at, _ in spans)


def test_a_running_executor_takes_more_tasks_at_once_and_then_fewer(spark: Any) -> None:
    control = ExecutorControl(spark)
    control.set_target(1)
    assert wait_until(lambda: len(control.executors()) == 1, 60.0)
    (executor,) = control.executors()
    slots, present = ExecutorSlots(spark), frozenset({executor.id})
    assert most_at_once(spark, 4) == 1
    slots.bring_to({executor.id: 2}, present)
    slots.bring_to({executor.id: 2}, present)  # saying it again changes nothing
    most_at_once(spark, 3)  # Python starts a worker for each further slot
    assert most_at_once(spark, 6) == 3
    control.further_cores = slots.cores
    assert [e.cores for e in control.executors()] == [executor.cores + 2], "what it can have grew with it"
    slots.bring_to({}, present)
    assert most_at_once(spark, 4) == 1
    (same,) = control.executors()
    assert (same.id, same.cores) == (executor.id, executor.cores), "nothing was started"
