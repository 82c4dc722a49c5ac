"""A controller killed at any point of a change comes back and finishes it: nothing is left half done.

Run, changing, preparing, handing over, journal and folder are the real ones. Driver processes are simulated:
they outlive the controller, obey what answers their heartbeats, and leave the marks that real ones leave.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.clock import VirtualClock
from penstock.errors import ClusterError
from penstock.fleet.deployment import Host, HostState, InstanceState
from penstock.fleet.ports import SeenInstance, UnitReport
from penstock.fleet.units import UnitState
from penstock.plain import to_json
from penstock.providers.price_lists import Lists, list_of
from penstock.runs import run as running
from penstock.runs.folder import RunFolder
from penstock.runs.handover import Handover
from penstock.runs.obeying import PROVEN_S
from penstock.runs.plan import Pending, RunPlan
from penstock.runs.run import Run
from penstock.runs.sources import Feed
from penstock.spark.plane import SparkPlane
from penstock.spark.unit.heartbeat import Beat, SupersededError
from penstock.spark.unit.preparing import PREPARED, Prepared
from penstock.topology.model import HostFlavour, Operator, Topology, Unit
from tests.grounds import KilledError, MortalJournal
from tests.runs.test_changes import a_pair, beside, with_alerts, with_operator

SLOW = 60
"""Turns after which a change that is not over never will be."""


@dataclass
class World:
    """What outlives a controller: driver processes, hosts, and what they have written."""

    drivers: dict[str, int] = field(default_factory=dict)
    """Attempts that run, by unit."""
    prepared: set[str] = field(default_factory=set)
    drained: dict[str, int] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)
    useless: set[str] = field(default_factory=set)
    """Units whose driver has ended and said that starting it again would not help."""
    barren: bool = False
    """Whether no further host can be had."""
    beats: int = 0


class SimulatedDrivers:
    """Driver processes as the plane and a change see them."""

    def __init__(self, world: World, folder: RunFolder) -> None:
        self.world, self._folder = world, folder

    def adopt(self) -> list[str]:
        self.world.prepared.clear()
        return sorted(self.world.drivers)

    def start(self, unit: str, attempt: int, *, prepared: bool = False) -> None:
        if self.world.drivers.get(unit) != attempt:
            self.world.drivers[unit] = self.world.attempts[unit] = attempt
            self.world.drained.pop(unit, None)
            self.world.useless.discard(unit)
            if prepared:
                self.world.prepared.discard(unit)

    def prepare(self, unit: str) -> None:
        folder = self._folder.units.unit(unit)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PREPARED).unlink(missing_ok=True)
        self.world.prepared.add(unit)

    def dismiss(self, unit: str) -> None:
        self.world.prepared.discard(unit)

    def preparing(self, unit: str) -> bool:
        return unit in self.world.prepared

    def alive(self, unit: str) -> bool:
        return unit in self.world.drivers

    def attempt(self, unit: str) -> int:
        return self.world.attempts.get(unit, 0)

    def end(self, unit: str) -> None:
        self.world.drivers.pop(unit, None)

    def is_drained(self, unit: str) -> bool:
        return self.world.drained.get(unit, -1) == self.attempt(unit)

    def is_useless(self, unit: str) -> bool:
        return unit in self.world.useless

    def last_words(self, unit: str) -> str:
        return "it was simulated"

    def stop(self) -> None:
        """They go on: nobody ends the run here."""

    def log(self, unit: str) -> Path:
        return self._folder.units.unit(unit) / "driver.log"


class SimulatedHosts:
    """Hosts of a site that are up at once; stands in for a local cluster."""

    def __init__(self, world: World, site: str) -> None:
        self.world, self.site, self.manager = world, site, self

    def provider(self, site: object, clock: object = None) -> SimulatedHosts:
        return self

    was_started = False

    def start(self, wait: bool) -> None:
        """They are there."""

    def stop(self) -> None:
        """They outlive a controller."""

    def revive(self) -> bool:
        return False

    def create(self, host: str, flavour: HostFlavour, now_s: float) -> None:
        if not self.world.barren:
            self.world.hosts.setdefault(host, Host(host, self.site, flavour, HostState.UP, now_s, now_s))

    def delete(self, host: str, now_s: float) -> None:
        self.world.hosts.pop(host, None)

    def hosts(self, now_s: float) -> tuple[Host, ...]:
        return tuple(host for host in self.world.hosts.values() if host.site == self.site)

    master_url = "spark://simulated"

    def settings(self) -> dict[str, str]:
        return {}

    def environment(self) -> dict[str, str]:
        return {}

    def answers(self) -> bool:
        return True

    alive = answers


class SimulatedFeed(Feed):
    """Sources that can be let wait, and write nothing."""

    can_wait = True

    def launch(self, sources: object) -> None:
        pass


class NobodyListens:
    """In the place of the heartbeats' server: the test hands reports over itself."""

    def __init__(self, *_: object) -> None:
        pass

    start = stop = lambda self: None
    revive = lambda self: False  # noqa: E731


