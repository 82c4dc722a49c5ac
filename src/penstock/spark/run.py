"""Runs a topology on a local Spark cluster: cluster, unit drivers, feeders and the controller.

`Run` is all of it in one process, for tests and for `--resume`. `run_topology` puts it into a process of its
own and watches that: a controller that dies is started again and adopts what still runs, from the run's
folder (specification, journal, books, process records). Everything is stopped at the end, on Ctrl-C, and
(by the next start) after a crash of the watcher.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.channels.feeder import FINISHED, TICK_S
from penstock.channels.files import batches_in, last_batch
from penstock.channels.sinks import folder_format
from penstock.clock import Clock, WallClock
from penstock.controller.journal import Journal
from penstock.controller.loop import Budgeting, Controller, Tick, described
from penstock.controller.result import RunResult, result_of
from penstock.errors import ClusterError, ConfigurationError
from penstock.infrastructure.deployment import INSTANCE_COUNTED
from penstock.infrastructure.providers import LocalParameters, provider_parameters
from penstock.monitoring import Measurement
from penstock.quantities import format_duration
from penstock.spark.broker_watch import BrokerWatch, RunBroker, shared_revival
from penstock.spark.cluster import BOOKS, SparkCluster, UnitDrivers
from penstock.spark.heartbeat import HeartbeatServer
from penstock.spark.local_cluster import LocalCluster
from penstock.spark.local_run import start_feeders
from penstock.spark.processes import (
    ChildProcesses,
    end_orphans,
    exit_on_sigterm,
    log_tail,
    read_records,
    wait_until,
)
from penstock.spark.training import ensure_archive
from penstock.spark.unit_driver import RunSpecification
from penstock.spark.unit_plan import (
    RunFolders,
    generated_sources,
    not_run_yet,
    plan_unit,
    result_folders,
    taken_by,
)
from penstock.topology.model import Topology

LOG = logging.getLogger(__name__)

JOURNAL = "journal.sqlite"
STATUS = "status.json"
RESULT = "result.pickle"
FEED = "feed.json"
START_S = 120.0
START_A_UNIT_S = 40.0
"""Longest time until every unit runs, and more for each unit; three drivers take 40 s on two cores."""
DRAIN_S = 60.0
"""After the sources' end: longest time without any progress until records in flight are given up."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run shall do, beside its topology."""

    name: str
    duration_s: float | None = None
    """How long sources run, from the moment every unit does; None means until told to stop."""
    drain_s: float = DRAIN_S
    feed: bool = True
    """Whether feeders write the generated sources; else somebody else does, and the run ends when told to."""


