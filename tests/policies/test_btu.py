from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.fleet.actions import (
    Hold,
    LeaseHost,
    MigrateInstance,
    ProlongLease,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.fleet.deployment import InstanceState
from penstock.fleet.times import MeasuredTimes
from penstock.infrastructure.placement import Room
from penstock.policies.btu import (
    Btu,
    Weights,
    predicted_duration_s,
    releasable,
    shrink_utility,
    suitability,
    up_trigger,
)
from tests.policies.views import a_signal, a_topology, a_view, an_instance

LATE = [a_signal(waiting=63, duration_s=d) for d in (0.55, 0.60, 0.65, 0.70, 0.74)]
"""Durations that rise towards the SLO of 750 ms: only the prediction exceeds it."""


def kinds(actions):
    return [type(action).__name__ for action in actions if not isinstance(action, Hold)]


# -- Algorithm 1


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        ([0.5], 0.5),
        ([0.5, 0.5, 0.5], 0.5),
        ([0.1, 0.2, 0.3], 0.4),
        ([0.3, 0.2, 0.1], 0.0),
        ([1.0, 3.0], 5.0),
        ([1.0, 2.0, 4.0], 16 / 3),  # slope 3/2 around the mean 7/3
    ],
)
def test_the_prediction_continues_the_line_oldest_first(durations, expected):
    assert predicted_duration_s(durations) == pytest.approx(expected)


@given(st.floats(0.01, 10), st.floats(-0.5, 0.5), st.integers(2, 20))
def test_the_prediction_of_a_straight_line_is_its_next_point(start, slope, n):
    assert predicted_duration_s([start + slope * i for i in range(n)]) == pytest.approx(
        start + slope * n, abs=1e-6
    )


@pytest.mark.parametrize(
    ("durations", "waiting", "fires"),
    [
        ([0.5, 0.5], 1000, False),  # fast enough, however many wait
        ([0.8, 0.8], 51, True),  # too slow now
        ([0.8, 0.8], 50, False),  # too slow, but the queue is short
        ([0.6, 0.7], 51, True),  # about to be too slow
        ([0.75, 0.75], 51, False),  # exactly at the SLO
        ([1.0, 0.76], 51, True),  # getting better, but still too slow
        ([0.9, 0.7], 51, False),  # was too slow
    ],
)
def test_the_up_trigger_needs_a_late_unit_and_a_queue(durations, waiting, fires):
    assert up_trigger(durations, 0.75, waiting, 50).fires is fires


def test_the_up_trigger_names_its_numbers():
    trigger = up_trigger([0.55, 0.60, 0.65, 0.70, 0.74], 0.75, 63, 50)
    assert trigger.reason == "up: predicted 792 ms > 750 ms, 63 waiting"
    assert up_trigger([0.912], 0.75, 63, 50).reason == "up: 912 ms > 750 ms, 63 waiting"


# -- Algorithm 2

WHOLE = Room(4.0, 7000)


@pytest.mark.parametrize(
    ("free", "needs", "cached", "expected"),
    [
        (Room(4.0, 7000), Room(1.0, 1750), False, 0.0),  # cores and memory stay in balance
        (Room(0.5, 7000), Room(1.0, 500), False, -1.0),  # too few cores
        (Room(4.0, 400), Room(1.0, 500), False, -1.0),  # too little memory
        (Room(1.0, 500), Room(1.0, 500), False, 0.0),  # an exact fit is feasible
        (Room(4.0, 7000), Room(1.0, 700), False, abs(0.75 - 0.9) / 4),
        (Room(2.0, 7000), Room(1.0, 700), False, abs(0.25 - 0.9) / 2),
        (Room(2.0, 7000), Room(1.0, 700), True, abs(0.25 - 0.9) / 2 * 0.01),
    ],
)
def test_suitability_of_a_host(free, needs, cached, expected):
    assert suitability(free, WHOLE, needs, cached=cached) == pytest.approx(expected)


@given(st.floats(0, 4), st.integers(0, 7000), st.floats(0.01, 4), st.integers(1, 7000), st.booleans())
def test_a_host_is_suitable_exactly_where_the_instance_fits(cores, memory, need_cores, need_memory, cached):
    score = suitability(Room(cores, memory), WHOLE, Room(need_cores, need_memory), cached=cached)
    assert (score >= 0) == Room(cores, memory).holds(need_cores, need_memory)
    assert score <= 1