class Bomb:
    """Kills the controller at its nth step that touches something outside of it."""

    def __init__(self, at: int | None) -> None:
        self.at, self.steps, self.names = at, 0, list[str]()
        self.armed = False

    def __call__(self, point: str) -> None:
        if not self.armed:
            return
        self.names.append(point)
        self.steps += 1
        if self.at is not None and self.steps == self.at + 1:
            raise KilledError(point)


@pytest.fixture
def bomb(monkeypatch: pytest.MonkeyPatch) -> Bomb:
    found = Bomb(None)

    def mortal(owner: type, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def done(self: object, *given: Any, **named: Any) -> Any:
            found(f"before {name}")
            answer = real(self, *given, **named)
            found(f"after {name}")
            return answer

        monkeypatch.setattr(owner, name, done)

    for owner, names in {
        RunFolder: ("write_plan", "write_status"),
        SparkPlane: ("prepare", "submit", "tell"),
        Handover: ("_count", "_put_aside", "_hand_over", "_begin_sources", "_clear_away"),
        Feed: ("pause",),
        MortalJournal: ("record", "confirm"),
    }.items():
        for name in names:
            mortal(owner, name)
    MortalJournal.bomb = staticmethod(lambda point: None)  # type: ignore[assignment]
    monkeypatch.setattr(running, "Journal", MortalJournal)
    monkeypatch.setattr(running, "HeartbeatServer", NobodyListens)
    monkeypatch.setattr(RunFolder, "lock", lambda self: contextlib.nullcontext())
    return found


class Stage:
    """A run whose controller can die and come back."""

    def __init__(
        self, folder: Path, before: Topology, bomb: Bomb, prices: Lists = list_of, **options: object
    ) -> None:
        self.world, self.clock, self.bomb, self.prices = World(), VirtualClock(), bomb, prices
        self.place = RunFolder.at(folder)
        self.place.write_plan(RunPlan.of(before, "stage", **options))
        self.run = self._started()
        for _ in range(6):
            self.turn()
        assert self.all_run()

    def _started(self) -> Run:
        plan = self.place.plan()
        feed = SimulatedFeed(plan.name, plan.read_topology(), self.place.units)
        run = Run(plan, self.place, feed=feed, clock=self.clock, prices=self.prices)
        run.clusters.own = {site: cast(Any, SimulatedHosts(self.world, site)) for site in run.clusters.own}
        run.drivers = run.plane._drivers = cast(Any, SimulatedDrivers(self.world, self.place))
        run.start()
        return run

    def die(self) -> None:
        """Kill the controller between two turns, and start the next one."""
        cast(MortalJournal, self.run.journal).die()
        self.run = self._started()

    def fail(self, unit: str) -> None:
        """Let a unit's driver end as one does whose operator throws."""
        del self.world.drivers[unit]
        self.world.useless.add(unit)

    def turn(self) -> None:
        """Drivers beat, the controller ticks; one that dies is started again."""
        self._beat()
        try:
            self.run.tick()
            self.run.changing.step()
        except KilledError:
            self.bomb.armed = False
            cast(MortalJournal, self.run.journal).die()
            self.run = self._started()
            self.bomb.armed = True
        self.clock.wait_until(self.clock.now_s() + 1.0)

    def _beat(self) -> None:
        world, plane, now_s = self.world, self.run.plane, self.clock.now_s()
        for unit in tuple(world.prepared):
            with contextlib.suppress(SupersededError):
                folder = self.place.units.unit(unit)
                if plane.specification(unit, 0).prepare and not (folder / PREPARED).exists():
                    (folder / PREPARED).write_text(to_json(Prepared(5)))
        for unit, attempt in tuple(world.drivers.items()):
            there = [h.id for h in world.hosts.values() if h.site == self.run.plan.places[unit]][:1]
            shown = tuple(SeenInstance(f"{attempt}@{host}", InstanceState.RUNNING, host) for host in there)
            world.beats += 1
            report = UnitReport(unit, now_s, UnitState.RUNNING, f"{unit}-{attempt}", shown)
            try:
                wanted = plane.hear(Beat(attempt, report, world.beats))
            except Exception:
                continue  # nobody knows it (yet)
            if wanted.drain:
                world.drained[unit] = attempt
            if wanted.drain or wanted.stop:
                del world.drivers[unit]

    def all_run(self) -> bool:
        units = self.run.running_controller().fleet.units
        return all(life.state is UnitState.RUNNING for life in units.values())

    def apply(self, topology: Topology) -> None:
        with contextlib.suppress(KilledError):
            self.run.changing.begin(topology, Pending("tried", give_up_state=True))
            return
        self.bomb.armed = False
        cast(MortalJournal, self.run.journal).die()
        self.run = self._started()
        self.bomb.armed = True


SPLIT = replace(
    with_operator(a_pair(), "read", function="f:read_better"),
    operators=(
        replace(a_pair().operators[0], function="f:read_better"),
        replace(a_pair().operators[1], function="f:count_better"),
        Operator("alert", ("read",), "f:alert"),
    ),
    units=(*a_pair().units, Unit("third", ("alert",))),
)
"""One unit with another function, one that loses its state, one that is new."""
CHANGES = {
    "changed, renewed and new units": (a_pair(), SPLIT),
    "a unit that ends": (with_alerts(a_pair()), a_pair()),
}


def change(folder: Path, kind: str, bomb: Bomb) -> Stage:
    """Make a change with a controller that dies once, at the bomb's step."""
    before, after = CHANGES[kind]
    stage = Stage(folder, before, bomb)
    kept = stage.place.units.checkpoint("second")
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "mine").write_text("state")
    bomb.armed = True
    stage.apply(after)
    for _ in range(SLOW):
        stage.turn()
        plan = stage.place.plan()
        settled = plan.pending is None and stage.all_run() and not stage.world.prepared
        if settled and (plan.revision == 2 or stage.bomb.steps <= 2):
            break
    bomb.armed = False
    return stage


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_comes_to_its_end_wherever_its_controller_dies(
    kind: str, tmp_path: Path, bomb: Bomb
) -> None:
    whole = change(tmp_path / "whole", kind, bomb)
    steps, names = bomb.steps, list(bomb.names)
    assert whole.place.plan().revision == 2
    died = set()
    for at in range(steps):
        bomb.at, bomb.steps, bomb.names = at, 0, []
        stage = change(tmp_path / str(at), kind, bomb)
        where, plan = f"died {names[at]} (step {at})", stage.place.plan()
        died.add(names[at])
        assert plan.pending is None, where
        assert stage.all_run(), where
        assert not stage.world.prepared, where
        assert set(stage.world.drivers) == set(plan.read_topology().unit_by_name), where
        if plan.revision == 1:
            assert at == 0, f"{where}: only before it was written down may it be forgotten"
            continue
        assert plan.read_topology() == CHANGES[kind][1], where
        units = stage.run.running_controller().fleet.units
        assert {u: units[u].revision for u in plan.revisions} == dict(plan.revisions), where
        aside = stage.place.units.earlier("second") / "1" / "checkpoint" / "mine"
        present = stage.place.units.checkpoint("second") / "mine"
        renewed = kind != "a unit that ends"
        assert (aside.exists(), present.exists()) == (renewed, not renewed), where
        assert stage.run.feed._paused == frozenset(), where
    assert {"before write_plan", "after write_plan", "before submit", "after record"} <= died


