"""An attached session as a plane: one unit that runs already, whose executors can be added and retired.

Used by the loop's thread alone; executors are changed in another (`obeying`). Spark replaces an executor that
died by itself, because the target stays.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from penstock.fleet.deployment import InstanceState
from penstock.fleet.ports import SeenInstance, Submission, UnitReport, Wanted
from penstock.fleet.units import UnitState
from penstock.providers.managed import HOST
from penstock.spark.gateway.connect import Executors
from penstock.spark.gateway.session import session_facts
from penstock.spark.session.meter import MeterState, SessionMeter
from penstock.spark.session.obeying import Obeying

LONGEST_UNPOLLED_S = 5.0
"""A session with Spark's defaults keeps 100 progress events: twenty batches a second for so long."""


class SessionPlane:
    """The unit a session is; implements the fleet's `Plane`. Without `act` it only looks."""

    def __init__(
        self, unit: str, control: Executors, meter: SessionMeter, *, act: bool, placed: bool = False
    ) -> None:
        """`placed`: executors are on hosts that the fleet knows; else all are on the manager's one."""
        self._unit = unit
        self._placed = placed
        self._control = control
        self._meter = meter
        self._act = act
        self._application = session_facts(control.spark).application_id
        self._shown: tuple[SeenInstance, ...] = ()
        self._wanted: Wanted | None = None
        """What was said of the unit; like every plane, it does not speak of a unit it was not told of."""
        self._told_ended = False
        self._told_problem: str | None = None
        self._polled_s = time.monotonic()
        self.obeying = Obeying(control)
        """Who changes the executors."""

    def start(self) -> None:
        """Keep the executors that were taken over, until something else is wanted."""
        if self._act:
            self.obeying.start()

    def submit(self, submission: Submission) -> None:
        """It runs already; what is wanted of it is said."""
        self.tell(submission.unit, submission.wanted, 0.0)

    def tell(self, unit: str, wanted: Wanted, now_s: float) -> None:
        """Have Spark asked for so many executors, and those retired that shall go; returns at once."""
        self._wanted = wanted
        if self._act:
            self.obeying.tell(wanted)

    def reports(self, now_s: float) -> tuple[Sequence[UnitReport], Sequence[str]]:
        """Measure the queries and look at the executors."""
        measurement = self._meter.measure(now_s)
        self._polled_s = time.monotonic()
        retiring = self._control.retiring
        shown = tuple(
            SeenInstance(
                executor.id,
                InstanceState.RETIRING if executor.id in retiring else InstanceState.RUNNING,
                executor.host if self._placed else HOST,
                self._meter.since_s(executor),
            )
            for executor in self._meter.executors
        )
        if shown != self._shown:
            self._shown = shown
        if self._wanted is None:
            return [], self._news()
        report = UnitReport(self._unit, now_s, UnitState.RUNNING, self._application, self._shown, measurement)
        return [report], self._news()

    def pulse(self) -> None:
        """Between two turns of the loop: read what queries did, before Spark forgets it."""
        now_s = time.monotonic()
        if now_s - self._polled_s > LONGEST_UNPOLLED_S:
            self._polled_s = now_s
            self._meter.poll()

    def end(self) -> None:
        """Change no executors any more."""
        self.obeying.end()

    def _news(self) -> list[str]:
        """What happened to queries; that all have ended is said once, and again after others have run."""
        ended = self._meter.state is MeterState.ENDED
        told, self._told_ended = self._told_ended, ended
        last = ["every streaming query of the session has ended"] if ended and not told else []
        problem, before = self.obeying.problem, self._told_problem
        self._told_problem = problem
        if problem is not None and problem != before:
            last.append(f"executors cannot be changed at present, it is tried again: {problem}")
        return [*self._meter.book.news(), *last]
