"""The Spark plane: every unit one application, told what is wanted over the heartbeat.

Drivers report on other threads; a lock keeps what was heard until the loop asks. What the loop says is kept
here and is the answer to the next heartbeat, and to every one after it: it is said until it is so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from penstock.clock import Clock
from penstock.errors import ConfigurationError
from penstock.fleet.ports import SeenInstance, Submission, UnitReport, Wanted
from penstock.fleet.units import UnitState
from penstock.monitoring import Measurement
from penstock.monitoring.merging import merged
from penstock.spark.drivers import Drivers
from penstock.spark.unit.heartbeat import Beat, SupersededError
from penstock.spark.unit.specification import UnitSpecification


class SparkPlane:
    """Runs the units of one topology as Spark applications; implements the fleet's `Plane`."""

    def __init__(
        self,
        units: Iterable[str],
        drivers: Drivers,
        specification: Callable[[Submission], UnitSpecification],
        clock: Clock,
        heard: Callable[[Measurement], Measurement] = lambda measurement: measurement,
    ) -> None:
        """`heard` is given every measurement as it comes in, and may add to it what a unit cannot know."""
        self._drivers = drivers
        self._specification = specification
        self._clock = clock
        self._heard = heard
        self._lock = threading.Lock()
        self._units = frozenset(units)
        self._submissions: dict[str, Submission] = {}
        self._wanted: dict[str, Wanted] = {}
        self._reports: dict[str, UnitReport] = {}
        """The newest report of each unit that was not given to the loop yet."""
        self._last: dict[str, UnitReport] = {}
        self._measured: dict[str, list[Measurement]] = {}
        self._notices: list[str] = []
        self._told_down: set[tuple[str, int]] = set()
        self._prepared: dict[str, UnitSpecification] = {}
        """By unit, what the process shall run that is prepared to take it over."""

    # --- the loop's three calls --------------------------------------------------------------------

    def submit(self, submission: Submission) -> None:
        """Start a unit's driver; the same attempt that runs already is left alone."""
        with self._lock:
            if self._attempt(submission.unit) != submission.attempt:
                self._reports.pop(submission.unit, None)  # of the attempt that ends now
            self._submissions[submission.unit] = submission
            self._wanted[submission.unit] = submission.wanted
            meant = self._prepared.get(submission.unit)
        takes_over = meant is not None and meant.revision == submission.revision
        self._drivers.start(submission.unit, submission.attempt, prepared=takes_over)

    def tell(self, unit: str, wanted: Wanted, now_s: float) -> None:
        """Keep what is wanted for the unit's next heartbeats."""
        with self._lock:
            self._wanted[unit] = wanted

    def change(self, units: Iterable[str]) -> None:
        """Run these units from now on; others are told to end, and finish the batch they are in."""
        with self._lock:
            self._units = frozenset(units)
            for unit in self._submissions.keys() - self._units:
                self._wanted[unit] = Wanted(stop=True)

    def reports(self, now_s: float) -> tuple[Sequence[UnitReport], Sequence[str]]:
        """What drivers said since the last call, and which of them are gone."""
        # An attempt that an earlier controller did not get to start is not gone: it is about to be started,
        # and the marks in its unit's folder are those of the attempt before.
        begun = [u for u, s in tuple(self._submissions.items()) if self._drivers.attempt(u) == s.attempt]
        gone = [unit for unit in begun if not self._drivers.alive(unit)]
        with self._lock:
            for unit in [unit for unit in gone if unit not in self._units]:
                del self._submissions[unit]  # it was told to end
            found = []
            for unit, report in self._reports.items():
                pending = self._measured.pop(unit, [])
                found.append(replace(report, measurement=merged(pending, now_s) if pending else None))
            self._reports = {}
            notices, self._notices = self._notices, []
            ended = [unit for unit in gone if unit in self._submissions]
            down = [unit for unit in ended if (unit, self._attempt(unit)) not in self._told_down]
            self._told_down.update((unit, self._attempt(unit)) for unit in down)
        found += [self._gone(unit, now_s) for unit in down]
        return found, notices

    # --- versions to come --------------------------------------------------------------------------

    def prepare(self, specification: UnitSpecification) -> None:
        """Start a process that shall take a unit over when this version of it is submitted."""
        with self._lock:
            self._prepared[specification.unit] = specification
        self._drivers.prepare(specification.unit)

    def dismiss(self, unit: str) -> None:
        """End the process that was to take a unit over."""
        with self._lock:
            self._prepared.pop(unit, None)
        self._drivers.dismiss(unit)

    # --- the drivers' side -------------------------------------------------------------------------

    def specification(self, unit: str, attempt: int) -> UnitSpecification:
        """What a driver shall run; SupersededError where another attempt took its place.

        Attempt 0 is the one that is prepared: it gets its number when the unit's next version is submitted.
        """
        with self._lock:
            if attempt == 0:
                return self._next(unit)
            submission = self._known(unit, attempt)
            return self._specification(replace(submission, wanted=self._wanted[unit]))

    def hear(self, beat: Beat) -> Wanted:
        """Take in a driver's report; what is wanted of its unit."""
        unit, now_s = beat.report.unit, self._clock.now_s()
        with self._lock:
            self._known(unit, beat.attempt)
            measured = beat.report.measurement
            if measured is not None:
                self._measured.setdefault(unit, []).append(self._heard(measured))
            before = self._reports.get(unit)
            self._reports[unit] = self._last[unit] = replace(
                beat.report,
                at_s=now_s,
                instances=self._unchanged(unit, beat.report.instances),
                measurement=None,
                notices=(*(before.notices if before is not None else ()), *beat.report.notices),
            )
            return self._wanted[unit]

    def last_report(self, unit: str) -> UnitReport | None:
        """What was last heard of a unit; None before the first time."""
        with self._lock:
            return self._last.get(unit)

    def note(self, notice: str) -> None:
        """Say something at the loop's next look."""
        with self._lock:
            self._notices.append(notice)

    # --- inside ------------------------------------------------------------------------------------

    def _next(self, unit: str) -> UnitSpecification:
        meant, submission = self._prepared.get(unit), self._submissions.get(unit)
        if meant is None:
            raise SupersededError(f"nobody prepares another version of unit {unit}")
        if submission is None or submission.revision != meant.revision:
            return meant
        if self._drivers.attempt(unit) != submission.attempt or self._drivers.preparing(unit):
            return meant  # the one before it is being ended
        del self._prepared[unit]
        return self._specification(replace(submission, wanted=self._wanted[unit]))

    def _known(self, unit: str, attempt: int) -> Submission:
        submission = self._submissions.get(unit)
        if submission is None and unit in self._units and attempt == self._drivers.attempt(unit):
            # It outlived the controller that started it: the next one adopts it, once it was told of it.
            raise ConfigurationError(f"unit {unit} is not taken up yet")
        if submission is None:
            raise ConfigurationError(f"unknown unit {unit[:60]!r}")
        if attempt != submission.attempt:
            raise SupersededError(f"attempt {submission.attempt} at unit {unit} runs, this is {attempt}")
        return submission

    def take_up(self, submission: Submission) -> None:
        """Know an attempt that runs already, as after a restart of the controller."""
        with self._lock:
            self._submissions.setdefault(submission.unit, submission)
            self._wanted.setdefault(submission.unit, submission.wanted)

    def _attempt(self, unit: str) -> int:
        submission = self._submissions.get(unit)
        return submission.attempt if submission is not None else 0

    def _unchanged(self, unit: str, shown: tuple[SeenInstance, ...]) -> tuple[SeenInstance, ...]:
        last = self._last.get(unit)
        return last.instances if last is not None and last.instances == shown else shown

    def _gone(self, unit: str, now_s: float) -> UnitReport:
        last = self._last.get(unit)
        application = last.application if last is not None else None
        if self._drivers.is_drained(unit):
            return UnitReport(unit, now_s, UnitState.DRAINED, application)
        problem = self._drivers.last_words(unit)
        state = UnitState.FAILED if self._drivers.is_useless(unit) else UnitState.DOWN
        return UnitReport(unit, now_s, state, application, problem=problem)