def changed_once(folder: Path, bomb: Bomb) -> Stage:
    """A run whose first unit has another function since a moment."""
    stage = Stage(folder, a_pair(), bomb)
    stage.apply(with_operator(a_pair(), "read", function="f:read_better"))
    for _ in range(SLOW):
        stage.turn()
        if stage.place.plan().revision == 2 and stage.all_run():
            break
    assert stage.place.plan().revision == 2
    return stage


def on_trial_s(stage: Stage, unit: str) -> float:
    """How long a unit's driver is told that its version has yet to prove itself."""
    return stage.run.plane.specification(unit, stage.world.attempts[unit]).on_trial_s


def test_a_version_whose_unit_fails_is_taken_back_also_where_the_controller_died_since(
    tmp_path: Path, bomb: Bomb
) -> None:
    stage = changed_once(tmp_path, bomb)
    assert 0 < on_trial_s(stage, "first") <= PROVEN_S
    assert on_trial_s(stage, "second") == 0, "it is as it was"

    stage.die()
    stage.turn()
    assert on_trial_s(stage, "first") > 0
    stage.fail("first")
    for _ in range(SLOW):
        stage.turn()
        stage.run._require_healthy()
        if stage.place.plan().revision == 3 and stage.all_run():
            break

    assert stage.place.plan().read_topology() == a_pair()
    assert on_trial_s(stage, "first") == 0, "it has proven itself before"
    stage.fail("first")
    stage.turn()
    with pytest.raises(ClusterError, match="unit first stopped"):
        stage.run._require_healthy()


