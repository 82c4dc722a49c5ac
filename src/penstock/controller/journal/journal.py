"""The record of one run: writing it tick by tick, reading it back, taking it up again."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from penstock.controller.journal import past, restoring, retention
from penstock.controller.journal.database import Database
from penstock.controller.journal.latest import latest_rows
from penstock.controller.journal.migrations import VERSION
from penstock.controller.journal.retention import KEPT, Trimmed
from penstock.controller.journal.rows import (
    Past,
    Restored,
    TickRecord,
    action_row,
    charge_of,
    charge_row,
    lease_of,
    lease_row,
    life_row,
    observation_row,
)
from penstock.controller.journal.tables import (
    ACTIONS,
    BUDGETS,
    CHARGES,
    CLAIMS,
    COLUMNS,
    HOURS,
    INTENDED,
    LEASES,
    LIVES,
    METADATA,
    NOTICES,
    OBSERVATIONS,
    RECORDS,
    SETTINGS,
    TICKS,
    written,
)
from penstock.controller.journal.unwritten import STATUS, Unwritten
from penstock.errors import FencedError, JournalUnavailableError
from penstock.fleet.lives import Life
from penstock.infrastructure.leases import Charge, Lease
from penstock.monitoring.health import told_healths

LOG = logging.getLogger(__name__)

CLOCK_ANCHOR = "clock anchor"
"""The setting for the wall time, in seconds since 1970, at which the run's monotonic clock stood at 0.

