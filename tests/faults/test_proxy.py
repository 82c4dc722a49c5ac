"""The proxy between drivers and controller: what each way of it does to heartbeats."""

from __future__ import annotations

import random
import time

import pytest
from faults.proxy import DELAY_S, between

from penstock.fleet.ports import UnitReport, Wanted
from penstock.fleet.units import UnitState
from penstock.spark.unit.heartbeat import HeartbeatClient, HeartbeatServer


@pytest.fixture
def heard(tmp_path):
    beats: list[object] = []

    def answer(beat):
        beats.append(beat)
        return Wanted((), 1)

    server = HeartbeatServer(tmp_path, answer, lambda unit, attempt: None)
    server.start()
    yield beats
    server.stop()


def sent(client, count=1):
    """The answers to some heartbeats of a driver."""
    report = UnitReport("unit", time.time(), UnitState.RUNNING, "app")
    return [client.send(report) for _ in range(count)]


@pytest.fixture
def client(tmp_path):
    return HeartbeatClient(tmp_path, "unit", 1)


def test_heartbeats_are_cut_until_it_is_undone(heard, client, tmp_path):
    undo = between(tmp_path, "cut", random.Random(1))
    assert sent(client, 3) == [None] * 3
    assert heard == []

    undo()
    assert sent(client) == [Wanted((), 1)]
    assert len(heard) == 1


def test_a_doubled_heartbeat_is_answered_and_heard_once(heard, client, tmp_path):
    undo = between(tmp_path, "doubled", random.Random(1))
    assert sent(client, 3) == [Wanted((), 1)] * 3
    undo()
    assert len(heard) == 3


def test_some_are_lost_and_the_others_come_through(heard, client, tmp_path):
    undo = between(tmp_path, "lost", random.Random(1))
    answers = sent(client, 12)
    undo()

    assert 0 < sum(answer is not None for answer in answers) < 12
    assert len(heard) == sum(answer is not None for answer in answers)


def test_a_delayed_one_arrives_late(heard, client, tmp_path):
    undo = between(tmp_path, "delayed", random.Random(1))
    began_s = time.monotonic()
    assert sent(client) == [Wanted((), 1)]
    assert time.monotonic() - began_s >= DELAY_S
    undo()
