"""What a journal has not written yet: rows by table, and which actions were confirmed meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from penstock.controller.journal.rows import as_json
from penstock.controller.journal.tables import ACTIONS, COLUMNS, NOTICES, OBSERVATIONS, SETTINGS, TICKS

KIND, SUBJECT, STATUS, REFUSED = map(COLUMNS[ACTIONS.name].index, ("kind", "subject", "status", "refused"))
"""Where these are in the row of an action."""

KEPT_ROWS = 50_000
"""Observations kept while the database cannot be written, and as many ticks and notices: nine units' day.

Beyond that the oldest go. Leases, charges, lives and actions are never dropped: without a journal nothing
is decided, so they hardly grow.
"""


class Unwritten:
    """Rows for one transaction, in the order they came in."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Any]] = {}
        """Rows by table: in the order of its columns or, where there are few, by column."""
        self.intended: list[list[Any]] = []
        """Those rows of actions that are not confirmed."""
        self.confirmed: list[dict[tuple[str, str], str]] = []
        """Failures, by kind and subject, of actions on record that are enacted but not marked so."""
        self._dropped = 0
        self._told: dict[str, Any] | None = None
        """The notice that says how many rows were dropped."""

    def rows(self, table: sa.Table) -> list[Any]:
        """The rows for a table, to be read and added to."""
        return self._rows.setdefault(table.name, [])

    def set(self, run: str, key: str, value: Any) -> None:
        """Add a setting."""
        self.rows(SETTINGS).append({"run": run, "key": key, "value": as_json(value)})

    def confirm(self, failed: Mapping[tuple[str, str], str]) -> None:
        """Mark the intended actions among these rows as enacted, those in `failed` as failed."""
        for row in self.intended:
            error = failed.get((row[KIND], row[SUBJECT])) if failed else None
            row[STATUS] = "enacted" if error is None else "failed"
            row[REFUSED] = error
        self.intended.clear()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.confirmed and not any(self._rows.values())

    def followed_by(self, later: Unwritten) -> Unwritten:
        """These rows and those that came after them."""
        for failed in later.confirmed:
            self.confirm(failed)
        for name, rows in later._rows.items():
            self._rows.setdefault(name, []).extend(rows)
        self.intended += later.intended
        self.confirmed += later.confirmed
        return self

    def shed(self) -> None:
        """Drop the oldest rows that can be spared beyond the bound, and say so in a notice."""
        for table in (OBSERVATIONS, TICKS, NOTICES):
            rows = self.rows(table)
            if len(rows) > KEPT_ROWS:
                self._dropped += len(rows) - KEPT_ROWS
                del rows[: len(rows) - KEPT_ROWS]
        if not self._dropped:
            return
        if self._told is None or self._told not in self.rows(NOTICES)[-1:]:
            last = self.rows(TICKS)[-1]
            self._told = {"run": last["run"], "at_s": last["at_s"], "text": ""}
            self.rows(NOTICES).append(self._told)
        self._told["text"] = f"{self._dropped} rows were dropped while the journal could not be written"
