"""What no policy has to think of: least and first instances, as many a turn as keep it short."""

from __future__ import annotations

from dataclasses import replace

from penstock.controller.deciding import after, asked_for, housekeeping, room_for
from penstock.fleet.actions import (
    Action,
    Hold,
    LeaseHost,
    MigrateInstance,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.policies.planning import MOST_STARTS, Plan
from penstock.policies.view import ScalingEvent, View
from tests.policies.views import a_topology, a_view


def large(initial: int) -> View:
    topology = a_topology()
    unit = replace(topology.units[0], initial_instances=initial, max_instances=1000)
    site = replace(topology.sites[0], max_hosts=1000)
    return a_view(replace(topology, units=(unit, *topology.units[1:]), sites=(site,)), on={})


def started(view: View) -> int:
    return sum(isinstance(action, StartInstance) for action in housekeeping(view))


def test_a_decision_starts_so_many_and_the_next_ones_start_the_rest() -> None:
    view, counts = large(MOST_STARTS * 2 + 7), []
    for _ in range(4):
        actions = housekeeping(view)
        counts.append(sum(isinstance(action, StartInstance) for action in actions))
        history = tuple(ScalingEvent(0.0, a.kind, a.unit, a.subject) for a in actions if a.changes)
        view = replace(after(view, actions), history=view.history + history, started=0)
    assert counts == [MOST_STARTS, MOST_STARTS, 7 + len(view.topology.units) - 1, 0]


def test_what_is_left_over_is_told() -> None:
    actions = housekeeping(large(MOST_STARTS + 1))
    (held,) = [action for action in actions if isinstance(action, Hold) and action.unit == "a"]
    assert "the rest follows" in held.reason


def test_a_policy_starts_no_more_than_what_the_turn_leaves_it() -> None:
    view = replace(large(1), started=MOST_STARTS)
    assert not Plan(view).start("a", "much to do")


def test_first_instances_are_not_wanted_again_after_some_were_stopped() -> None:
    view = large(50)
    assert started(view) >= 50
    stopped = (ScalingEvent(0.0, StopInstance.kind, "a", "a-1"),)
    assert started(replace(view, history=stopped)) == len(view.topology.units)


def test_first_instances_that_were_lost_are_not_wanted_again_by_a_controller_that_comes_back() -> None:
    view = large(3)
    begun = tuple(ScalingEvent(0.0, StartInstance.kind, "a", f"a-{number}") for number in (1, 2, 3))
    assert started(replace(view, history=begun)) == len(view.topology.units)


def full(max_hosts: int = 10) -> View:
    """Two units, each with its one instance on a host of its own that has room for no other."""
    topology = a_topology(units=("a", "b"), host_cores=1.0, max_hosts=max_hosts, max_instances=1)
    return a_view(topology, on={"c-h1": ["a"], "c-h2": ["b"]})


def moved_to(view: View, hosts: list[str], leases: list[Action]) -> str:
    """Where the instance goes of a host that is to go, while these hosts are kept for a next version."""
    wishes = asked_for(view, [ReleaseHost("c-h1", "told", asked=True), *leases], hosts)
    leased = [action.host for _, action in wishes if isinstance(action, LeaseHost)]
    assert len(leased) == len(set(leased)), "no two of one name"
    (move,) = [action for _, action in wishes if isinstance(action, MigrateInstance)]
    assert move.to_host in {*leased, *view.deployment.hosts}
    return str(move.to_host)


def test_a_host_that_is_emptied_does_not_take_the_room_that_is_made_for_a_next_version() -> None:
    view = full()
    hosts, leases = room_for(view, ["b"], "room beside")
    assert moved_to(view, hosts, leases) not in {*hosts, "c-h1", "c-h2"}, "leased in the same turn"
    later = after(view, leases)
    assert moved_to(later, hosts, []) not in {*hosts, "c-h1", "c-h2"}, "leased in an earlier one"


def test_where_no_other_host_can_be_had_it_does() -> None:
    view = full(max_hosts=3)
    hosts, leases = room_for(view, ["b"], "room beside")
    assert [moved_to(view, hosts, leases)] == hosts
