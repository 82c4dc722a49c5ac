"""The contract of every plane: one script, and the same sequence of fleet states wherever it is run.

Instances are started, crash, are stopped and moved; a host is drained and given back, another is lost with
all that is on it; the controller is restarted from its own records; at last the unit falls silent and is
started again. What the fleet goes through is written down and must be the same on the simulated plane, on
Spark and in an attached session (which leases no hosts: its part of the script ends before they are lost).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.controller.enacting import carry_out
from penstock.fleet.actions import (
    Action,
    LeaseHost,
    MigrateInstance,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.fleet.book import Living
from penstock.fleet.deployment import HostState, Instance, InstanceState
from penstock.fleet.fleet import Fleet
from penstock.fleet.keeping import life_of, living_of
from penstock.fleet.units import UnitLife, UnitState
from tests.planes.rigs import UNIT, Rig, SessionRig, SimulatedRig, SparkRig

PASSING = {InstanceState.STARTING.value, HostState.STARTING.value}
"""States that a plane may be too quick to show."""
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Script:
    """A fleet on a rig, and what everything in it went through."""

    def __init__(self, rig: Rig, patience: int) -> None:
        self.rig = rig
        self.patience = patience
        self.fleet = Fleet(rig.topology, rig.limits)
        self.history: dict[str, list[str]] = {}
        self.last: dict[tuple[type[Living], str], Living] = {}

    def do(self, *actions: Action) -> None:
        now_s = self.rig.now_s()
        assert [self.fleet.apply(action, now_s) for action in actions] == [None] * len(actions)
        self.say()

    def say(self) -> None:
        now_s = self.rig.now_s()
        orders = self.fleet.orders(now_s)
        self.note()
        assert carry_out(orders, self.fleet, self.rig.ground, now_s).failed == {}

    def look(self) -> None:
        now_s = self.rig.now_s()
        reports, _ = self.rig.ground.plane.reports(now_s)
        hosts = {site: provider.hosts(now_s) for site, provider in self.rig.ground.providers.items()}
        self.fleet.observed(hosts, reports, now_s)
        self.say()

    def note(self) -> None:
        for living in self.fleet.taken_changes():
            name = living.name if isinstance(living, UnitLife) else living.id
            self.last[type(living), name] = living
            states = self.history.setdefault(name, [])
            if living.state.value not in PASSING and states[-1:] != [living.state.value]:
                states.append(living.state.value)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        for _ in range(self.patience):
            self.look()
            if condition():
                return
            self.rig.let_pass()
        raise AssertionError(f"waited in vain until {what}; {self.fleet.deployment()}; {self.history}")

    def instance(self, name: str) -> Instance | None:
        return self.fleet.deployment().instances.get(name)

    def running(self, *names: str) -> bool:
        found = [self.instance(name) for name in names]
        return all(i is not None and i.state is InstanceState.RUNNING for i in found)

    def restart(self) -> None:
        """A controller that was killed comes back with nothing but its records."""
        before = self.fleet.deployment()
        self.note()
        lives = [life_of(living, 0.0) for living in self.last.values()]
        found = [living_of(life, self.rig.topology) for life in lives if not life.over]
        self.fleet = Fleet(self.rig.topology, self.rig.limits)
        self.fleet.restore([living for living in found if living is not None], self.rig.now_s())
        after = self.fleet.deployment()
        assert after.instances == before.instances
        assert set(after.hosts) == set(before.hosts)


def lease(*hosts: str) -> list[Action]:
    return [LeaseHost(host, "here", "small", "") for host in hosts]


def play_instances(script: Script) -> None:
    """Start, crash, stop, move; with a restart of the controller amid the move."""
    rig = script.rig
    script.look()
    first, second = (rig.host, rig.host) if not rig.leases else ("h1", "h2")
    script.do(*(lease("h1", "h2") if rig.leases else []), StartInstance("i1", UNIT, first, ""))
    script.until(lambda: script.running("i1"), "the first instance ran")
    script.do(StartInstance("i2", UNIT, first, ""))
    script.until(lambda: script.running("i1", "i2"), "a second one ran")

    crashed = script.instance("i1")
    assert crashed is not None
    rig.crash(crashed)
    script.until(
        lambda: script.running("i1") and script.instance("i1").external_id != crashed.external_id,
        "another one ran in the place of the one that crashed",
    )
    script.do(StopInstance("i2", UNIT, ""))
    script.until(lambda: script.instance("i2") is None, "the stopped one was gone")

    script.do(MigrateInstance("i1", "i3", UNIT, second, ""), *([ReleaseHost("h1", "")] if rig.leases else []))
    script.restart()
    script.until(lambda: script.running("i3") and script.instance("i1") is None, "it had moved")
    if rig.leases:
        script.until(lambda: "h1" not in script.fleet.deployment().hosts, "the empty host was given back")
        assert script.instance("i3").host == "h2"


INSTANCES = {
    "i1": ["requested", "running", "requested", "running", "retiring", "stopped"],
    "i2": ["requested", "running", "retiring", "stopped"],
    "i3": ["requested", "running"],
    UNIT: ["submitted", "running"],
}


def play_loss(script: Script) -> None:
    """A host dies. What was on it goes where there is room; where there is none it is given up."""
    hosts = script.fleet.deployment
    # One after the other: Spark places by itself, and would put the instance on a third host that is there.
    script.do(StartInstance("i4", UNIT, "h2", ""))
    script.until(lambda: script.running("i4"), "two ran on the second host")
    script.do(*lease("h3"))
    script.until(lambda: hosts().hosts["h3"].state is HostState.UP, "a third host was up")
    assert {i.host for i in hosts().instances.values()} == {"h2"}
    script.rig.lose("h2")
    script.until(lambda: script.running("i3", "i4"), "both had found room on the third host")
    assert {i.host for i in hosts().instances.values()} == {"h3"}
    script.do(ReleaseHost("h2", "it failed"))
    script.until(lambda: "h2" not in hosts().hosts, "the failed host was given back")


LOSS = {
    "h1": ["requested", "up", "draining", "released"],
    "h2": ["requested", "up", "failed", "released"],
    "h3": ["requested", "up"],
    "i3": ["requested", "running", "requested", "running"],
    "i4": ["requested", "running", "requested", "running"],
}


def play_silence(script: Script) -> None:
    """The unit is not heard of: it is started again, and nobody has to tell it so."""
    script.rig.silence()
    life = script.fleet.units
    script.until(lambda: life[UNIT].state is not UnitState.RUNNING, "its silence was noticed")
    script.until(lambda: life[UNIT].state is UnitState.RUNNING, "it ran again")
    assert life[UNIT].attempt == 2


SILENCE = {UNIT: ["submitted", "running", "down", "submitted", "running"]}


def check(script: Script, expected: dict[str, list[str]]) -> None:
    assert {name: script.history.get(name) for name in expected} == expected


def test_the_simulated_plane_goes_through_the_contract() -> None:
    script = Script(SimulatedRig(), patience=200)
    play_instances(script)
    check(script, INSTANCES)
    play_loss(script)
    check(script, LOSS)
    play_silence(script)
    check(script, SILENCE)


@pytest.fixture
def spark_rig(tmp_path: Path) -> Iterator[SparkRig]:
    rig = SparkRig(
        tmp_path / "run",
        {"spark.driver.extraJavaOptions": FAST_START, "spark.executor.extraJavaOptions": FAST_START},
    )
    yield rig
    rig.close()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_spark_plane_goes_through_the_contract(spark_rig: SparkRig) -> None:
    script = Script(spark_rig, patience=600)
    play_instances(script)
    check(script, INSTANCES)
    play_loss(script)
    check(script, LOSS)
    play_silence(script)
    check(script, SILENCE)


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from penstock.spark.managers.local_cluster import LocalCluster
    from penstock.spark.settings import ExecutorShape, end_session, start_session

    end_session()
    with LocalCluster(1, cores=4, memory_mib=4096) as cluster:
        yield start_session(
            "contract", cluster.master_url, executor=ExecutorShape(1, 512), initial_executors=0,
            settings={"spark.executor.extraJavaOptions": FAST_START},
        )  # fmt: skip
        end_session()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_an_attached_session_goes_through_its_part_of_the_contract(session: Any) -> None:
    rig = SessionRig(session)
    script = Script(rig, patience=400)
    play_instances(script)
    check(script, INSTANCES)
    play_silence(script)
    check(script, SILENCE)
