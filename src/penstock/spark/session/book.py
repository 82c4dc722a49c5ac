"""The queries of a session one by one: which there are, what each did, which failed or were started again."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.controller.status import QueryStatus
from penstock.spark.gateway.errors import cause_of
from penstock.spark.gateway.queries import Trigger
from penstock.spark.session.backlog import Waiting
from penstock.spark.session.goals import Goals
from penstock.spark.session.progress import Batch

MOST_ENDED = 20
"""So many queries that ended are still told of."""


@dataclass(slots=True)
class _Entry:
    run: str
    query: Any
    status: QueryStatus


class QueryBook:
    """Keeps what is known of each query, by its name, else by its id. Use it from one thread."""

    def __init__(self, goals: Goals) -> None:
        self._goals = goals
        self._entries: dict[str, _Entry] = {}
        self._keys: dict[str, str] = {}
        """Names by query id."""
        self._news: list[str] = []

    def key(self, query: str) -> str:
        """The name a query goes by, by its id."""
        return self._keys.get(query, query)

    def see(self, active: Mapping[str, tuple[Any, str, str | None, Trigger]]) -> None:
        """Which queries run, by run: the query, its id, its name, its trigger."""
        for run, (query, identity, name, trigger) in active.items():
            key = name or identity
            self._keys[identity] = key
            entry = self._entries.get(key)
            if entry is not None and entry.run == run:
                continue
            goal = self._goals.of(key if key in self._goals.own else identity)
            if entry is None:
                status = QueryStatus(key, identity, goal.slo_s, goal.priority, trigger=str(trigger))
            else:
                self._end(entry)
                again = "started again" if entry.status.id == identity else "replaced by another one"
                self._news.append(f"query {key} was {again}")
                changed: Any = {
                    "id": identity,
                    "trigger": str(trigger),
                    "restarts": entry.status.restarts + 1,
                }
                status = replace(entry.status, active=True, problem=None, **changed)
            self._entries[key] = _Entry(run, query, status)
        for entry in self._entries.values():
            if entry.run not in active:
                self._end(entry)
        ended = [key for key, entry in self._entries.items() if not entry.status.active]
        for key in ended[: max(0, len(ended) - MOST_ENDED)]:
            gone = self._entries.pop(key)
            self._keys.pop(gone.status.id, None)

    def note(
        self,
        batches: Sequence[Batch],
        durations_s: Mapping[str, float],
        waiting: Mapping[str, Waiting],
    ) -> None:
        """What the queries did since the last call, by their ids."""
        for key, entry in self._entries.items():
            identity = entry.status.id
            full = [batch for batch in batches if batch.query == identity and batch.rows]
            there = waiting.get(identity)
            changes: dict[str, Any] = {
                "processed": entry.status.processed + sum(batch.rows for batch in full),
                "waiting": there.records if there is not None and there.told_by else None,
                "told_by": there.told_by if there is not None else "",
            }
            if full:
                changes["batch_s"] = sum(batch.duration_s for batch in full) / len(full)
            if identity in durations_s:
                changes["duration_s"] = durations_s[identity]
            self._entries[key].status = replace(entry.status, **changes)

    def statuses(self) -> tuple[QueryStatus, ...]:
        """Every query that runs, and the last ones that ended."""
        return tuple(entry.status for entry in self._entries.values())

    def news(self) -> list[str]:
        """What happened since the last call, in words."""
        told, self._news = self._news, []
        return told

    def _end(self, entry: _Entry) -> None:
        if not entry.status.active:
            return
        problem = None
        with contextlib.suppress(Exception):
            error = entry.query.exception()
            problem = None if error is None else cause_of(error)
        # What it is no longer used for must not keep it alive.
        entry.query = None
        entry.status = replace(entry.status, active=False, problem=problem, waiting=None)
        if problem is not None:
            self._news.append(f"query {entry.status.name} failed: {problem}")
