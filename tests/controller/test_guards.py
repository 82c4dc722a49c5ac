"""Each guard refuses what it is there for, and no wishes together break a bound or a host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.controller.guards import guard
from penstock.fleet.actions import (
    Action,
    Hold,
    LeaseHost,
    MigrateInstance,
    ProlongLease,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.fleet.deployment import HostState, InstanceState
from penstock.policies.planning import projected
from penstock.policies.view import ScalingEvent, View
from penstock.topology.model import LoopSettings, Unit
from tests.builders import a_flavour, a_host, a_site, a_topology, a_view, an_instance

NOT_EMPTY = "host h1 is not empty: a-1"


def start(name: str = "a-9", host: str | None = "h1", unit: str = "a") -> StartInstance:
    return StartInstance(name, unit, host, "wanted")


def stop(name: str = "a-h1-1", unit: str = "a") -> StopInstance:
    return StopInstance(name, unit, "wanted")


def lease(host: str = "c-h9", flavour: str = "m", site: str = "c", unit: str | None = "a") -> LeaseHost:
    return LeaseHost(host, site, flavour, "wanted", unit)


def migrate(name: str = "a-h1-1", to: str | None = "h2", replacement: str = "a-9") -> MigrateInstance:
    return MigrateInstance(name, replacement, "a", to, "wanted")


def release(host: str = "h1") -> ReleaseHost:
    return ReleaseHost(host, "wanted")


def refusals(view: View, *actions: Action) -> list[str | None]:
    """What the guards say to each of these wishes, made one after the other in one tick."""
    verdicts = guard(tuple(("p", action) for action in actions), view)
    assert [verdict.action for verdict in verdicts] == list(actions)
    return [verdict.refused for verdict in verdicts]


def looped(**settings_: Any) -> Any:
    return a_topology(loop=LoopSettings(**settings_), max_instances=9)


def scaled_ago(seconds: float, kind: str = "StartInstance", unit: str = "a") -> tuple[ScalingEvent, ...]:
    return (ScalingEvent(6000.0 - seconds, kind, unit, "a-1"),)


def test_the_upper_bound_counts_what_this_tick_has_allowed() -> None:
    view = a_view(a_topology(max_instances=2))
    assert refusals(view, start("a-9"), start("a-10")) == [None, "bound: at most 2 instances"]
    assert refusals(view, stop(), start("a-9"), start("a-10"))[0] == "bound: at least 1 instance"


def test_the_lower_bound_counts_what_this_tick_has_allowed() -> None:
    view = a_view(a_topology(min_instances=2), on={"h1": ["a"] * 4})
    wishes = [stop(f"a-h1-{number}") for number in (1, 2, 3, 4)]
    least = "bound: at least 2 instances"
    assert refusals(view, *wishes) == [None, None, least, least]


def test_the_last_instance_stays_even_where_the_least_is_none() -> None:
    view = a_view(a_topology(min_instances=0))
    assert refusals(view, stop()) == ["bound: at least 1 instance"]


@pytest.mark.parametrize(
    ("ago_s", "kind", "unit", "refused"),
    [
        (30, "StartInstance", "a", "cooldown: scaled 30 s ago, 60 s wanted"),
        (59, "StopInstance", "a", "cooldown: scaled 59 s ago, 60 s wanted"),
        (60, "StartInstance", "a", None),
        (30, "StartInstance", "b", None),
        (30, "LeaseHost", "a", None),
    ],
)
def test_a_unit_scaled_lately_cools_down(ago_s: float, kind: str, unit: str, refused: str | None) -> None:
    view = a_view(looped(cooldown_s=60.0), on={"h1": ["a", "a"]}, history=scaled_ago(ago_s, kind, unit))
    assert refusals(view, start()) == [refused]
    assert refusals(view, stop()) == [refused]
    assert refusals(view, lease()) == [refused]


def test_a_unit_below_its_least_is_repaired_in_cooldown_and_blackout() -> None:
    topology = a_topology(min_instances=2, loop=LoopSettings(cooldown_s=600.0, blackout=((0.0, 24.0),)))
    view = a_view(topology, history=scaled_ago(5))
    wishes = (lease(), start("a-9", "c-h9"), start("a-10", "c-h9"))
    assert refusals(view, *wishes) == [None, None, "blackout hours"]


def test_a_unit_takes_no_larger_step_than_the_largest() -> None:
    view = a_view(looped(largest_step=2), on={"h1": ["a"] * 4, "h2": []})
    too_many = "largest step: 2 instances in one tick"
    assert refusals(view, *(start(f"a-{n}", "h2") for n in (8, 9, 10))) == [None, None, too_many]
    assert refusals(view, *(stop(f"a-h1-{n}") for n in (1, 2, 3))) == [None, None, too_many]
    assert refusals(view, start("a-8", "h2"), start("a-9", "h2"), lease())[-1] == too_many


@pytest.mark.parametrize(
    ("blackout", "hour", "dark"),
    [
        (((9.0, 17.0),), 8.9, False), (((9.0, 17.0),), 9.0, True), (((9.0, 17.0),), 16.9, True),
        (((9.0, 17.0),), 17.0, False), (((22.0, 6.0),), 23.0, True), (((22.0, 6.0),), 0.0, True),
        (((22.0, 6.0),), 5.9, True), (((22.0, 6.0),), 6.0, False), (((22.0, 6.0),), 21.9, False),
        (((1.0, 2.0), (3.0, 4.0)), 3.5, True), (((1.0, 2.0), (3.0, 4.0)), 2.5, False), ((), 12.0, False),
    ],
)  # fmt: skip
def test_nothing_is_scaled_in_blackout_hours(blackout: Any, hour: float, dark: bool) -> None:
    on = {"h1": ["a", "a"], "h2": []}
    view = a_view(looped(blackout=blackout), on=on, now_s=3 * 86400 + hour * 3600)
    refused = "blackout hours" if dark else None
    assert refusals(view, start()) == [refused]
    assert refusals(view, stop()) == [refused]
    assert refusals(view, lease()) == refusals(view, lease(unit=None)) == [refused]
    assert refusals(view, migrate()) == [refused]
    assert refusals(view, release("h2")) == refusals(view, ProlongLease("h1", "")) == [None]


@pytest.mark.parametrize(
    ("hold_backlog", "queue", "refused"),
    [
        (10, 11, "backlog: 11 waiting or in work > 10, no shrinking while it drains"),
        (10, 10, None),
        (None, 9999, None),
        (10, None, None),
    ],
)
def test_no_unit_shrinks_while_a_backlog_drains(
    hold_backlog: int | None, queue: int | None, refused: str | None
) -> None:
    view = a_view(looped(hold_backlog=hold_backlog), on={"h1": ["a", "a"]}, queue=queue)
    assert refusals(view, stop()) == [refused]
    assert refusals(view, start()) == [None]


def test_no_unit_shrinks_below_the_slots_that_are_kept_all_the_time() -> None:
    view = a_view(looped(), on={"h1": ["a"] * 4}, queue=0)
    (signal,) = view.windows["a"]
    kept = replace(signal, measurement=replace(signal.measurement, kept_slots=3))
    view = replace(view, windows={"a": (kept,)})
    wishes = [stop("a-h1-1"), stop("a-h1-2"), start()]
    assert refusals(view, *wishes) == [None, "real time: 3 slots must be there all the time", None]
    two = replace(view.topology, units=tuple(replace(unit, slots=2) for unit in view.topology.units))
    wishes = [stop("a-h1-1"), stop("a-h1-2"), stop("a-h1-3")]
    assert [bool(told) for told in refusals(replace(view, topology=two), *wishes)] == [False, False, True]


def test_a_site_and_a_flavour_lease_no_more_hosts_than_they_have() -> None:
    site = a_site(flavours=[a_flavour("m", max_hosts=1), a_flavour("l", cores=8.0)], max_hosts=3)
    view = a_view(a_topology(sites=[site]))
    assert refusals(
        view, lease("c-h8", "m"), lease("c-h9", "l"), lease("c-h10", "l"), lease("c-h11", "l")
    ) == [
        "quota: site c has its 1 host of flavour m",
        None,
        None,
        "quota: site c has its 3 hosts",
    ]


@pytest.mark.parametrize(
    ("action", "refused"),
    [
        (lease("h1"), "host h1 exists already"),
        (lease(site="x"), "unknown site x"),
        (lease(flavour="x"), "site c has no flavour x"),
        (start(unit="x"), "unknown unit x"),
        (start("a-h1-1"), "instance a-h1-1 exists already"),
        (start(host="h7"), "host h7 takes no instances"),
        (start(host="draining"), "host draining takes no instances"),
        (start(host="failed"), "host failed takes no instances"),
        (start(host="far"), "host far is at site d, where unit a may not run"),
        (start(host=None), None),
        (start(host="starting"), None),
        (stop("a-7"), "instance a-7 of unit a is not there"),
        (stop("b-h1-2"), "instance b-h1-2 of unit a is not there"),
        (stop("a-retiring"), "instance a-retiring of unit a is not there"),
        (migrate(to="h7"), "host h7 takes no instances"),
        (migrate(replacement="b-h1-2"), "instance b-h1-2 exists already"),
        (migrate("a-7"), "instance a-7 of unit a is not there"),
        (migrate(to="far"), "host far is at site d, where unit a may not run"),
        (migrate(to="starting"), None),
        (release("h7"), "host h7 is not there"),
        (release("h1"), "host h1 is not empty: a-h1-1, b-h1-2"),
        (release("failed"), None),
        (release("starting"), None),
        (ProlongLease("h7", ""), "host h7 has no lease"),
        (ProlongLease("h1", ""), None),
        (Hold("a", ""), None),
    ],
)
def test_wishes_about_things_that_are_not_so_are_refused(action: Action, refused: str | None) -> None:
    units = [Unit("a", ("a",), sites=("c",)), Unit("b", ("b",))]
    view = a_view(
        a_topology(units=units, sites=[a_site("c"), a_site("d")]),
        on={"h1": ["a", "b"]},
        hosts=[
            a_host("draining", state=HostState.DRAINING),
            a_host("failed", state=HostState.FAILED),
            a_host("starting", state=HostState.STARTING),
            a_host("far", site="d"),
        ],
        instances=[
            an_instance("a-retiring", state=InstanceState.RETIRING),
            an_instance("a-dead", host="failed", state=InstanceState.FAILED),
        ],
    )
    assert refusals(view, action) == [refused]


def test_a_name_is_not_given_twice_in_one_tick() -> None:
    view = a_view(on={"h1": ["a"], "h2": []})
    assert refusals(view, start(), start()) == [None, "instance a-9 exists already"]
    assert refusals(view, lease(), lease()) == [None, "host c-h9 exists already"]
    assert refusals(view, release("h2"), release("h2")) == [None, "host h2 is released already"]
    assert refusals(view, start(), migrate()) == [None, "instance a-9 exists already"]


def test_a_host_takes_no_more_than_it_holds() -> None:
    view = a_view(on={"h1": ["a"] * 3, "h2": []})
    full = "host h1 has no room: 0 cores and 4096 MiB are left"
    assert refusals(view, start("a-8"), start("a-9")) == [None, full]
    assert refusals(view, start("a-8"), stop(), start("a-9")) == [None, None, None]
    assert refusals(view, start("a-8"), migrate(), start("a-10")) == [None, None, None]


def test_memory_counts_as_much_as_cores() -> None:
    site = a_site(flavours=[a_flavour(cores=64.0, memory_mib=2048)])
    view = a_view(a_topology(sites=[site]))
    full = "host h1 has no room: 62 cores and 0 MiB are left"
    assert refusals(view, start("a-8"), start("a-9")) == [None, full]


def test_a_refused_lease_drags_the_start_on_its_host_with_it() -> None:
    view = a_view(a_topology(sites=[a_site(max_hosts=1)]))
    assert refusals(view, lease(), start(host="c-h9")) == [
        "quota: site c has its 1 host",
        "host c-h9 was refused",
    ]
    assert refusals(view, lease("c-h8"), start(host="c-h8")) != [None, None]


def test_no_host_is_leased_for_a_start_that_is_refused() -> None:
    view = a_view(a_topology(max_instances=1))
    assert refusals(view, lease(), start(host="c-h9")) == ["bound: at most 1 instance"] * 2


def test_a_host_is_leased_for_a_move_whatever_keeps_the_unit_from_growing() -> None:
    loop = LoopSettings(cooldown_s=600.0, largest_step=1)
    view = a_view(a_topology(max_instances=1, loop=loop), history=scaled_ago(5))
    assert refusals(view, lease(), migrate(to="c-h9"), release("h1")) == [None, None, None]
    assert refusals(view, lease(), start(host="c-h9"))[0] == "bound: at most 1 instance"


def test_blackout_hours_stop_a_move_but_none_off_a_host_that_is_taken_away() -> None:
    loop = LoopSettings(blackout=((0.0, 24.0),))
    taken = replace(a_host("h1"), taken_s=7000.0)
    wishes = (lease(), migrate("a-1", to="c-h9"), release("h1"))
    for host, refused in ((a_host("h1"), "blackout hours"), (taken, None)):
        view = a_view(a_topology(loop=loop), on={}, hosts=[host], instances=[an_instance()])
        assert refusals(view, *wishes)[0] == refused
        assert refusals(view, *wishes)[1:] == ([None, None] if host is taken else [refused, NOT_EMPTY])


def test_a_host_that_is_taken_away_is_not_kept_by_what_does_not_serve_there() -> None:
    for state, refused in ((InstanceState.REQUESTED, None), (InstanceState.RUNNING, NOT_EMPTY)):
        taken = replace(a_host("h1"), taken_s=7000.0)
        view = a_view(on={}, hosts=[taken], instances=[an_instance(state=state)])
        assert refusals(view, release("h1")) == [refused]
        kept = a_view(on={}, hosts=[a_host("h1")], instances=[an_instance(state=state)])
        assert refusals(kept, release("h1")) == [NOT_EMPTY]


def test_a_host_emptied_in_the_same_tick_may_be_released_and_takes_nothing_any_more() -> None:
    view = a_view(on={"h1": ["a"], "h2": ["a"]})
    assert refusals(view, migrate(), release("h1"), start("a-10", "h1")) == [
        None,
        None,
        "host h1 takes no instances",
    ]


# -- properties ---------------------------------------------------------------------------------------

UNITS = ("a", "b")
NAMES = st.sampled_from(["a-h1-1", "a-h1-2", "b-h1-3", "a-h2-1", "b-h2-2", "a-9", "a-10", "b-11", "b-12"])
HOSTS = st.sampled_from(["h1", "h2", "h3", "c-h8", "c-h9", "d-h10"])
WISHES = st.lists(
    st.one_of(
        st.builds(StartInstance, NAMES, st.sampled_from(UNITS), HOSTS, st.just("")),
        st.builds(StopInstance, NAMES, st.sampled_from(UNITS), st.just("")),
        st.builds(MigrateInstance, NAMES, NAMES, st.sampled_from(UNITS), HOSTS, st.just("")),
        st.builds(
            LeaseHost, HOSTS, st.sampled_from(["c", "d"]), st.just("m"), st.just(""), st.sampled_from(UNITS)
        ),
        st.builds(ReleaseHost, HOSTS, st.just("")),
        st.builds(ProlongLease, HOSTS, st.just("")),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(WISHES, st.integers(1, 3), st.integers(3, 6), st.integers(2, 4))
def test_no_wishes_pass_the_guards_and_break_bounds_quotas_or_hosts(wishes, least, most, max_hosts) -> None:
    units = [
        Unit("a", ("a",), sites=("c",), min_instances=least, max_instances=most),
        Unit("b", ("b",), min_instances=1, max_instances=3),
    ]
    topology = a_topology(units=units, sites=[a_site("c", max_hosts=max_hosts), a_site("d", max_hosts=1)])
    view = a_view(topology, on={"h1": ["a", "a", "b"], "h2": ["a", "b"]})
    before = {unit: len(view.instances(unit)) for unit in UNITS}

    verdicts = guard(tuple(("p", wish) for wish in wishes), view)
    allowed = [verdict.action for verdict in verdicts if verdict.refused is None]
    after = projected(view, allowed)

    for unit in units:
        count = len(after.of_unit(unit.name))
        assert min(before[unit.name], unit.min_instances) <= count
        assert count <= max(before[unit.name], unit.max_instances)
    for name, host in after.hosts.items():
        serving = [i for i in after.on_host(name) if i.state is not InstanceState.RETIRING]
        assert sum(i.cores for i in serving) <= host.flavour.cores
        assert sum(i.memory_mib for i in serving) <= host.flavour.memory_mib
        assert host.site == "c" or all(i.unit == "b" for i in serving)
    assert sum(after.leased.get("c", {}).values()) <= max(2, max_hosts)
    assert sum(after.leased.get("d", {}).values()) <= 1
    for instance in after.instances.values():
        if instance.state is not InstanceState.RETIRING:
            assert instance.host in after.hosts
