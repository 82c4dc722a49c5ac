from dataclasses import replace

import pytest

from penstock.errors import ConfigurationError
from penstock.fleet.actions import Hold, MigrateInstance, ReleaseHost, StartInstance, StopInstance
from penstock.fleet.deployment import Deployment, InstanceState
from penstock.policies.rate import Rate, demands, forwarded_ratios, true_rate_per_s
from penstock.topology.model import Operator, Source, Topology, Unit
from tests.policies.views import a_signal, a_topology, a_view


def started(actions, unit="a"):
    return sum(1 for a in actions if isinstance(a, StartInstance) and a.unit == unit)


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        (a_signal(service_s=0.25), 8.0),  # two slots
        (a_signal(service_s=None, processed=150, cpu_ratio=0.5), 10.0),  # 10/s by two, half busy
        (a_signal(service_s=None, processed=150, waiting=900, cpu_ratio=1.3), 5.0),
        (a_signal(service_s=None, processed=150, waiting=151, cpu_ratio=None), 5.0),  # saturated
        (a_signal(service_s=None, processed=150, waiting=150, cpu_ratio=None), None),  # a batch waits
        (a_signal(service_s=None, processed=0, cpu_ratio=0.5), None),
        (a_signal(service_s=None, processed=150, cpu_ratio=0.5, beginning=True), None),  # starts and compiles
        (a_signal(service_s=0.25, beginning=True), 8.0),  # another query has begun: the work is known
    ],
)
def test_the_true_rate_is_what_an_instance_does_when_it_never_waits(signal, expected):
    assert true_rate_per_s(signal, 2, 2) == expected


@pytest.mark.parametrize(
    ("arrived", "expected"),
    [(150, 7), (1500, 63), (15, 1)],
)
def test_the_number_of_instances_comes_in_one_step(arrived, expected):
    # 2/s an instance, 80 % wanted: 10/s need 6.25 and 100/s need 62.5 instances.
    topology = a_topology(cores=0.1, memory_mib=64, max_instances=100)
    view = a_view(topology, signals={"a": [a_signal(arrived=arrived, processed=min(arrived, 30))]})
    assert 1 + started(Rate().decide(view)) == expected


def test_growth_names_its_numbers():
    view = a_view(signals={"a": [a_signal(arrived=150, processed=30, waiting=40)]})
    action = Rate().decide(view)[0]
    assert action.reason == (
        "up from 1 to 7: 10/s and 40 waiting, 2/s an instance, 500% used (target 80% ± 10%)"
    )


def test_loads_follow_the_topology_from_the_sources():
    topology = a_topology(units=("a", "b", "c"), chained=True, ratio=3.0, cores=0.1, memory_mib=64)
    measured = {
        # a is the bottleneck: b and c see only what a lets through.
        "a": a_signal("a", arrived=300, processed=30).measurement,
        "b": a_signal("b", arrived=90, processed=90).measurement,
        "c": a_signal("c", arrived=270, processed=270).measurement,
    }
    found = demands(topology, measured, 60.0)
    assert [found[name].incoming_per_s for name in "abc"] == pytest.approx([20.0, 60.0, 180.0])


def test_a_backlog_is_sent_on_while_it_is_worked_off():
    topology = a_topology(units=("a", "b"), chained=True)
    measured = {
        "a": a_signal("a", arrived=300, processed=300, waiting=600).measurement,
        "b": a_signal("b", arrived=300, processed=300).measurement,
    }
    assert demands(topology, measured, 60.0)["b"].incoming_per_s == pytest.approx(20.0 + 10.0)


def test_all_units_of_a_chain_grow_in_the_same_step():
    topology = a_topology(units=("a", "b"), chained=True, cores=0.1, memory_mib=64)
    view = a_view(
        topology,
        on={"h1": ["a", "b"]},
        signals={
            "a": [a_signal("a", arrived=300, processed=30, service_s=0.5)],
            "b": [a_signal("b", arrived=30, processed=30, service_s=0.5)],
        },
    )
    actions = Rate().decide(view)
    assert started(actions, "a") == started(actions, "b") == 12


def test_edges_between_units_of_several_operators_carry_the_products_of_ratios():
    topology = Topology(
        "t",
        (Source("s"),),
        (
            Operator("x", ("s",), ratio=0.5),
            Operator("y", ("x",), ratio=0.1),
            Operator("z", ("x", "y")),
        ),
        units=(Unit("first", ("x", "y")), Unit("last", ("z",))),
    )
    assert forwarded_ratios(topology) == {("first", "last"): pytest.approx(0.5 + 0.05)}


def test_a_single_unit_known_by_rates_and_backlog_alone_is_scaled():
    topology = a_topology(cores=0.1, memory_mib=64)
    saturated = a_signal(arrived=300, processed=60, waiting=500, service_s=None, cpu_ratio=None)
    # 4/s an instance; 20/s at 80 % and 500 more within 120 s need 7.3 of them.
    assert 1 + started(Rate().decide(a_view(topology, signals={"a": [saturated]}))) == 8


