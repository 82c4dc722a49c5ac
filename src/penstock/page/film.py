"""A film of a run: what its journal holds, as plain columns a browser can draw from.

It is read in one transaction and only ever read: the file is opened so that nothing can be written. What
came after a film is told in the same form, so a page that watches only adds it. Nine tenths of a long run's
film are observations, and a first picture needs the last few of them alone: the others may come later.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from penstock.controller.journal.tables import (
    ACTIONS,
    BUDGETS,
    CHARGES,
    FLOWS,
    HOURS,
    LEASES,
    LIVES,
    NOTICES,
    OBSERVATIONS,
    TICKS,
)
from penstock.errors import ConfigurationError
from penstock.experiments.twin import journal_file

MOST_ROWS = 250_000
"""Observations a film has at most; of a longer run those of a stretch of time are put together."""
FEW_ROWS = 10_000
"""Observations of which a film is made at once; of more it begins with the last ones."""
DIGITS = 5
COLUMNS = {
    "in": "arrived", "out": "processed", "emitted": "emitted", "waiting": "waiting", "duration": "duration_s",
    "p95": "duration_p95_s", "p99": "duration_p99_s", "latency": "latency_s", "cpu": "cpu_ratio",
    "cpu_std": "cpu_std", "instances": "instances", "running": "running",
    "cpu_read": "cpu_read_ratio", "in_filtered": "arrived_filtered", "waiting_filtered": "waiting_filtered",
    "duration_filtered": "duration_filtered_s",
}  # fmt: skip
"""What of an observation a film shows, by the name it has there."""
OPTIONAL = ("cpu_read", "in_filtered", "waiting_filtered", "duration_filtered")
"""Left out of a film where a unit has none of it, as without a filter; rates by name are as well."""
_RATES = ("in", "out", "emitted", "in_filtered")
_FLOWS = {"arrived_from": "from:", "emitted_by": "by:"}
"""What of an observation is told by name: how the names begin that its rates have in a film."""
_COUNTS = ("waiting", "instances", "running")
_CHARGE = ("at_s", "host", "units", "amount", "reason")


@dataclass
class Place:
    """How far a journal was read: the newest row of each table."""

    ids: dict[str, int] = field(default_factory=dict)
    intended: set[int] = field(default_factory=set)
    """Actions that were not yet known to be done or not."""
    leases: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Leases as they were last told."""