Rows carry `at_s` of the run's own clock. Whoever keeps that clock by monotonic time remembers this number
once, at the run's start: wall time = anchor + `at_s`, also after a restart and whatever the wall clock did.
"""

BUFFERED_ROWS = 1024
"""Observations and lives a buffered journal keeps in memory at most: more only make everything slower."""


class Journal:
    """The record of one run. `buffered` keeps ticks in memory until `flush`, for simulated runs.

    Where the database cannot be written, writing raises JournalUnavailableError after a bounded wait and
    keeps what it could not write; the next `record`, `confirm`, `notice`, `remember` or `flush` writes it
    first, in order and once. Nobody may enact an action before a call that wrote it has returned.
    """

    def __init__(self, url: str | Path, run: str = "run", *, buffered: bool = False) -> None:
        self.run = run
        self._buffered = buffered
        self._unwritten = Unwritten()
        self._in_doubt: Unwritten | None = None
        """What a transaction held whose end was not confirmed: it may be written or not."""
        self._to_confirm = True
        """Whether intended actions may be on record that are not confirmed."""
        self._statements: dict[str, Any] = {}
        """Compiled statements, by table: every row of a table has the same columns."""
        self._epoch: int | None = None
        self._written = 0
        """The number of this epoch's last transaction."""
        self._fenced = ""
        """Why nothing may be written any more, where another controller has taken the run over."""
        self._database = Database(url, write_ahead=not buffered)
        if 0 < self._database.found_version < VERSION:
            self._tell_migration(self._database.found_version)

    @property
    def address(self) -> str:
        """Where it is, without a password."""
        return self._database.address.removeprefix("sqlite:///")

    # -- writing ---------------------------------------------------------------------------------

    def claim(self) -> int:
        """Take the run over and give the number of its new epoch; every other journal of it is fenced.

        From now on each transaction checks that no newer claim was made; where one was, it writes nothing
        and raises FencedError, and so does everything after it. A run that was ever claimed takes nothing
        from a journal that did not claim it. A buffered journal, of a simulated run, claims nothing: 0.
        """
        if self._buffered:
            return 0
        if self._fenced:
            raise FencedError(self._fenced)
        claim = written(CLAIMS, self._database.dialect, epoch=CLAIMS.c.epoch + 1, written=0)
        with self._database.writing() as connection:
            connection.execute(claim.values(run=self.run, epoch=1, written=0))
            mine = sa.select(CLAIMS.c.epoch).where(CLAIMS.c.run == self.run)
            epoch = int(connection.execute(mine).scalar_one())
        self._epoch, self._written = epoch, 0
        return epoch

    def claimed(self) -> tuple[int, int] | None:
        """The epoch of the run's newest claim and its number of transactions; None where there is none."""
        query = sa.select(CLAIMS.c.epoch, CLAIMS.c.written).where(CLAIMS.c.run == self.run)
        with self._database.reading() as connection:
            row = connection.execute(query).first()
        return None if row is None else (int(row.epoch), int(row.written))

    def beat(self) -> None:
        """Write that whoever claimed the run is there, and nothing else; FencedError where another is."""
        with self._writing():
            pass

    def record(self, tick: TickRecord) -> None:
        """Put a tick on record in one transaction; its allowed actions as intended."""
        new = self._unwritten
        if self._buffered and len(new.rows(OBSERVATIONS)) + len(new.rows(LIVES)) >= BUFFERED_ROWS:
            self.flush()
            new = self._unwritten
        run, at_s = self.run, tick.at_s
        new.rows(TICKS).append({
            "run": run, "at_s": at_s, "decided": tick.decided, "next_host": tick.next_host,
            "next_instance": tick.next_instance, "hosts": tick.hosts, "hosts_up": tick.hosts_up,
            "bill": str(tick.bill),
        })  # fmt: skip
        observed, actions = new.rows(OBSERVATIONS), new.rows(ACTIONS)
        for signal in tick.signals:
            observed.append(observation_row(run, signal, tick.instances, tick.running))
        for verdict in tick.verdicts:
            row = action_row(run, at_s, verdict)
            actions.append(row)
            if row[STATUS] == "intended":
                new.intended.append(row)
        if tick.lives:
            new.rows(LIVES).extend([life_row(run, life) for life in tick.lives])
        new.rows(LEASES).extend([lease_row(run, lease) for lease in tick.leases])
        new.rows(CHARGES).extend([charge_row(run, charge) for charge in tick.charges])
        for unit, budget_s in tick.budgets.items():
            new.rows(BUDGETS).append({
                "run": run, "at_s": at_s, "unit": unit, "budget_s": budget_s, "reason": tick.budget_reason,
            })  # fmt: skip
        for text in tick.notices:
            new.rows(NOTICES).append({"run": run, "at_s": at_s, "text": text})
        for key, value in tick.settings.items():
            new.set(run, key, value)
        if not self._buffered:
            self.flush()

    def confirm(self, at_s: float, failed: Mapping[tuple[str, str], str]) -> None:
        """Mark the tick's intended actions as enacted, those in `failed` (by kind and subject) as failed."""
        self._unwritten.confirm(failed)
        if self._to_confirm or self._in_doubt is not None:
            self._unwritten.confirmed.append(dict(failed))
            self._to_confirm = False
        if not self._buffered:
            self.flush()

    def notice(self, at_s: float, text: str) -> None:
        """Put a piece of news on record."""
        self._unwritten.rows(NOTICES).append({"run": self.run, "at_s": at_s, "text": text})
        if not self._buffered:
            self.flush()

    def remember(self, key: str, value: Any) -> None:
        """Keep a small durable fact of the run (plain JSON) under a key, in place of an earlier value.

        On record at once, or with the next `flush` of a buffered journal. What must hold together with a
        tick goes into its record's `settings`. Examples: the topology's text, the plan of the run, measured
        drain times, the clock's anchor (`CLOCK_ANCHOR`).
        """
        self._unwritten.set(self.run, key, value)
        if not self._buffered:
            self.flush()

    def flush(self) -> None:
        """Write what is still in memory, in one transaction; where that fails, it stays in memory."""
        if self._unwritten.empty and self._in_doubt is None:
            return
        with self._writing() as connection:
            batch = self._unwritten  # not before: the transaction may bring back an earlier one's rows
            for failed in batch.confirmed:
                self._mark(connection, failed)
            for table in (*RECORDS, SETTINGS):
                if rows := batch.rows(table):
                    self._write(connection, table, rows)
        self._to_confirm |= bool(batch.intended)
        self._unwritten = Unwritten()

    def trim(self, before_s: float, *, keep: int = KEPT, span_s: float = 3600.0) -> Trimmed:
        """Thin what is older than an instant to a row a unit and span; at most 24 spans a call.

        `keep` of the newest ticks and enacted actions stay whatever their age. Bill and restore do not
        change.
        """
        self.flush()
        hours = deleted = 0
        while hours < retention.HOURS_AT_ONCE:
            with self._writing() as connection:
                until_s = restoring.setting(connection, self.run, retention.TRIMMED_UNTIL)
                limit_s = retention.limit_s(connection, self.run, before_s, keep, span_s)
                begins_s = retention.next_span(connection, self.run, until_s, limit_s, span_s)
                if begins_s is None:
                    return Trimmed(hours, deleted, more=False)
                counted = restoring.setting(connection, self.run, restoring.TRIMMED_ACTIONS) or {}
                deleted += retention.trim_span(connection, self.run, begins_s, span_s, keep, counted)
                deleted += retention.trim_series(connection, self.run, begins_s)
                told = Unwritten()
                told.set(self.run, restoring.TRIMMED_ACTIONS, counted)
                told.set(self.run, retention.TRIMMED_UNTIL, begins_s + span_s)
                self._write(connection, SETTINGS, told.rows(SETTINGS))
            hours += 1
        return Trimmed(hours, deleted, more=True)

    def close(self) -> None:
        """Write what is still in memory and let the database go; a fenced journal only lets go."""
        try:
            if not self._fenced:
                self.flush()
        finally:
            self._database.close()

    def abandon(self) -> None:
        """Let the database go and write nothing more, as a killed process does."""
        self._unwritten = Unwritten()
        self._database.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside ----------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """A transaction that only the newest claim of the run may write."""
        try:
            if self._fenced:
                raise FencedError(self._fenced)
            with self._database.writing() as connection:
                self._check_claim(connection)
                yield connection
        except FencedError as error:
            self._fenced = str(error)
            self._unwritten = Unwritten()  # it will never be written
            raise
        except JournalUnavailableError as error:
            if error.in_doubt:
                self._in_doubt, self._unwritten = self._unwritten, Unwritten()
            self._unwritten.shed()
            raise
        if self._epoch is not None:
            self._written += 1

    def _check_claim(self, connection: sa.Connection) -> None:
        """Number this transaction in the run's claim; FencedError where the claim is another's.

        The first statement of the transaction, and a write: from here on nobody else can claim the run.
        The number tells whether the last transaction was written where its end was not confirmed, and
        whether a file put in the place of a lost one has all of it.
        """
        claims = CLAIMS.update().where(CLAIMS.c.run == self.run)
        if self._epoch is None:
            if connection.execute(claims.values(epoch=CLAIMS.c.epoch)).rowcount:
                raise FencedError(f'the run "{self.run}" is claimed by a controller; only that one may write')
            self._settle_doubt(written=False)
            return
        mine = claims.where((CLAIMS.c.epoch == self._epoch) & (CLAIMS.c.written == self._written))
        if connection.execute(mine.values(written=self._written + 1)).rowcount == 1:
            self._settle_doubt(written=False)
            return
        row = connection.execute(sa.select(CLAIMS).where(CLAIMS.c.run == self.run)).first()
        epoch, number = (0, 0) if row is None else (row.epoch, row.written)
        if epoch > self._epoch:
            raise FencedError(
                f'the run "{self.run}" was taken over by another controller '
                f"(epoch {epoch}, this one's was {self._epoch})"
            )
        if self._in_doubt is None or (epoch, number) != (self._epoch, self._written + 1):
            raise JournalUnavailableError(
                f'the journal {self._database.address} lacks what the run "{self.run}" has written: '
                "an older copy is in its place"
            )
        self._written += 1
        connection.execute(claims.values(written=self._written + 1))
        self._settle_doubt(written=True)

    def _settle_doubt(self, *, written: bool) -> None:
        doubtful, self._in_doubt = self._in_doubt, None
        if doubtful is None:
            return
        if written:
            self._to_confirm |= bool(doubtful.intended)
        else:
            self._unwritten = doubtful.followed_by(self._unwritten)

    def _write(self, connection: sa.Connection, table: sa.Table, rows: list[Any]) -> None:
        """Write rows, each with all columns, without what SQLAlchemy does for every single one."""
        columns = COLUMNS[table.name]
        compiled = self._statements.get(table.name)
        if compiled is None:
            statement = written(table, self._database.dialect)
            compiled = statement.compile(self._database.engine, column_keys=columns)
            self._statements[table.name] = compiled
        values: Any = rows
        if not compiled.positional and not isinstance(rows[0], dict):
            values = [dict(zip(columns, row, strict=True)) for row in rows]
        elif compiled.positional and isinstance(rows[0], dict):
            values = list(map(itemgetter(*columns), rows))
        elif compiled.positional and isinstance(rows[0], list):
            values = list(map(tuple, rows))
        connection.exec_driver_sql(str(compiled), values)

    def _mark(self, connection: sa.Connection, failed: Mapping[tuple[str, str], str]) -> None:
        """Mark the intended actions on record as enacted or failed."""
        intended = (ACTIONS.c.run == self.run) & INTENDED
        for (kind, subject), error in failed.items():
            connection.execute(
                ACTIONS.update()
                .where(intended & (ACTIONS.c.kind == kind) & (ACTIONS.c.subject == subject))
                .values(status="failed", refused=error)
            )
        connection.execute(ACTIONS.update().where(intended).values(status="enacted"))

    def _tell_migration(self, found: int) -> None:
        text = f"the journal's tables were brought from version {found} to {VERSION}"
        LOG.info("%s: %s", self._database.address, text)
        with self._database.writing() as connection:
            newest = sa.select(sa.func.max(TICKS.c.at_s)).where(TICKS.c.run == self.run)
            at_s = connection.execute(newest).scalar()
            if at_s is not None:
                connection.execute(NOTICES.insert().values(run=self.run, at_s=at_s, text=text))

    # -- reading ---------------------------------------------------------------------------------

    @property
    def empty(self) -> bool:
        """Whether nothing of this run is on record yet."""
        self.flush()
        with self._database.reading() as connection:
            first = sa.select(TICKS.c.id).where(TICKS.c.run == self.run).limit(1)
            return connection.execute(first).first() is None

    def rows(self, table: str, columns: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Every row of a table of this run, oldest first: tick, observation, action, lease, charge, …

        Only the named columns, where some are named: a long run has many rows. Without names an observation
        has the unit's `health` besides, over the minute up to it; None where it is not known yet.
        """
        self.flush()
        found = METADATA.tables[table]
        wanted: list[Any] = [found.c[name] for name in columns] or [found]
        with self._database.reading() as connection:
            result = connection.execute(
                sa.select(*wanted).where(found.c.run == self.run).order_by(found.c.id)
            )
            names = tuple(result.keys())
            rows = [dict(zip(names, row, strict=True)) for row in result]
        if found is OBSERVATIONS and not columns:
            for row, health in zip(rows, told_healths(rows), strict=True):
                row["health"] = health
        return rows

    def latest(
        self, table: str, most: int, since_s: float = 0.0, until_s: float | None = None
    ) -> list[dict[str, Any]]:
        """The newest rows of a table, so many at most and within these times, oldest first; as in `rows`."""
        self.flush()
        with self._database.reading() as connection:
            return latest_rows(connection, self.run, table, most, since_s, until_s)

    def thinned(self) -> list[dict[str, Any]]:
        """What trimming left of old observations: sums, means and the most of each unit and hour."""
        return self.rows(HOURS.name)

    def trimmed_actions(self) -> dict[str, int]:
        """How many enacted actions of each kind were counted and trimmed away."""
        trimmed = self.recall(restoring.TRIMMED_ACTIONS) or {}
        return {kind: sum(units.values()) for kind, units in trimmed.items()}

    def leases(self) -> tuple[Lease, ...]:
        """Every lease of the run."""
        return tuple(lease_of(row) for row in self.rows("lease"))

    def charges(self) -> tuple[Charge, ...]:
        """Every charge of the run, oldest first."""
        return tuple(charge_of(row) for row in self.rows("charge"))

    def lives(self) -> tuple[Life, ...]:
        """The newest entry of every life that is not over, in the order its subjects first appeared in."""
        self.flush()
        with self._database.reading() as connection:
            return restoring.lives(connection, self.run)

    def recall(self, key: str) -> Any:
        """The value remembered under a key; None where there is none."""
        for row in reversed(self._unwritten.rows(SETTINGS)):
            if row["key"] == key:
                return json.loads(row["value"])
        with self._database.reading() as connection:
            return restoring.setting(connection, self.run, key)

    def restore(self, window: int) -> Restored | None:
        """What a restarted controller takes up, with the last `window` signals of each unit.

        None where the journal has nothing of this run. Time and memory do not grow with the run's length.
        """
        self.flush()
        with self._database.reading() as connection:
            return restoring.restored(connection, self.run, window)

    def past(self, recent_s: float, coarse_s: float) -> Past:
        """What the units' loads were: measurements over the one span, coarse steps over the other."""
        self.flush()
        with self._database.reading() as connection:
            return past.past(connection, self.run, recent_s, coarse_s)
