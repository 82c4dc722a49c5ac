"""Two lines that make any Structured Streaming job elastic.

`attach` runs the control loop inside the job's own driver: it measures the session's streaming queries,
lets a policy decide, and adds and retires executors within bounds. To the loop the session is a topology
of one unit at a site whose machines belong to the cluster manager; executors are ours.
Where executors cannot be changed it decides and records all the same, and says why it does not act.
"""

from __future__ import annotations

import atexit
import logging
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.clock import TimesOfDay, WallClock
from penstock.controller import Controller, Journal, Tick
from penstock.controller.kept import keep_topology
from penstock.controller.listening import Listener, Telling
from penstock.controller.metrics import Tally, page_of, samples_of
from penstock.controller.status import Status, Watching
from penstock.controller.upkeep import Upkeep
from penstock.errors import ConfigurationError, JournalUnavailableError
from penstock.fleet.ports import Ground, Provider
from penstock.machine.endpoint import Endpoint, listening_address
from penstock.policies.registry import known_policies
from penstock.providers.managed import ManagedProvider
from penstock.quantities import duration_s
from penstock.spark.gateway.capabilities import capabilities
from penstock.spark.gateway.connect import Executors, executors_of
from penstock.spark.gateway.session import is_connect, is_stopped, session_facts, setting
from penstock.spark.session.card import card
from penstock.spark.session.goals import Goals, read_goals
from penstock.spark.session.journals import default_journal, opened
from penstock.spark.session.leased import Hosts, LeasedExecutors
from penstock.spark.session.meter import SessionMeter
from penstock.spark.session.plane import SessionPlane
from penstock.topology.model import Choice, HostFlavour, LoopSettings, Operator, Site, Source, Topology, Unit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger("penstock.attach")

SITE = "spark"
GIVE_BACK_S = 120.0
"""How long the end of a program may wait until leased hosts are given back."""
LOOK_AFTER_S = 1.0
"""How often it is looked whether the session was stopped, and whether a journal can be had by now."""


