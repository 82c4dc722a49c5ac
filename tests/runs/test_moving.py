"""Units whose site cannot serve them go elsewhere by themselves; others stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from penstock.controller.guards import Verdict
from penstock.controller.journal import Journal
from penstock.controller.loop import Tick
from penstock.controller.mode import Mode
from penstock.fleet.actions import Hold, LeaseHost, StartInstance
from penstock.fleet.fleet import Fleet
from penstock.policies.planning import NO_HOST
from penstock.runs.moving import FULL_DECISIONS, Moving
from penstock.runs.plan import Pending, RunPlan
from penstock.runs.pricing import Pricing
from penstock.runs.run import Run
from penstock.topology.model import Topology

from .test_changes import at_two_sites


@dataclass
class StandInRun:
    """What `Moving` sees of a run, with a real fleet; changes are only written down."""

    topology: Topology = field(default_factory=at_two_sites)
    begun: list[Pending] = field(default_factory=list)
    mode: Mode = Mode.ACT

    def __post_init__(self) -> None:
        self.here = self.topology
        self.plan = RunPlan.of(self.topology, "pair", places={"first": "x", "second": "x"})
        self.fleet = Fleet(self.topology)
        self.clusters = SimpleNamespace(silent=frozenset())
        self.changing = SimpleNamespace(under_way=False, begin=lambda _, pending: self.begun.append(pending))
        self.plane = SimpleNamespace(note=lambda text: None)

    def running_controller(self) -> Any:
        return SimpleNamespace(fleet=self.fleet, mode=self.mode)


def tick(run: StandInRun, at_s: float, *holds: Hold) -> Tick:
    verdicts = tuple(Verdict(hold, "rate") for hold in holds)
    return Tick(at_s, (), run.fleet.deployment(), verdicts, (), ())


def watched(run: StandInRun) -> Moving:
    pricing = Pricing(Journal("sqlite://", "pair"), run.plane.note)
    return Moving(cast(Run, run), pricing)


STARVED = Hold("second", f"40 wait; but {NO_HOST}: site x has its 3 hosts")


def test_a_unit_that_gets_no_host_at_three_decisions_goes_to_a_site_that_has_some() -> None:
    run = StandInRun()
    moving = watched(run)
    for number in range(FULL_DECISIONS):
        assert run.begun == []
        moving.look(tick(run, 10.0 * number, STARVED))
    (pending,) = run.begun
    assert (dict(pending.places), pending.at_once) == ({"second": "y"}, True)
    assert "has had no host for it" in pending.reason


def test_a_host_in_between_begins_the_count_anew() -> None:
    run = StandInRun()
    moving = watched(run)
    for number in range(2 * FULL_DECISIONS):
        hold = STARVED if number % FULL_DECISIONS else Hold("second", "all is well")
        moving.look(tick(run, 10.0 * number, hold))
    assert run.begun == []


def test_a_unit_that_may_be_nowhere_else_stays() -> None:
    run = StandInRun()
    moving = watched(run)
    for number in range(2 * FULL_DECISIONS):
        moving.look(tick(run, 10.0 * number, Hold("first", f"but {NO_HOST}")))
    assert run.begun == []


def test_a_unit_without_an_instance_for_long_goes_and_then_stays_for_a_while() -> None:
    run = StandInRun()
    moving = watched(run)
    run.fleet.apply(LeaseHost("x-h1", "x", "m", "test"), 0.0)
    run.fleet.apply(StartInstance("second-1", "second", "x-h1", "test"), 0.0)
    moving.look(tick(run, 0.0))
    moving.look(tick(run, 290.0))
    assert run.begun == []
    moving.look(tick(run, 310.0))
    assert [dict(pending.places) for pending in run.begun] == [{"second": "y"}]
    moving.look(tick(run, 700.0))
    assert len(run.begun) == 1, "it has just been moved"


def test_nobody_goes_to_a_site_that_is_full_or_silent() -> None:
    full = StandInRun()
    for number in range(3):
        full.fleet.apply(LeaseHost(f"y-h{number}", "y", "m", "test"), 0.0)
    silent = StandInRun()
    silent.clusters = SimpleNamespace(silent=frozenset({"y"}))
    for run in (full, silent):
        moving = watched(run)
        for number in range(2 * FULL_DECISIONS):
            moving.look(tick(run, 10.0 * number, STARVED))
        assert run.begun == []


def test_nobody_goes_while_the_loop_only_advises_or_is_paused() -> None:
    for mode in (Mode.ADVISE, Mode.PAUSE):
        run = StandInRun(mode=mode)
        moving = watched(run)
        for number in range(2 * FULL_DECISIONS):
            moving.look(tick(run, 10.0 * number, STARVED))
        assert run.begun == []
