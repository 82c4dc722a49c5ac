"""The Spark cluster as the loop sees it: leased workers as hosts, executors as instances.

The loop names hosts and instances; Spark numbers executors and places them itself. This adapter keeps the
book between the two: an instance is asked for by raising its unit's number of executors and bound to an
executor that registers; retiring is by the executor it is bound to. An executor that is lost is not given
up: the wanted number stands, Spark starts another, and the instance is bound to that one.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from penstock.controller.cluster import Observation, Outcome
from penstock.errors import ClusterError
from penstock.infrastructure.deployment import (
    INSTANCE_COUNTED,
    Deployment,
    HostState,
    Instance,
    InstanceState,
)
from penstock.monitoring import InstanceReading, Measurement
from penstock.policies.actions import (
    Action,
    LeaseHost,
    MigrateInstance,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.spark.heartbeat import UnitReport, Wanted
from penstock.spark.local_cluster import LocalCluster
from penstock.spark.local_provider import LocalProvider
from penstock.spark.processes import ChildProcesses, log_tail
from penstock.spark.unit_driver import EXIT_USELESS, executor_shape, wanted_file, write_wanted
from penstock.spark.unit_plan import RunFolders
from penstock.spark.unit_totals import UnitTotals
from penstock.topology.model import Topology

LOG = logging.getLogger(__name__)

LONGEST_BACKOFF_S = 30.0
BOOKS = "cluster-books.json"
"""Where the books between instances and executors lie in a run's folder."""
SETTLED_S = 0.5
"""What a unit sent is visible to the next one within this time."""

HOST_TAKES = frozenset({HostState.REQUESTED, HostState.STARTING, HostState.UP})
"""States of a host on which instances run or will run."""


class UnitDrivers:
    """The driver processes of a run's units: started, watched, started again from their checkpoints."""

    def __init__(self, name: str, folders: RunFolders, units: Sequence[str]) -> None:
        self._children = ChildProcesses(f"{name}-units")
        self._folders = folders
        self._units = tuple(units)
        self._failures: dict[str, int] = dict.fromkeys(units, 0)
        self._next_start_s: dict[str, float] = {}
        self._useless: set[str] = set()
        self._begun = False
        self._stopping = False

    def adopt(self) -> list[str]:
        """Take over drivers that an earlier controller of the run left running; their units."""
        return sorted(self._children.adopt())

    def start(self) -> None:
        """Start the driver of every unit that has none."""
        self._begun = True
        for unit in self._units:
            if not self._children.alive(unit):
                self._start(unit)

    def pid(self, unit: str) -> int | None:
        """The process of a unit's driver; None where it does not run."""
        record = self._children.records.get(unit)
        return record.pid if record is not None and self._children.alive(unit) else None

    @property
    def useless(self) -> frozenset[str]:
        """Units that stopped by an error of their own and are not started again."""
        return frozenset(self._useless)

    def tick(self, now_s: float) -> list[str]:
        """Start again what died; says so."""
        notices: list[str] = []
        # Before the start there is nobody who could have died.
        if self._stopping or not self._begun:
            return notices
        for unit in self._units:
            if unit in self._useless or self._children.alive(unit):
                continue
            code = self._children.exit_code(unit)
            if code == EXIT_USELESS:
                self._useless.add(unit)
                notices.append(
                    f"unit {unit} stopped by itself and is not started again; see {self.log(unit)}"
                )
                continue
            if unit not in self._next_start_s:
                delay_s = min(LONGEST_BACKOFF_S, 0.5 * 2 ** self._failures[unit])
                self._failures[unit] += 1
                self._next_start_s[unit] = now_s + delay_s
                notices.append(f"the driver of unit {unit} died (exit code {code}); it is started again")
                LOG.warning("driver of unit %s died; its last words:\n%s", unit, log_tail(self.log(unit)))
            if now_s >= self._next_start_s[unit]:
                del self._next_start_s[unit]
                # What its process left behind (its Java) must be gone before another uses the checkpoint.
                self._children.stop(unit, grace_s=0.0)
                self._start(unit)
        return notices

    def reported(self, unit: str, running: bool) -> None:
        """A driver is well: the next death is the first again."""
        if running:
            self._failures[unit] = 0

    def log(self, unit: str) -> Path:
        """Where a unit's driver writes what it does."""
        return self._folders.unit(unit) / "driver.log"

    def wait(self, timeout_s: float) -> bool:
        """Whether every driver has left by itself in time."""
        self._stopping = True
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            if not any(self._children.alive(unit) for unit in self._units):
                return True
            time.sleep(0.1)
        return False

    def stop(self, grace_s: float = 8.0) -> None:
        """Stop every driver with all it started."""
        self._stopping = True
        self._children.stop_all(grace_s)

    def _start(self, unit: str) -> None:
        command = [sys.executable, "-m", "penstock.spark.unit_driver", str(self._folders.root), unit]
        self._children.start(unit, command, log=self.log(unit))


