"""A run on Spark in one process: the ground it stands on, its sources, and the one control loop.

Everything it starts is stopped on leaving. What an earlier controller of the same folder left running is
taken up: its books from the journal, its drivers, hosts and sources by their records.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from penstock.channels.batches import batches_in
from penstock.channels.registry import service_of
from penstock.channels.services import ServiceWatch
from penstock.channels.sinks import folder_format, result_folders
from penstock.clock import Clock
from penstock.controller.journal import EARLIER_LOADS, Journal
from penstock.controller.loop import Controller, Tick
from penstock.controller.mode import Mode
from penstock.controller.result import RunResult, result_of
from penstock.controller.status import SourceStatus, Status, Watching
from penstock.controller.upkeep import Upkeep
from penstock.controller.warm_start import earlier_loads
from penstock.errors import ClusterError, ConfigurationError, FencedError, PenstockError
from penstock.fleet.limits import Limits
from penstock.fleet.ports import Ground, Submission
from penstock.fleet.units import UnitState
from penstock.infrastructure.siting import placed
from penstock.machine.secrets import remember_all
from penstock.monitoring import DurationStatistics
from penstock.monitoring.health import CONGESTED
from penstock.providers.price_lists import Lists, list_of
from penstock.runs import obeying
from penstock.runs.anchor import clock_of
from penstock.runs.assembly import budgeting_for
from penstock.runs.changing import Changing
from penstock.runs.clusters import Clusters, host_start_s, not_runnable
from penstock.runs.folder import RunFolder
from penstock.runs.moving import Moving
from penstock.runs.part import here
from penstock.runs.patience import Patience
from penstock.runs.plan import RunPlan
from penstock.runs.pricing import Pricing
from penstock.runs.progress import Progress
from penstock.runs.sources import Feed, waited_until_s
from penstock.spark.drivers import Drivers
from penstock.spark.plane import SparkPlane
from penstock.spark.unit.heartbeat import HeartbeatServer
from penstock.spark.unit.plan import plan_unit
from penstock.spark.unit.specification import UnitSpecification, topology_text
from penstock.spark.unit.streams import taken_by
from penstock.topology.model import Topology

LOG = logging.getLogger(__name__)

START_S = 240.0
START_A_UNIT_S = 40.0
"""Longest time until every unit runs, and more for each unit; three drivers take 40 s on two idle cores."""
LEAVE_S = 12.0
"""How long drivers may take to end by themselves."""
NONE = DurationStatistics()
_LIVES = (UnitState.SUBMITTED, UnitState.RUNNING, UnitState.DOWN)


class Run:
    """One run in this process. Use it as a context manager: everything is stopped on leaving."""

    def __init__(
        self,
        plan: RunPlan,
        folder: RunFolder,
        *,
        feed: Feed | None = None,
        clock: Clock | None = None,
        prices: Lists = list_of,
    ) -> None:
        """`feed` writes the sources' records in a way of its own; by `prices` a site may become too dear."""
        remember_all(plan.settings)
        self.folder = folder
        self.topology = plan.read_topology()
        self.plan = replace(plan, places=placed(self.topology, plan.places))
        self.here = here(self.topology, self.plan.places, plan.site)
        """What of the topology runs here: all of it, or the units at one site."""
        require_runnable(self.topology, folder.root, self.here)
        units = [unit.name for unit in self.here.units]
        self.clock = clock or clock_of(folder.root)
        self._stack = contextlib.ExitStack()
        self.clusters = Clusters(self.here, self.plan.places, plan.label, folder.root)
        self.feed = feed or Feed(plan.label, self.here, folder.units, plan.duration_s, plan.code)
        self.progress = Progress(self.here)
        if plan.site is not None:
            folder.units.share_name(plan.name)
        self.drivers = Drivers(plan.label, folder.units)
        self.plane = SparkPlane(units, self.drivers, self.specification, self.clock, self.progress.heard)
        self.journal = Journal(plan.journal or folder.journal, plan.journalled_as)
        self._stack.callback(self.journal.close)
        self._upkeep = Upkeep(self.journal, self.clock, self.topology.loop.journal_s)
        self.controller: Controller | None = None
        self._watching: Watching | None = None
        self.bootstrap = plan.bootstrap
        """The server the channels use, where they name none."""
        self.service_watch: ServiceWatch | None = None
        self._started_s = self.clock.now_s()
        self._done = 0
        self._done_s = 0.0
        self._fed_s: float | None = None
        self.told_to_stop = False
        """Whether somebody outside wants it to end."""
        self.changing = Changing(self)
        self._moving = Moving(self, Pricing(self.journal, self.plane.note, prices))
        self._news: list[str] = []
        self._patiently = Patience()
        self._slow: set[str] = set()
        """Sources that emit less than is due."""

    # --- life --------------------------------------------------------------------------------------

    def __enter__(self) -> Run:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, FencedError):
            return  # all of it is another controller's now
        self.stop()

    def start(self) -> None:
        """Bring everything up; what an earlier controller of the same run left running is adopted."""
        self.clusters.require()
        self._stack.enter_context(self.folder.lock())
        self.folder.write_plan(self.plan)
        self.journal.claim()
        if self.plan.warm_from is not None and self.journal.recall(EARLIER_LOADS) is None:
            self.journal.remember(EARLIER_LOADS, earlier_loads(Path(self.plan.warm_from)))
        adopted = [*self.drivers.adopt(), *self.feed.children.adopt()]
        self._stack.callback(self.feed.stop)
        self._start_service()
        self._stack.callback(self.clusters.stop)
        self.clusters.start()
        self._stack.callback(self.drivers.stop)
        server = self._server = HeartbeatServer(self.folder.root, self.plane.hear, self.plane.specification)
        self._stack.callback(server.stop)
        ground = Ground(self.plane, self.clusters.providers(self.clock))
        self.controller = Controller(
            self.clusters.planned(),
            ground,
            self.clock,
            self.journal,
            budgeting=budgeting_for(self.here),
            limits=Limits(
                unit_silent_s=self.topology.loop.silence_s,
                host_start_s=host_start_s(self.here),
            ),
        )
        self._watching = Watching(self.controller, self.plan.name, self.journal.address)
        for life in self.controller.fleet.units.values():
            if life.state in _LIVES:
                wanted = self.controller.fleet.wanted(life.name)
                self.plane.take_up(Submission(life.name, life.revision, life.attempt, wanted))
        for unit, revision in self.plan.revisions.items():
            # A change of which the earlier controller did not get to tell this unit.
            if self.controller.fleet.units[unit].revision < revision:
                self.controller.fleet.restart(unit, revision, self.clock.now_s())
        for life in self.controller.fleet.units.values():
            if life.state is UnitState.DRAINED and not self.changing.under_way:
                self.controller.fleet.restart(life.name, life.revision, self.clock.now_s())
        server.start()
        self._started_s = self.clock.now_s()
        if adopted:
            self.plane.note(f"the controller came back and adopted {', '.join(adopted)}")
        self._take_up(bool(adopted))

    def tick(self) -> Tick:
        """One turn of the loop; sources begin once every unit runs."""
        controller = self.running_controller()
        for notice in self._look_after():
            self.plane.note(notice)
        obeying.obey(self)
        self.changing.step()
        tick = controller.tick()
        self._news = self._watching_now().see(tick)
        self._moving.look(tick)
        with self._patiently("status and sources"):
            if self.plan.feed and self.feed.started_s is None and self.all_running():
                self.feed.start(self.clock.now_s())
            self.folder.write_status(self.status())
            self._upkeep.tick()
        return tick

    def run(
        self, each: Callable[[Tick], None] | None = None, stopped: Callable[[], bool] | None = None
    ) -> None:
        """Tick until the duration is over and what was in flight is done, or until `stopped` says so."""
        over = False

        def after(_: Tick) -> None:
            nonlocal over
            if each is not None:
                each(_)
            self._require_healthy()
            over = self.over()

        def ended() -> bool:
            if self.changing.step():  # some times a second, not only at every tick
                after(self.tick())  # the next version is not kept waiting
            return over or self.told_to_stop or (stopped is not None and stopped())

        self.running_controller().run(math.inf, after, ended, tick=self.tick)
        self.running_controller().settle()

    def over(self) -> bool:
        """Whether the sources have ended and nothing waits any more (or was waited for long enough)."""
        started_s, now_s = self.feed.started_s, self.clock.now_s()
        if started_s is None or self.changing.under_way:
            return False
        if self.plan.duration_s is None:
            ended, end_s = bool(self.feed.sources) and not self.feed.unfinished(), now_s
        else:
            end_s = started_s + self.plan.duration_s
            ended = now_s >= end_s or (bool(self.feed.sources) and not self.feed.unfinished())
        done = self.progress.processed()
        if not ended or done != self._done:
            self._done, self._done_s = done, now_s
        if not ended:
            return False
        return self.drained() or now_s > waited_until_s(self.here, end_s, self._done_s) + self.plan.drain_s

    def drained(self) -> bool:
        """Whether everything the sources wrote has gone through every unit."""
        if self.feed.running():
            return False
        told = self.feed.all_arrived()
        if told is not None:
            return told
        if self._fed_s is None:
            self._fed_s = self.clock.now_s()
        return self.progress.idle(self._fed_s)

    def all_running(self) -> bool:
        """Whether every unit's query runs and has an instance."""
        fleet = self.running_controller().fleet
        running = {i.unit for i in fleet.deployment().instances.values() if i.external_id is not None}
        return all(name in running and life.state is UnitState.RUNNING for name, life in fleet.units.items())

    def stop(self) -> None:
        """Stop units, sources, hosts and the controller's own threads; calling it again does nothing."""
        controller, self.controller = self.controller, None
        try:
            if controller is not None:
                self.feed.stop()
                controller.fleet.stop()
                for unit in self.here.unit_by_name:
                    self.plane.tell(unit, controller.fleet.wanted(unit), self.clock.now_s())
                self.drivers.wait(LEAVE_S)
                self.drivers.stop()
                controller.finish()
        except PenstockError as error:
            LOG.error("the run could not be ended in order: %s", error)
        finally:
            self._stack.close()

    # --- what there is to say ----------------------------------------------------------------------

    def status(self) -> Status:
        """What the run is doing, as of the last tick."""
        started_s, now_s, mode = self.feed.started_s, self.clock.now_s(), self.running_controller().mode
        phase = "starting" if self.plan.feed and started_s is None else "running"
        if started_s is not None and self.plan.duration_s is not None:
            phase = "draining" if now_s > started_s + self.plan.duration_s else "running"
        return self._watching_now().status(
            now_s,
            phase=phase,
            since_s=started_s,
            duration_s=self.plan.duration_s,
            acting=mode is Mode.ACT,
            paused=mode is Mode.PAUSE,
            asks=obeying.asks(self),
            sources=tuple(SourceStatus(name, value) for name, value in self.feed.health(now_s).items()),
        )

    def news(self) -> list[str]:
        """What the last tick decided and learned, in words."""
        return list(self._news)

    def result(self) -> RunResult:
        """The result so far, out of the journal and the heartbeats."""
        totals, now_s = self.progress.totals, self.clock.now_s()
        last = [unit.name for unit in self.here.units if _has_sink(self.here, unit.name)]
        ending = last or [unit.name for unit in self.here.units_in_order[-1:]]
        folders, bootstrap = self.folder.units, self.bootstrap
        return result_of(
            self.here,
            self.journal,
            {
                name: total.count(taken_by(self.topology, name, folders, bootstrap))
                for name, total in totals.items()
                if name in self.here.unit_by_name
            },
            kind="spark",
            duration_s=now_s - self._started_s,
            end_s=now_s,
            end_to_end=max((NONE, *(totals[unit].latencies() for unit in ending)), key=lambda s: s.count),
            records_in=self.feed.records()
            or sum(totals[u.name].arrived for u in self.here.units_in_order[:1]),
            records_out=self._records_out() or sum(totals[unit].emitted for unit in ending),
        )

    def _records_out(self) -> int | None:
        """Results by the names of their batches, whoever died meanwhile; None where a sink has none."""
        total = 0
        for sink in self.here.sinks:
            if folder_format(sink.function) is None:
                return None
            for folder in result_folders(sink, self.folder.units.results):
                total += sum(batch.records for batch in batches_in(folder))
        return total

    # --- inside ------------------------------------------------------------------------------------

    def running_controller(self) -> Controller:
        """The controller; ClusterError where it does not run."""
        if self.controller is None:
            raise ClusterError(f"run {self.plan.name} is not running")
        return self.controller

    def _watching_now(self) -> Watching:
        assert self._watching is not None, "it is made with the controller"
        return self._watching

    def specification(
        self,
        submission: Submission,
        version: Topology | None = None,
        places: Mapping[str, str] | None = None,
    ) -> UnitSpecification:
        """What a unit's driver shall run, in another version of the topology where one is given.

        `places` are the sites of units in that version.
        """
        at = self.plan.places if places is None else places
        clusters = self.clusters if version is None else self.clusters.seeing(version, at)
        return UnitSpecification(
            run=self.plan.name,
            unit=submission.unit,
            attempt=submission.attempt,
            revision=submission.revision,
            topology=self.plan.topology if version is None else topology_text(version),
            master=clusters.manager(submission.unit).master_url,
            folder=str(self.folder.root),
            wanted=submission.wanted,
            code=self.plan.code,
            bootstrap=self.bootstrap,
            settings={**clusters.settings(submission.unit), **self.plan.settings},
            storage=clusters.storage(submission.unit),
            environment=clusters.environment(submission.unit),
            on_trial_s=obeying.on_trial_s(self, submission.revision),
            anchor_s=clock_of(self.folder.root).anchor_s,
        )

    def _take_up(self, adopted: bool) -> None:
        """Go on where an earlier controller of this folder was: its counts, and sources not yet at an end."""
        self.progress.take_up(self.journal)
        self.changing.take_up()
        if self.plan.feed:
            notice = self.feed.take_up(self.clock.now_s(), adopted=adopted)
            if notice is not None:
                self.plane.note(notice)

    def _look_after(self) -> list[str]:
        """Start again what died beside the fleet: feeders, broker, master; what there is to say."""
        notices = ["nobody listened to heartbeats any more; they are heard again"] * self._server.revive()
        with self._patiently("the sources"):
            notices += [*self.feed.watch(self.clock.now_s()), *self._slow_sources()] if self.plan.feed else []
        with self._patiently("the channels' server"):
            notices += self.service_watch.tick(self.clock.now_s()) if self.service_watch is not None else []
        with self._patiently("the cluster"):
            notices += self.clusters.watch(self.clock.now_s())
        return notices

    def _slow_sources(self) -> list[str]:
        """Sources that have begun to emit less than is due, or are as they should be again."""
        found = {name: value for name, value in self.feed.health(self.clock.now_s()).items() if value}
        slow = {name for name, value in found.items() if value < CONGESTED}
        news = [f"source {name} emits {found[name]:.0%} of what is due" for name in sorted(slow - self._slow)]
        news += [f"source {name} emits what is due again" for name in sorted(self._slow - slow)]
        self._slow = slow
        return news

    def _start_service(self) -> None:
        """Bring up the server the channels need, where it is ours, and look after it."""
        service = service_of(self.here)
        if service is None:
            return
        revive = end = None
        if self.plan.own_broker:
            own = service.own(self.plan.label, self.folder.root / service.name)
            self._stack.callback(own.stop)
            self.bootstrap, revive, end = own.start(), own.revive, own.end
        address = service.named or self.bootstrap
        if address is not None:
            self.service_watch = ServiceWatch(service, address, revive or service.revival(address), end)

    def require_runnable(self, topology: Topology) -> None:
        """ConfigurationError where another version of the topology cannot be run here."""
        part = here(topology, self.plan.places, self.plan.site)
        require_runnable(topology, self.folder.root, part)

    def _require_healthy(self) -> None:
        """ClusterError where a unit cannot run, or not every unit ran in time."""
        units = self.running_controller().fleet.units
        failed = sorted(name for name, life in units.items() if life.state is UnitState.FAILED)
        if failed:
            problem = "; ".join(str(units[name].problem) for name in failed)
            # A change under way in which a unit fails is given up first.
            if not self.changing.under_way and not obeying.rolled_back(self, failed, problem):
                raise ClusterError(f"unit {', '.join(failed)} stopped: {problem}")
        longest_s = START_S + START_A_UNIT_S * len(units)
        waits = self.plan.feed and self.feed.started_s is None
        if waits and self.clock.now_s() - self._started_s > longest_s:
            raise ClusterError(
                f"not every unit runs after {longest_s:.0f} s; see {self.folder.root / 'units'}"
            )


def require_runnable(topology: Topology, folder: Path | None = None, part: Topology | None = None) -> None:
    """ConfigurationError where the topology cannot be run (in this folder); told before anything starts.

    `part` is what of it runs here, where that is not all.
    """
    here_too = topology if part is None else part
    for problem in not_runnable(topology, folder, here_too.site_by_name):
        raise ConfigurationError(problem)
    for unit in here_too.units:
        plan_unit(topology, unit.name)


def _has_sink(topology: Topology, unit: str) -> bool:
    operators = topology.unit_by_name[unit].operators
    return any(name in operators for sink in topology.sinks for name in sink.inputs)
