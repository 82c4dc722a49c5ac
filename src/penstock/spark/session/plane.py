"""An attached session as a plane: one unit that runs already, whose executors can be added and retired.

Used by the loop's thread alone. Spark replaces an executor that died by itself, because the target stays.
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

LONGEST_UNPOLLED_S = 5.0
"""A session with Spark's defaults keeps 100 progress events: twenty batches a second for so long."""
PULSE_S = 1.0


class SessionPlane:
    """The unit a session is; implements the fleet's `Plane`. Without `act` it only looks."""

    def __init__(self, unit: str, control: Executors, meter: SessionMeter, *, act: bool) -> None:
        self._unit = unit
        self._control = control
        self._meter = meter
        self._act = act
        self._application = session_facts(control.spark).application_id
        self._shown: tuple[SeenInstance, ...] = ()
        self._wanted: Wanted | None = None
        """What was said of the unit; like every plane, it does not speak of a unit it was not told of."""
        self._told_ended = False
        self._polled_s = self._pulsed_s = time.monotonic()

    def submit(self, submission: Submission) -> None:
        """It runs already; what is wanted of it is said."""
        self.tell(submission.unit, submission.wanted, 0.0)

    def tell(self, unit: str, wanted: Wanted, now_s: float) -> None:
        """Ask Spark for so many executors, and retire those that shall go."""
        self._wanted = wanted
        if not self._act:
            return
        # The target first: an executor that leaves above the target would be replaced.
        if wanted.target and wanted.target != self._control.target:
            self._control.set_target(wanted.target)
        alive = {seen.id for seen in self._shown}
        going = [name for name in (*wanted.retire, *wanted.kill) if name in alive]
        if going:
            self._control.retire(going)
        hurried = [name for name in wanted.kill if name in alive]
        if hurried:
            self._control.kill(hurried)

    def reports(self, now_s: float) -> tuple[Sequence[UnitReport], Sequence[str]]:
        """Measure the queries and look at the executors."""
        measurement = self._meter.measure(now_s)
        self._polled_s = time.monotonic()
        retiring = self._control.retiring
        shown = tuple(
            SeenInstance(
                executor.id,
                InstanceState.RETIRING if executor.id in retiring else InstanceState.RUNNING,
                HOST,
                executor.added_s,
            )
            for executor in self._control.executors()
        )
        if shown != self._shown:
            self._shown = shown
        if self._wanted is None:
            return [], self._news()
        report = UnitReport(self._unit, now_s, UnitState.RUNNING, self._application, self._shown, measurement)
        return [report], self._news()

    def pulse(self) -> None:
        """Between two turns of the loop: end what retires too slowly, say the target again."""
        now_s = time.monotonic()
        if now_s - self._pulsed_s < PULSE_S:
            return
        self._pulsed_s = now_s
        if now_s - self._polled_s > LONGEST_UNPOLLED_S:
            self._polled_s = now_s
            self._meter.poll()
        if self._act:
            self._control.tick()

    def _news(self) -> list[str]:
        """What happened to queries; that all have ended is said once, and again after others have run."""
        ended = self._meter.state is MeterState.ENDED
        told, self._told_ended = self._told_ended, ended
        last = ["every streaming query of the session has ended"] if ended and not told else []
        return [*self._meter.book.news(), *last]