# -- Algorithm 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        # instances, fewest, most, duration, slo, waiting, own scalings, all scalings
        ((1, 1, 5, 0.1, 1.0, 0, 0, 0), -1.0),  # the last one stays
        ((5, 1, 5, 1.0, 1.0, 9, 0, 0), 1 + 1 - 1),
        ((3, 3, 3, 0.5, 1.0, 9, 0, 0), 1 + 0 - 0.5),  # all alike: no share
        ((3, 1, 5, 0.5, 1.0, 0, 2, 8), 1 + 0.5 + 100 - 0.5 - 0.25),
        ((2, 1, 9, 4.0, 1.0, 9, 3, 4), 1 + 0.125 - 4 - 0.75),  # late and often scaled: needed
    ],
)
def test_utility_of_shrinking(arguments, expected):
    assert shrink_utility(*arguments, 0.0, Weights()) == pytest.approx(expected)


def test_the_penalty_weighs_the_delay_and_the_weights_weigh_the_rest():
    assert shrink_utility(2, 1, 2, 1.0, 1.0, 9, 1, 2, 0.5, Weights()) == pytest.approx(1 + 1 - 1.5 - 0.5)
    weights = Weights(instances=2, queue=3, delay=4, scalings=5, queue_load=10)
    assert shrink_utility(2, 1, 2, 0.5, 1.0, 0, 1, 2, 0.0, weights) == pytest.approx(1 + 2 + 30 - 2 - 2.5)


@pytest.mark.parametrize(
    ("instances", "expected"), [(1, 0), (2, 1), (4, 1), (5, 1), (9, 1), (10, 2), (14, 2), (25, 5)]
)
def test_at_most_a_fifth_of_a_unit_stops_but_one_of_two(instances, expected):
    assert releasable(instances, 0.2) == expected


# -- growing


def test_growing_takes_the_most_suitable_host_and_says_why():
    view = a_view(on={"h1": ["a", "a", "a"], "h2": ["a"]}, signals={"a": LATE})
    (action,) = Btu().decide(view)
    assert isinstance(action, StartInstance)
    assert action.host == "h2"
    assert action.reason == (
        "up: predicted 792 ms > 750 ms, 63 waiting; host h2 (suitability 0.071, image not cached)"
    )


def test_growing_prefers_a_host_with_the_image():
    view = a_view(on={"h1": ["a", "a"], "h2": []}, images={"h1": ["a"]}, signals={"a": LATE})
    (action,) = Btu().decide(view)
    assert action.host == "h1"
    assert "image cached" in action.reason


def test_growing_shrinks_another_unit_where_no_host_has_room():
    topology = a_topology(units=("a", "b"))
    view = a_view(
        topology, on={"h1": ["a", "b", "b", "b"]}, signals={"a": LATE, "b": [a_signal("b", waiting=0)]}
    )
    stop, start, hold = Btu().decide(view)
    assert isinstance(stop, StopInstance)
    assert (stop.unit, stop.instance) == ("b", "b-4")
    assert "makes room on host h1 for a" in stop.reason
    assert isinstance(start, StartInstance)
    assert (start.unit, start.host) == ("a", "h1")
    assert isinstance(hold, Hold)


def test_growing_leases_a_host_where_no_unit_can_shrink():
    topology = a_topology(units=("a", "b"))
    busy = [a_signal("b", waiting=40, duration_s=3.0)]
    view = a_view(topology, on={"h1": ["a", "b", "b", "b"]}, signals={"a": LATE, "b": busy})
    actions = Btu().decide(view)
    assert kinds(actions) == ["LeaseHost", "StartInstance"]
    assert isinstance(actions[0], LeaseHost)
    assert actions[1].host == actions[0].host


def test_two_growing_units_never_shrink_each_other():
    topology = a_topology(units=("a", "b"))
    late_b = [a_signal("b", waiting=80, duration_s=0.8)]
    view = a_view(topology, on={"h1": ["a", "a", "b", "b"]}, signals={"a": LATE, "b": late_b})
    assert kinds(Btu().decide(view)) == ["LeaseHost", "StartInstance", "StartInstance"]


def test_a_unit_at_its_bound_holds_and_says_so():
    view = a_view(a_topology(max_instances=1), signals={"a": LATE})
    (action,) = Btu().decide(view)
    assert isinstance(action, Hold)
    assert "has its 1 instance already" in action.reason


def test_nothing_is_decided_without_a_measurement():
    (action,) = Btu().decide(a_view())
    assert action == Hold("a", "no measurement yet")
    (action,) = Btu().decide(a_view(signals={"a": [a_signal(duration_s=None, waiting=99)]}))
    assert action == Hold("a", "no record was finished lately, 99 waiting")


def test_a_unit_that_lost_its_instances_gets_one_back():
    (action,) = Btu().decide(a_view(on={"h1": []}))
    assert isinstance(action, StartInstance)


# -- the end of a lease

CALM = {"a": [a_signal(waiting=0)]}


def test_an_idle_unit_is_left_alone_while_its_hosts_are_paid():
    view = a_view(on={"h1": ["a"] * 4, "h2": ["a"]}, signals=CALM, remaining_s=181.0)
    assert kinds(Btu().decide(view)) == []


