"""Two units with Kafka between them on a real local cluster: an executor and the broker are killed."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from decimal import Decimal

import psutil
import pytest

from penstock.channels.broker import read_record
from penstock.channels.kafka_jars import broker_jars
from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder
from penstock.machine.processes import wait_until
from penstock.topology.model import Channel, Choice, HostFlavour, LoopSettings, Operator, Sink, Site, Unit

from .conftest import a_topology
from .test_cluster_run import RunInProcess, Trickle, goes_on, results

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

FIXED = Choice("fixed")

TOPOLOGY = replace(
    a_topology(
        [
            Operator("double", ("numbers",), "functions:double", schema="number long, twice long"),
            Operator("kept", ("double",), "sql:SELECT number, twice FROM {double}"),
        ],
        [Sink("out", ("kept",), "jsonl:out")],
        [Unit("unit", ("double",), policy=FIXED), Unit("second", ("kept",), policy=FIXED)],
        channels=(Channel("broker", "kafka", {"partitions": 2, "deduplicate": "1 h"}),),
    ),
    sites=(
        Site(
            "here",
            Choice("local"),
            flavours=(HostFlavour("small", 2.0, 2048, Decimal("0.01")),),
            max_hosts=1,
        ),
    ),
    loop=LoopSettings(monitoring_s=1.0, provisioning_s=2.0),
)


@pytest.fixture(scope="module")
def run(kafka_jars, tmp_path_factory):
    if isinstance(kafka_jars, str):
        pytest.skip(f"Kafka's connector cannot be fetched: {kafka_jars}")
    try:
        broker_jars(cache_folder("jars"))
    except ClusterError as error:
        pytest.skip(f"the broker's jars cannot be fetched: {error}")
    folder = tmp_path_factory.mktemp("run")
    started = RunInProcess(TOPOLOGY, folder, f"test-kafka-{os.getpid()}", own_broker=True)
    started.trickle = Trickle(folder, 20.0)
    try:
        started.wait(lambda: len(results(folder)) > 0, "the first records came out")
        yield started
    finally:
        started.trickle.stop()
        started.stop()


def test_a_killed_executor_is_replaced(run):
    victim = run.an_executor()
    victim.kill()

    goes_on(run, run.trickle.written, "records came out after an executor was killed")


def test_a_killed_broker_is_started_again_and_the_run_goes_on(run):
    broker = run.process("-broker", "broker")
    address = read_record(run.folder / "broker").bootstrap
    os.kill(broker, signal.SIGKILL)

    goes_on(run, run.trickle.written, "records came out after the broker was killed")
    assert run.process("-broker", "broker") not in (None, broker)
    assert read_record(run.folder / "broker").bootstrap == address
    notices = run.notices()
    assert any(f"the broker at {address} takes no connections: it is started again" in n for n in notices)
    assert any(f"the broker at {address} is back" in notice for notice in notices)


def test_every_record_came_out_once(run):
    written = run.trickle.stop()
    run.wait(lambda: len(set(results(run.folder))) >= written, "everything came out")
    pids = run.pids()
    assert run.stop() == 0, run.log.read_text()

    assert sorted(results(run.folder)) == [f"r{n:06d}" for n in range(written)]
    result = run.place.result()
    assert result.units["unit"].processed == written
    assert result.units["second"].processed >= written, "Kafka may bring a record twice"
    assert result.end_to_end.count > 0, "latencies are known behind Kafka too"
    assert result.end_to_end.mean_s > result.units["second"].durations.mean_s
    assert wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids), 20)