class SparkCluster:
    """Implements the loop's `Cluster` over a local cluster and the drivers of a run's units.

    Heartbeats come in on other threads; a lock keeps the books. The books are also on disk, so that a
    controller that comes back goes on with the instances there are.
    """

    def __init__(
        self, topology: Topology, hosts: LocalCluster, drivers: UnitDrivers, folders: RunFolders
    ) -> None:
        self.topology = topology
        self.drivers = drivers
        self._hosts = LocalProvider(hosts, topology.sites[0])
        self._folders = folders
        self._lock = threading.RLock()
        self._instances: dict[str, Instance] = {}
        self._applications: dict[str, str] = {}
        self._reports: dict[str, UnitReport] = {}
        self._reported_s: dict[str, float] = {}
        self._surplus: dict[str, tuple[str, ...]] = {}
        self._migrations: dict[str, str] = {}
        """The instance that goes, by the replacement that has to run first."""
        self._pending: dict[str, list[Measurement]] = {}
        self._measured: dict[str, Measurement] = {}
        self._idle_from_s: dict[str, float] = {}
        """When a unit without anything to do was first measured as such."""
        self._notices: list[str] = []
        self._stopping = False
        self.totals = {unit.name: UnitTotals(topology.unit_slo_s(unit.name)) for unit in topology.units}
        self._file = folders.root / BOOKS
        self._restore()

    # --- the loop's three calls --------------------------------------------------------------------

    def observe(self, now_s: float) -> Observation:
        """What the drivers reported since the last call; dead drivers are started again."""
        notices = self.drivers.tick(now_s)
        self._give_up_homeless()
        with self._lock:
            measurements = tuple(
                merged([replace(m, readings=self._named(unit, m)) for m in pending], now_s)
                for unit, pending in self._pending.items()
                if pending
            )
            self._pending = {}
            notices = [*self._notices, *notices]
            self._notices = []
        for notice in notices:
            LOG.warning("%s", notice)
        return Observation(now_s, measurements, tuple(notices))

    def deployment(self) -> Deployment:
        """Leased hosts and the instances in the book."""
        hosts = self._hosts.hosts(time.time())
        with self._lock:
            return Deployment.of(hosts, self._instances.values())

    def enact(self, actions: Sequence[Action], now_s: float) -> tuple[Outcome, ...]:
        """Hand the wishes over; drivers hear of theirs with the next heartbeat."""
        outcomes = []
        for action in actions:
            try:
                self._enact(action, now_s)
                outcomes.append(Outcome(action))
            except ClusterError as error:
                outcomes.append(Outcome(action, str(error)))
        with self._lock:
            self._save()
            for unit in self.topology.units:
                write_wanted(wanted_file(self._folders, unit.name), self.wanted(unit.name))
        return tuple(outcomes)

    # --- the drivers' side -------------------------------------------------------------------------

    def heard(self, report: UnitReport) -> Wanted:
        """Take in a driver's report; gives back what is wanted of its unit."""
        unit = report.unit
        with self._lock:
            if unit not in self.totals:
                raise ValueError(f"unknown unit {unit!r}")
            self._reports[unit] = report
            self._reported_s[unit] = time.time()
            self._notices.extend(report.notices)
            if report.measurement is not None:
                measured = self._with_latency(report.measurement)
                self._measured[unit] = measured
                self._pending.setdefault(unit, []).append(measured)
                self.totals[unit].add(measured)
                if measured.waiting or measured.in_service or measured.processed:
                    self._idle_from_s.pop(unit, None)
                else:
                    self._idle_from_s.setdefault(unit, measured.at_s)
            self.drivers.reported(unit, report.state == "running")
            self._bind(report)
            return self.wanted(unit)

    def wanted(self, unit: str) -> Wanted:
        """The state wanted of a unit, as its driver is told."""
        with self._lock:
            mine = [instance for instance in self._instances.values() if instance.unit == unit]
            retiring = [
                i.external_id for i in mine if i.state is InstanceState.RETIRING and i.external_id is not None
            ]
            target = sum(instance.state in INSTANCE_COUNTED for instance in mine)
            return Wanted(target, (*retiring, *self._surplus.get(unit, ())), self._stopping)

    def report_of(self, unit: str) -> UnitReport | None:
        """What a unit's driver last said; None before its first heartbeat."""
        with self._lock:
            return self._reports.get(unit)

    def idle(self, since_s: float) -> bool:
        """Whether nothing waits or is under way in any unit, with sources that ended at `since_s`.

        A unit counts only if it was measured after those before it had become idle: what they sent last
        would have been seen.
        """
        with self._lock:
            for unit in self.topology.units:
                report = self._reports.get(unit.name)
                if report is None or report.state != "running" or unit.name not in self._idle_from_s:
                    return False
                before_s = [since_s, *map(self._idle_from_s.get, self._units_before(unit.name))]
                measured_s = self._measured[unit.name].at_s
                if any(idle_s is None or measured_s < idle_s + SETTLED_S for idle_s in before_s):
                    return False
            return True

    def all_running(self) -> bool:
        """Whether every unit's query runs and has an executor."""
        with self._lock:
            return all(
                (report := self._reports.get(unit.name)) is not None
                and report.state == "running"
                and bool(report.executors)
                for unit in self.topology.units
                if unit.name not in self.drivers.useless
            )

    def note(self, notice: str) -> None:
        """Say something at the next observation."""
        with self._lock:
            self._notices.append(notice)

    def stop_units(self) -> None:
        """Tell every unit, at its next heartbeat, to end."""
        with self._lock:
            self._stopping = True

    # --- inside ------------------------------------------------------------------------------------

    def _units_before(self, unit: str) -> set[str]:
        inputs = {
            name
            for operator in self.topology.unit_by_name[unit].operators
            for name in self.topology.operator_by_name[operator].inputs
        }
        return {self.topology.unit_of[name] for name in inputs if name in self.topology.unit_of} - {unit}

    def _with_latency(self, measurement: Measurement) -> Measurement:
        """A measurement with latencies where a unit cannot tell them itself, as one that reads from Kafka.

        Records arrive as old as they left the unit before, and stay for as long as they are processed.
        """
        if measurement.latency_s is not None or measurement.duration_s is None:
            return measurement
        before = [self._measured.get(unit) for unit in self._units_before(measurement.unit)]
        ages_s = [m.latency_s for m in before if m is not None and m.latency_s is not None]
        if not ages_s:
            return measurement
        age_s, p95_s = max(ages_s), measurement.duration_p95_s
        return replace(
            measurement,
            latency_s=age_s + measurement.duration_s,
            latency_p95_s=None if p95_s is None else age_s + p95_s,
        )

    def _give_up_homeless(self) -> None:
        """Strike lost instances from the book whose host is gone and which fit on no other.

        Spark starts a lost executor again wherever there is room. Where there is none, its instance would
        wait for ever and count as one the unit has; struck off, it is missed, and a host is leased.
        """
        deployment = self.deployment()
        up = {host.id for host in deployment.hosts.values() if host.state in HOST_TAKES}
        with self._lock:
            lost = [
                i
                for i in self._instances.values()
                if i.state is InstanceState.REQUESTED and i.host is not None and i.host not in up
            ]
            for instance in lost:
                fits = any(
                    free[0] >= instance.cores and free[1] >= instance.memory_mib
                    for free in (deployment.free(host) for host in up)
                )
                if not fits:
                    del self._instances[instance.id]
                    self._notices.append(
                        f"{instance.id} was lost with host {instance.host}: no room elsewhere"
                    )

    def _enact(self, action: Action, now_s: float) -> None:
        if isinstance(action, LeaseHost):
            flavour = self.topology.site_by_name[action.site].flavour(action.flavour)
            self._hosts.lease(action.host, action.site, flavour, now_s)
        elif isinstance(action, ReleaseHost):
            self._hosts.release(action.host, now_s)
        elif isinstance(action, StartInstance):
            self._request(action.instance, action.unit, action.host, now_s)
        elif isinstance(action, StopInstance):
            self._retire(action.instance)
        elif isinstance(action, MigrateInstance):
            with self._lock:
                if action.instance in self._instances and action.replacement not in self._instances:
                    self._request(action.replacement, action.unit, action.to_host, now_s)
                    self._migrations[action.replacement] = action.instance

    def _request(self, name: str, unit: str, host: str | None, now_s: float) -> None:
        with self._lock:
            if name in self._instances:
                return
            self._instances[name] = Instance(
                name, unit, host, InstanceState.REQUESTED, self.topology.unit_cores(unit),
                executor_shape(self.topology, unit).memory_mib, now_s,
            )  # fmt: skip

    def _retire(self, name: str) -> None:
        with self._lock:
            instance = self._instances.get(name)
            if instance is None or instance.state is InstanceState.RETIRING:
                return
            if instance.external_id is None:
                del self._instances[name]
            else:
                self._instances[name] = instance.moved(InstanceState.RETIRING)

    def _bind(self, report: UnitReport) -> None:
        """Bring the book of a unit's instances into line with the executors its driver has."""
        unit = report.unit
        known = self._applications.get(unit)
        alive = {executor.id: executor for executor in report.executors}
        if known != report.application:
            self._applications[unit] = report.application
            if known is not None:
                self._notices.append(f"unit {unit} runs as a new application: its driver was started again")
        anew = known != report.application
        before = {name: i for name, i in self._instances.items() if i.unit == unit}
        for name, instance in before.items():
            if instance.external_id is None or (not anew and instance.external_id in alive):
                continue
            if instance.state is InstanceState.RETIRING:
                del self._instances[name]
                continue
            if not anew:
                self._notices.append(
                    f"executor {instance.external_id} of unit {unit} was lost; another is asked for"
                )
            self._instances[name] = replace(
                instance, state=InstanceState.REQUESTED, external_id=None, running_s=None
            )
        bound = {i.external_id for i in self._instances.values() if i.unit == unit}
        free = [e for e in report.executors if e.id not in bound and not e.retiring]
        waiting = [
            i for i in self._instances.values() if i.unit == unit and i.state is InstanceState.REQUESTED
        ]
        for executor in free:
            host = self._hosts.host_at(executor.address)
            # The host the loop had in mind where Spark chose the same, else whoever waits longest.
            chosen = next((i for i in waiting if i.host == host), waiting[0] if waiting else None)
            if chosen is None:
                continue
            waiting.remove(chosen)
            self._instances[chosen.id] = chosen.moved(
                InstanceState.RUNNING, host=host, external_id=executor.id, running_s=time.time()
            )
            leaving = self._migrations.pop(chosen.id, None)
            if leaving is not None:
                self._retire(leaving)
        bound = {i.external_id for i in self._instances.values() if i.unit == unit}
        self._surplus[unit] = tuple(e.id for e in report.executors if e.id not in bound)
        if before != {name: i for name, i in self._instances.items() if i.unit == unit}:
            self._save()

    def _named(self, unit: str, measurement: Measurement) -> tuple[InstanceReading, ...]:
        """Readings by the loop's instance names instead of Spark's executor ids."""
        names = {i.external_id: i.id for i in self._instances.values() if i.unit == unit}
        return tuple(
            reading._replace(instance=names[reading.instance])
            for reading in measurement.readings
            if reading.instance in names
        )

    def _save(self) -> None:
        # A copy: a heartbeat saves while the loop may be leasing.
        leased = self._hosts.leased.copy()
        books = {
            "hosts": {host: (site, flavour.name) for host, (site, flavour) in leased.items()},
            "instances": [asdict(instance) for instance in self._instances.values()],
            "applications": self._applications,
        }
        temporary = self._file.with_suffix(".part")
        temporary.write_text(json.dumps(books))
        temporary.replace(self._file)

    def _restore(self) -> None:
        if not self._file.exists():
            return
        books = json.loads(self._file.read_text())
        for host, (site, flavour) in books["hosts"].items():
            self._hosts.leased[host] = (site, self.topology.site_by_name[site].flavour(flavour))
        self._applications = books["applications"]
        for given in books["instances"]:
            instance = Instance(**{**given, "state": InstanceState(given["state"])})
            self._instances[instance.id] = instance


