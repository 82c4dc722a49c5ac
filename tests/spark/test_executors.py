"""Executors: an exact number, added by target, retired by id, replaced when they die."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from penstock.machine.processes import wait_until
from penstock.spark.gateway.executors import ExecutorControl
from penstock.spark.gateway.warming import ROUNDS, warm
from penstock.spark.managers.local_cluster import LocalCluster

pytestmark = pytest.mark.spark


@pytest.fixture
def control(spark: Any) -> Iterator[ExecutorControl]:
    """The control of the shared session; one executor again afterwards."""
    control = ExecutorControl(spark, grace_s=5.0)
    control.set_target(1)
    assert settled(control, 1)
    yield control
    control.set_target(1)
    control.retire([executor.id for executor in control.executors()[1:]], grace_s=0.0)
    assert settled(control, 1)


def settled(control: ExecutorControl, number: int) -> bool:
    """Whether so many executors are registered before long."""

    def there() -> bool:
        control.tick()
        return len(control.executors()) == number and not control.retiring

    return wait_until(there, 120)


def test_a_session_begins_with_exactly_the_executors_asked_for(control: ExecutorControl) -> None:
    assert control.scalability().possible
    assert len(control.executors()) == 1


def test_the_target_adds_executors_and_retiring_by_id_removes_that_very_one(
    control: ExecutorControl, local_cluster: LocalCluster, spark: Any
) -> None:
    control.set_target(2)
    assert settled(control, 2)
    oldest, newest = control.executors()
    places = {place.executor: place.host for place in local_cluster.executors()}
    assert places == {oldest.id: "host-1", newest.id: "host-1"}
    assert local_cluster.host_at(newest.host) == "host-1"

    control.set_target(1)
    assert len(control.executors()) == 2, "lowering the target stops nothing"
    control.retire([oldest.id])
    assert settled(control, 1)
    assert control.executors()[0].id == newest.id
    assert spark.range(100).count() == 100


def test_an_executor_is_warmed_by_tasks_on_that_very_one(control: ExecutorControl, spark: Any) -> None:
    control.set_target(2)
    assert settled(control, 2)
    before, newest = control.executors()
    warm(spark, newest)
    assert wait_until(lambda: control.executors()[1].tasks_done >= ROUNDS, 60)
    assert control.executors()[0].tasks_done == before.tasks_done


def test_a_killed_executor_is_replaced_because_the_target_stands(
    control: ExecutorControl, spark: Any
) -> None:
    (victim,) = control.executors()
    application = spark.sparkContext.applicationId
    pids = [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if {"--executor-id", victim.id, "--app-id", application} <= set(process.info["cmdline"] or ())
    ]
    assert len(pids) == 1
    os.kill(pids[0], signal.SIGKILL)
    assert wait_until(lambda: [e.id for e in control.executors()] not in ([victim.id], []), 120)
    assert spark.range(100).count() == 100


def test_an_executor_that_does_not_finish_in_time_is_killed(control: ExecutorControl, spark: Any) -> None:
    control.set_target(2)
    assert settled(control, 2)
    long_one = spark.sparkContext.parallelize(range(2), 2)
    worker = threading.Thread(target=_count_slowly, args=(long_one,), daemon=True)
    worker.start()
    assert wait_until(lambda: sum(e.tasks_active for e in control.executors()) == 2, 60)
    busy = control.executors()[0].id
    control.set_target(1)
    control.retire([busy], grace_s=1.0)
    assert settled(control, 1)
    assert control.executors()[0].id != busy
    spark.sparkContext.cancelAllJobs()
    worker.join(60)


def _count_slowly(rows: Any) -> None:
    """A job of one long task a partition, which ends by being cancelled."""

    def half_a_minute(partition: Any) -> Any:
        time.sleep(30)
        return partition

    with contextlib.suppress(Exception):
        rows.mapPartitions(half_a_minute).count()
