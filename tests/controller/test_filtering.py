"""Filters of a run: they smooth what policies decide on, also where a policy is changed for another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.controller.filtering import FIELDS, Filtering
from penstock.controller.loop import Tick
from penstock.controller.metrics import Tally
from penstock.policies.registry import POLICIES, decides_on
from penstock.topology.model import Choice, Topology
from tests.builders import a_measurement, a_topology
from tests.controller.test_loop import Loop

GAUSSIAN = Choice("gaussian")


def a_filtered(policy: Choice) -> Topology:
    return a_topology(units=("a",), policy=policy, filter=GAUSSIAN)


@pytest.mark.parametrize("policy", POLICIES)
def test_all_a_policy_decides_on_is_smoothed(policy: str) -> None:
    assert {*decides_on(Choice(policy))} <= {*FIELDS, "utilisation"}


def test_a_changed_policy_is_served_by_what_it_decides_on() -> None:
    loop = Loop(a_filtered(Choice("utilisation")), queues={"a": 0})
    (before,) = loop.tick().signals
    loop.controller.change(a_filtered(Choice("threshold")), 2)
    (after,) = loop.tick().signals

    assert before.raw is None, "utilisation has filters of its own"
    assert after.raw is not None


def test_another_parameter_of_a_policy_leaves_the_filters_their_memory() -> None:
    loop = Loop(a_filtered(Choice("threshold")), queues={"a": 30})
    loop.tick(wait_s=1.0)
    loop.controller.change(a_filtered(Choice("threshold", {"up_queue": 500})), 2)
    loop.cluster.queues = {"a": 0}
    (after,) = loop.tick().signals

    assert after.measurement.waiting > after.taken.waiting == 0


def test_health_is_smoothed_and_what_was_counted_is_kept() -> None:
    filtering = Filtering(a_filtered(Choice("levels")))
    signals = [
        filtering.signals([a_measurement(at_s=float(step), processed=150 * (step % 2))])[0][0]
        for step in range(6)
    ]

    assert 0 < signals[4].measurement.processed < 150
    assert [signal.taken.processed for signal in signals] == [0, 150] * 3
    tally = Tally()
    for signal in signals:
        tally.see(Tick(signal.at_s, (signal,), Loop(a_topology()).tick().deployment, (), (), ()))
    assert tally.processed == {"a": 450}


def test_another_filter_begins_anew() -> None:
    loop = Loop(a_filtered(Choice("threshold")), queues={"a": 30})
    loop.tick()
    topology = a_filtered(Choice("threshold"))
    units = tuple(replace(unit, filter=Choice("none")) for unit in topology.units)
    loop.controller.change(replace(topology, units=units), 2)
    (after,) = loop.tick().signals

    assert after.raw is None
