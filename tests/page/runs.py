"""Runs for tests of the page: finished ones, and one that goes on tick by tick in a thread."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from penstock.clock import VirtualClock
from penstock.controller.journal import Journal
from penstock.controller.loop import Controller, Tick
from penstock.controller.mode import Mode
from penstock.controller.status import Watching
from penstock.fleet.ports import Ground
from penstock.infrastructure.siting import placed
from penstock.report.run_report import write_run_report
from penstock.runs import obeying
from penstock.runs.assembly import load, with_choices
from penstock.runs.changes import preview, require_possible
from penstock.runs.folder import RunFolder
from penstock.runs.plan import Pending, RunPlan
from penstock.simulator import SimulationSettings, simulate
from penstock.simulator.plane import SimulatedPlane
from penstock.simulator.run import simulated_result
from penstock.topology.model import Choice, LoopSettings, Topology
from penstock.trying import Tries
from penstock.workload.arrivals import Process
from tests.builders import a_site, a_topology

TWO_SOURCES = """
name: two
sources:
  much: {workload: {name: constant, level_per_s: 18}}
  little: {workload: {name: constant, level_per_s: 6}}
operators:
  both: {inputs: [much, little], slo: 2 s, service: {mean: 10 ms}}
  after: {inputs: both, slo: 2 s, service: {mean: 10 ms}}
units:
  both: {operators: both}
  after: {operators: after}
sites:
  here: {flavours: {small: {cores: 4, memory: 8 GiB, price: 0.10 EUR/h}}, max_hosts: 4}
"""
EXAMPLES = Path(__file__).parents[2] / "examples" / "topologies"


def a_finished_run(
    folder: Path,
    *,
    policy: str = "rate",
    minutes: float = 90.0,
    topology: Topology | None = None,
    process: Process = "regular",
) -> Path:
    """A simulated run with its journal, summary and report."""
    chosen = topology or with_choices(load(EXAMPLES / "edge_and_cloud.yaml"), policy=Choice(policy))
    folder.mkdir(parents=True)
    with Journal(folder / "journal.db", chosen.name, buffered=True) as journal:
        settings = SimulationSettings(seed=1, process=process)
        result = simulate(chosen, settings, duration_s=60 * minutes, journal=journal)
        write_run_report(folder, chosen, result, journal)
    return folder


def many_units(count: int) -> Topology:
    """A source that feeds so many units, each on its own."""
    return a_topology(
        units=[f"unit{number:04d}" for number in range(count)],
        policy=Choice("rate"),
        sites=[a_site(max_hosts=1000)],
        loop=LoopSettings(monitoring_s=1.0, provisioning_s=5.0),
    )


class PacedSimulation:
    """A simulated run that goes on in a thread, a tick each `pace_s`, in a folder as a real run has.

    What it is told from outside it obeys by the code of a real run (`runs.obeying`), changes of its topology
    included, as far as they need no other traffic.
    """

    def __init__(
        self, folder: Path, topology: Topology, *, ticks: int, pace_s: float, hold_at: int | None = None
    ) -> None:
        """`hold_at` is a tick at which it waits until it is told to `go_on`."""
        self.folder = RunFolder.at(folder)
        self.topology = topology
        self._ticks, self._pace_s = ticks, pace_s
        self._hold_at = hold_at
        self._stopped = threading.Event()
        self._released = threading.Event()
        self.failure: BaseException | None = None
        self.done = 0
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.plan = RunPlan.of(topology, topology.name, places=placed(topology))
        self.clock = VirtualClock()
        self.told_to_stop = False
        self.controller: Controller | None = None
        self.notices: list[str] = []
        self.tries: dict[str, Tries] = {}
        self.service_watch = None

    @property
    def plane(self) -> PacedSimulation:
        """Where commands are told of: here."""
        return self

    def note(self, text: str) -> None:
        """What goes on record with the next tick."""
        self.notices.append(text)

    def running_controller(self) -> Controller:
        """The controller."""
        assert self.controller is not None
        return self.controller

    @property
    def changing(self) -> PacedSimulation:
        """Where changes are begun: here, and done at once."""
        return self

    @property
    def feed(self) -> PacedSimulation:
        """Where sources are told to end: here, and everything with them."""
        return self

    @property
    def clusters(self) -> PacedSimulation:
        """Where masters are tried again: here, where there are none."""
        return self

    def finish(self) -> None:
        """Let everything end."""
        self.told_to_stop = True

    def begin(self, topology: Topology, pending: Pending) -> None:
        """Go on with another version of the topology."""
        found = preview(self.topology, topology, places=self.plan.places, to=pending.places)
        require_possible(found, give_up_state=pending.give_up_state)
        self.plan, self.topology = self.plan.changed(topology, found.restarts, found.places), topology
        self.folder.write_plan(self.plan)
        self.running_controller().change(self._planned(), self.plan.revision, found.restarts)
        changes = "; ".join(map(str, found.changes))
        self.note(f"revision {self.plan.revision}: {changes} ({pending.reason})")

    def _planned(self) -> Topology:
        """The topology as the loop plans with it: every unit at the one site it is at, as in a real run."""
        units = (replace(unit, sites=(self.plan.places[unit.name],)) for unit in self.topology.units)
        return replace(self.topology, units=tuple(units))

    def __enter__(self) -> PacedSimulation:
        self.folder.write_plan(self.plan)
        self._thread.start()
        assert self._begun.wait(120)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self.failure is not None:
            raise self.failure

    def go_on(self) -> None:
        """Do not wait any longer."""
        self._released.set()

    def stop(self) -> None:
        """End it now."""
        self._stopped.set()
        self._released.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            self._go_on()
        except BaseException as error:
            self.failure = error
        finally:
            self._begun.set()

    def _go_on(self) -> None:
        topology, settings = self._planned(), SimulationSettings(seed=1)
        with self.folder.lock(), Journal(self.folder.journal, topology.name) as journal:
            plane = SimulatedPlane(topology, settings)
            ground = Ground(plane, plane.providers)
            controller = self.controller = Controller(topology, ground, self.clock, journal)
            watching = Watching(controller, topology.name, str(self.folder.journal))

            def each(tick: Tick) -> None:
                watching.see(tick)
                self.folder.write_status(
                    watching.status(
                        tick.at_s, acting=controller.mode is Mode.ACT, paused=controller.mode is Mode.PAUSE
                    )
                )
                self.done += 1
                if self.done > 2:
                    self._begun.set()
                self._stopped.wait(self._pace_s)
                if self.done == self._hold_at:
                    self._released.wait()

            def turn() -> Tick:
                obeying.obey(cast(Any, self))
                plane._notices += self.notices
                self.notices.clear()
                return controller.tick()

            def ended() -> bool:
                return self._stopped.is_set() or self.told_to_stop

            length_s = self._ticks * topology.loop.monitoring_s
            controller.run(length_s, each, ended, tick=turn)
            controller.finish()
            self.folder.write_result(simulated_result(topology, plane.traffic, journal, length_s, settings))
