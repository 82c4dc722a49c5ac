"""Budgets in the loop: a simulated run of three units under three policies holds its end-to-end bound."""

from __future__ import annotations

from decimal import Decimal

import pytest

from penstock.budgets import Custom, RemoteCost
from penstock.controller.budgeting import LatencyBudgeting
from penstock.controller.journal import Journal
from penstock.controller.loop import NewBudgets
from penstock.fleet.deployment import Deployment
from penstock.policies.view import View
from penstock.simulator import SimulationSettings, simulate
from penstock.topology import (
    Choice,
    HostFlavour,
    LatencyBound,
    LoopSettings,
    Operator,
    Service,
    Sink,
    Site,
    Source,
    Topology,
    Unit,
)

BOUND_S = 6.0


def a_topology(workload: Choice) -> Topology:
    return Topology(
        "three",
        (Source("s", workload=workload),),
        (
            Operator("parse", ("s",), service=Service(0.1, 0.3)),
            Operator("score", ("parse",), service=Service(0.4, 0.5)),
            Operator("store", ("score",), service=Service(0.2, 0.2)),
        ),
        (Sink("out", ("store",)),),
        (
            Unit("parse", ("parse",), policy=Choice("queueing"), initial_instances=4),
            Unit("score", ("score",), policy=Choice("rate"), initial_instances=12),
            Unit("store", ("store",), policy=Choice("btu"), initial_instances=6),
        ),
        sites=(Site("c", btu_s=600.0, flavours=(HostFlavour("m", 4.0, 8192, Decimal(1)),)),),
        latency_bounds=(LatencyBound(BOUND_S),),
        loop=LoopSettings(monitoring_s=15.0, provisioning_s=30.0),
    )


class Recorded:
    """Budgeting that remembers what it answered."""

    def __init__(self, budgeting: LatencyBudgeting) -> None:
        self._budgeting = budgeting
        self.answers: list[NewBudgets] = []

    def __call__(self, view: View) -> NewBudgets | None:
        found = self._budgeting(view)
        if found is not None:
            self.answers.append(found)
        return found


@pytest.mark.parametrize("seed", [1, 2])
def test_three_units_under_three_policies_hold_the_end_to_end_bound(seed: int) -> None:
    workload = Choice("sine", {"mean_per_s": 20.0, "amplitude_per_s": 10.0, "period_s": 2400.0})
    budgeting = Recorded(LatencyBudgeting(source_rates_per_s={"s": 20.0}))
    result = simulate(
        a_topology(workload),
        SimulationSettings(seed=seed, process="poisson"),
        duration_s=4800.0,
        budgeting=budgeting,
    )
    assert result.records_out > 90_000
    assert result.end_to_end.p95_s <= BOUND_S
    # The load swings by half: budgets were distributed more than once, each time within the bound.
    assert len(budgeting.answers) > 1
    for answer in budgeting.answers:
        assert sum(answer.budgets.values()) <= BOUND_S + 1e-6
    assert budgeting.answers[0].reason.startswith("first distribution: hull gives")
    assert "servers (threshold 20%)" in budgeting.answers[1].reason


def test_the_journal_tells_each_distribution_with_its_reason() -> None:
    journal = Journal("sqlite://", "three")
    budgeting = LatencyBudgeting(source_rates_per_s={"s": 20.0})
    topology = a_topology(Choice("constant", {"level_per_s": 20.0}))
    simulate(topology, duration_s=300.0, journal=journal, budgeting=budgeting)
    rows = list(journal.rows("budget"))
    first = [row for row in rows if row["at_s"] == rows[0]["at_s"]]
    assert {row["unit"] for row in first} == {"parse", "score", "store"}
    assert all(row["reason"].startswith("first distribution: hull gives") for row in first)
    assert sum(row["budget_s"] for row in first) == pytest.approx(BOUND_S)
    assert all("the work of unit" in row["reason"] for row in rows[len(first) :])


def test_a_topology_without_a_bound_has_no_budgets() -> None:
    topology = a_topology(Choice("constant", {"level_per_s": 5.0}))
    object.__setattr__(topology, "latency_bounds", ())
    budgeting = Recorded(LatencyBudgeting())
    simulate(topology, duration_s=120.0, budgeting=budgeting)
    assert budgeting.answers == []


def a_loop_view(budgets: dict[str, float]) -> View:
    topology = a_topology(Choice("constant", {"level_per_s": 20.0}))
    return View(now_s=600.0, topology=topology, deployment=Deployment(), budgets=budgets)


def test_a_wrong_cost_function_does_not_stop_the_loop_and_is_told_once() -> None:
    budgeting = LatencyBudgeting(
        source_rates_per_s={"s": 20.0}, costs={"score": Custom(lambda latency_s: -latency_s)}
    )
    before = {"parse": 1.0, "score": 3.0, "store": 2.0}
    told = budgeting(a_loop_view(before))
    assert told is not None
    assert dict(told.budgets) == before
    assert "the budgets stand: the cost of unit 'score'" in told.reason
    assert "is negative" in told.reason
    assert budgeting(a_loop_view(before)) is None


def test_a_silent_unit_without_a_last_budget_gets_its_slo() -> None:
    silent = {"score": RemoteCost("http://127.0.0.1:9/cost", retries=0)}
    found = LatencyBudgeting(source_rates_per_s={"s": 20.0}, costs=silent)(a_loop_view({}))
    assert found is not None
    assert found.budgets["score"] == 1.0
    assert "unit score keeps its last budget, 1 s" in found.reason
