"""Policy `queueing`: the fewest instances that keep the budget, by a queueing model."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from penstock.budgets import SharedQueue
from penstock.controller.journal import Journal
from penstock.errors import ConfigurationError
from penstock.fleet.actions import Hold, StartInstance, StopInstance
from penstock.fleet.deployment import Deployment, InstanceState
from penstock.monitoring.measurements import Signal
from penstock.policies.queueing import Queueing
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import Choice, HostFlavour, Operator, Service, Sink, Site, Source, Topology, Unit
from tests.policies.views import NOW_S, a_signal, a_topology, a_view


def a_load(per_s: float, *, service_s: float = 0.5, waiting: int = 0, at_s: float = NOW_S) -> Signal:
    arrived = round(per_s * 15)
    return a_signal(arrived=arrived, processed=arrived, service_s=service_s, waiting=waiting, at_s=at_s)


def instances_of(count: int) -> dict[str, list[str]]:
    return {f"h{i}": ["a"] * min(4, count - 4 * i) for i in range((count + 3) // 4)}


def change(actions: tuple[object, ...]) -> int:
    return sum(isinstance(a, StartInstance) for a in actions) - sum(
        isinstance(a, StopInstance) for a in actions
    )


@pytest.mark.parametrize("per_s", [1.0, 10.0, 40.0])
@pytest.mark.parametrize("budget_s", [1.5, 3.0, 20.0])
@pytest.mark.parametrize("count", [1, 8, 30])
def test_the_unit_ends_with_what_the_model_needs(per_s: float, budget_s: float, count: int) -> None:
    view = replace(
        a_view(a_topology(max_hosts=40), on=instances_of(count), signals={"a": [a_load(per_s)]}),
        budgets={"a": budget_s},
    )
    needed = SharedQueue(per_s, 0.5, max_instances=50, quantile=0.95).parallelism(budget_s)
    assert needed is not None
    assert count + change(Queueing().decide(view)) == needed


def test_a_smaller_budget_takes_more_instances() -> None:
    view = a_view(a_topology(max_hosts=40), on=instances_of(4), signals={"a": [a_load(20.0)]})
    tight = change(Queueing().decide(replace(view, budgets={"a": 1.6})))
    loose = change(Queueing().decide(replace(view, budgets={"a": 10.0})))
    assert tight > loose > 0


def test_without_a_budget_the_slo_is_kept() -> None:
    view = a_view(a_topology(max_hosts=40, slo_s=2.0), on=instances_of(4), signals={"a": [a_load(20.0)]})
    assert Queueing().decide(view) == Queueing().decide(replace(view, budgets={"a": 2.0}))


def test_a_budget_below_the_service_time_is_kept_as_nearly_as_can_be() -> None:
    view = a_view(a_topology(max_hosts=40), on=instances_of(4), signals={"a": [a_load(20.0)]})
    assert 0 < change(Queueing().decide(replace(view, budgets={"a": 0.1}))) < 46


def test_a_backlog_is_worked_off_within_the_time_given() -> None:
    calm = a_view(a_topology(max_hosts=40), on=instances_of(12), signals={"a": [a_load(20.0)]})
    busy = a_view(a_topology(max_hosts=40), on=instances_of(12), signals={"a": [a_load(20.0, waiting=2400)]})
    # 2400 in 120 s are 20 more a second, ten more servers.
    assert change(Queueing().decide(busy)) >= change(Queueing().decide(calm)) + 9


def test_what_waits_while_instances_start_is_no_reason_to_let_them_go() -> None:
    """It asked for them on account of a backlog, which is still there while they start."""
    view = a_view(a_topology(max_hosts=40), on=instances_of(30), signals={"a": [a_load(20.0, waiting=2000)]})
    starting = {
        name: replace(instance, state=InstanceState.STARTING) if number >= 12 else instance
        for number, (name, instance) in enumerate(view.deployment.instances.items())
    }
    view = replace(view, deployment=Deployment(dict(view.deployment.hosts), starting))
    without = replace(view, windows={"a": (a_load(20.0),)})
    assert change(Queueing().decide(without)) == 16 - 30
    assert change(Queueing().decide(view)) == 26 - 30, "the backlog is worked off in the time given"


def test_it_shrinks_only_to_what_the_highest_load_of_late_needs() -> None:
    window = [a_load(20.0, at_s=NOW_S - 150.0), a_load(1.0, at_s=NOW_S - 15.0), a_load(1.0)]
    topology = a_topology(max_hosts=40, slo_s=2.0)
    recent = change(Queueing().decide(a_view(topology, on=instances_of(30), signals={"a": window})))
    later = change(Queueing().decide(a_view(topology, on=instances_of(30), signals={"a": window[1:]})))
    assert later < recent < 0


@pytest.mark.parametrize("load", ["two peaks", "jumps", "walk"])
def test_it_holds_the_quantile_it_promises_or_says_why_it_cannot(load: str) -> None:
    """Three hours of a generated load each; a walk by a quarter a minute is faster than any start."""
    rng = np.random.default_rng(7)
    at = np.arange(180)
    early, late = np.exp(-(((at - 60) / 25) ** 2)), np.exp(-(((at - 140) / 20) ** 2))
    levels = {
        "two peaks": 60.0 + 50.0 * early + 40.0 * late,
        "jumps": np.repeat(80.0 * np.exp(np.cumsum(rng.uniform(-0.2, 0.2, 36))), 5),
        "walk": 20.0 * np.clip(4 + np.cumsum(rng.integers(-1, 2, 180)), 1, 7),
    }[load]
    workload = Choice("stepwise", {"levels_per_s": tuple(levels.tolist()), "hold_s": 60.0})
    topology = Topology(
        "t",
        (Source("s", workload=workload),),
        (Operator("o", ("s",), slo_s=2.0, memory_mib=512, service=Service(0.35)),),
        (Sink("k", ("o",)),),
        units=(Unit("o", ("o",), policy=Choice("queueing"), max_instances=150, initial_instances=30),),
        sites=(Site("c", btu_s=60.0, flavours=(HostFlavour("m", 4.0, 8192, Decimal(1)),)),),
    )
    with Journal("sqlite://", "t", buffered=True) as journal:
        result = simulate(topology, SimulationSettings(seed=2), duration_s=180 * 60.0, journal=journal)
        reasons = [row["reason"] for row in journal.rows("action") if row["policy"] == "queueing"]
    kept = result.compliance.ratio("real_time")
    print(f"kept {kept:.2%} on {load}")
    told = [reason for reason in reasons if "does not hold it" in reason]
    assert kept >= 0.95 or told, f"kept {kept:.2%} and told nobody"
    assert all("as loads came faster than the" in reason for reason in told)
    if load == "two peaks":
        assert kept >= 0.95


def test_without_a_service_time_it_holds() -> None:
    view = a_view(on={"h1": ["a"]}, signals={"a": [a_signal(service_s=None)]})
    assert [type(action) for action in Queueing().decide(view)] == [Hold]


def test_every_action_tells_the_load_and_the_budget() -> None:
    view = a_view(a_topology(max_hosts=40, slo_s=2.0), on=instances_of(4), signals={"a": [a_load(20.0)]})
    starts = [a for a in Queueing().decide(view) if isinstance(a, StartInstance)]
    assert "20/s of 500 ms each need" in starts[0].reason
    assert "to keep 2 s for 95%" in starts[0].reason


@pytest.mark.parametrize("wrong", [{"quantile": 1.0}, {"quantile": 0.0}, {"catch_up_s": 0.0}])
def test_wrong_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        Queueing(**wrong)
