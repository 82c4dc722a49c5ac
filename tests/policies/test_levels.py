"""Policy `levels`: the cheapest level that helps, last in first out, by health, by map, by profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.fleet.actions import Hold, LeaseHost, ResizeInstance, StartInstance, StopInstance
from penstock.levels.configuration import Configuration, ConfigurationMap
from penstock.levels.day import DailyLoad, learned
from penstock.levels.platform import Level, PlatformProfile, default_profile
from penstock.policies.levels import Levels, entry_units, trend
from penstock.policies.levels_moves import grow, shrink, slots_of
from penstock.policies.planning import Plan
from penstock.policies.registry import make_policy
from penstock.policies.view import View
from penstock.topology.model import Choice, Topology, Unit
from tests.builders import NOW_S, a_flavour, a_signal, a_site, a_topology, a_view, an_operator


def shaped(most: int = 4, cores: float = 4.0, memory_mib: int = 8192) -> Topology:
    """One unit whose instances may grow, on hosts of so many cores."""
    sites = [a_site(flavours=[a_flavour(cores=cores, memory_mib=memory_mib)])]
    return a_topology(units=[Unit("a", ("a",), max_slots=most, slot_memory_mib=64)], sites=sites)


def seen(
    topology: Topology,
    *rates: float,
    health: float = 1.0,
    cpu: float = 0.8,
    measured: dict[str, Any] | None = None,
    **changes: Any,
) -> View:
    """A view in which these loads were observed, the newest last; what was not executed waits."""
    view = a_view(topology, queue=None, **changes)
    left = round(sum(rates) * 15 * (1 - health))
    signals = tuple(
        a_signal(
            at_s=NOW_S - 15.0 * (len(rates) - 1 - k),
            arrived=round(rate * 15),
            processed=round(rate * 15 * health),
            cpu_ratio=cpu,
            **{"queue": left, **(measured or {})},
        )
        for k, rate in enumerate(rates)
    )
    return type(view)(
        view.now_s, view.topology, view.deployment, view.leases, {"a": signals}, units=("a",), next_host=9,
        next_instance=9,
    )  # fmt: skip


def kinds(actions: Any) -> list[str]:
    return [action.kind for action in actions if action.changes]


@pytest.fixture
def known(tmp_path: Path) -> str:
    """A map of three configurations: 1, 2 and 6 slots."""
    layouts = (({"a": (1,)},), ({"a": (2,)},), ({"a": (4,)}, {"a": (2,)}))
    tops = (100.0, 200.0, 600.0)
    configurations = tuple(
        Configuration(0.0 if k == 0 else tops[k - 1], tops[k], layouts[k]) for k in range(3)
    )
    return str(ConfigurationMap("t", 0.9, configurations).write(tmp_path / "map.yaml"))


def test_a_congested_unit_gets_a_slot_where_its_instance_may_grow() -> None:
    actions = Levels().decide(seen(shaped(), 50, 50, 50, health=0.5))
    assert [(a.kind, a.slots) for a in actions if isinstance(a, ResizeInstance)] == [("ResizeInstance", 2)]


def test_a_healthy_unit_is_left_alone_and_an_idle_one_gives_up_what_came_last() -> None:
    topology = shaped(1)
    assert kinds(Levels().decide(seen(topology, 50, 50, 50, on={"h1": ["a", "a"]}))) == []
    idle = seen(topology, 5, 5, 5, cpu=0.1, on={"h1": ["a"], "h2": ["a"]})
    stopped = [a for a in Levels(keep_paid=False).decide(idle) if isinstance(a, StopInstance)]
    assert [a.instance for a in stopped] == ["a-h2-1"]


def test_a_unit_that_has_finished_nothing_yet_is_waited_for() -> None:
    actions = Levels().decide(seen(shaped(), 50, 50, 50, health=0.0))
    assert kinds(actions) == []
    assert [a.reason for a in actions] == ["nothing is finished yet"]


def test_what_the_next_micro_batch_takes_is_no_congestion() -> None:
    # Micro-batches of 450 records, each observed when it is done: three in the time in which 3.5 came.
    taken = {"in_service": 450, "queue": 300, "service_s": 0.01}
    assert kinds(Levels().decide(seen(shaped(), 50, 50, 50, health=0.8, measured=taken))) == []
    more = taken | {"queue": 900}
    assert kinds(Levels().decide(seen(shaped(), 50, 50, 50, health=0.8, measured=more))) == ["ResizeInstance"]


def test_more_work_than_slots_is_congestion_before_a_backlog_shows() -> None:
    # Micro-batches grow with what waits, so that little seems to wait; a slot does 40 records a second of 50.
    young = {"in_service": 450, "queue": 300, "service_s": 0.025}
    assert kinds(Levels().decide(seen(shaped(), 50, 50, 50, health=0.8, measured=young))) == [
        "ResizeInstance"
    ]
    enough = young | {"service_s": 0.019}
    assert kinds(Levels().decide(seen(shaped(), 50, 50, 50, health=0.8, measured=enough))) == []


def test_slots_that_wait_for_a_service_are_busy_though_they_use_no_cpu() -> None:
    waits = {"service_s": 0.03}
    two = seen(shaped(1), 50, 50, 50, cpu=0.02, on={"h1": ["a", "a"]}, measured=waits)
    assert kinds(Levels(keep_paid=False).decide(two)) == []
    free = seen(shaped(1), 50, 50, 50, cpu=0.02, on={"h1": ["a", "a"]}, measured={"service_s": 0.003})
    assert kinds(Levels(keep_paid=False).decide(free)) == ["StopInstance"]


def test_nothing_is_concluded_from_what_was_seen_before_the_last_change() -> None:
    view = seen(shaped(), 50, 50, 50, health=0.5)
    running = [a for a in Levels(observations=3).decide(view) if a.changes]
    assert running
    fresh = seen(shaped(), 50, 50, health=0.5)
    assert kinds(Levels(observations=3).decide(fresh)) == []


def test_a_full_host_means_a_host_and_only_then() -> None:
    full = seen(shaped(4), 50, 50, 50, health=0.5, on={"h1": ["a"] * 4})
    actions = Levels().decide(full)
    assert kinds(actions) == ["LeaseHost", "StartInstance"]


def test_a_platform_whose_slots_do_not_pay_gets_instances(tmp_path: Path) -> None:
    level = Level(1.0, 100, 1.0)
    profile = PlatformProfile("x", {"slot": Level(0.0, 1, 0.1), "instance": level, "host": level})
    file = profile.write(tmp_path / "platform.yaml")
    assert PlatformProfile.read(file) == profile
    actions = Levels(platform=str(file)).decide(seen(shaped(), 50, 50, 50, health=0.5))
    assert kinds(actions) == ["StartInstance"]


def test_the_map_is_followed_up_at_once_and_down_only_when_all_observations_agree(known: str) -> None:
    policy = Levels(map=known, keep_paid=False)
    up = policy.decide(seen(shaped(), 90, 120, 150))
    assert [a.slots for a in up if isinstance(a, ResizeInstance)] == [2]
    two = seen(shaped(), 250, 90, 90, on={"h1": ["a", "a", "a"]})
    assert not [a for a in policy.decide(two) if isinstance(a, StopInstance)]
    three = seen(shaped(), 90, 90, 90, on={"h1": ["a", "a", "a"]})
    assert len([a for a in policy.decide(three) if isinstance(a, StopInstance)]) == 2


def test_a_single_swing_changes_nothing(known: str) -> None:
    policy = Levels(map=known, observations=5)
    assert kinds(policy.decide(seen(shaped(), 60, 60, 130, 60, 60))) == []


def test_a_count_that_swings_around_a_threshold_changes_nothing(known: str) -> None:
    policy = Levels(map=known)
    assert kinds(policy.decide(seen(shaped(), 100, 99.9, 100.3))) == []
    assert kinds(policy.decide(seen(shaped(), 103, 103, 103))) == ["ResizeInstance"]


def test_hosts_are_ordered_before_the_profile_rises(known: str, tmp_path: Path) -> None:
    day = DailyLoad((80.0, 500.0), day_s=2 * (NOW_S + 60.0))
    file = day.write(tmp_path / "day.yaml")
    ahead = Levels(map=known, day=str(file)).decide(seen(shaped(), 80, 80, 80))
    assert "LeaseHost" in kinds(ahead)
    assert kinds(Levels(map=known).decide(seen(shaped(), 80, 80, 80))) == []


def test_a_load_beyond_the_profile_raises_an_alert_and_is_reacted_to(known: str, tmp_path: Path) -> None:
    file = DailyLoad((80.0,), day_s=86400.0).write(tmp_path / "day.yaml")
    actions = Levels(map=known, day=str(file)).decide(seen(shaped(), 180, 180, 180))
    alerts = [a for a in actions if isinstance(a, Hold) and a.reason.startswith("alert")]
    assert alerts
    assert [a.slots for a in actions if isinstance(a, ResizeInstance)] == [2]


def test_a_day_is_learned_as_the_mean_of_days() -> None:
    loads = [(day * 100.0 + s, 10.0 * (1 + day) if s < 50 else 5.0) for day in (0, 1) for s in range(100)]
    found = learned(loads, day_s=100.0, steps=2)
    assert found.rates_per_s == (15.0, 5.0)
    assert found.at(130.0) == 15.0
    assert found.highest(60.0, 110.0) == 15.0
    with pytest.raises(ConfigurationError, match="missing"):
        learned(loads[:20], day_s=100.0, steps=4)


def test_mistakes_are_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="configuration map"):
        make_policy(Choice("levels", {"map": str(tmp_path / "none.yaml")}))
    (tmp_path / "x.yaml").write_text("levels: {slot: 1}")
    with pytest.raises(ConfigurationError, match="platform profile"):
        make_policy(Choice("levels", {"platform": str(tmp_path / "x.yaml")}))


def test_a_source_that_two_units_read_counts_once() -> None:
    assert entry_units(a_topology(units=["a", "b"])) == ("a",)
    assert entry_units(a_topology(units=["a", "b"], chained=True)) == ("a",)


def test_a_trend_is_the_newest_point_of_the_line() -> None:
    assert trend([1.0, 2.0, 3.0]) == pytest.approx(3.0)
    assert trend([5.0]) == 5.0


@settings(max_examples=120, deadline=None)
@given(
    st.integers(1, 5),
    st.sampled_from([1.0, 2.0, 4.0, 8.0]),
    st.sampled_from([1100, 2300, 8192]),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.integers(1, 8),
)
def test_never_a_host_while_a_cheaper_level_would_help(
    most: int, cores: float, memory_mib: int, on: list[int], more: int
) -> None:
    topology = a_topology(
        operators=[an_operator("a", memory_mib=1024)],
        units=[Unit("a", ("a",), max_slots=most, slot_memory_mib=64)],
        sites=[a_site(flavours=[a_flavour(cores=cores, memory_mib=memory_mib)])],
    )
    fits = int(min(cores, memory_mib // 1024))
    view = a_view(topology, on={f"h{k}": ["a"] * min(n, fits) for k, n in enumerate(on)})
    plan = Plan(view)
    for _ in range(more):
        before, instances = dict(plan.room), plan.instances("a")
        have = slots_of(plan, "a")
        level = grow(plan, "a", default_profile(), "more")
        if level is None:
            break
        assert slots_of(plan, "a") == have + 1
        if level == "host":
            assert not any(room.holds(1.0, 1024) for room in before.values()), "an instance had room"
        if level in ("host", "instance"):
            larger = [i for i in instances if plan.slots(i) < most and before[str(i.host)].holds(1.0, 64)]
            assert not larger, "a slot had room"
        for host, room in plan.room.items():
            assert room.cores >= -1e-9, host
            assert room.memory_mib >= 0, host
    total = slots_of(plan, "a")
    leases = [a for a in plan.actions if isinstance(a, LeaseHost)]
    starts = [a for a in plan.actions if isinstance(a, StartInstance)]
    assert len(leases) <= len(starts)
    # Last in, first out: after taking all that can go, what is left is what stood first.
    shrink(plan, "a", total, "less")
    if plan.instances("a"):
        assert plan.count("a") == 1
        assert plan.slots(plan.instances("a")[0]) == 1
