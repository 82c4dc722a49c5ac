"""The loop: what is decided together, what is repaired, what the books learn from the cluster."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import VirtualClock
from penstock.controller.journal import Journal
from penstock.controller.loop import Controller, NewBudgets, Tick
from penstock.controller.mode import Mode
from penstock.fleet.actions import (
    LeaseHost,
    MigrateInstance,
    ReleaseHost,
    StartInstance,
    StopInstance,
    described,
)
from penstock.fleet.deployment import Deployment, HostState
from penstock.policies.planning import MOST_STARTS
from penstock.policies.view import View
from penstock.topology.model import Choice, LoopSettings, Topology, Unit
from tests.builders import a_flavour, a_host, a_site, a_topology
from tests.grounds import HandGround


class Loop:
    """A controller on a hand-written cluster and a virtual clock."""

    def __init__(self, topology: Topology, journal: str | Path = "sqlite://", **changes: Any) -> None:
        self.clock = VirtualClock()
        self.cluster = HandGround(topology, **changes)
        self.journal = Journal(journal, "r", buffered=True)
        self.topology = topology
        self.controller = Controller(topology, self.cluster.ground, self.clock, self.journal)

    def tick(self, wait_s: float = 60.0) -> Tick:
        found = self.controller.tick()
        self.clock.wait_until(self.clock.now_s() + wait_s)
        return found

    def refused(self, tick: Tick) -> dict[str, str]:
        return {described(v.action).split(":")[0]: v.refused for v in tick.verdicts if v.refused}


def kinds(tick: Tick) -> list[str]:
    return [type(outcome.action).__name__ for outcome in tick.outcomes]


def test_the_first_tick_brings_every_unit_to_its_initial_instances() -> None:
    loop = Loop(a_topology(units=("a", "b"), initial_instances=2))
    tick = loop.tick()
    assert kinds(tick) == ["LeaseHost"] + ["StartInstance"] * 4
    assert {unit for unit, _ in loop.cluster.instances.values()} == {"a", "b"}
    assert list(loop.controller.state.ledger.leases) == ["c-h1"]
    assert loop.tick().outcomes == ()


def test_more_than_a_decision_starts_goes_on_at_the_next_tick_and_not_at_the_next_decision() -> None:
    wide = a_site(flavours=[a_flavour(cores=1000.0, memory_mib=1 << 24)])
    many = 2 * MOST_STARTS + 7
    loop = Loop(a_topology(sites=[wide], initial_instances=many, max_instances=many))
    started = [kinds(loop.tick(wait_s=15.0)).count("StartInstance") for _ in range(4)]
    assert started == [MOST_STARTS, MOST_STARTS, 7, 0]


def test_what_is_decided_in_the_turn_of_something_asked_for_gets_instances_of_its_own() -> None:
    site = a_site(flavours=[a_flavour(cores=1.0)])
    loop = Loop(a_topology(units=("a",), sites=[site]))
    loop.tick()
    loop.cluster.queues = {"a": 100}
    loop.controller.ask(MigrateInstance("a-1", "", "a", None, "told"))
    tick = loop.tick()
    assert {"MigrateInstance", "StartInstance"} <= set(kinds(tick))
    started = [o.action.starts.instance for o in tick.outcomes if o.action.starts is not None]
    assert started == ["a-2", "a-3"]


def a_loop_of_full_hosts() -> Loop:
    """One unit, whose one instance takes a whole host."""
    site = a_site(flavours=[a_flavour(cores=1.0)])
    loop = Loop(a_topology(units=("a",), sites=[site], policy=Choice("fixed"), max_instances=1))
    loop.tick()
    loop.tick()
    return loop


def test_room_for_a_next_version_is_leased_again_where_the_host_that_had_it_goes() -> None:
    loop = a_loop_of_full_hosts()
    loop.controller.room.make(["a"], loop.topology, "room beside")
    assert kinds(loop.tick()) == ["LeaseHost"]
    assert loop.tick().outcomes == (), "there is room now"
    assert loop.controller.room.hosts == {"c-h2"}
    loop.controller.ask(ReleaseHost("c-h2", "told", asked=True))
    loop.tick()
    loop.tick()
    assert loop.controller.room.hosts == {"c-h3"}


def test_no_host_is_given_back_until_the_next_version_was_heard_of() -> None:
    loop = a_loop_of_full_hosts()
    for host in ("c-h2", "c-h3"):
        loop.controller.ask(LeaseHost(host, "c", "m", "by hand"))
    loop.controller.room.make(["a"], loop.topology, "room beside")
    for _ in range(3):
        loop.tick()
    present = set(loop.controller.fleet.deployment().hosts)
    assert {"c-h2", "c-h3"} <= present, "whoever places the next version may take either"
    loop.controller.room.end(loop.clock.now_s() + 600.0)
    loop.tick()
    loop.tick()
    assert set(loop.controller.fleet.deployment().hosts) == {"c-h1"}


def test_units_of_one_policy_share_the_host_that_is_leased_for_one_of_them() -> None:
    site = a_site(flavours=[a_flavour(cores=2.0)])
    loop = Loop(a_topology(units=("a", "b"), sites=[site]))
    loop.tick()
    loop.cluster.queues = {"a": 100, "b": 100}
    tick = loop.tick()
    assert kinds(tick) == ["LeaseHost", "StartInstance", "StartInstance"]
    assert len({host for _, host in loop.cluster.instances.values()}) == 2


def test_two_policies_never_plan_on_the_same_room() -> None:
    """Each sees what the one before it planned: the room, the quota and the names."""
    units = [
        Unit(name, (name,), policy=Choice("threshold", {"up_queue": queue}))
        for name, queue in (("a", 10), ("b", 20), ("d", 30))
    ]
    site = a_site(flavours=[a_flavour(cores=4.0)], max_hosts=2)
    loop = Loop(a_topology(units=units, sites=[site]), queues=dict.fromkeys("abd", 1000))
    first = loop.tick()
    assert loop.refused(first) == {}
    assert len(loop.cluster.hosts) == 2
    assert len(loop.cluster.instances) == 8
    for host in loop.cluster.hosts:
        assert sum(place == host for _, place in loop.cluster.instances.values()) <= 4
    second = loop.tick()
    assert second.outcomes == ()
    assert "no host can be leased" in second.verdicts[0].action.reason


def test_a_unit_that_lost_instances_is_brought_back_without_a_decision() -> None:
    """They are wanted still: the wish is said again until they are seen."""
    loop = Loop(a_topology(min_instances=2, initial_instances=2, loop=LoopSettings(cooldown_s=9999.0)))
    loop.tick()
    loop.tick()
    loop.cluster.instances.clear()
    tick = loop.tick()
    assert kinds(tick) == []
    assert tick.notices == (
        "a-1 of unit a was lost (a-1); another is asked for",
        "a-2 of unit a was lost (a-2); another is asked for",
    )
    assert len(loop.cluster.instances) == 2


def test_a_unit_that_lost_instances_with_their_host_is_brought_back_to_its_least() -> None:
    loop = Loop(a_topology(min_instances=2, initial_instances=2, loop=LoopSettings(cooldown_s=9999.0)))
    loop.tick()
    loop.cluster.host_dies("c-h1")
    tick = loop.tick()
    assert kinds(tick).count("StartInstance") == 2
    assert len(loop.cluster.instances) == 2
    assert {v.policy for v in tick.verdicts if v.action.changes} == {"controller"}


def test_a_failed_host_is_given_back_and_its_lease_ends() -> None:
    loop = Loop(a_topology())
    loop.tick()
    loop.cluster.host_dies("c-h1")
    tick = loop.tick()
    assert kinds(tick) == ["ReleaseHost", "LeaseHost", "StartInstance"]
    assert set(loop.cluster.hosts) == {"c-h2"}
    assert loop.controller.state.ledger.leases["c-h1"].ended_s == 60.0
    assert set(loop.controller.state.ledger.open_leases()) == {"c-h2"}


def test_a_host_that_runs_but_is_not_in_the_books_is_adopted_with_its_names() -> None:
    topology = a_topology(sites=[a_site(flavours=[a_flavour(cores=1.0)])])
    loop = Loop(
        topology,
        hosts={"c-h7": a_host("c-h7", flavour=topology.sites[0].flavours[0])},
        instances={"a-12": ("a", "c-h7")},
        queues={"a": 100},
    )
    tick = loop.tick()
    assert "host c-h7 runs but was not in the books: adopted" in tick.notices
    assert loop.controller.state.ledger.leases["c-h7"].started_s == 0.0
    assert set(loop.cluster.hosts) == {"c-h7", "c-h8"}
    assert set(loop.controller.fleet.deployment().instances) == {"a-found-a-12", "a-13"}


def test_the_lease_of_a_host_that_vanished_is_ended() -> None:
    loop = Loop(a_topology(sites=[a_site(btu_s=50.0)]))
    loop.tick(wait_s=45.0)
    loop.tick(wait_s=15.0)
    loop.cluster.hosts.clear()
    loop.cluster.instances.clear()
    tick = loop.tick()
    assert "host c-h1 is leased but does not exist any more: lease ended" in tick.notices
    lease = loop.controller.state.ledger.leases["c-h1"]
    assert (lease.ended_s, lease.units) == (60.0, 2)
    assert set(loop.cluster.hosts) == {"c-h2"}


def test_a_host_that_could_not_be_released_stays_in_the_books() -> None:
    loop = Loop(a_topology(sites=[a_site(btu_s=100.0)]))
    loop.tick()
    loop.cluster.host_dies("c-h1")
    loop.cluster.errors["c-h1"] = "the provider does not answer"
    for _ in range(3):
        loop.tick()
    assert "c-h1" in loop.controller.state.ledger.open_leases()
    assert loop.controller.state.ledger.leases["c-h1"].units == 2
    loop.cluster.errors.clear()
    loop.tick()
    assert "c-h1" not in loop.controller.state.ledger.open_leases()
    # Decided once, said until the provider takes it.
    assert [r["status"] for r in loop.journal.rows("action") if r["kind"] == "ReleaseHost"] == ["failed"]
    assert loop.journal.leases() == tuple(loop.controller.state.ledger.leases.values())


def test_a_released_host_that_still_runs_is_paid_on() -> None:
    loop = Loop(a_topology(sites=[a_site(btu_s=50.0)]))
    loop.tick()
    loop.controller.state.returned(["c-h1"], 60.0)
    tick = loop.tick()
    assert loop.cluster.hosts["c-h1"].state is HostState.UP
    assert "host c-h1 was released but still runs: its lease goes on" in tick.notices
    assert loop.controller.state.ledger.leases["c-h1"].open


def test_a_refused_lease_is_closed_and_the_next_one_gets_a_new_name() -> None:
    loop = Loop(a_topology())
    loop.cluster.errors = {"c-h1": "quota of the account"}
    assert [outcome.error for outcome in loop.tick().outcomes] == [
        "quota of the account", "host c-h1 was refused",
    ]  # fmt: skip
    state = loop.controller.state
    assert not state.ledger.leases["c-h1"].open
    assert state.ledger.total == 0
    assert state.view(Deployment(), 0.0, ()).scalings.get("a", 0) == 0
    assert state.view(Deployment(), 0.0, ()).history == ()
    loop.tick()
    assert set(loop.cluster.hosts) == {"c-h2"}
    assert set(loop.cluster.instances) == {"a-2"}
    assert state.ledger.total == sum((lease.cost for lease in state.ledger.leases.values()), Decimal(0))


def test_a_refused_lease_is_paid_back_on_the_books_and_in_the_journal() -> None:
    loop = Loop(a_topology())
    loop.cluster.errors = {"c-h1": "quota of the account"}
    loop.tick()
    loop.cluster.errors.clear()
    loop.tick()
    ledger = loop.controller.state.ledger
    charges = loop.journal.charges()
    assert [(c.host, c.units) for c in charges] == [("c-h1", 1), ("c-h1", -1), ("c-h2", 1)]
    assert ledger.leases["c-h1"].cost == 0
    assert ledger.total == sum(charge.amount for charge in charges)
    assert loop.journal.leases() == tuple(ledger.leases.values())


def test_a_host_is_paid_until_the_last_instance_has_left_it() -> None:
    loop = Loop(a_topology(sites=[a_site(btu_s=50.0)]))
    loop.tick(wait_s=15.0)
    loop.tick(wait_s=15.0)
    loop.cluster.deaf = {"a"}  # it goes on for a while, whatever it is told
    fleet = loop.controller.fleet
    fleet.apply(StopInstance("a-1", "a", ""), 30.0)
    fleet.apply(ReleaseHost("c-h1", ""), 30.0)
    loop.tick(wait_s=30.0)
    assert loop.controller.state.ledger.leases["c-h1"].open
    assert "c-h1" in loop.cluster.hosts
    loop.cluster.instances.clear()
    loop.tick()
    lease = loop.controller.state.ledger.leases["c-h1"]
    assert (lease.ended_s, lease.units) == (60.0, 2)
    assert "c-h1" not in loop.cluster.hosts


def test_a_refused_wish_does_not_make_a_later_name_clash() -> None:
    """Names of refused wishes may come again; names of allowed ones must not."""
    topology = a_topology(
        units=[
            Unit("a", ("a",), policy=Choice("fixed", {"instances": 3})),
            Unit("b", ("b",), policy=Choice("fixed", {"instances": 9})),
        ],
        loop=LoopSettings(largest_step=1),
    )
    loop = Loop(topology)
    for _ in range(12):
        loop.tick()
    counts = [unit for unit, _ in loop.cluster.instances.values()]
    assert (counts.count("a"), counts.count("b")) == (3, 9)
    started = [r["subject"] for r in loop.journal.rows("action") if r["kind"] == "StartInstance"
               and r["status"] == "enacted"]  # fmt: skip
    assert len(started) == len(set(started)) == 12


def test_in_advisory_mode_everything_is_said_and_nothing_is_done() -> None:
    loop = Loop(a_topology(loop=LoopSettings(advisory=True)))
    tick = loop.tick()
    assert {v.refused for v in tick.verdicts if isinstance(v.action, LeaseHost | StartInstance)} == {
        "advisory mode"
    }
    assert loop.cluster.hosts == {}
    assert all(not wanted.instances for _, wanted in loop.cluster.told)
    assert loop.controller.state.ledger.leases == {}
    assert {row["status"] for row in loop.journal.rows("action")} == {"refused", "held"}


def test_paused_it_decides_nothing_measures_on_and_does_what_a_person_asks_for() -> None:
    loop = Loop(a_topology(initial_instances=2, sites=[a_site(flavours=[a_flavour(cores=1.0)])]))
    loop.tick()
    loop.controller.mode = Mode.PAUSE
    loop.cluster.queues = {"a": 1000}
    for _ in range(3):
        tick = loop.tick()
        assert tick.verdicts == ()
        assert len(tick.signals) == 1
    assert len(loop.cluster.instances) == 2
    assert [row["decided"] for row in loop.journal.rows("tick")] == [True, False, False, False]

    loop.controller.ask(ReleaseHost("c-h1", "somebody wants it", asked=True))
    assert "MigrateInstance" in kinds(loop.tick())

    loop.controller.mode = Mode.ACT
    assert "StartInstance" in kinds(loop.tick())


def test_what_a_controller_was_told_to_do_less_holds_for_the_next_one_and_ends_with_the_run(
    tmp_path: Path,
) -> None:
    loop = Loop(a_topology(), tmp_path / "j.db")
    loop.tick()
    for mode in (Mode.PAUSE, Mode.ADVISE):
        loop.controller.mode = mode
        loop.tick()
        loop.controller = Controller(loop.topology, loop.cluster.ground, loop.clock, loop.journal)
        assert loop.controller.mode is mode
    loop.controller.finish()
    again = Controller(loop.topology, loop.cluster.ground, loop.clock, loop.journal)
    assert again.mode is Mode.ACT


def test_it_observes_more_often_than_it_decides() -> None:
    loop = Loop(a_topology(), queues={"a": 1000})
    ticks: list[Tick] = []
    loop.controller.run(120.0, ticks.append)
    assert [tick.at_s for tick in ticks if tick.verdicts] == [0.0, 60.0, 120.0]
    assert [tick.at_s for tick in ticks] == [15.0 * n for n in range(9)]
    assert len(loop.journal.rows("observation")) == 9


def test_a_run_ends_at_its_end_even_between_two_ticks() -> None:
    loop = Loop(a_topology())
    ticks: list[float] = []
    loop.controller.run(40.0, lambda tick: ticks.append(tick.at_s))
    assert ticks == [0.0, 15.0, 30.0, 40.0]


def test_a_slow_tick_makes_the_loop_leave_out_those_it_missed() -> None:
    loop = Loop(a_topology())
    ticks: list[float] = []

    def slow(tick: Tick) -> None:
        ticks.append(tick.at_s)
        if tick.at_s == 15.0:
            loop.clock.wait_until(50.0)

    loop.controller.run(90.0, slow)
    assert ticks == [0.0, 15.0, 60.0, 75.0, 90.0]


def test_finishing_gives_every_host_back_and_counts_it_as_the_end_of_the_run() -> None:
    loop = Loop(a_topology(initial_instances=6))
    loop.tick()
    loop.controller.finish()
    assert loop.cluster.hosts == {}
    assert loop.controller.state.ledger.open_leases() == {}
    ends = [row for row in loop.journal.rows("action") if row["kind"] == "ReleaseHost"]
    assert {row["policy"] for row in ends} == {"end of run"}


def test_budgets_reach_the_policies_the_journal_and_a_restarted_controller(tmp_path: Path) -> None:
    seen: list[View] = []

    def budgeting(view: View) -> NewBudgets | None:
        seen.append(view)
        return None if view.budgets else NewBudgets({"a": 0.4}, "first look")

    loop = Loop(a_topology(), tmp_path / "j.db")
    loop.controller = Controller(
        loop.topology, loop.cluster.ground, loop.clock, loop.journal, budgeting=budgeting
    )
    loop.tick()
    loop.tick()
    assert seen[1].slo_s("a") == 0.4
    assert [(r["unit"], r["budget_s"], r["reason"]) for r in loop.journal.rows("budget")] == [
        ("a", 0.4, "first look")
    ]
    again = Controller(loop.topology, loop.cluster.ground, loop.clock, loop.journal)
    assert again.state.budgets == {"a": 0.4}
    assert again.last_decided_s == 60.0


def test_a_unit_that_says_nothing_is_held() -> None:
    loop = Loop(a_topology(units=("a", "b")), queues={"a": 10})
    loop.tick()
    tick = loop.tick()
    assert {v.action.unit: v.action.reason for v in tick.verdicts}["b"] == "no measurement yet"


def test_no_policy_decides_on_a_signal_that_is_too_old() -> None:
    """A unit that fell silent with a long queue must not grow on and on by what was measured long ago."""
    loop = Loop(a_topology(units=("a",), max_instances=20), queues={"a": 1000})
    loop.tick()
    loop.tick()
    assert kinds(loop.tick()).count("StartInstance") > 0
    loop.cluster.queues.clear()
    assert loop.topology.loop.longest_signal_age_s == 60.0
    loop.tick()
    for _ in range(5):
        tick = loop.tick()
        assert kinds(tick) == []
        assert {v.action.reason for v in tick.verdicts} == {"no measurement yet"}


def test_a_host_that_was_asked_to_go_goes_as_soon_as_there_is_room_elsewhere() -> None:
    site = a_site(flavours=[a_flavour(cores=1.0)], max_hosts=2)
    loop = Loop(a_topology(units=("a",), sites=[site], policy=Choice("fixed"), initial_instances=2))
    loop.tick()
    loop.tick()
    loop.controller.ask(ReleaseHost("c-h1", "asked", asked=True))
    for _ in range(3):
        loop.tick()
    assert loop.controller.fleet.deployment().hosts["c-h1"].state is HostState.UP, "the other host is full"
    loop.controller.fleet.apply(StopInstance("a-2", "a", ""), loop.clock.now_s())
    for _ in range(5):
        loop.tick()
    assert "c-h1" not in loop.cluster.hosts
    assert loop.controller.fleet.deployment().of_unit("a")


def test_an_instance_that_was_asked_to_move_goes_to_the_host_that_was_named() -> None:
    site = a_site(flavours=[a_flavour(cores=1.0)], max_hosts=3)
    loop = Loop(a_topology(units=("a",), sites=[site], policy=Choice("fixed"), initial_instances=2))
    loop.tick()
    loop.tick()
    loop.controller.ask(MigrateInstance("a-1", "", "a", "c-h2", "asked"))
    held = [v.action.reason for v in loop.tick().verdicts if not v.action.changes]
    assert "a-1 stays: there is no room for it on c-h2 (asked)" in held
    loop.controller.ask(MigrateInstance("a-1", "", "a", None, "asked"))
    for _ in range(4):
        loop.tick()
    hosts = {instance.host for instance in loop.controller.fleet.deployment().of_unit("a")}
    assert hosts == {"c-h2", "c-h3"}, "a host was leased for it, since none had room"


def test_what_vanished_while_nobody_looked_is_paid_until_it_was_last_seen(tmp_path: Path) -> None:
    """A power cut of a day: the hosts of a run that is taken up again were gone, not leased."""
    loop = Loop(a_topology(sites=[a_site(btu_s=60.0)]), tmp_path / "j.db")
    loop.tick(wait_s=30.0)
    loop.tick(wait_s=86_400.0)
    loop.journal.flush()
    loop.cluster.hosts.clear()
    loop.cluster.instances.clear()
    again = Controller(loop.topology, loop.cluster.ground, loop.clock, loop.journal)
    again.tick()
    lease = again.state.ledger.leases["c-h1"]
    assert (lease.ended_s, lease.units) == (30.0, 1)


@pytest.mark.parametrize("name", ["gaussian", "kalman"])
def test_readings_that_are_missing_give_no_estimate_and_no_warning(name: str) -> None:
    from penstock.controller.filtering import Filtering
    from penstock.monitoring.measurements import InstanceReading
    from tests.builders import a_measurement

    topology = a_topology(units=[Unit("a", ("a",), filter=Choice(name)), Unit("b", ("b",))], per_s=5.0)
    filtering = Filtering(topology)
    silent = a_measurement("a", readings=(InstanceReading("a-1"), InstanceReading("a-2")))
    nobody = a_measurement("b", readings=())
    (first, second), _ = filtering.signals((silent, nobody))
    assert first.cpu_ratio is None
    assert (second.cpu_ratio, second.unit) == (None, "b")
    (unknown,), _ = filtering.signals((a_measurement("a", readings=()), a_measurement("z")))
    assert (unknown.unit, unknown.trusted) == ("a", False)


def test_actions_are_described_in_one_line() -> None:
    assert described(MigrateInstance("a-1", "a-2", "a", "h2", "room")) == "migrate a-1 on h2: room"
    assert described(StartInstance("a-1", "a", None, "queue")) == "start a-1: queue"
