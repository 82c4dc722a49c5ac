"""What the units' loads were: for policies that look back, from this run's journal and an earlier one's.

A controller that comes back knows the load of the last hours measurement by measurement, as if it had been
there. Of the weeks before it knows five minutes at a time, added up by the database: that tells what a load
usually does.
"""

from __future__ import annotations

import sqlalchemy as sa

from penstock.controller.journal.restoring import setting
from penstock.controller.journal.rows import Past, Rates
from penstock.controller.journal.tables import OBSERVATIONS
from penstock.forecasts.record import COARSE_S
from penstock.monitoring.measurements import Measurement

EARLIER_LOADS = "loads of an earlier run"
"""The setting for what a run that started warm was told of its units' loads."""
LOAD_COLUMNS = (
    "unit", "at_s", "interval_s", "arrived", "processed", "waiting", "duration_s", "duration_p95_s",
    "duration_p99_s", "on_time",
)  # fmt: skip


def past(connection: sa.Connection, run: str, recent_s: float, coarse_s: float) -> Past:
    """The loads of a run's units over the spans up to its last observation, and what it knew before."""
    newest = sa.select(sa.func.max(OBSERVATIONS.c.at_s)).where(OBSERVATIONS.c.run == run)
    newest_s = connection.execute(newest).scalar()
    known = setting(connection, run, EARLIER_LOADS) or {}
    earlier: dict[str, Rates] = {unit: (times, rates) for unit, (times, rates) in known.items()}
    if newest_s is None:
        return Past(loads=earlier)
    own = loads(connection, run, newest_s - coarse_s)
    both = {unit: _joined(earlier.get(unit), own.get(unit)) for unit in {**earlier, **own}}
    names = [OBSERVATIONS.c[name] for name in LOAD_COLUMNS]
    since = (OBSERVATIONS.c.run == run) & (OBSERVATIONS.c.at_s > newest_s - recent_s)
    found = connection.execute(sa.select(*names).where(since).order_by(OBSERVATIONS.c.id))
    return Past([Measurement(**dict(zip(LOAD_COLUMNS, row, strict=True))) for row in found], both)


def loads(connection: sa.Connection, run: str, since_s: float) -> dict[str, Rates]:
    """By unit, its load since an instant in steps of five minutes."""
    o = OBSERVATIONS.c
    step = sa.cast(o.at_s / COARSE_S, sa.BigInteger)
    query = (
        sa.select(
            o.unit, sa.func.avg(o.at_s - o.interval_s / 2), sa.func.sum(o.arrived), sa.func.sum(o.interval_s)
        )
        .where((o.run == run) & (o.at_s > since_s) & (o.interval_s > 0))
        .group_by(o.unit, step)
        .order_by(sa.func.min(o.id))
    )
    found: dict[str, Rates] = {}
    for unit, at_s, arrived, span_s in connection.execute(query):
        times_s, rates_per_s = found.setdefault(unit, ([], []))
        times_s.append(float(at_s))
        rates_per_s.append(float(arrived or 0) / float(span_s))
    return found


def _joined(earlier: Rates | None, own: Rates | None) -> Rates:
    """An earlier load up to where the own one begins, and then the own one."""
    if earlier is None or own is None:
        return own or earlier or ([], [])
    older = [(at_s, rate) for at_s, rate in zip(*earlier, strict=True) if at_s < own[0][0]]
    return [at_s for at_s, _ in older] + own[0], [rate for _, rate in older] + own[1]