class Attached:
    """A running attachment: `status()` tells what it does, `stop()` ends it (the job goes on)."""

    def __init__(
        self,
        spark: SparkSession,
        topology: Topology,
        control: Executors,
        *,
        scaling: bool,
        reason: str,
        journal: Path | str,
        goals: Goals,
        listeners: Sequence[Listener] = (),
        metrics: int | str | None = None,
        provider: Provider | None = None,
    ) -> None:
        """`provider` gives hosts, where executors come with them; else they are the cluster manager's."""
        self._spark = spark
        self._provider = provider
        self._topology = topology
        self._scaling = scaling
        self.journal = journal
        unit = topology.units[0]
        self._clock = WallClock()
        # The driver of a Spark Connect server has another clock: setting this machine's does not move it.
        times = None if is_connect(spark) else TimesOfDay(self._clock)
        self._meter = SessionMeter(spark, unit.name, control, goals=goals, times=times)
        self._plane = SessionPlane(unit.name, control, self._meter, act=scaling, placed=provider is not None)
        self._tally = Tally()
        self._status = Status(
            topology.name, self._clock.now_s(), (), (), "0", phase="starting", acting=scaling, reason=reason
        )
        page = page_of(lambda: samples_of(self._status, self._tally))
        self._endpoint: Endpoint | None = None
        try:
            self._endpoint = None if metrics is None else Endpoint(metrics, "/metrics", page)
        except ConfigurationError as error:
            # The port is somebody else's, as it may be where jobs share a machine: no reason to end one.
            reason = f"{reason}; no metrics are served: {error}"
            LOG.warning("no metrics are served: %s", error)
        self._news = [reason]
        """For the journal, once there is one."""
        self._further: dict[str, Any] = {
            "acting": scaling,
            "reason": reason,
            "service": _service(spark, scaling),
            "metrics": "" if self._endpoint is None else self._endpoint.url,
        }
        self._status = replace(self._status, **self._further)
        self._listeners = listeners
        self._ending = threading.Event()
        self._looked_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="penstock-attach", daemon=True)

    def start(self) -> None:
        """Start the loop in its own thread."""
        self._plane.start()
        self._thread.start()
        if self._provider is not None:
            # A program that just ends must not leave hosts behind.
            atexit.register(self.stop, GIVE_BACK_S)

    def status(self) -> Status:
        """What the job is doing, as of the last tick; never blocks."""
        return self._status

    @property
    def running(self) -> bool:
        """Whether the loop runs."""
        return self._thread.is_alive()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the loop and close the journal; executors and queries stay as they are."""
        self._ending.set()
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join(timeout_s)

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<attached to {self._status}>"

    def _repr_html_(self) -> str:
        """A card for notebooks."""
        return card(self._status)

    def _run(self) -> None:
        problem = None
        self._telling = Telling(self._listeners)
        try:
            self._further["capabilities"] = capabilities(self._spark).missing()
            # The journal's connection belongs to this thread.
            journal, controller = opened(self.journal, self._topology.name, self._begin, self._waits)
            with journal:
                self._loop(journal, controller)
        except JournalUnavailableError as error:
            # Its last word only: while it goes on, the loop waits for its journal.
            problem = f"not all that happened is on record: {error}"
            LOG.exception("%s", problem)
        except Exception as error:
            # A session that is being stopped fails calls half way: that is an end, not an error.
            if not (self._ending.is_set() or self._session_over(wait_s=3.0)):
                problem = f"{type(error).__name__}: {error}"
                LOG.exception("the control loop ended; the job goes on with the executors it has")
        self._plane.end()
        try:
            self._say("ended", problem)
            self._telling.end(self._status)
        finally:
            if self._endpoint is not None:
                self._endpoint.close()

    def _begin(self, journal: Journal) -> Controller:
        site = self._topology.sites[0]
        ground = Ground(self._plane, {site.name: self._provider or ManagedProvider(site)})
        for text in self._news:
            journal.notice(self._clock.now_s(), text)
        controller = Controller(self._topology, ground, self._clock, journal)
        keep_topology(journal, self._topology)
        return controller

    def _waits(self, why: str) -> bool:
        """Wait a moment for a journal that cannot be had; False where it is over."""
        if self._ending.is_set() or self._session_over():
            return False
        problem = f"nothing is decided until there is a journal: {why}"
        if len(self._news) == 1:
            self._news.append(problem)
            LOG.warning("%s", problem)
        self._say("starting", problem)
        self._plane.pulse()
        self._ending.wait(LOOK_AFTER_S)
        return True

    def _loop(self, journal: Journal, controller: Controller) -> None:
        controller.fleet.follows = not self._scaling
        self._watching = Watching(controller, self._topology.name, str(self.journal))

        upkeep = Upkeep(journal, self._clock, self._topology.loop.journal_s)

        def each(tick: Tick) -> None:
            told = self._watching.see(tick)
            for text in told:
                LOG.info("%s", text)
            self._tally.see(tick)
            self._say("running")
            decided = told[: len(told) - len(tick.notices)]
            self._telling.tick(self._status, decided, tick.notices)
            upkeep.tick()

        try:
            controller.run(each=each, stopped=self._over)
        finally:
            if self._provider is not None:
                # Nobody would decide about them any more, and they cost money.
                controller.finish()

    def _over(self) -> bool:
        """Asked some times a second: looks after the session between two turns of the loop."""
        if self._ending.is_set():
            return True
        # Asking Java costs some tenths of a millisecond: once a second is soon enough.
        if time.monotonic() - self._looked_s >= LOOK_AFTER_S:
            self._looked_s = time.monotonic()
            if self._session_over():
                return True
        self._plane.pulse()
        return False

    def _say(self, phase: str, problem: str | None = None) -> None:
        watching = getattr(self, "_watching", None)
        if watching is None:
            self._status = replace(self._status, phase=phase, problem=problem, **self._further)
            return
        self._status = watching.status(
            self._clock.now_s(),
            phase=phase,
            problem=problem,
            queries=self._meter.book.statuses(),
            **self._further,
        )

    def _session_over(self, wait_s: float = 0.0) -> bool:
        """Whether the session was stopped; with `wait_s`, whether it is so within that time."""
        deadline_s = time.monotonic() + wait_s
        while not is_stopped(self._spark):
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(0.1)
        return True


class Unattached(Attached):
    """What `attach` returns where something of its own failed: a handle that says so, and does nothing."""

    def __init__(self, problem: str) -> None:
        self.journal = ""
        self._status = Status(
            "job", 0.0, (), (), "0", phase="ended", acting=False, reason="it did not start", problem=problem
        )
        self._ending = threading.Event()
        self._thread = threading.Thread()


def attach(
    spark: SparkSession,
    slo: str | float = "2 s",
    policy: str = "auto",
    max_instances: int = 8,
    min_instances: int = 1,
    *,
    queries: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    interval: str | float = "10 s",
    cooldown: str | float = "0 s",
    hold_backlog: int | None = None,
    advise_only: bool = False,
    journal: str | Path | None = None,
    name: str | None = None,
    metrics: int | str | None = None,
    listeners: Sequence[Listener] = (),
    hosts: Hosts | None = None,
) -> Attached:
    """Make a session's streaming queries elastic: executors come and go by policy, within bounds.

    Call it once, before or after starting queries. `slo` is the longest acceptable time from a record's
    arrival to the end of its batch. `queries` gives queries goals of their own, by name or id:
    `{"orders": "500 ms", "archive": {"slo": "1 min", "priority": 0}}`, where priority 0 never is a reason to
    grow. `parameters` are the policy's; a decision is taken every `interval`; `hold_backlog` keeps it from
    shrinking while more records than that wait or are in work; the journal is a SQLite file below `runs/`
    unless a path or database URL is given. `metrics` is a port (of the loopback address, unless written as
    `address:port`) for Prometheus; `listeners` are told what happens. `hosts` are leased for a Spark Connect
    server, whose driver cannot be asked for executors, and given back at the end. Returns at once with a
    handle; ends with the session. Wrong arguments are told; nothing else that goes wrong in here reaches
    the job.
    """
    slo_s, interval_s = duration_s(slo), duration_s(interval)
    check_choices(policy, slo_s, interval_s, min_instances, max_instances)
    if metrics is not None:
        listening_address(metrics)
    goals = read_goals(slo_s, queries)
    if not hasattr(spark, "streams"):
        raise ConfigurationError(f"expected a Spark session, got {type(spark).__name__}")
    if hosts is not None:
        hosts.require(spark, max_instances)
    defaults = _defaults(policy, slo_s, interval_s, paid=hosts is not None)
    chosen = Choice(policy, {**defaults, **(parameters or {})})
    loop = LoopSettings(
        monitoring_s=interval_s,
        provisioning_s=interval_s,
        cooldown_s=duration_s(cooldown),
        hold_backlog=hold_backlog,
    )
    try:
        handle = _prepared(
            spark,
            chosen,
            (min_instances, max_instances),
            loop,
            goals,
            advise_only=advise_only,
            journal=journal,
            name=name,
            listeners=listeners,
            metrics=metrics,
            hosts=hosts,
        )
    except ConfigurationError:
        raise
    except Exception as error:
        LOG.exception("could not attach; the job goes on without")
        return Unattached(f"{type(error).__name__}: {error}")
    handle.start()
    return handle


def _prepared(
    spark: SparkSession,
    policy: Choice,
    bounds: tuple[int, int],
    loop: LoopSettings,
    goals: Goals,
    *,
    advise_only: bool,
    journal: str | Path | None,
    name: str | None,
    listeners: Sequence[Listener],
    metrics: int | str | None,
    hosts: Hosts | None,
) -> Attached:
    """Look at the session, take over its executors where that is possible, and make the handle."""
    control = executors_of(spark) if hosts is None else LeasedExecutors(spark, hosts)
    found = control.scalability()
    scaling, reason = found.possible and not advise_only, found.reason
    if advise_only and found.possible:
        reason = "advise_only was asked for: decisions are recorded, nothing is changed"
    if scaling:
        takeover = control.take_over()
        if takeover is not None:
            reason = f"{reason}; {takeover}"
    facts = session_facts(spark)
    unit = re.sub(r"[^A-Za-z0-9_-]+", "-", name or facts.application_name).strip("-") or "stream"
    least, most = bounds
    # What Spark was started with is kept until there is a reason to change it.
    started = min(most, max(least, control.target or 0))
    cores = int(setting(spark, "spark.executor.cores", "1"))
    topology = Topology(
        name=unit,
        sources=(Source("input"),),
        operators=(Operator(unit, ("input",), slo_s=goals.slo_s, memory_mib=1),),
        units=(
            Unit(
                unit,
                (unit,),
                policy=policy,
                min_instances=least,
                max_instances=most,
                initial_instances=started,
                slots=cores,
            ),
        ),
        sites=(_their_machines(cores, most) if hosts is None else hosts.site,),
        loop=replace(loop, advisory=not scaling),
    )
    handle = Attached(
        spark,
        topology,
        control,
        scaling=scaling,
        reason=reason,
        journal=journal if journal is not None else default_journal(unit, facts.application_id),
        goals=goals,
        listeners=listeners,
        metrics=metrics,
        provider=None if hosts is None or not scaling else hosts.cluster.provider(hosts.site),
    )
    LOG.info("attached to %s: %s", unit, reason)
    if not scaling:
        LOG.warning("advising only: %s", reason)
    return handle


def _their_machines(cores: int, most: int) -> Site:
    """Machines of the cluster manager: where executors go is its choice, and there is always room."""
    room = HostFlavour("any", float(cores * (most + 1000)), 1 << 20, Decimal(0))
    return Site(SITE, Choice("managed"), btu_s=365 * 86400.0, flavours=(room,), max_hosts=1)


def _service(spark: SparkSession, scaling: bool) -> str:
    if is_connect(spark):
        return "hosts for a Spark Connect server" if scaling else "advice over Spark Connect"
    return "full" if scaling else "advice"


def check_choices(
    policy: str, slo_s: float, interval_s: float, min_instances: int, max_instances: int
) -> None:
    """ConfigurationError where a policy, a time or a bound cannot be."""
    known = known_policies()
    if policy not in known:
        raise ConfigurationError(f"expected a policy out of {', '.join(sorted(known))}, got {policy!r}")
    if slo_s <= 0 or interval_s <= 0:
        raise ConfigurationError(f"slo and interval must be above 0, got {slo_s:g} s and {interval_s:g} s")
    if not 1 <= min_instances <= max_instances:
        raise ConfigurationError(
            f"expected 1 <= min_instances <= max_instances, got {min_instances} and {max_instances}"
        )


def _defaults(policy: str, slo_s: float, interval_s: float, paid: bool) -> dict[str, Any]:
    """Parameters that follow from being attached: the SLO is given, and mostly nobody pays for hosts here."""
    known = known_policies()[policy]
    wanted: dict[str, Any] = {"catch_up_s": max(10 * slo_s, interval_s)}
    if not paid:
        wanted["keep_paid"] = False
    return {name: value for name, value in wanted.items() if name in known}
