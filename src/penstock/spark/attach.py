"""Two lines that make any Structured Streaming job elastic.

`attach` runs the control loop inside the job's own driver: it measures the session's streaming queries,
lets a policy decide, and adds and retires executors within bounds. To the loop the session is a topology
of one unit on one host that is always up: machines belong to the cluster manager here, executors to us.
Where executors cannot be changed it decides and records all the same, and says why it does not act.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.clock import WallClock
from penstock.controller import Controller, Journal, Observation, Outcome, Tick
from penstock.controller.loop import described
from penstock.errors import ConfigurationError, PenstockError
from penstock.infrastructure import Deployment, Host, HostState, Instance, InstanceState
from penstock.monitoring import Measurement
from penstock.policies import (
    Action,
    Hold,
    LeaseHost,
    MigrateInstance,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.policies.registry import known_policies
from penstock.quantities import duration_s
from penstock.spark.agent import Details, SessionMeter
from penstock.spark.executors import Executor, ExecutorControl
from penstock.topology.model import Choice, HostFlavour, LoopSettings, Operator, Site, Source, Topology, Unit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger("penstock.attach")

SITE = "spark"
HOST = "cluster"
LONGEST_UNPOLLED_S = 5.0
"""A session with Spark's defaults keeps 100 progress events: twenty batches a second for so long."""


@dataclass(frozen=True, slots=True)
class Status:
    """What an attached job is doing, as of the last tick."""

    running: bool
    """Whether the loop runs."""
    scaling: bool
    """False where it can only advise."""
    reason: str
    """Why it scales or only advises."""
    policy: str
    instances: int
    """Executors that serve or were asked for."""
    target: int | None
    """Executors Spark was asked for; None where nothing was asked."""
    min_instances: int
    max_instances: int
    executors: tuple[Executor, ...]
    measurement: Measurement | None
    details: Details
    decisions: tuple[str, ...]
    """The last decisions, newest last, each with its reason."""
    notices: tuple[str, ...]
    journal: Path | str
    error: str | None = None
    """Why the loop ended, where it did not end on purpose."""


@dataclass(slots=True)
class _Booked:
    """An instance in the books: which executor it is, once Spark has granted one."""

    instance: Instance
    executor: str | None = None


