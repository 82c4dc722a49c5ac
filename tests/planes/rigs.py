"""The three planes as a script can use them: time passes, things crash, units fall silent."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import psutil

from penstock.clock import WallClock
from penstock.fleet.deployment import Instance
from penstock.fleet.limits import Limits
from penstock.fleet.ports import Ground, Plane, Submission, UnitReport, Wanted
from penstock.simulator import Fault, SimulatedPlane
from penstock.topology.model import Choice, HostFlavour, Operator, Sink, Site, Source, Topology, Unit

HERE = Path(__file__).parent
UNIT = "work"


class Rig(Protocol):
    """A plane and its surroundings."""

    topology: Topology
    ground: Ground
    limits: Limits
    leases: bool
    """Whether hosts can be leased and lost here."""
    host: str | None
    """Where instances go, where hosts are not leased."""

    def now_s(self) -> float: ...

    def let_pass(self) -> None:
        """A moment goes by."""
        ...

    def crash(self, instance: Instance) -> None:
        """What is behind an instance dies."""
        ...

    def lose(self, host: str) -> None:
        """A host dies with all that is on it."""
        ...

    def silence(self) -> None:
        """The unit is not heard of any more, until it is started again."""
        ...


def a_topology(provider: Choice, source: Source) -> Topology:
    """One operator on small hosts: two instances fit each."""
    return Topology(
        "contract",
        (source,),
        (Operator(UNIT, (source.name,), "functions:double", memory_mib=512),),
        (Sink("out", (UNIT,), "jsonl:out"),),
        (Unit(UNIT, (UNIT,), policy=Choice("fixed"), max_instances=8),),
        (Site("here", provider, flavours=(HostFlavour("small", 2.0, 2048, Decimal(1)),), max_hosts=4),),
    )


class Muted:
    """A plane whose unit can fall silent; being started again makes it heard again."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._silent = False

    def silence(self) -> None:
        self._silent = True

    def submit(self, submission: Submission) -> None:
        self._silent = False
        self._plane.submit(submission)

    def tell(self, unit: str, wanted: Wanted, now_s: float) -> None:
        self._plane.tell(unit, wanted, now_s)

    def reports(self, now_s: float) -> tuple[Sequence[UnitReport], Sequence[str]]:
        found, notices = self._plane.reports(now_s)
        return ([] if self._silent else found), notices


class SimulatedRig:
    """The simulated plane, a second at a time."""

    leases = True
    host = None
    limits = Limits(unit_silent_s=30.0)

    def __init__(self) -> None:
        times = {"host_start_least_s": 5.0, "host_start_most_s": 9.0, "image_pull_s": 0.0}
        workload = Choice("constant", {"level_per_s": 2.0})
        self.topology = a_topology(Choice("simulated", times), Source("numbers", workload=workload))
        self._plane = SimulatedPlane(self.topology)
        self._muted = Muted(self._plane)
        self.ground = Ground(self._muted, self._plane.providers)
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def let_pass(self) -> None:
        self._now_s += 1.0

    def crash(self, instance: Instance) -> None:
        self._plane.strike(Fault(self._now_s, "instance_crash", instance.external_id))

    def lose(self, host: str) -> None:
        self._plane.strike(Fault(self._now_s, "host_crash", host))

    def silence(self) -> None:
        self._muted.silence()

    def close(self) -> None:
        pass


def kill_executor(application: str, identity: str) -> None:
    """End the process of an executor at once, as a crash does."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "--executor-id" not in words or "--app-id" not in words:
                continue
            if words[words.index("--app-id") + 1] != application:
                continue
            if words[words.index("--executor-id") + 1] == identity:
                os.kill(process.pid, signal.SIGKILL)
                return
    raise AssertionError(f"executor {identity} of {application} has no process")


class RealRig:
    """What the two planes on real Spark share."""

    def __init__(self) -> None:
        self._clock = WallClock()
        self._stack = contextlib.ExitStack()

    def now_s(self) -> float:
        return self._clock.now_s()

    def let_pass(self) -> None:
        self._clock.wait_until(self._clock.now_s() + 0.3)

    def close(self) -> None:
        self._stack.close()


class SparkRig(RealRig):
    """The Spark plane: a local cluster, a driver process, executors."""

    leases = True
    host = None
    limits = Limits(unit_silent_s=12.0)

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        from penstock.runs.folder import RunFolder
        from penstock.spark.drivers import Drivers
        from penstock.spark.managers.local_cluster import LocalCluster
        from penstock.spark.plane import SparkPlane
        from penstock.spark.unit.heartbeat import HeartbeatServer
        from penstock.spark.unit.specification import UnitSpecification, topology_text

        super().__init__()
        source = Source("numbers", workload=Choice("constant", {"level_per_s": 2.0}), schema="number long")
        self.topology = a_topology(Choice("local"), source)
        place = RunFolder.at(folder)
        name = f"contract-{os.getpid()}"
        self._hosts = LocalCluster(0, name=name, folder=folder / "cluster")
        self._stack.callback(self._hosts.stop)
        self._hosts.start(wait=False)
        self._drivers = Drivers(name, place.units)
        self._stack.callback(self._drivers.stop)

        def specification(submission: Submission) -> UnitSpecification:
            return UnitSpecification(
                name, submission.unit, submission.attempt, submission.revision, topology_text(self.topology),
                self._hosts.master_url, str(place.root), submission.wanted, str(HERE.parent / "spark_units"),
                None, settings,
            )  # fmt: skip

        self._plane = SparkPlane([UNIT], self._drivers, specification, self._clock)
        server = HeartbeatServer(folder, self._plane.hear, self._plane.specification)
        self._stack.callback(server.stop)
        server.start()
        self.ground = Ground(self._plane, {"here": self._hosts.provider(self.topology.sites[0])})

    def crash(self, instance: Instance) -> None:
        report = self._plane.last_report(UNIT)
        assert report is not None
        kill_executor(str(report.application), str(instance.external_id))

    def lose(self, host: str) -> None:
        self._hosts.kill_host(host)

    def silence(self) -> None:
        self._drivers.signal(UNIT, signal.SIGSTOP)


class SessionRig(RealRig):
    """An attached session on a local cluster that somebody else has made."""

    leases = False
    limits = Limits(unit_silent_s=10.0)

    def __init__(self, spark: Any) -> None:
        from penstock.providers.managed import HOST, ManagedProvider
        from penstock.spark.gateway.executors import ExecutorControl
        from penstock.spark.session.meter import SessionMeter
        from penstock.spark.session.plane import SessionPlane

        super().__init__()
        self.host = HOST
        flavour = HostFlavour("any", 64.0, 1 << 20, Decimal(0))
        found = a_topology(Choice("managed"), Source("input"))
        self.topology = replace(found, sites=(replace(found.sites[0], flavours=(flavour,)),))
        self._application = str(spark.sparkContext.applicationId)
        control = ExecutorControl(spark)
        control.take_over()
        plane = SessionPlane(UNIT, control, SessionMeter(spark, UNIT, control), act=True)
        self._pulse: Callable[[], None] = plane.pulse
        self._muted = Muted(plane)
        self.ground = Ground(self._muted, {"here": ManagedProvider(self.topology.sites[0])})

    def let_pass(self) -> None:
        super().let_pass()
        self._pulse()

    def crash(self, instance: Instance) -> None:
        kill_executor(self._application, str(instance.external_id))

    def lose(self, host: str) -> None:
        raise AssertionError("hosts belong to the cluster manager here")

    def silence(self) -> None:
        self._muted.silence()