def test_a_batch_that_waits_is_no_reason_to_grow_for_ever():
    # A micro-batch of 150 always waits; four instances do 10/s with 70 % of their time.
    steady = a_signal(arrived=150, processed=150, waiting=150, service_s=None, cpu_ratio=0.7)
    view = a_view(on={"h1": ["a"] * 4}, signals={"a": [steady]})
    assert started(Rate().decide(view)) == 0


def test_nothing_is_decided_without_a_load_or_a_rate():
    assert Rate().decide(a_view()) == (Hold("a", "load or processing rate not known yet"),)
    silent = a_signal(service_s=None, processed=0, arrived=0, cpu_ratio=0.0)
    assert isinstance(Rate().decide(a_view(signals={"a": [silent]}))[0], Hold)


@pytest.mark.parametrize("arrived", [90, 96, 105])
def test_small_deviations_are_left_alone(arrived):
    # Four instances of 2/s: 6 to 7/s are 75 to 88 % of what they can do.
    view = a_view(on={"h1": ["a"] * 4}, signals={"a": [a_signal(arrived=arrived, processed=arrived)]})
    assert all(isinstance(action, Hold) for action in Rate().decide(view))


def test_instances_that_are_still_starting_are_not_asked_for_again():
    topology = a_topology(cores=0.1, memory_mib=64)
    view = a_view(
        topology,
        on={"h1": ["a"] * 13},
        signals={"a": [a_signal(arrived=300, processed=30, waiting=900)]},
    )
    members = [
        replace(instance, state=InstanceState.STARTING) if index else instance
        for index, instance in enumerate(view.deployment.instances.values())
    ]
    view = replace(view, deployment=Deployment.of(view.deployment.hosts.values(), members))
    assert started(Rate().decide(view)) == 0


def test_a_backlog_that_drains_while_instances_start_is_no_reason_to_shrink():
    view = a_view(
        a_topology(cores=0.1, memory_mib=64),
        on={"h1": ["a"] * 13},
        signals={"a": [a_signal(arrived=30, processed=30, waiting=2000)]},
    )
    members = list(view.deployment.instances.values())
    members[-1] = replace(members[-1], state=InstanceState.STARTING)
    view = replace(view, deployment=Deployment.of(view.deployment.hosts.values(), members))
    (action,) = Rate(keep_paid=False).decide(view)
    assert isinstance(action, Hold)


def test_what_does_not_serve_yet_stops_before_what_serves():
    view = a_view(a_topology(cores=0.1, memory_mib=64), on={"h1": ["a"] * 3}, signals=QUIET)
    members = list(view.deployment.instances.values())
    members[0] = replace(members[0], state=InstanceState.STARTING)
    view = replace(view, deployment=Deployment.of(view.deployment.hosts.values(), members))
    stopped = [a.instance for a in Rate(keep_paid=False).decide(view) if isinstance(a, StopInstance)]
    assert stopped == [members[0].id]


QUIET = {"a": [a_signal(arrived=30, processed=30)]}
"""2/s: two instances of 2/s at 80 % are enough."""


def test_paid_hosts_are_kept_with_what_runs_on_them():
    view = a_view(on={"h1": ["a"] * 4, "h2": ["a"] * 4}, signals=QUIET)
    (action,) = Rate().decide(view)
    assert isinstance(action, Hold)
    assert action.reason.endswith("kept while their hosts are paid")


def test_at_the_end_of_a_lease_the_surplus_goes_and_the_rest_moves():
    view = a_view(
        on={"h1": ["a"], "h2": ["a"] * 3},
        signals={"a": [a_signal(arrived=54, processed=54)]},
        remaining_s={"h1": 1800.0, "h2": 40.0},
    )
    actions = Rate().decide(view)
    assert [type(action) for action in actions] == [
        StopInstance,
        MigrateInstance,
        MigrateInstance,
        ReleaseHost,
    ]


def test_without_keeping_the_surplus_stops_at_once_and_empty_hosts_go():
    view = a_view(on={"h1": ["a"] * 4, "h2": ["a"] * 2}, signals=QUIET)
    actions = Rate(keep_paid=False).decide(view)
    assert sum(isinstance(action, StopInstance) for action in actions) == 4
    assert [action.host for action in actions if isinstance(action, ReleaseHost)] == ["h2"]


def test_a_dip_within_a_busy_span_does_not_shrink():
    window = [
        a_signal(at_s=6000.0 - 120, arrived=240, processed=240),
        a_signal(at_s=6000.0, arrived=30, processed=30),
    ]
    view = a_view(on={"h1": ["a"] * 4, "h2": ["a"] * 4}, signals={"a": window})
    assert all(isinstance(a, Hold) for a in Rate(keep_paid=False).decide(view))


@pytest.mark.parametrize("parameters", [{"target_ratio": 0}, {"target_ratio": 1.1}, {"catch_up_s": 0}])
def test_impossible_parameters_are_refused(parameters):
    with pytest.raises(ConfigurationError):
        Rate(**parameters)
