"""Two units with Kafka between them on a real local cluster: an executor and the broker are killed."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from decimal import Decimal

import pytest

from penstock.channels.broker import Broker
from penstock.channels.maven import broker_jars
from penstock.errors import ClusterError
from penstock.spark.folders import cache_folder
from penstock.spark.java import find_java
from penstock.topology.model import Channel, Choice, HostFlavour, LoopSettings, Operator, Sink, Site, Unit

from .conftest import a_topology
from .test_cluster_run import RunInThread, Trickle, goes_on, results

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
    loop=LoopSettings(monitoring_s=2.0, provisioning_s=4.0),
)


@pytest.fixture(scope="module")
def broker(kafka_jars, tmp_path_factory):
    if isinstance(kafka_jars, str):
        pytest.skip(f"Kafka's connector cannot be fetched: {kafka_jars}")
    try:
        jars = broker_jars(cache_folder("jars"))
    except ClusterError as error:
        pytest.skip(f"the broker's jars cannot be fetched: {error}")
    broker = Broker(tmp_path_factory.mktemp("broker"), find_java().executable, jars)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def run(broker, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    started = RunInThread(TOPOLOGY, folder, f"test-kafka-{os.getpid()}", bootstrap=broker.record().bootstrap)
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


def test_a_killed_broker_is_waited_for_and_nothing_is_lost(run, broker):
    os.kill(broker.record().pid, signal.SIGKILL)
    broker._child.wait(10)
    written = run.trickle.written
    # Records go on coming in while the broker is away; they wait in the first unit's source.
    run.wait(lambda: run.trickle.written > written + 60, "records had come in without a broker")
    broker.start()

    goes_on(run, run.trickle.written, "records came out after the broker was back")


def test_every_record_came_out_once(run):
    written = run.trickle.stop()
    run.wait(lambda: len(set(results(run.folder))) >= written, "everything came out")
    run.stop()

    assert sorted(results(run.folder)) == [f"r{n:06d}" for n in range(written)]