class Reader:
    """Reads one run's journal, from the beginning or from where it was read to."""

    def __init__(self, run: Path) -> None:
        self.file = journal_file(run)
        self._engine = sa.create_engine(
            f"sqlite:///file:{self.file.resolve()}?mode=ro&uri=true",
            connect_args={"check_same_thread": False},
        )
        self._run = ""
        self._present: frozenset[str] = frozenset()

    @property
    def run(self) -> str:
        """The name of the newest run in the journal; empty while nothing is on record."""
        if not self._run:
            with self._reading() as connection:
                newest = sa.select(TICKS.c.run).order_by(TICKS.c.id.desc()).limit(1)
                self._run = str(connection.execute(newest).scalar() or "")
        return self._run

    def close(self) -> None:
        """Let the journal go."""
        self._engine.dispose()

    def since(self, place: Place, last_s: float | None = None) -> dict[str, Any]:
        """All that is new, in one transaction; `place` is moved on.

        With `last_s`, of many observations only those of the last so many seconds, and `partial` says so.
        """
        with self._reading() as connection:
            few = last_s is None or self._new_rows(connection, place) <= FEW_ROWS
            found = {
                "ticks": self._ticks(connection, place),
                "observed": self._observed(connection, place, None if few else last_s),
                "actions": self._actions(connection, place),
                "lives": self._lives(connection, place),
                "leases": self._leases(connection, place),
                "charges": self._plain(connection, place, CHARGES, _CHARGE),
                "notices": self._plain(connection, place, NOTICES, ("at_s", "text")),
                "budgets": self._plain(connection, place, BUDGETS, ("at_s", "unit", "budget_s")),
            }
        found["tick"] = place.ids.get(TICKS.name, 0)
        if not few:
            found["partial"] = True
        return found

    def observed(self) -> dict[str, dict[str, list[Any]]]:
        """All observations there are."""
        with self._reading() as connection:
            return self._observed(connection, Place())

    def rows(self, table: sa.Table, *conditions: Any) -> list[dict[str, Any]]:
        """Rows of this run that fulfil all conditions, oldest first."""
        with self._reading() as connection:
            columns = self._observation(connection) if table is OBSERVATIONS else table.c
            chosen = sa.select(*columns).where(table.c.run == self.run, *conditions).order_by(table.c.id)
            return [dict(row._mapping) for row in connection.execute(chosen)]

    # -- inside ----------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            raise ConfigurationError(f"cannot read the journal {self.file}: {cause}") from error

    def _observation(self, connection: sa.Connection) -> list[Any]:
        """The columns of an observation; NULL for those that came after the journal was written."""
        if not self._present:
            found = sa.inspect(connection).get_columns(OBSERVATIONS.name)
            self._present = frozenset(column["name"] for column in found)
        return [c if c.name in self._present else sa.null().label(c.name) for c in OBSERVATIONS.c]

    def _new(self, place: Place, table: sa.Table) -> list[Any]:
        return [table.c.run == self.run, table.c.id > place.ids.get(table.name, 0)]

    def _moved(self, connection: sa.Connection, place: Place, table: sa.Table) -> None:
        newest = connection.execute(
            sa.select(sa.func.max(table.c.id)).where(*self._new(place, table))
        ).scalar()
        if newest is not None:
            place.ids[table.name] = int(newest)

    def _plain(
        self, connection: sa.Connection, place: Place, table: sa.Table, columns: Sequence[str]
    ) -> list[list[Any]]:
        chosen = sa.select(table.c.id, *(table.c[name] for name in columns)).where(*self._new(place, table))
        rows = connection.execute(chosen.order_by(table.c.id)).all()
        if rows:
            place.ids[table.name] = int(rows[-1][0])
        return [list(row[1:]) for row in rows]

    def _ticks(self, connection: sa.Connection, place: Place) -> dict[str, list[Any]]:
        rows = self._plain(connection, place, TICKS, ("at_s", "hosts", "hosts_up", "bill"))
        at, hosts, up, bill = zip(*rows, strict=True) if rows else ((), (), (), ())
        return {"at": list(at), "hosts": list(hosts), "up": list(up), "bill": [float(one) for one in bill]}

    def _new_rows(self, connection: sa.Connection, place: Place) -> int:
        """About how many observations are new, without a look at each."""
        c = OBSERVATIONS.c
        ends = [
            connection.execute(sa.select(c.id).where(*self._new(place, OBSERVATIONS)).order_by(by).limit(1))
            for by in (c.id, c.id.desc())
        ]
        first, last = (end.scalar() for end in ends)
        return 0 if first is None or last is None else int(last) - int(first) + 1

    def _observed(
        self, connection: sa.Connection, place: Place, last_s: float | None = None
    ) -> dict[str, dict[str, list[Any]]]:
        first = OBSERVATIONS.name not in place.ids
        new = self._new(place, OBSERVATIONS)
        c = OBSERVATIONS.c
        found: dict[str, dict[str, list[Any]]] = {}
        if last_s is not None:
            newest = connection.execute(
                sa.select(c.id, c.at_s).where(*new).order_by(c.id.desc()).limit(1)
            ).one()
            # By number first: looking at the instant of every row takes long where there are many.
            new += [c.id > newest.id - MOST_ROWS // 10, c.at_s > newest.at_s - last_s]
        elif first:
            _add(found, connection.execute(self._hours()))
        if last_s is not None or self._new_rows(connection, place) <= MOST_ROWS:
            present = {column.name: column for column in self._observation(connection)}
            values = [c.at_s, c.interval_s, *(present[name] for name in (*COLUMNS.values(), *FLOWS))]
            _add(found, connection.execute(_shown_values(c.unit, *values).where(*new).order_by(c.id)))
        else:
            _add(found, connection.execute(self._thinned(connection, new)))
        self._moved(connection, place, OBSERVATIONS)
        return found

    def _hours(self) -> Any:
        """What is left of old observations, as observations an hour long."""
        c = HOURS.c
        known = {name: c[name] for name in COLUMNS.values() if name in c}
        columns = [known.get(name, sa.null()) for name in COLUMNS.values()]
        values = (c.at_s + c.interval_s, c.interval_s, *columns, *(sa.null() for _ in FLOWS))
        return _shown_values(c.unit, *values).where(c.run == self.run).order_by(c.at_s)

    def _thinned(self, connection: sa.Connection, new: Sequence[Any]) -> Any:
        """Observations put together over so long a time that there are not too many."""
        c = OBSERVATIONS.c
        ends = sa.select(sa.func.min(c.at_s), sa.func.max(c.at_s), sa.func.count(c.unit.distinct()))
        start_s, end_s, units = connection.execute(ends.where(*new)).one()
        step_s = max(1.0, (end_s - start_s) * units / (MOST_ROWS / 2))
        bin_number = sa.cast((c.at_s - start_s) / step_s, sa.Integer)
        summed = {"interval_s", *(COLUMNS[name] for name in _RATES)}
        present = {column.name: column for column in self._observation(connection)}
        columns = [
            (sa.func.sum if name in summed else sa.func.max if name == "waiting" else sa.func.avg)(
                present[name]
            )
            for name in COLUMNS.values()
        ]
        return (
            _shown_values(
                c.unit, sa.func.max(c.at_s), sa.func.sum(c.interval_s), *columns, *(sa.null() for _ in FLOWS)
            )
            .where(*new)
            .group_by(c.unit, bin_number)
            .order_by(bin_number)
        )

    def _actions(self, connection: sa.Connection, place: Place) -> list[list[Any]]:
        """What was to change; what was left as it is can be asked for by its instant."""
        c = ACTIONS.c
        last = place.ids.get(ACTIONS.name, 0)
        chosen = (
            sa.select(
                c.id, c.at_s, c.kind, c.policy, c.unit, c.subject, c.reason, c.status, c.refused, c.payload
            )
            .where(c.run == self.run, c.status != "held")
            .where((c.id > last) | c.id.in_(sorted(place.intended)[-500:]))
            .order_by(c.id)
        )
        rows = connection.execute(chosen).all()
        place.intended = {row[0] for row in rows if row[7] == "intended"}
        self._moved(connection, place, ACTIONS)
        return [[*row[:9], _where(row[9])] for row in rows]

    def _lives(self, connection: sa.Connection, place: Place) -> list[list[Any]]:
        rows = self._plain(connection, place, LIVES, ("at_s", "what", "name", "state", "over", "payload"))
        return [[*row[:4], int(row[4]), _shown(row[5])] for row in rows]

    def _leases(self, connection: sa.Connection, place: Place) -> list[list[Any]]:
        c = LEASES.c
        chosen = sa.select(
            c.host, c.site, c.flavour, c.at_s, c.btu_s, c.price_per_btu, c.units, c.ended_s, c.currency
        ).where(c.run == self.run)
        new = []
        for row in connection.execute(chosen.order_by(c.id)):
            if place.leases.get(row[0]) != tuple(row):
                place.leases[row[0]] = tuple(row)
                new.append(list(row))
        return new


def _shown_values(unit: Any, at_s: Any, step_s: Any, *values: Any) -> sa.Select[Any]:
    """Observations as a film shows them: rates, and no more digits than anybody sees.

    The database does it, in a tenth of the time that Python takes for a day of a run.
    """
    shown = [
        value if name in _COUNTS else sa.func.round(value * 1.0 / step_s if name in _RATES else value, DIGITS)
        for name, value in zip(COLUMNS, values, strict=False)
    ]
    return sa.select(unit, at_s, step_s, *shown, *values[len(COLUMNS) :])


def _add(found: dict[str, dict[str, list[Any]]], result: Any) -> None:
    """Put rows of (unit, end, length, values of `COLUMNS`, those of `FLOWS`) into columns by unit."""
    by_unit: dict[str, list[Any]] = {}
    for row in result.cursor.fetchall():  # without what SQLAlchemy makes of each row
        by_unit.setdefault(row[0], []).append(row)
    for unit, members in by_unit.items():
        columns = found.setdefault(unit, {"at": [], "step": []})
        before = len(columns["at"])
        values = list(zip(*members, strict=True))[1:]
        shown: dict[str, Sequence[Any]] = dict(zip(("at", "step", *COLUMNS), values, strict=False))
        for prefix, told in zip(_FLOWS.values(), values[-len(FLOWS) :], strict=True):
            shown |= _rates(prefix, told, shown["step"])
        for name, column in shown.items():
            if name in OPTIONAL and name not in columns and column.count(None) == len(column):
                continue
            columns.setdefault(name, [None] * before).extend(column)
        for known in columns.values():
            if len(known) < len(columns["at"]):
                known += [None] * (len(columns["at"]) - len(known))


def _rates(prefix: str, told: Sequence[str | None], steps: Sequence[float]) -> dict[str, list[float | None]]:
    """Rates by name out of the records by name that each of some observations tells of, if any."""
    found: dict[str, list[float | None]] = {}
    for place, text in enumerate(told):
        if text is not None and steps[place] > 0:
            for name, records in json.loads(text).items():
                column = found.setdefault(prefix + name, [None] * len(told))
                column[place] = round(records / steps[place], DIGITS)
    return found


def _where(payload: str) -> str | None:
    """The host an action is for, where it names one."""
    found: Mapping[str, Any] = json.loads(payload)
    return found.get("host") or found.get("to_host")


def _shown(payload: str) -> dict[str, Any]:
    found = json.loads(payload)
    return {
        name: found[name] for name in ("unit", "host", "site", "flavour", "cores", "problem") if name in found
    }
