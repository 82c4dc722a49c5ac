"""Cost functions: the formulas against worked values, and clear errors for impossible parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.budgets import (
    MM1,
    CostFunction,
    Custom,
    Exponential,
    Kingman,
    Linear,
    QueueCost,
    SharedQueue,
    Table,
    cost_function,
)
from penstock.errors import ConfigurationError


@pytest.mark.parametrize(
    ("function", "latency_s", "cost"),
    [
        # λ_required = 1 − 1/2 = 0.5, so 100 records/s take 200 instances (paper 004, Figure 1).
        (MM1(100.0), 2.0, 200.0),
        (MM1(100.0), 10.0, 112.0),
        (MM1(100.0), 1.0, math.inf),
        (MM1(100.0, price=0.5), 2.0, 100.0),
        (MM1(100.0, max_instances=150), 2.0, math.inf),
        # With c_A = c_S = 1: λ/(p − λ) ≤ L, so p ≥ λ + λ/L.
        (Kingman(10.0, waiting_only=True), 5.0, 12.0),
        (Kingman(10.0, waiting_only=True), 1.0, 20.0),
        (Kingman(10.0), 6.0, 12.0),
        (Kingman(10.0), 1.0, math.inf),
        (Linear(100.0, 3.0), 10.0, 70.0),
        (Linear(100.0, 3.0), 50.0, 0.0),
        (Exponential(10.0, 0.02, 1.0), 50.0, 10.0 * math.exp(-1.0) + 1.0),
        (Table(((5.0, 2.0), (1.0, 9.0))), 4.9, 9.0),
        (Table(((5.0, 2.0), (1.0, 9.0))), 5.0, 2.0),
        (Table(((5.0, 2.0), (1.0, 9.0))), 0.5, math.inf),
        (Custom(lambda latency_s: 1.0 / latency_s), 4.0, 0.25),
    ],
)
def test_a_cost_function_has_the_value_of_its_formula(
    function: CostFunction, latency_s: float, cost: float
) -> None:
    assert function.cost(latency_s) == pytest.approx(cost)


def test_kingmans_arrival_variation_follows_the_new_parallelism() -> None:
    # Split over many instances any stream looks random: c_A(p)² = 1 + (c_A² − 1)/p.
    regular = Kingman(10.0, arrival_cv=0.0, service_cv=0.0, waiting_only=True)
    expected_s = 10.0 / (20 - 10.0) * (1.0 - 1.0 / 20) / 2.0
    assert regular.latency_s(20) == pytest.approx(expected_s)


def test_a_shared_queue_agrees_with_a_known_erlang_c_value() -> None:
    # a = 2 Erlang on 3 servers: C = 4/9, and Wq = C / (cμ − λ) = (4/9) / 1 s.
    queue = SharedQueue(2.0, 1.0)
    assert queue.latency_s(3) == pytest.approx(1.0 + 4.0 / 9.0)


def test_a_shared_queue_needs_fewer_instances_than_split_ones() -> None:
    shared, split = SharedQueue(50.0, 1.0), MM1(50.0)
    assert all(shared.cost(s) < split.cost(s) for s in (1.5, 2.0, 5.0))


def test_a_quantile_needs_at_least_what_the_mean_needs() -> None:
    mean, most = SharedQueue(50.0, 1.0, service_cv=0.5), SharedQueue(50.0, 1.0, service_cv=0.5, quantile=0.95)
    assert all(most.cost(s) >= mean.cost(s) for s in (2.0, 2.5, 3.0, 10.0))
    assert most.least_s > mean.least_s


QUEUES = st.one_of(
    st.builds(
        MM1, st.floats(0, 500), st.floats(0.01, 5), st.just(1.0), st.none() | st.integers(1, 2000)
    ),
    st.builds(
        Kingman, st.floats(0, 500), st.floats(0.01, 5), st.floats(0, 3), st.floats(0, 3), st.just(1.0),
        st.none() | st.integers(1, 2000), st.booleans(),
    ),
    st.builds(
        SharedQueue, st.floats(0, 200), st.floats(0.01, 1), st.floats(0, 3), st.floats(0, 3), st.just(1.0),
        st.none() | st.integers(1, 400), st.integers(1, 4), st.integers(1, 3),
        st.none() | st.floats(0.5, 0.99),
    ),
)  # fmt: skip


@given(QUEUES, st.lists(st.floats(0.001, 200), min_size=2, max_size=8))
def test_a_queues_instances_are_the_fewest_that_keep_the_budget(
    queue: QueueCost, latencies_s: list[float]
) -> None:
    latencies = np.array(sorted(latencies_s))
    found = queue.instances(latencies)
    assert np.all(found[1:] <= found[:-1])  # a larger budget never needs more
    for latency_s, instances in zip(latencies.tolist(), found.tolist(), strict=True):
        if math.isinf(instances):
            assert latency_s <= queue.least_s + 1e-6
            continue
        count = int(instances)
        assert queue.latency_s(count) <= latency_s * (1 + 1e-6) + 1e-9
        if count > queue.least_instances():
            assert queue.latency_s(count - 1) > latency_s * (1 - 1e-6) - 1e-9


@given(st.lists(QUEUES, min_size=1, max_size=5), st.lists(st.floats(0, 100), min_size=1, max_size=6))
def test_many_units_together_cost_what_each_costs_alone(
    queues: list[QueueCost], latencies_s: list[float]
) -> None:
    latencies = np.array(latencies_s)
    for kind in {type(queue) for queue in queues}:
        members = [queue for queue in queues if type(queue) is kind]
        together = kind.together(members, latencies)
        for row, member in zip(together, members, strict=True):
            assert np.array_equal(row, member.costs(latencies))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MM1(-1.0), "arrival_rate_per_s must be a number ≥ 0"),
        (lambda: MM1(math.nan), "arrival_rate_per_s"),
        (lambda: MM1(1.0, 0.0), "service_s must be above 0"),
        (lambda: MM1(1.0, price=-2.0), "price"),
        (lambda: MM1(1.0, max_instances=0), "max_instances must be at least 1"),
        (lambda: Kingman(1.0, arrival_cv=-1.0), "arrival_cv"),
        (lambda: SharedQueue(1.0, 1.0, quantile=1.5), "quantile must be between 0 and 1"),
        (lambda: Linear(100.0, -1.0), "costs fall"),
        (lambda: Exponential(floor=math.inf), "floor"),
        (lambda: Table(()), "at least one"),
        (lambda: Table(((1.0, 2.0), (2.0, 3.0))), "at most 2"),
        (lambda: cost_function("cheap"), "expected a cost function"),  # type: ignore[arg-type]
    ],
)
def test_impossible_parameters_are_refused_with_a_reason(make: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()  # type: ignore[operator]