class SessionCluster:
    """The session as the control loop sees it: executors are instances, on one host that is always up.

    Used by the loop's thread alone. Spark replaces an executor that died by itself, because the target
    stays; its instance then waits for the next executor that registers.
    """

    def __init__(
        self, topology: Topology, control: ExecutorControl, meter: SessionMeter, *, act: bool
    ) -> None:
        self._topology = topology
        self._unit = topology.units[0]
        self._control = control
        self._meter = meter
        self._act = act
        self._books: dict[str, _Booked] = {}
        self._executors: tuple[Executor, ...] = ()
        self._notices: list[str] = []
        self._polled_s = time.monotonic()
        for number in range(control.target or 0):
            self._book(f"{self._unit.name}-first-{number + 1}", time.time())

    @property
    def executors(self) -> tuple[Executor, ...]:
        """Executors as last observed."""
        return self._executors

    def observe(self, now_s: float) -> Observation:
        """Measure the queries and reconcile the books with the executors Spark reports."""
        measurement = self._meter.measure(now_s)
        self._polled_s = time.monotonic()
        self._executors = self._control.executors()
        self._reconcile(now_s)
        notices, self._notices = tuple(self._notices), []
        if measurement is None:
            return Observation(now_s, (), notices)
        names = {booked.executor: booked.instance.id for booked in self._books.values() if booked.executor}
        readings = tuple(
            reading._replace(instance=names[reading.instance])
            for reading in measurement.readings
            if reading.instance in names
        )
        return Observation(now_s, (replace(measurement, readings=readings),), notices)

    def deployment(self) -> Deployment:
        """The one host and the instances in the books."""
        flavour = self._topology.sites[0].flavours[0]
        host = Host(HOST, SITE, flavour, HostState.UP, up_s=0.0)
        return Deployment.of([host], [booked.instance for booked in self._books.values()])

    def enact(self, actions: Sequence[Action], now_s: float) -> tuple[Outcome, ...]:
        """Start and stop instances; hosts are not ours to change."""
        outcomes = []
        retire: list[str] = []
        for action in actions:
            error = None
            if isinstance(action, StartInstance):
                self._book(action.instance, now_s)
            elif isinstance(action, StopInstance):
                retire += self._leave(action.instance)
            elif isinstance(action, MigrateInstance):
                self._book(action.replacement, now_s)
                retire += self._leave(action.instance)
            elif isinstance(action, LeaseHost | ReleaseHost):
                error = "hosts belong to the cluster manager, which gives executors room where it has some"
            outcomes.append(Outcome(action, error))
        if self._act:
            # The target first: an executor that leaves above the target would be replaced.
            self._say_target()
            if retire:
                self._control.retire(retire)
        return tuple(outcomes)

    def tick(self) -> None:
        """Between two turns of the loop: end what retires too slowly, say the target again."""
        if time.monotonic() - self._polled_s > LONGEST_UNPOLLED_S:
            self._polled_s = time.monotonic()
            self._meter.poll()
        if self._act:
            self._control.tick()

    def _book(self, name: str, now_s: float, executor: Executor | None = None) -> None:
        if name in self._books:
            return
        unit = self._unit.name
        instance = Instance(
            name, unit, HOST, InstanceState.REQUESTED, self._topology.unit_cores(unit),
            self._topology.unit_memory_mib(unit), now_s,
        )  # fmt: skip
        self._books[name] = _Booked(instance)
        if executor is not None:
            self._grant(self._books[name], executor)

    def _grant(self, booked: _Booked, executor: Executor) -> None:
        booked.executor = executor.id
        booked.instance = booked.instance.moved(
            InstanceState.RUNNING, running_s=executor.added_s, external_id=executor.id
        )

    def _leave(self, name: str) -> list[str]:
        """Take an instance out of the count; the executor to retire, where there is one too many."""
        booked = self._books.get(name)
        if booked is None or booked.instance.state is InstanceState.RETIRING:
            return []
        if booked.executor is None:
            del self._books[name]
            return []
        wishes = [other for other in self._books.values() if other.executor is None]
        if wishes:
            # Executors are alike: rather than retire one that works and wait for another to start, the
            # instance that has none takes it over, and one wish less is open.
            executor = next(found for found in self._executors if found.id == booked.executor)
            del self._books[name]
            self._grant(wishes[0], executor)
            return []
        booked.instance = booked.instance.moved(InstanceState.RETIRING)
        return [booked.executor]

    def _reconcile(self, now_s: float) -> None:
        alive = {executor.id for executor in self._executors}
        for name, booked in list(self._books.items()):
            if booked.executor is None or booked.executor in alive:
                continue
            if booked.instance.state is InstanceState.RETIRING:
                del self._books[name]
            else:
                self._notices.append(f"executor {booked.executor} ({name}) was lost; Spark replaces it")
                # A new life under the old name: the wish for it stands.
                booked.instance = replace(
                    booked.instance, state=InstanceState.REQUESTED, running_s=None, external_id=None
                )
                booked.executor = None
        known = {booked.executor for booked in self._books.values()}
        open_wishes = [booked for booked in self._books.values() if booked.executor is None]
        for executor in self._executors:
            if executor.id in known or executor.id in self._control.retiring:
                continue
            if open_wishes:
                self._grant(open_wishes.pop(0), executor)
            else:
                self._book(f"{self._unit.name}-executor-{executor.id}", now_s, executor)
        if self._act:
            self._say_target()

    def _say_target(self) -> None:
        counted = sum(b.instance.state is not InstanceState.RETIRING for b in self._books.values())
        if counted and counted != self._control.target:
            self._control.set_target(counted)