@pytest.mark.parametrize(
    ("btu_s", "interval_s", "remaining_s", "judged"),
    [
        (3600.0, 60.0, 180.0, True),  # 5 % of an hour
        (3600.0, 60.0, 181.0, False),
        (600.0, 60.0, 60.0, True),  # 5 % are 30 s, the loop takes 60 s
        (600.0, 60.0, 61.0, False),
        (600.0, 10.0, 30.0, True),  # the shutdown takes 30 s
        (60.0, 60.0, 60.0, True),
    ],
)
def test_a_host_is_judged_in_the_longest_of_three_windows(btu_s, interval_s, remaining_s, judged):
    view = a_view(
        a_topology(btu_s=btu_s),
        on={"h1": ["a"], "h2": []},
        signals=CALM,
        remaining_s={"h1": btu_s, "h2": remaining_s},
        interval_s=interval_s,
    )
    released = [action.host for action in Btu().decide(view) if isinstance(action, ReleaseHost)]
    assert ("h2" in released) is judged


def test_release_stops_what_may_stop_and_migrates_the_rest():
    view = a_view(
        on={"h1": ["a", "a"], "h2": ["a", "a"]}, signals=CALM, remaining_s={"h1": 1800.0, "h2": 100.0}
    )
    actions = Btu().decide(view)
    assert kinds(actions) == ["StopInstance", "MigrateInstance", "ReleaseHost"]
    stop, migrate, release, _ = actions
    assert isinstance(migrate, MigrateInstance)
    assert migrate.to_host == "h1"
    assert {stop.instance, migrate.instance} == {"a-3", "a-4"}
    assert (
        release.reason
        == "its lease ends in 1 min 40 s: 1 instance not needed and room elsewhere for 1 instance"
    )


def test_a_lease_that_ends_this_very_moment_is_told_to_end_now():
    view = a_view(on={"h1": ["a"], "h2": []}, signals=CALM, remaining_s={"h1": 1800.0, "h2": 0.0})
    (release,) = (action for action in Btu().decide(view) if isinstance(action, ReleaseHost))
    assert release.reason == "its lease ends now: nothing is on it"


def test_release_never_moves_anything_onto_the_host_that_goes():
    view = a_view(on={"h1": ["a"] * 4, "h2": ["a"] * 3}, signals=CALM, remaining_s={"h1": 1800.0, "h2": 9.0})
    actions = Btu().decide(view)
    assert kinds(actions) == ["ProlongLease"]
    assert isinstance(actions[0], ProlongLease)
    assert actions[0].reason == "needed: no other host has room for a-6; its lease would end in 9 s"


def test_a_unit_that_needs_its_instances_keeps_them():
    needed = {"a": [a_signal(waiting=20, duration_s=3.0)]}
    view = a_view(on={"h1": ["a"] * 4, "h2": ["a"]}, signals=needed, remaining_s={"h1": 1800.0, "h2": 9.0})
    assert kinds(Btu().decide(view)) == ["ProlongLease"]


@pytest.mark.parametrize(("cpu_ratio", "shrinks"), [(0.59, True), (0.61, False), (None, True)])
def test_a_unit_shrinks_only_where_the_rest_can_do_its_work(cpu_ratio, shrinks):
    # Three instances at 60 % are two at 90 %.
    calm = {"a": [a_signal(waiting=0, cpu_ratio=cpu_ratio)]}
    view = a_view(on={"h1": ["a"] * 2, "h2": ["a"]}, signals=calm, remaining_s={"h1": 1800.0, "h2": 40.0})
    assert ("StopInstance" in kinds(Btu().decide(view))) is shrinks


def test_a_host_is_kept_where_a_growing_unit_needs_the_room():
    view = a_view(on={"h1": ["a"] * 4, "h2": []}, signals={"a": LATE}, remaining_s={"h1": 1800.0, "h2": 9.0})
    actions = Btu().decide(view)
    assert kinds(actions) == ["ProlongLease", "StartInstance"]
    assert actions[1].host == "h2"


def test_hosts_that_end_together_are_emptied_one_into_the_other_never_both_ways():
    view = a_view(on={"h1": ["a"], "h2": ["a"]}, signals=CALM, remaining_s=50.0)
    actions = Btu(release_ratio=0.0).decide(view)
    released = {action.host for action in actions if isinstance(action, ReleaseHost)}
    moved_to = {action.to_host for action in actions if isinstance(action, MigrateInstance)}
    assert not released & moved_to
    assert len(released) <= 1


