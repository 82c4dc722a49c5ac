"""Policy `queueing`: the fewest instances that keep the budget, by a queueing model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.budgets import SharedQueue
from penstock.errors import ConfigurationError
from penstock.fleet.actions import Hold, StartInstance, StopInstance
from penstock.monitoring.measurements import Signal
from penstock.policies.queueing import Queueing
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


def test_it_shrinks_only_to_what_the_highest_load_of_late_needs() -> None:
    window = [a_load(20.0, at_s=NOW_S - 150.0), a_load(1.0, at_s=NOW_S - 15.0), a_load(1.0)]
    topology = a_topology(max_hosts=40, slo_s=2.0)
    recent = change(Queueing().decide(a_view(topology, on=instances_of(30), signals={"a": window})))
    later = change(Queueing().decide(a_view(topology, on=instances_of(30), signals={"a": window[1:]})))
    assert later < recent < 0


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
