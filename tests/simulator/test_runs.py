"""Whole simulated runs: counts, faults, starts, sites, money; the same seed gives the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import VirtualClock
from penstock.controller import Controller, Journal, RunResult
from penstock.errors import ConfigurationError, JournalError
from penstock.fleet.actions import LeaseHost, MigrateInstance, StartInstance, StopInstance
from penstock.fleet.deployment import InstanceState
from penstock.fleet.ports import Ground
from penstock.simulator import Fault, SimulatedPlane, SimulationSettings, simulate
from penstock.topology.model import Choice, LoopSettings, Sink, Source, Topology, Unit
from tests.builders import AT_ONCE, a_flavour, a_site, a_topology, an_operator
from tests.grounds import SimulatedSteps

FIXED = Choice("fixed")
WIDE = a_site(times=AT_ONCE, flavours=[a_flavour(cores=64.0, memory_mib=131072)])
"""A site where everything starts at once and one host holds all."""


def at_once(**changes: Any) -> Topology:
    """A topology whose hosts and instances are there at once, under policy fixed."""
    return a_topology(**{"policy": FIXED, "sites": [WIDE], **changes})


def after(topology: Topology, duration_s: float, **settings: Any) -> RunResult:
    return simulate(topology, SimulationSettings(**settings), duration_s=duration_s)


def actions_of(journal: Journal) -> list[tuple[float, str, str]]:
    return [
        (row["at_s"], row["kind"], row["subject"])
        for row in journal.rows("action")
        if row["status"] == "enacted" and row["policy"] != "end of run"
    ]


# -- counts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bound_s", "share"), [(0.05, 1), (0.15, 1), (0.25, 0)])
def test_records_older_than_a_bound_are_counted_over_all_units(bound_s: float, share: int) -> None:
    # Each takes 0.1 s in either unit.
    topology = at_once(units=("a", "b"), chained=True, per_s=5.0)
    result = simulate(topology, duration_s=120.0, bound_s=bound_s)
    assert result.records_out > 590
    assert result.late == share * result.records_out
    assert simulate(topology, duration_s=10.0).late is None


@pytest.mark.parametrize(
    ("ratio", "per_s"), [(1 / 3, 9.0), (1 / 300, 9.0), (2.5, 9.0), (0.0, 9.0), (1.0, 7.0)]
)
def test_ratios_give_exact_counts(ratio: float, per_s: float) -> None:
    operators = [an_operator("a", ratio=ratio), an_operator("b", ["a"], service_s=0.01)]
    result = after(at_once(operators=operators, units=("a", "b"), initial_instances=3, per_s=per_s), 3000.0)
    a, b = result.units["a"], result.units["b"]
    assert a.arrived == per_s * 3000
    assert b.arrived == pytest.approx(int(a.processed * ratio + 1e-6), abs=0)


def test_fan_out_gives_every_successor_every_record_and_fan_in_adds_up() -> None:
    operators = [
        an_operator("a", service_s=0.01),
        an_operator("b", ["a"], service_s=0.02),
        an_operator("c", ["a"], service_s=0.03),
        an_operator("d", ["b", "c"], service_s=0.01),
    ]
    sinks = [Sink("out", ("d",)), Sink("copy", ("d",))]
    result = after(at_once(operators=operators, units=tuple("abcd"), sinks=sinks, per_s=10.0), 500.0)
    counts = {name: (unit.arrived, unit.left) for name, unit in result.units.items()}
    assert counts == {"a": (5000, 0), "b": (5000, 0), "c": (5000, 0), "d": (10000, 0)}
    assert (result.records_in, result.records_out) == (5000, 20000)
    assert result.end_to_end.mean_s == pytest.approx(0.01 + (0.02 + 0.03) / 2 + 0.01, rel=0.2)


def test_sources_emit_their_shares_of_the_workload() -> None:
    load = Choice("constant", {"level_per_s": 16.0})
    topology = at_once(
        operators=[an_operator("a", ["s"], service_s=0.01), an_operator("b", ["t"], service_s=0.01)],
        units=("a", "b"),
        sources=[Source("s", workload=load, share=0.25), Source("t", workload=load, share=3.0)],
    )
    result = after(topology, 100.0)
    assert (result.units["a"].arrived, result.units["b"].arrived) == (400, 4800)


def test_what_comes_in_and_goes_out_is_on_record_by_where_it_came_from_and_what_it_left_behind() -> None:
    topology = at_once(
        operators=[
            an_operator("a", service_s=0.01, ratio=0.5),
            an_operator("b", service_s=0.01),
            an_operator("c", ["a", "b", "s"], service_s=0.01),
        ],
        units=tuple("abc"),
        sinks=[Sink("out", ("c",)), Sink("more", ("c",))],
        per_s=8.0,
    )
    journal = Journal("sqlite://", "r", buffered=True)
    simulate(topology, SimulationSettings(), duration_s=120.0, journal=journal)
    came: dict[str, int] = {}
    left: dict[str, int] = {}
    for row in journal.rows("observation"):
        assert (row["arrived_from"] is not None) == (row["unit"] == "c"), "one input alone has all of it"
        if row["unit"] != "c":
            continue
        told = json.loads(row["arrived_from"])
        assert sum(told.values()) == row["arrived"]
        came = {name: came.get(name, 0) + records for name, records in told.items()}
        for name, records in json.loads(row["emitted_by"]).items():
            left[name] = left.get(name, 0) + records
    assert came["a"] == pytest.approx(came["s"] / 2, abs=1)
    assert came["b"] == came["s"]
    # Two take what leaves c, and it is counted once.
    assert left == {"c": pytest.approx(sum(came.values()), abs=2)}


def test_a_unit_of_several_operators_is_one_queue_with_the_work_of_all() -> None:
    operators = [an_operator("a", service_s=0.1), an_operator("b", ["a"], service_s=0.2, ratio=0.5)]
    unit = Unit("u", ("a", "b"), policy=FIXED, initial_instances=2)
    topology = at_once(operators=operators, units=[unit], sinks=[Sink("out", ("b",))], per_s=2.0)
    result = after(topology, 1000.0)
    assert list(result.units) == ["u"]
    assert result.units["u"].durations.mean_s == pytest.approx(0.3, rel=1e-9)
    assert result.records_out == result.units["u"].processed // 2


def test_a_source_without_a_workload_is_told() -> None:
    with pytest.raises(ConfigurationError, match="source s has no workload"):
        simulate(a_topology(per_s=None), duration_s=10.0)


def test_a_distance_between_sites_is_added_to_every_record() -> None:
    near = a_site("near", times=AT_ONCE, distance_s={"far": 0.35})
    units = [
        Unit("a", ("a",), sites=("near",), policy=FIXED),
        Unit("b", ("b",), sites=("far",), policy=FIXED),
    ]
    topology = at_once(units=units, chained=True, sites=[near, a_site("far", times=AT_ONCE)], per_s=2.0)
    result = after(topology, 300.0)
    assert result.end_to_end.mean_s == pytest.approx(0.1 + 0.35 + 0.1, rel=1e-9)
    assert result.units["b"].durations.mean_s == pytest.approx(0.1, rel=1e-9)
    assert result.leases == 2


def test_a_record_travels_to_where_most_of_the_next_unit_runs() -> None:
    """Both units may run at either site; the near one is full after unit a, so unit b runs far away."""
    near = a_site("near", times=AT_ONCE, max_hosts=1, distance_s={"far": 0.35})
    units = [Unit(name, (name,), sites=("near", "far"), policy=FIXED) for name in "ab"]
    topology = at_once(units=units, chained=True, sites=[near, a_site("far", times=AT_ONCE)], per_s=2.0)
    whole_host = {o.name: replace(o, cores=near.flavours[0].cores) for o in topology.operators}
    result = after(replace(topology, operators=tuple(whole_host.values())), 300.0)
    assert result.end_to_end.mean_s == pytest.approx(0.1 + 0.35 + 0.1, rel=1e-9)


# -- faults -------------------------------------------------------------------------------------------


def test_a_crashed_instance_is_replaced_and_no_record_is_lost_or_doubled() -> None:
    topology = at_once(per_s=2.0, chained=True, units=("a", "b"), loop=LoopSettings(provisioning_s=15.0))
    journal = Journal("sqlite://", "r", buffered=True)
    settings = SimulationSettings(faults=(Fault(100.3, "instance_crash", unit="a"),))
    result = simulate(topology, settings, duration_s=400.0, journal=journal)
    a, b = result.units["a"], result.units["b"]
    assert (a.arrived, a.left, b.arrived, b.left, result.records_out) == (800, 0, 800, 0, 800)
    # It is wanted still: the plane starts another in its place, as Spark does, and the fleet learns of it.
    crashed, told = [row["text"] for row in journal.rows("notice")]
    assert crashed == "instance a-1 crashed; 1 records wait again"
    assert told == "a-1 of unit a was lost (a-1); another is asked for"
    assert [kind for at_s, kind, _ in actions_of(journal) if 0 < at_s < 400] == []
    lost, again = [row for row in journal.rows("life") if row["name"] == "a-1" and row["at_s"] == 105.0]
    assert (lost["state"], again["state"]) == ("requested", "running")
    assert json.loads(again["payload"])["external_id"] == "a-1.2"
    assert a.durations.mean_s > 0.1


def test_a_crashed_host_is_given_back_and_replaced() -> None:
    topology = at_once(per_s=2.0, initial_instances=2, min_instances=2)
    journal = Journal("sqlite://", "r", buffered=True)
    settings = SimulationSettings(faults=(Fault(100.3, "host_crash"),))
    result = simulate(topology, settings, duration_s=400.0, journal=journal)
    unit = result.units["a"]
    assert (unit.arrived, unit.processed, unit.left) == (800, 800, 0)
    assert [kind for at_s, kind, _ in actions_of(journal) if at_s == 120.0] == [
        "ReleaseHost",
        "LeaseHost",
        "StartInstance",
        "StartInstance",
    ]
    first, second = journal.leases()
    assert (first.ended_s, second.started_s) == (120.0, 120.0)
    assert "host c-h1 crashed" in [row["text"] for row in journal.rows("notice")]


def test_a_host_that_crashes_with_many_records_gives_all_of_them_back() -> None:
    topology = at_once(
        operators=[an_operator("a", service_s=20.0)], per_s=1.0, initial_instances=8, min_instances=8,
        max_instances=30,
    )  # fmt: skip
    plane = SimulatedPlane(topology, SimulationSettings(faults=(Fault(100.0, "host_crash"),)))
    clock, ground = VirtualClock(), Ground(plane, plane.providers)
    controller = Controller(topology, ground, clock, Journal("sqlite://", "r", buffered=True))
    controller.tick()
    plane.reports(99.0)
    station = plane.stations["a"]
    assert station.in_service == 8
    waited = station.waiting
    plane.reports(100.0)
    assert (station.in_service, station.waiting) == (0, waited + 9)
    assert station.arrived == station.waiting + station.done
    assert plane.reports(100.0)[0][0].instances == ()


@pytest.mark.parametrize(
    ("faults", "slow_s"),
    [
        ((Fault(100.0, "host_slowdown", factor=3.0, duration_s=90.0),), 90),
        # A second slowdown begins before the first ends: the host is slow until the second ends.
        (
            (
                Fault(100.0, "host_slowdown", factor=3.0, duration_s=60.0),
                Fault(130.0, "host_slowdown", factor=3.0, duration_s=90.0),
            ),
            120,
        ),
    ],
)
def test_a_slow_host_takes_its_factor_longer_for_as_long_as_it_lasts(faults: Any, slow_s: int) -> None:
    result = after(at_once(per_s=1.0), 600.0, faults=faults)
    assert result.units["a"].durations.mean_s == pytest.approx(0.1 + 0.2 * slow_s / 600, rel=1e-9)


def test_faults_about_nothing_do_nothing() -> None:
    faults = (
        Fault(1.0, "instance_crash", "x"),
        Fault(2.0, "host_crash", "x"),
        Fault(3.0, "host_slowdown", "x"),
    )
    result = after(at_once(), 60.0, faults=faults)
    assert result.units["a"].processed == 300


@pytest.mark.parametrize("wrong", [{"kind": "flood"}, {"kind": "host_slowdown", "factor": 0.0}])
def test_a_wrong_fault_is_told(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"expected a fault|positive factor"):
        Fault(1.0, **wrong)


# -- starting, stopping, moving -----------------------------------------------------------------------


def a_cluster(**times: float) -> SimulatedSteps:
    site = a_site(times={**AT_ONCE, **times}, flavours=[a_flavour(cores=2.0)])
    return SimulatedSteps(a_topology(units=("a", "b"), sites=[site], per_s=5.0))


def done(cluster: SimulatedSteps, now_s: float, *actions: Any) -> None:
    assert cluster.enact(actions, now_s) == [None] * len(actions)


def lease(host: str = "h1") -> LeaseHost:
    return LeaseHost(host, "c", "m", "")


def start(name: str, unit: str = "a", host: str | None = "h1") -> StartInstance:
    return StartInstance(name, unit, host, "")


def running_s(cluster: SimulatedSteps, at_s: float) -> dict[str, float | None]:
    cluster.observe(at_s)
    return {name: instance.running_s for name, instance in cluster.deployment().instances.items()}


def test_an_image_is_fetched_once_for_each_host_and_unit() -> None:
    cluster = a_cluster(image_pull_s=15.0, instance_start_least_s=5.0, instance_start_most_s=5.0)
    done(cluster, 0.0, lease(), lease("h2"), start("a-1"), start("a-2"), start("b-3", "b", "h2"))
    assert running_s(cluster, 100.0) == {"a-1": 20.0, "a-2": 5.0, "b-3": 20.0}
    assert cluster.deployment().hosts["h1"].images == {"a"}
    done(cluster, 100.0, start("a-4", "a", "h2"))
    assert running_s(cluster, 200.0)["a-4"] == 120.0


def test_an_instance_starts_once_its_host_is_up() -> None:
    cluster = a_cluster(host_start_least_s=30.0, host_start_most_s=60.0, instance_start_most_s=10.0)
    done(cluster, 7.0, lease(), start("a-1"))
    cluster.observe(8.0)
    assert cluster.deployment().instances["a-1"].state is InstanceState.STARTING
    up_s = running_s(cluster, 100.0)["a-1"]
    assert up_s is not None
    host = cluster.deployment().hosts["h1"]
    assert host.up_s is not None
    assert 37.0 <= host.up_s <= 67.0
    assert host.up_s <= up_s <= host.up_s + 10.0


def test_a_stopped_instance_finishes_its_record_then_goes_and_its_room_is_taken_over() -> None:
    cluster = a_cluster(instance_stop_s=2.0)
    done(cluster, 0.0, lease(), start("a-1"), start("a-2"))
    cluster.observe(10.02)
    done(cluster, 10.02, StopInstance("a-1", "a", ""), start("b-3", "b"))
    states = {name: instance.state for name, instance in cluster.deployment().instances.items()}
    assert states == {
        "a-1": InstanceState.RETIRING, "a-2": InstanceState.RUNNING, "b-3": InstanceState.REQUESTED,
    }  # fmt: skip
    taken_s = running_s(cluster, 30.0)
    assert "a-1" not in taken_s
    assert taken_s["b-3"] == pytest.approx(12.1, abs=0.1)
    done(cluster, 30.0, StopInstance("a-1", "a", ""))


def test_a_migrated_instance_serves_until_its_replacement_runs() -> None:
    cluster = a_cluster(instance_start_least_s=8.0, instance_start_most_s=8.0)
    done(cluster, 0.0, lease(), lease("h2"), start("a-1"))
    cluster.observe(20.0)
    move = MigrateInstance("a-1", "a-2", "a", "h2", "")
    done(cluster, 20.0, move)
    done(cluster, 21.0, move)
    cluster.observe(27.9)
    states = {name: instance.state for name, instance in cluster.deployment().instances.items()}
    assert states == {"a-1": InstanceState.RUNNING, "a-2": InstanceState.STARTING}
    cluster.observe(40.0)
    states = {name: instance.state for name, instance in cluster.deployment().instances.items()}
    assert states == {"a-1": InstanceState.RETIRING, "a-2": InstanceState.RUNNING}
    cluster.observe(50.0)
    (left,) = cluster.deployment().instances.values()
    assert (left.id, left.host, left.running_s) == ("a-2", "h2", 28.0)
    assert cluster.fleet.times.move_s == 30.0
    station = cluster.stations["a"]
    assert station.arrived == station.done + station.in_service + station.waiting


def test_a_host_that_is_not_there_or_goes_takes_no_instance() -> None:
    cluster = SimulatedSteps(a_topology(), SimulationSettings(faults=(Fault(99.0, "host_crash"),)))
    done(cluster, 0.0, lease())
    assert cluster.enact([start("a-1", host="h9")], 0.0) == ["host h9 does not exist"]
    cluster.observe(100.0)
    assert cluster.enact([start("a-2")], 100.0) == ["host h1 takes no instances: it is failed"]
    assert cluster.deployment().instances == {}


def test_an_instance_without_a_host_waits_for_room_anywhere() -> None:
    cluster = a_cluster()
    done(cluster, 0.0, start("a-1", host=None))
    assert cluster.deployment().instances["a-1"].state is InstanceState.REQUESTED
    done(cluster, 5.0, lease(), start("a-2", host=None))
    assert running_s(cluster, 9.0) == {"a-1": 5.0, "a-2": 5.0}


# -- policies and money -------------------------------------------------------------------------------


def test_two_units_under_different_policies_run_side_by_side() -> None:
    units = [
        Unit("a", ("a",), policy=Choice("fixed", {"instances": 2})),
        Unit("b", ("b",), policy=Choice("threshold", {"up_queue": 10})),
    ]
    journal = Journal("sqlite://", "r", buffered=True)
    topology = a_topology(units=units, chained=True, per_s=15.0)
    result = simulate(topology, duration_s=900.0, journal=journal)
    policies = {row["policy"] for row in journal.rows("action")}
    assert policies == {"controller", "fixed", "threshold", "end of run"}
    counts = {row["unit"]: row["instances"] for row in journal.rows("observation")}
    assert counts["a"] == 2
    assert result.units["b"].largest_queue > 10
    assert result.actions["StartInstance"] > 3


def test_per_second_billing_charges_the_seconds_a_host_was_leased() -> None:
    site = a_site(btu_s=1.0, times=AT_ONCE, flavours=[a_flavour(price="0.01")])
    result = after(a_topology(policy=FIXED, sites=[site]), 333.0)
    assert result.resource_cost == Decimal("3.33")
    assert (result.leases, result.paid_units, result.host_s) == (1, 333, 333.0)


def test_the_cheapest_core_is_leased_until_it_runs_out() -> None:
    flavours = [
        a_flavour("large", cores=8.0, price="9"),
        a_flavour("small", cores=1.0, price="1", max_hosts=2),
    ]
    site = a_site(times=AT_ONCE, flavours=flavours)
    journal = Journal("sqlite://", "r", buffered=True)
    result = simulate(
        a_topology(policy=FIXED, sites=[site], initial_instances=4), duration_s=60.0, journal=journal
    )
    assert [lease.flavour for lease in journal.leases()] == ["small", "small", "large"]
    assert result.resource_cost == 11
    assert result.total_cost() == 11 + result.penalty["real_time"]


def test_the_bill_is_the_sum_of_the_leases_and_the_penalty_counts_late_records() -> None:
    topology = a_topology(per_s=40.0, sites=[a_site(btu_s=120.0)], loop=LoopSettings(penalty=Decimal("0.01")))
    journal = Journal("sqlite://", "r", buffered=True)
    result = simulate(topology, duration_s=1200.0, journal=journal)
    assert result.resource_cost == sum((lease.cost for lease in journal.leases()), Decimal(0))
    assert result.resource_cost == Decimal(journal.rows("tick")[-1]["bill"])
    assert result.penalty["real_time"] == Decimal("0.01") * result.compliance.delayed("real_time")
    assert result.penalty["real_time"] > result.penalty["relaxed"]
    assert result.time_to_adapt_s is not None


def test_a_run_that_does_not_end_on_a_tick_is_simulated_to_its_end() -> None:
    result = after(at_once(per_s=10.0), 100.0)
    assert (result.records_in, result.duration_s, result.host_s) == (1000, 100.0, 100.0)


def test_noise_does_not_push_readings_out_of_their_range() -> None:
    topology = at_once(per_s=30.0, initial_instances=2)
    plane = SimulatedPlane(topology, SimulationSettings(reading_noise=0.8))
    ground = Ground(plane, plane.providers)
    Controller(topology, ground, VirtualClock(), Journal("sqlite://", "r", buffered=True)).tick()
    for at_s in range(15, 600, 15):
        measurement = plane.reports(float(at_s))[0][0].measurement
        assert measurement is not None
        assert len(measurement.readings) == 2
        for reading in measurement.readings:
            assert 0.0 <= (reading.cpu_ratio or 0.0) <= 1.0
            assert 0.0 <= (reading.memory_ratio or 0.0) <= 1.0


# -- the same again -----------------------------------------------------------------------------------


def a_lively_run(seed: int, journal: str | Path | Journal = "sqlite://") -> RunResult:
    topology = a_topology(
        units=("a", "b", "d"), chained=True, workload=Choice("random_walk", {}), filter=Choice("gaussian"),
        sites=[a_site("x", max_hosts=1), a_site("y")],
    )  # fmt: skip
    faults = (Fault(200.0, "host_crash"), Fault(300.0, "instance_crash"))
    settings = SimulationSettings(seed=seed, process="poisson", faults=faults)
    return simulate(topology, settings, duration_s=900.0, journal=journal)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    journals = [Journal("sqlite://", "r", buffered=True) for _ in range(3)]
    results = [a_lively_run(seed, j) for seed, j in zip((4, 4, 5), journals, strict=True)]
    assert results[0] == results[1]
    assert results[0] != results[2]
    for table in ("observation", "action", "charge", "notice"):
        assert journals[0].rows(table) == journals[1].rows(table)


def test_the_same_seed_gives_the_same_run_in_another_process() -> None:
    """Strings hash differently there: nothing may depend on the order of a set."""
    program = (
        "import json; from tests.simulator.test_runs import a_lively_run; "
        "print(json.dumps(a_lively_run(4).summary()))"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, cwd=root, env=environment, capture_output=True, text=True
    )
    assert json.loads(answer.stdout) == json.loads(json.dumps(a_lively_run(4).summary()))


def test_a_journal_that_holds_the_run_already_is_refused(tmp_path: Path) -> None:
    simulate(at_once(), duration_s=30.0, journal=tmp_path / "j.db")
    with pytest.raises(JournalError, match="holds one; give the new run another file"):
        simulate(at_once(), duration_s=30.0, journal=tmp_path / "j.db")


def test_hosts_that_are_taken_away_again_and_again_never_leave_a_unit_short(tmp_path: Path) -> None:
    """The unit has all the instances it may have: each move needs a host beside the one that goes."""
    spot = a_site(flavours=[a_flavour(cores=1.0, memory_mib=2048)], times={"taken_after_s": 1200.0})
    topology = a_topology(
        sites=[spot], policy=FIXED, initial_instances=2, min_instances=2, max_instances=2, per_s=1.0
    )
    with Journal(tmp_path / "journal.db", "t") as journal:
        simulate(topology, SimulationSettings(), duration_s=7200.0, journal=journal)
        serving = [row["running"] for row in journal.rows("observation")]
        moved = [subject for _, kind, subject in actions_of(journal) if kind == "MigrateInstance"]
    begun = serving.index(2)
    assert min(serving[begun:]) == 2
    assert len(moved) >= 5
