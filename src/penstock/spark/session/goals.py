"""What is wanted of each query of a session: its SLO and its priority.

All queries share the session's executors, so to the loop they are one unit with one SLO. Each query is
brought to that scale by its weight, its priority times the session's SLO over its own: a query that may be
ten times as slow counts a tenth, in its duration and in its backlog. Priority 1 counts in full; 0 is best
effort: it is served, and never a reason to grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.choosing import nearest
from penstock.errors import ConfigurationError
from penstock.quantities import duration_s, number

MOST_PRIORITY = 100.0


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted of one query."""

    slo_s: float
    priority: float = 1.0


@dataclass(frozen=True, slots=True)
class Goals:
    """The session's goal, and those of the queries that have their own, by name or id."""

    slo_s: float
    own: Mapping[str, Goal] = field(default_factory=dict)

    def of(self, name: str) -> Goal:
        """The goal of a query."""
        return self.own.get(name) or Goal(self.slo_s)

    def weight(self, name: str) -> float:
        """How much a query's durations and backlog count, on the scale of the session's SLO."""
        goal = self.of(name)
        return goal.priority * self.slo_s / goal.slo_s


def read_goals(slo_s: float, queries: Mapping[str, Any] | None) -> Goals:
    """Goals as a user gives them: an SLO alone (`"500 ms"`), or `{"slo": …, "priority": …}`."""
    found = {}
    for name, given in (queries or {}).items():
        wanted = given if isinstance(given, Mapping) else {"slo": given}
        for key in wanted:
            if key not in ("slo", "priority"):
                raise ConfigurationError(f"queries[{name!r}]: {key!r}{nearest(key, ('slo', 'priority'))}")
        own_s = duration_s(wanted.get("slo", slo_s))
        priority = number(wanted.get("priority", 1.0))
        if own_s <= 0 or not 0 <= priority <= MOST_PRIORITY:
            raise ConfigurationError(
                f"queries[{name!r}]: expected an SLO above 0 and a priority from 0 to {MOST_PRIORITY:g}, "
                f"got {own_s:g} s and {priority:g}"
            )
        found[str(name)] = Goal(own_s, priority)
    return Goals(slo_s, found)