def merged(measurements: Sequence[Measurement], now_s: float) -> Measurement:
    """One measurement of several consecutive ones: sums, the last backlog, means weighted by records."""
    last = measurements[-1]
    if len(measurements) == 1:
        return replace(last, at_s=now_s)
    processed = sum(m.processed for m in measurements)

    def mean(name: str) -> float | None:
        having = [(getattr(m, name), m.processed) for m in measurements if getattr(m, name) is not None]
        weight = sum(records for _, records in having)
        if not weight:
            return None
        return float(sum(value * records for value, records in having) / weight)

    return replace(
        last,
        at_s=now_s,
        interval_s=sum(m.interval_s for m in measurements),
        arrived=sum(m.arrived for m in measurements),
        processed=processed,
        emitted=sum(m.emitted for m in measurements),
        duration_s=mean("duration_s"),
        duration_p95_s=mean("duration_p95_s"),
        duration_p99_s=mean("duration_p99_s"),
        service_s=mean("service_s"),
        latency_s=mean("latency_s"),
        latency_p95_s=mean("latency_p95_s"),
        readings=_mean_readings(measurements),
    )  # fmt: skip


def _mean_readings(measurements: Sequence[Measurement]) -> tuple[InstanceReading, ...]:
    """Readings of the instances there are now, averaged over the measurements that have them."""
    result = []
    for reading in measurements[-1].readings:
        same = [r for m in measurements for r in m.readings if r.instance == reading.instance]
        cpu = [r.cpu_ratio for r in same if r.cpu_ratio is not None]
        memory = [r.memory_ratio for r in same if r.memory_ratio is not None]
        result.append(
            reading._replace(
                cpu_ratio=sum(cpu) / len(cpu) if cpu else None,
                memory_ratio=sum(memory) / len(memory) if memory else None,
                executed=sum(r.executed for r in same),
            )
        )
    return tuple(result)