class Attached:
    """A running attachment: `status()` tells what it does, `stop()` ends it (the job goes on)."""

    def __init__(
        self,
        spark: SparkSession,
        topology: Topology,
        control: ExecutorControl,
        *,
        scaling: bool,
        reason: str,
        journal: Path | str,
    ) -> None:
        self._spark = spark
        self._topology = topology
        self._control = control
        self._scaling = scaling
        self._reason = reason
        self.journal = journal
        unit = topology.units[0]
        self._meter = SessionMeter(spark, unit.name, control)
        self._cluster = SessionCluster(topology, control, self._meter, act=scaling)
        self._decisions: deque[str] = deque(maxlen=500)
        self._notices: deque[str] = deque(maxlen=500)
        self._measurement: Measurement | None = None
        self._instances = 0
        self._error: str | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-attach", daemon=True)

    def start(self) -> None:
        """Start the loop in its own thread."""
        self._thread.start()

    def status(self) -> Status:
        """What the job is doing, as of the last tick; never blocks."""
        unit = self._topology.units[0]
        return Status(
            running=self._thread.is_alive(),
            scaling=self._scaling,
            reason=self._reason,
            policy=unit.policy.name,
            instances=self._instances,
            target=self._control.target,
            min_instances=unit.min_instances,
            max_instances=unit.max_instances,
            executors=self._cluster.executors,
            measurement=self._measurement,
            details=self._meter.details,
            decisions=tuple(self._decisions),
            notices=tuple(self._notices),
            journal=self.journal,
            error=self._error,
        )

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the loop and close the journal; executors and queries stay as they are."""
        self._ending.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            # The journal's connection belongs to this thread.
            with Journal(self.journal, run=self._topology.name) as journal:
                journal.notice(time.time(), self._reason)
                controller = Controller(self._topology, self._cluster, WallClock(), journal)
                while not self._ending.is_set() and not self._session_over():
                    self._note(controller.tick())
                    self._pause(self._topology.loop.monitoring_s)
        except Exception as error:
            # A session that is being stopped fails calls half way: that is an end, not an error.
            if not (self._ending.is_set() or self._session_over(wait_s=3.0)):
                self._error = f"{type(error).__name__}: {error}"
                LOG.exception("the control loop ended; the job goes on with the executors it has")

    def _pause(self, length_s: float) -> None:
        until_s = time.monotonic() + length_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self._ending.wait(min(1.0, left_s)) or self._session_over():
                return
            self._cluster.tick()

    def _note(self, tick: Tick) -> None:
        self._notices.extend(tick.notices)
        self._instances = len(tick.deployment.of_unit(self._topology.units[0].name))
        for signal in tick.signals:
            self._measurement = signal.measurement
        for verdict in tick.verdicts:
            text = described(verdict.action)
            if verdict.refused is not None:
                text += f" (not done: {verdict.refused})"
            self._decisions.append(text)
            if not isinstance(verdict.action, Hold):
                LOG.info("%s", text)

    def _session_over(self, wait_s: float = 0.0) -> bool:
        """Whether the session was stopped; with `wait_s`, whether it is so within that time."""
        deadline_s = time.monotonic() + wait_s
        while True:
            try:
                if self._spark.sparkContext._jsc is None or self._spark.sparkContext._jsc.sc().isStopped():
                    return True
            except Exception:
                return True
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(0.1)


def attach(
    spark: SparkSession,
    slo: str | float = "2 s",
    policy: str = "rate",
    max_instances: int = 8,
    min_instances: int = 1,
    *,
    parameters: Mapping[str, Any] | None = None,
    interval: str | float = "10 s",
    cooldown: str | float = "0 s",
    hold_backlog: int | None = None,
    advise_only: bool = False,
    journal: str | Path | None = None,
    name: str | None = None,
) -> Attached:
    """Make a session's streaming queries elastic: executors come and go by policy, within bounds.

    Call it once, before or after starting queries. `slo` is the longest acceptable time from a record's
    arrival to the end of its batch; `parameters` are the policy's; a decision is taken every `interval`;
    `hold_backlog` keeps it from shrinking while more records than that wait or are in work; the journal is
    a SQLite file below `runs/` unless a path or database URL is given. Returns at once with a handle; ends
    with the session.
    """
    slo_s, interval_s = duration_s(slo), duration_s(interval)
    _check(policy, slo_s, interval_s, min_instances, max_instances)
    control = ExecutorControl(spark)
    found = control.scalability()
    if found.possible is False and "Spark Connect" in found.reason:
        raise ConfigurationError(found.reason)
    scaling, reason = found.possible and not advise_only, found.reason
    if advise_only and found.possible:
        reason = "advise_only was asked for: decisions are recorded, nothing is changed"
    if scaling:
        takeover = control.take_over()
        if takeover is not None:
            reason = f"{reason}; {takeover}"
    unit_name = re.sub(r"[^A-Za-z0-9_-]+", "-", name or spark.sparkContext.appName).strip("-") or "stream"
    conf = spark.sparkContext.getConf()
    cores = int(conf.get("spark.executor.cores", "1") or 1)
    chosen = Choice(policy, {**_defaults(policy, slo_s, interval_s), **(parameters or {})})
    topology = Topology(
        name=unit_name,
        sources=(Source("input"),),
        operators=(Operator(unit_name, ("input",), slo_s=slo_s, memory_mib=1),),
        units=(
            Unit(
                unit_name,
                (unit_name,),
                policy=chosen,
                min_instances=min_instances,
                max_instances=max_instances,
                initial_instances=min_instances,
                slots=cores,
            ),
        ),
        # One host without a price that always has room: where executors go is the cluster manager's choice.
        sites=(
            Site(
                SITE,
                Choice("attached"),
                btu_s=365 * 86400.0,
                flavours=(HostFlavour("any", float(cores * (max_instances + 1000)), 1 << 20, Decimal(0)),),
                max_hosts=1,
            ),
        ),
        loop=LoopSettings(
            monitoring_s=interval_s,
            provisioning_s=interval_s,
            cooldown_s=duration_s(cooldown),
            hold_backlog=hold_backlog,
            advisory=not scaling,
        ),
    )
    place = journal if journal is not None else _default_journal(unit_name, spark)
    handle = Attached(spark, topology, control, scaling=scaling, reason=reason, journal=place)
    LOG.info("attached to %s: %s", unit_name, reason)
    if not scaling:
        LOG.warning("advising only: %s", reason)
    handle.start()
    return handle


def _check(policy: str, slo_s: float, interval_s: float, min_instances: int, max_instances: int) -> None:
    known = known_policies()
    if policy not in known:
        raise ConfigurationError(f"expected a policy out of {', '.join(sorted(known))}, got {policy!r}")
    if slo_s <= 0 or interval_s <= 0:
        raise ConfigurationError(f"slo and interval must be above 0, got {slo_s:g} s and {interval_s:g} s")
    if not 1 <= min_instances <= max_instances:
        raise ConfigurationError(
            f"expected 1 <= min_instances <= max_instances, got {min_instances} and {max_instances}"
        )


def _defaults(policy: str, slo_s: float, interval_s: float) -> dict[str, Any]:
    """Parameters that follow from being attached: nobody pays for hosts here, and the SLO is given."""
    known = known_policies()[policy]
    wanted = {"keep_paid": False, "catch_up_s": max(10 * slo_s, interval_s)}
    return {name: value for name, value in wanted.items() if name in known}


def _default_journal(unit: str, spark: SparkSession) -> Path:
    folder = Path("runs") / f"{unit}-{spark.sparkContext.applicationId}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PenstockError(f"cannot write the journal below {folder}: {error}; give `journal=`") from error
    return folder / "journal.db"
