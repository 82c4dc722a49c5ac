"""The life of a unit: submitted, running, down, and the revision of the topology it runs.

A unit's application may die and be submitted again; the table below says what can follow what. Silence is
no state: the fleet knows when each unit was last heard of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.errors import TransitionError
from penstock.plain import Word


class UnitState(Word):
    """Where a unit is in its life."""

    PLANNED = "planned"
    SUBMITTED = "submitted"
    RUNNING = "running"
    DOWN = "down"
    FAILED = "failed"
    DRAINED = "drained"
    STOPPED = "stopped"


UNIT_TRANSITIONS: Mapping[UnitState, frozenset[UnitState]] = {
    # In the topology; the plane has not been told of it.
    UnitState.PLANNED: frozenset({UnitState.SUBMITTED, UnitState.RUNNING, UnitState.STOPPED}),
    # The plane was told; its application starts, or starts again.
    UnitState.SUBMITTED: frozenset(
        {UnitState.RUNNING, UnitState.DOWN, UnitState.FAILED, UnitState.DRAINED, UnitState.STOPPED}
    ),
    # Its query runs.
    UnitState.RUNNING: frozenset(
        {UnitState.SUBMITTED, UnitState.DOWN, UnitState.FAILED, UnitState.DRAINED, UnitState.STOPPED}
    ),
    # Its application died or was silent for too long; it is submitted again after a pause that grows, and
    # where that was done too often, when a person says so.
    UnitState.DOWN: frozenset(
        {UnitState.SUBMITTED, UnitState.RUNNING, UnitState.FAILED, UnitState.DRAINED, UnitState.STOPPED}
    ),
    # Starting it again would not help: it asks for a person, and is submitted again only when told to.
    UnitState.FAILED: frozenset({UnitState.SUBMITTED, UnitState.STOPPED}),
    # It was told to finish what there is to read, did, and left; it is submitted again when told to.
    UnitState.DRAINED: frozenset({UnitState.SUBMITTED, UnitState.STOPPED}),
    # Final: told to end, and ended.
    UnitState.STOPPED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class UnitLife:
    """One unit as the fleet knows it."""

    name: str
    revision: int = 1
    """The version of the topology it was submitted with."""
    state: UnitState = UnitState.PLANNED
    application: str | None = None
    """The plane's name for what runs it, such as a Spark application's id."""
    submitted_s: float | None = None
    attempt: int = 0
    """How often it was submitted because it was new, died or hung."""
    failures: int = 0
    """How often in a row it went down without having run for long enough."""
    running_s: float | None = None
    """Since when its query runs, where it does."""
    next_start_s: float | None = None
    """When it is submitted again, where it is down; None where a person is asked."""
    problem: str | None = None
    """Why it is down or failed."""

    @property
    def asks(self) -> bool:
        """Whether it is left down until a person wants it tried again."""
        return self.state is UnitState.DOWN and self.next_start_s is None

    def moved(self, state: UnitState, **changes: object) -> UnitLife:
        """The unit in another state; TransitionError where its life does not allow it."""
        if state != self.state and state not in UNIT_TRANSITIONS[self.state]:
            raise TransitionError(f"unit {self.name} cannot go from {self.state} to {state}")
        return replace(self, state=state, **changes)  # type: ignore[arg-type]