def test_a_rewired_version_is_not_taken_back_where_a_unit_that_failed_has_what_another_would_get_twice(
    tmp_path: Path, bomb: Bomb
) -> None:
    for failed in ("middle", "front"):
        stage = Stage(tmp_path / failed, beside(), bomb)
        stage.apply(beside(look="copy"))
        for _ in range(SLOW):
            stage.turn()
            if stage.place.plan().revision == 2 and stage.all_run():
                break
        assert stage.place.plan().revision == 2
        stage.fail(failed)
        stage.turn()
        if failed == "middle":
            with pytest.raises(ClusterError, match="unit middle stopped"):
                stage.run._require_healthy()
        else:
            stage.run._require_healthy()
            assert stage.place.plan().pending is not None, "what it has not read takes the old way"


def test_a_version_that_has_proven_itself_is_not_taken_back(tmp_path: Path, bomb: Bomb) -> None:
    stage = changed_once(tmp_path, bomb)
    stage.clock.wait_until(stage.clock.now_s() + PROVEN_S)
    assert on_trial_s(stage, "first") == 0
    for _ in range(3):
        stage.turn()
    stage.fail("first")
    stage.turn()
    with pytest.raises(ClusterError, match="unit first stopped"):
        stage.run._require_healthy()


def test_a_version_that_a_person_took_back_to_is_not_left_for_the_one_that_was_taken_back(
    tmp_path: Path, bomb: Bomb
) -> None:
    stage = changed_once(tmp_path, bomb)
    stage.apply(a_pair())
    for _ in range(SLOW):
        stage.turn()
        if stage.place.plan().revision == 3 and stage.all_run():
            break

    assert stage.place.plan().read_topology() == a_pair()
    assert on_trial_s(stage, "first") == 0
    stage.fail("first")
    stage.turn()
    with pytest.raises(ClusterError, match="unit first stopped"):
        stage.run._require_healthy()
