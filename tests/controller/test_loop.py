"""The loop: what is decided together, what is repaired, what the books learn from the cluster."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import VirtualClock
from penstock.controller.journal import Journal
from penstock.controller.loop import Controller, NewBudgets, Tick, described
from penstock.infrastructure.deployment import Deployment, HostState
from penstock.policies.actions import LeaseHost, MigrateInstance, ReleaseHost, StartInstance
from penstock.policies.view import View
from penstock.topology.model import Choice, LoopSettings, Topology, Unit
from tests.builders import a_flavour, a_host, a_site, a_topology, an_instance
from tests.controller.clusters import HandCluster


class Loop:
    """A controller on a hand-written cluster and a virtual clock."""

    def __init__(self, topology: Topology, journal: str | Path = "sqlite://", **changes: Any) -> None:
        self.clock = VirtualClock()
        self.cluster = HandCluster(topology, **changes)
        self.journal = Journal(journal, "r", buffered=True)
        self.topology = topology
        self.controller = Controller(topology, self.cluster, self.clock, self.journal)

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
    assert {i.unit for i in loop.cluster.instances.values()} == {"a", "b"}
    assert list(loop.controller.state.ledger.leases) == ["c-h1"]
    assert loop.tick().outcomes == ()


def test_units_of_one_policy_share_the_host_that_is_leased_for_one_of_them() -> None:
    site = a_site(flavours=[a_flavour(cores=2.0)])
    loop = Loop(a_topology(units=("a", "b"), sites=[site]))
    loop.tick()
    loop.cluster.queues = {"a": 100, "b": 100}
    tick = loop.tick()
    assert kinds(tick) == ["LeaseHost", "StartInstance", "StartInstance"]
    assert len({i.host for i in loop.cluster.instances.values()}) == 2


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
        assert sum(i.cores for i in loop.cluster.instances.values() if i.host == host) <= 4.0
    second = loop.tick()
    assert second.outcomes == ()
    assert "no host can be leased" in second.verdicts[0].action.reason


def test_a_unit_that_lost_instances_is_brought_back_to_its_least() -> None:
    loop = Loop(a_topology(min_instances=2, initial_instances=2, loop=LoopSettings(cooldown_s=9999.0)))
    loop.tick()
    loop.cluster.instances.clear()
    tick = loop.tick()
    assert kinds(tick).count("StartInstance") == 2
    assert len(loop.cluster.instances) == 2
    assert [v.policy for v in tick.verdicts][:2] == ["controller", "controller"]


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
        instances={"a-12": an_instance("a-12", host="c-h7")},
        queues={"a": 100},
    )
    tick = loop.tick()
    assert "host c-h7 runs but was not in the books: adopted" in tick.notices
    assert loop.controller.state.ledger.leases["c-h7"].started_s == 0.0
    assert set(loop.cluster.hosts) == {"c-h7", "c-h8"}
    assert set(loop.cluster.instances) == {"a-12", "a-13"}


def test_the_lease_of_a_host_that_vanished_is_ended() -> None:
    loop = Loop(a_topology(sites=[a_site(btu_s=50.0)]))
    loop.tick()
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
    assert [r["status"] for r in loop.journal.rows("action") if r["kind"] == "ReleaseHost"] == [
        "failed", "failed", "failed", "enacted",
    ]  # fmt: skip
    assert loop.journal.leases() == tuple(loop.controller.state.ledger.leases.values())


def test_a_released_host_that_still_runs_is_paid_on() -> None:
    loop = Loop(a_topology(sites=[a_site(btu_s=50.0)]))
    loop.tick()
    host = loop.cluster.hosts["c-h1"]
    loop.controller.state.book([ReleaseHost("c-h1", "")], 60.0, Deployment())
    tick = loop.tick()
    assert host.state is HostState.UP
    assert "host c-h1 was released but still runs: its lease goes on" in tick.notices
    assert loop.controller.state.ledger.leases["c-h1"].open


def test_a_refused_lease_is_closed_and_the_next_one_gets_a_new_name() -> None:
    loop = Loop(a_topology())
    loop.cluster.errors = {"c-h1": "quota of the account", "a-1": "host c-h1 does not exist"}
    loop.tick()
    state = loop.controller.state
    assert not state.ledger.leases["c-h1"].open
    assert state.ledger.total == 0
    assert state.view(loop.cluster.deployment(), 0.0, ()).scalings.get("a", 0) == 0
    assert state.view(loop.cluster.deployment(), 0.0, ()).history == ()
    loop.tick()
    assert set(loop.cluster.hosts) == {"c-h2"}
    assert set(loop.cluster.instances) == {"a-2"}
    assert state.ledger.total == sum((lease.cost for lease in state.ledger.leases.values()), Decimal(0))


def test_a_refused_lease_is_paid_back_on_the_books_and_in_the_journal() -> None:
    loop = Loop(a_topology())
    loop.cluster.errors = {"c-h1": "quota of the account", "a-1": "host c-h1 does not exist"}
    loop.tick()
    loop.cluster.errors.clear()
    loop.tick()
    ledger = loop.controller.state.ledger
    assert [(c.host, c.units) for c in ledger.charges] == [("c-h1", 1), ("c-h1", -1), ("c-h2", 1)]
    assert ledger.leases["c-h1"].cost == 0
    rows = [(row["host"], row["units"]) for row in loop.journal.rows("charge")]
    assert sorted(rows) == sorted((c.host, c.units) for c in ledger.charges)
    assert loop.journal.leases() == tuple(ledger.leases.values())


def test_a_host_is_paid_until_the_last_instance_has_left_it() -> None:
    loop = Loop(a_topology(sites=[a_site(btu_s=50.0)]))
    loop.tick()
    state = loop.controller.state
    state.book([ReleaseHost("c-h1", "")], 40.0, loop.cluster.deployment())
    assert state.ledger.leases["c-h1"].open
    draining = replace(loop.cluster.hosts["c-h1"], state=HostState.DRAINING)
    occupied = Deployment({"c-h1": draining}, dict(loop.cluster.instances))
    assert state.reconcile(occupied, 45.0) == ([], [])
    charges, notices = state.reconcile(Deployment(), 60.0)
    assert [(charge.units, charge.at_s) for charge in charges] == [(1, 60.0)]
    assert notices == []
    assert (state.ledger.leases["c-h1"].ended_s, state.ledger.leases["c-h1"].units) == (60.0, 2)


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
    counts = [i.unit for i in loop.cluster.instances.values()]
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
    assert loop.cluster.enacted == []
    assert loop.controller.state.ledger.leases == {}
    assert {row["status"] for row in loop.journal.rows("action")} == {"refused", "held"}


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
    loop.controller = Controller(loop.topology, loop.cluster, loop.clock, loop.journal, budgeting=budgeting)
    loop.tick()
    loop.tick()
    assert seen[1].slo_s("a") == 0.4
    assert [(r["unit"], r["budget_s"], r["reason"]) for r in loop.journal.rows("budget")] == [
        ("a", 0.4, "first look")
    ]
    again = Controller(loop.topology, loop.cluster, loop.clock, loop.journal)
    assert again.state.budgets == {"a": 0.4}
    assert again.last_decided_s == 60.0


def test_a_unit_that_says_nothing_is_held() -> None:
    loop = Loop(a_topology(units=("a", "b")), queues={"a": 10})
    loop.tick()
    tick = loop.tick()
    assert {v.action.unit: v.action.reason for v in tick.verdicts}["b"] == "no measurement yet"


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