class Run:
    """One run in this process. Use it as a context manager: everything is stopped on leaving."""

    def __init__(
        self,
        topology: Topology,
        folder: Path,
        plan: RunPlan,
        *,
        code: Path | None = None,
        bootstrap: str | None = None,
        own_broker: bool = False,
        settings: Mapping[str, str] | None = None,
        hosts: LocalCluster | None = None,
        budgeting: Budgeting | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`hosts` is a cluster that is there already and stays; without it the run has one of its own.

        `bootstrap` is a broker that runs; with `own_broker` the run starts one, and again where it dies.
        """
        _require_runnable(topology)
        self.topology = topology
        self.folders = RunFolders(folder.resolve())
        self.plan = plan
        self._code = code
        self._bootstrap = bootstrap
        self._broker = RunBroker(plan.name, self.folders.root / "broker") if own_broker else None
        self._broker_watch: BrokerWatch | None = None
        self._settings = dict(settings or {})
        self._own_hosts = hosts is None
        self._clock = clock or WallClock()
        self._budgeting = budgeting
        self.drivers = UnitDrivers(plan.name, self.folders, [unit.name for unit in topology.units])
        self._feeders = ChildProcesses(f"{plan.name}-feeders")
        delay_s = max(_start_delay_s(topology), 0.0)
        self.hosts = hosts or LocalCluster(
            0, name=plan.name, start_delay_s=delay_s, folder=self.folders.root / "cluster"
        )
        self._started_s = 0.0
        self._stopped = False
        self._done = 0
        self._done_s = 0.0
        self._fed_s: float | None = None
        """When the feeders were seen to have ended."""
        self._last_tick: Tick | None = None

    # --- life --------------------------------------------------------------------------------------

    def start(self) -> Run:
        """Bring everything up; what an earlier controller of the same run left running is adopted."""
        self.folders.root.mkdir(parents=True, exist_ok=True)
        adopted = [*self.drivers.adopt(), *self._feeders.adopt()]
        if self._broker is not None:
            self._bootstrap = self._broker.start()
        self._watch_broker()
        if self._own_hosts:
            self.hosts.start(wait=False)
            if not self.hosts.adopted:
                # Hosts are gone, so the instances written down are too.
                (self.folders.root / BOOKS).unlink(missing_ok=True)
        RunSpecification(
            self.plan.name,
            self.topology,
            self.hosts.master_url,
            str(self._code.resolve()) if self._code is not None else None,
            self._bootstrap,
            self._settings,
        ).write(self.folders.root)
        self.cluster = SparkCluster(self.topology, self.hosts, self.drivers, self.folders)
        self._server = HeartbeatServer(self.folders.root, self.cluster.heard)
        self._server.start()
        self.journal = Journal(self.folders.root / JOURNAL, self.plan.name)
        self.controller = Controller(
            self.topology, self.cluster, self._clock, self.journal, budgeting=self._budgeting
        )
        if adopted:
            self.journal.notice(
                self._clock.now_s(), f"the controller came back and adopted {', '.join(adopted)}"
            )
        self._take_up(bool(adopted))
        self._started_s = self._clock.now_s()
        # The first tick leases hosts and asks for instances: drivers then start with the right number.
        self.tick()
        self.drivers.start()
        return self

    def __enter__(self) -> Run:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def tick(self) -> Tick:
        """One turn of the loop; feeders start once every unit runs."""
        if self._broker_watch is not None:
            for notice in self._broker_watch.tick(self._clock.now_s()):
                self.cluster.note(notice)
        tick = self.controller.tick()
        self._last_tick = tick
        if self.plan.feed and not self.feeding and self.cluster.all_running():
            self._start_feeders()
        self._write_status(tick)
        return tick

    def run(
        self, each: Callable[[Tick], None] | None = None, stopped: Callable[[], bool] | None = None
    ) -> None:
        """Tick until the duration is over and what was in flight is done, or until `stopped` says so."""
        halt = stopped or (lambda: False)
        next_s = self._clock.now_s()
        while not halt():
            next_s += self.topology.loop.monitoring_s
            while self._clock.now_s() < next_s and not halt():
                self._clock.wait_until(min(next_s, self._clock.now_s() + 0.25))
            tick = self.tick()
            if each is not None:
                each(tick)
            useless = self.drivers.useless
            if useless:
                raise ClusterError(
                    f"unit {', '.join(sorted(useless))} stopped: "
                    + "; ".join(log_tail(self.drivers.log(unit), 4) for unit in sorted(useless))
                )
            if self.over():
                return
            starting = self.plan.feed and not self.feeding
            longest_s = START_S + START_A_UNIT_S * len(self.topology.units)
            if starting and self._clock.now_s() - self._started_s > longest_s:
                raise ClusterError(
                    f"not every unit runs after {longest_s:.0f} s; see {self.folders.root / 'units'}"
                )

    def over(self) -> bool:
        """Whether the sources have ended and nothing waits any more (or was waited for long enough)."""
        if not self.feeding:
            return False
        started_s = self._feed_started_s()
        now_s = self._clock.now_s()
        if self.plan.duration_s is None:
            ended = bool(self.sources) and not any(self._feeders.alive(name) for name in self.sources)
            end_s = now_s
        else:
            end_s = started_s + self.plan.duration_s
            ended = now_s >= end_s
        done = sum(total.processed for total in self.cluster.totals.values())
        if not ended or done != self._done:
            self._done, self._done_s = done, now_s
        if not ended:
            return False
        # What is in flight is waited for as long as it moves.
        return self.drained() or now_s > max(end_s, self._done_s) + self.plan.drain_s

    def drained(self) -> bool:
        """Whether everything the feeders wrote has gone through every unit."""
        if any(self._feeders.alive(name) for name in self.sources):
            return False
        if self._fed_s is None:
            self._fed_s = self._clock.now_s()
        return self.cluster.idle(self._fed_s)

    def stop(self) -> None:
        """Stop units, feeders, hosts and the controller's own threads; calling it again does nothing."""
        if self._stopped:
            return
        self._stopped = True
        self._feeders.stop_all(2.0)
        if hasattr(self, "cluster"):
            self.cluster.stop_units()
            self.drivers.wait(12.0)
        self.drivers.stop()
        if hasattr(self, "controller"):
            with contextlib.suppress(Exception):
                self.controller.finish()
        if hasattr(self, "_server"):
            self._server.stop()
        if self._own_hosts:
            self.hosts.stop()
        if self._broker is not None:
            self._broker.stop()
        if hasattr(self, "journal"):
            self.journal.close()

    # --- sources -----------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources whose records a feeder writes."""
        return tuple(generated_sources(self.topology))

    @property
    def feeding(self) -> bool:
        """Whether the sources have been started."""
        return (self.folders.root / FEED).exists()

    def records_in(self) -> int:
        """Records written by feeders that have ended, each counted once however many units read it."""
        total = 0
        for source in self.sources:
            with contextlib.suppress(OSError, ValueError, KeyError):
                total += int(json.loads((self.folders.sources / source / FINISHED).read_text())["records"])
        return total

    def _feed_started_s(self) -> float:
        return float(json.loads((self.folders.root / FEED).read_text())["started_s"])

    def _start_feeders(self) -> None:
        started_s = time.time() + 0.2
        (self.folders.root / FEED).write_text(json.dumps({"started_s": started_s}))
        start_feeders(self._feeders, self.topology, self.folders, started_s, self.plan.duration_s)

    def _take_up(self, adopted: bool) -> None:
        """Go on where an earlier controller of this folder was: its counts, and sources not yet at an end."""
        for row in self.journal.rows("observation"):
            if row["unit"] in self.cluster.totals:
                measured = Measurement(**{name: row[name] for name in _SUMMED})
                self.cluster.totals[measured.unit].add(measured)
        if not self.plan.feed or not self.feeding:
            return
        left = [name for name in self.sources if not _complete(self.folders.sources / name)]
        if not left or any(self._feeders.alive(name) for name in self.sources):
            return
        if not adopted:
            # Nobody was there for a while. Sources go on where they were, as if no time had passed.
            folders = [
                self.folders.sources / source / unit
                for source, units in generated_sources(self.topology).items()
                for unit in units
            ]
            position_s = max((last_batch(folder) + 1) * TICK_S for folder in folders)
            (self.folders.root / FEED).write_text(json.dumps({"started_s": time.time() - position_s}))
            into = format_duration(position_s)
            self.journal.notice(self._clock.now_s(), f"the run is taken up again, {into} into its sources")
        started_s, duration_s = self._feed_started_s(), self.plan.duration_s
        start_feeders(self._feeders, self.topology, self.folders, started_s, duration_s, left)

    def _watch_broker(self) -> None:
        addresses = {
            str(channel.options.get("bootstrap") or self._bootstrap)
            for channel in self.topology.channels
            if channel.kind == "kafka"
        }
        for address in sorted(addresses - {"None"})[:1]:
            revive = self._broker.revive if self._broker is not None else shared_revival(address)
            self._broker_watch = BrokerWatch(address, revive)

    # --- what there is to say ----------------------------------------------------------------------

    def result(self) -> RunResult:
        """The result so far, out of the journal and the heartbeats."""
        totals = self.cluster.totals
        now_s = self._clock.now_s()
        last = [unit.name for unit in self.topology.units if _has_sink(self.topology, unit.name)]
        ending = last or [unit.name for unit in self.topology.units_in_order[-1:]]
        end_to_end = max((totals[unit].latencies() for unit in ending), key=lambda s: s.count)
        return result_of(
            self.topology,
            self.journal,
            {
                name: total.count(taken_by(self.topology, name, self.folders, self._bootstrap))
                for name, total in totals.items()
            },
            kind="spark",
            duration_s=now_s - self._started_s,
            end_s=now_s,
            end_to_end=end_to_end,
            records_in=self.records_in()
            or sum(totals[u.name].arrived for u in self.topology.units_in_order[:1]),
            records_out=self._records_out() or sum(totals[unit].emitted for unit in ending),
        )

    def _records_out(self) -> int | None:
        """Results by the names of their batches, whoever died meanwhile; None where a sink has none."""
        total = 0
        for sink in self.topology.sinks:
            if folder_format(sink.function) is None:
                return None
            for folder in result_folders(sink, self.folders.results):
                total += sum(batch.records for batch in batches_in(folder))
        return total

    def _write_status(self, tick: Tick) -> None:
        units = {}
        for unit in self.topology.units:
            signal = next((s for s in tick.signals if s.unit == unit.name), None)
            report = self.cluster.report_of(unit.name)
            instances = [i for i in tick.deployment.instances.values() if i.unit == unit.name]
            units[unit.name] = {
                "state": report.state if report is not None else "starting",
                "instances": sum(i.state in INSTANCE_COUNTED for i in instances),
                "running": sum(i.external_id is not None for i in instances),
                "hosts": sorted({i.host for i in instances if i.host is not None}),
                "measurement": None if signal is None else _without_readings(signal.measurement),
                "processed": self.cluster.totals[unit.name].processed,
            }
        status = {
            "name": self.plan.name,
            "at_s": tick.at_s,
            "feeding_since_s": self._feed_started_s() if self.feeding else None,
            "duration_s": self.plan.duration_s,
            "units": units,
            "hosts": {host.id: str(host.state) for host in tick.deployment.hosts.values()},
            "bill": str(self.controller.state.ledger.total),
            "decisions": [described(v.action) for v in tick.verdicts if v.refused is None],
            "notices": list(tick.notices),
        }
        temporary = self.folders.root / f"{STATUS}.part"
        temporary.write_text(json.dumps(status))
        temporary.replace(self.folders.root / STATUS)


def _without_readings(measurement: Any) -> dict[str, Any]:
    values = asdict(measurement)
    values.pop("readings")
    values["cpu_ratios"] = [r.cpu_ratio for r in measurement.readings if r.cpu_ratio is not None]
    return values


_SUMMED = (
    "unit", "at_s", "interval_s", "arrived", "processed", "emitted", "waiting", "in_service", "duration_s",
    "duration_p95_s", "duration_p99_s", "latency_s", "latency_p95_s",
)  # fmt: skip
"""What of a journalled observation goes into a unit's totals."""


def _complete(source: Path) -> bool:
    """Whether a source's feeder has written all it had to."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return bool(json.loads((source / FINISHED).read_text())["complete"])
    return False


def _require_runnable(topology: Topology) -> None:
    """ConfigurationError where the topology cannot be run; told before anything starts."""
    for limit in not_run_yet(topology):
        raise ConfigurationError(limit)
    for unit in topology.units:
        plan_unit(topology, unit.name)


def _has_sink(topology: Topology, unit: str) -> bool:
    operators = topology.unit_by_name[unit].operators
    return any(name in operators for sink in topology.sinks for name in sink.inputs)


def _start_delay_s(topology: Topology) -> float:
    delays = []
    for site in topology.sites:
        parameters = provider_parameters(site.provider)
        if isinstance(parameters, LocalParameters):
            delays.append(parameters.host_start_delay_s)
    return max(delays, default=0.0)


# --- the controller in a process of its own, and its watcher ---------------------------------------------

OPTIONS = "options.pickle"
MOST_RESTARTS = 20
LEAVING_S = 40.0
"""How long the controller of a killed watcher may take to stop everything in order."""


def run_topology(
    topology: Topology,
    folder: Path,
    *,
    duration_s: float | None = None,
    name: str | None = None,
    code: Path | None = None,
    bootstrap: str | None = None,
    own_broker: bool = False,
    settings: Mapping[str, str] | None = None,
    drain_s: float = DRAIN_S,
    feed: bool = True,
    watch: Callable[[dict[str, Any]], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> RunResult:
    """Run a topology to its end on a local cluster and give back the result.

    Blocks for the duration (None: until Ctrl-C). `watch` gets the run's status about twice a second. The
    journal and the units' logs are in `folder`. Ctrl-C, or `stopped` saying so, ends the run in order. A
    folder of a run that was killed is taken up again: checkpoints, journal, counts, and the sources' place.
    """
    import pickle

    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    chosen = name or _earlier_name(folder) or f"run-{topology.name}-{os.getpid()}".replace(" ", "-")
    plan = RunPlan(chosen, duration_s, drain_s, feed)
    _require_runnable(topology)
    options = {
        "topology": topology,
        "plan": plan,
        "code": code,
        "bootstrap": bootstrap,
        "own_broker": own_broker,
        "settings": dict(settings or {}),
    }
    _await_earlier(plan.name)
    ensure_archive()
    (folder / OPTIONS).write_bytes(pickle.dumps(options))
    (folder / RESULT).unlink(missing_ok=True)
    watched = ChildProcesses(f"{plan.name}-controller")
    command = [sys.executable, "-m", "penstock.spark.run", str(folder)]
    log = folder / "controller.log"
    restarts = 0
    watched.start("controller", command, log=log)
    try:
        while True:
            if not watched.alive("controller"):
                code_left = watched.exit_code("controller")
                if (folder / RESULT).exists():
                    break
                if (code_left is not None and code_left >= 0) or restarts >= MOST_RESTARTS:
                    raise ClusterError(f"the run ended with an error:\n{log_tail(log, 12)}")
                # Killed from outside: units and hosts still run, the next controller adopts them.
                restarts += 1
                watched.start("controller", command, log=log)
            if watch is not None:
                with contextlib.suppress(OSError, ValueError):
                    watch(json.loads((folder / STATUS).read_text()))
            if stopped():
                raise KeyboardInterrupt
            time.sleep(0.5)
    except KeyboardInterrupt:
        watched.signal("controller", signal.SIGINT)
        deadline_s = time.monotonic() + 60
        while watched.alive("controller") and time.monotonic() < deadline_s:
            time.sleep(0.2)
    finally:
        watched.stop_all(30.0)
    if not (folder / RESULT).exists():
        raise ClusterError(f"the run left no result:\n{log_tail(log, 12)}")
    result: RunResult = pickle.loads((folder / RESULT).read_bytes())
    return result


def _earlier_name(folder: Path) -> str | None:
    """The name of the run whose folder this is; None for a new one. The journal knows it by this name."""
    with contextlib.suppress(OSError):
        return RunSpecification.read(folder).name
    return None


def _await_earlier(name: str) -> None:
    """Let what a killed watcher of the same run left behind end: its controller leaves by itself."""
    earlier = [r for r in read_records() if r.group.startswith(name) and r.orphaned]
    wait_until(lambda: not any(record.alive for record in earlier), LEAVING_S, poll_s=0.2)
    ended = end_orphans()
    if ended:
        LOG.warning("ended %d processes that a killed run had left behind", len(ended))


def main(arguments: list[str] | None = None) -> int:
    """The controller's process: run what the folder says, write the result, leave."""
    import pickle

    folder = Path((arguments or sys.argv[1:])[0])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    exit_on_sigterm()
    options = pickle.loads((folder / OPTIONS).read_bytes())
    topology: Topology = options["topology"]
    budgeting: Budgeting | None = None
    if topology.latency_bounds:
        from penstock.controller.budgeting import LatencyBudgeting

        budgeting = LatencyBudgeting()
    watcher = os.getppid()
    run = Run(
        topology,
        folder,
        options["plan"],
        code=options["code"],
        bootstrap=options["bootstrap"],
        own_broker=options["own_broker"],
        settings=options["settings"],
        budgeting=budgeting,
    )
    try:
        with run:
            # Without its watcher nobody would ever end this run: leave in order.
            with contextlib.suppress(KeyboardInterrupt):
                run.run(stopped=lambda: os.getppid() != watcher)
            result = run.result()
            (folder / f"{RESULT}.part").write_bytes(pickle.dumps(result))
    except ClusterError as error:
        LOG.error("%s", error)
        return 2
    # In place only once everything is stopped: the watcher takes it as "all is over".
    (folder / f"{RESULT}.part").replace(folder / RESULT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