def test_the_cap_counts_for_all_hosts_of_one_decision():
    view = a_view(
        on={"h1": ["a"] * 2, "h2": ["a"], "h3": ["a"]},
        signals=CALM,
        remaining_s={"h1": 1800.0, "h2": 50.0, "h3": 50.0},
    )
    assert kinds(Btu().decide(view)) == ["StopInstance", "ReleaseHost", "MigrateInstance", "ReleaseHost"]


def test_release_makes_room_elsewhere_by_shrinking_another_unit():
    topology = a_topology(units=("a", "b"))
    view = a_view(
        topology,
        on={"h1": ["b", "b", "b", "b"], "h2": ["a"]},
        signals={"a": [a_signal()], "b": [a_signal("b")]},
        remaining_s={"h1": 1800.0, "h2": 50.0},
    )
    actions = Btu().decide(view)
    assert kinds(actions) == ["StopInstance", "MigrateInstance", "ReleaseHost"]
    assert actions[0].unit == "b"
    assert actions[1].to_host == "h1"


def test_a_release_is_planned_backwards_from_the_paid_end_with_measured_times():
    """Moving an instance takes 100 s here: the host is judged that much earlier, or kept if it is late."""
    moves = MeasuredTimes(instance_start_s=90.0, retire_s=8.0, move_s=100.0)
    topology = a_topology(min_instances=2)
    placed = {"h1": ["a"], "h2": ["a"]}
    early = replace(
        a_view(topology, on=placed, signals=CALM, remaining_s={"h1": 1800.0, "h2": 150.0}), times=moves
    )
    kinds = [action.kind for action in Btu(shutdown_s=30.0).decide(early)]
    assert kinds[:2] == ["MigrateInstance", "ReleaseHost"]
    late = replace(
        a_view(topology, on=placed, signals=CALM, remaining_s={"h1": 1800.0, "h2": 60.0}), times=moves
    )
    (prolong, _) = Btu(shutdown_s=30.0).decide(late)
    assert prolong == ProlongLease(
        "h2", "needed: emptying it takes 1 min 40 s here and 1 min are left; its lease would end in 1 min"
    )


def test_before_a_retirement_was_measured_it_is_thought_to_take_the_given_time():
    """With a hundredth of a second left, a host would be paid for once more after it was told to go."""
    on, topology = {"h1": ["a"] * 2, "h2": ["a"]}, a_topology()
    for left_s, kind in ((0.01, "ProlongLease"), (31.0, "StopInstance"), (80.0, "StopInstance")):
        view = a_view(topology, on=on, signals=CALM, remaining_s={"h1": 1800.0, "h2": left_s})
        assert Btu(shutdown_s=30.0).decide(view)[0].kind == kind, left_s


def test_a_host_that_another_policy_uses_is_not_emptied():
    topology = a_topology(units=("a", "b"))
    view = a_view(
        topology,
        on={"h1": ["a"], "h2": ["b"]},
        signals=CALM,
        remaining_s={"h1": 1800.0, "h2": 50.0},
        units=("a",),
    )
    actions = Btu().decide(view)
    assert kinds(actions) == ["ProlongLease"]
    assert "b-2 on it belongs to another policy" in actions[0].reason


def test_with_billing_by_the_second_a_lease_runs_on_by_itself():
    view = a_view(a_topology(btu_s=1.0), on={"h1": ["a"] * 4, "h2": ["a"] * 3}, signals=CALM, remaining_s=0.5)
    assert "ProlongLease" not in kinds(Btu().decide(view))


def test_a_host_is_kept_while_an_instance_has_no_host_yet():
    view = a_view(on={"h1": ["a"], "h2": []}, signals=CALM, remaining_s={"h1": 1800.0, "h2": 50.0})
    view.deployment.instances["a-9"] = an_instance("a-9", "a", None, view.topology, InstanceState.REQUESTED)
    actions = Btu().decide(view)
    assert kinds(actions) == ["ProlongLease"]
    assert "an instance of a has no host yet" in actions[0].reason


def test_migration_stays_at_the_sites_of_the_unit():
    topology = a_topology()
    abroad = replace(topology.sites[0], name="abroad")
    unit = replace(topology.units[0], sites=("c",))
    topology = replace(topology, sites=(topology.sites[0], abroad), units=(unit,))
    view = a_view(topology, on={"h1": ["a"], "h2": []}, signals=CALM, remaining_s={"h1": 50.0, "h2": 1800.0})
    view.deployment.hosts["h2"] = replace(view.deployment.hosts["h2"], site="abroad")
    actions = Btu().decide(view)
    assert kinds(actions) == ["ProlongLease"]
    assert "no other host has room for a-1" in actions[0].reason


@pytest.mark.parametrize("parameters", [{"observations": 0}, {"release_ratio": 1.5}, {"window_ratio": -0.1}])
def test_impossible_parameters_are_refused(parameters):
    with pytest.raises(ConfigurationError):
        Btu(**parameters)
