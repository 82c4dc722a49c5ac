"""A warm start: units begin with the mean number of instances of their last run, paper 001, section 2.4.

What a unit needed last time is the best guess at what it will need, and a filter that starts under the load
it was made for starts well. Of a run that lasted a day, what it needed at this time of the day counts. The
last run is read from its journal, and so is what its units' loads usually do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from penstock.controller.journal import OBSERVATIONS, Rates
from penstock.controller.journal.past import loads
from penstock.errors import ConfigurationError
from penstock.filters.bootstrap import starting_instances
from penstock.forecasts.record import COARSE_DAYS
from penstock.forecasts.season import DAY_S, Season, season_of
from penstock.topology.model import Topology

JOURNAL_FILES = ("journal.db", "journal.sqlite")
"""What a run's folder calls its journal: a simulated run's, a run's on Spark."""
AROUND_S = 1800.0
"""What was needed so long before and after a time of the day tells what is needed at it."""


def warm_started(topology: Topology, last_run: Path, at_s: float = 0.0) -> Topology:
    """The topology whose units start with the last run's mean instances, within their bounds.

    `last_run` is a run's folder or its journal; `at_s` is when the new run starts, by the same clock. A unit
    that was not in it keeps its own number.
    """
    means = mean_instances(last_run, at_s)
    if not means.keys() & topology.unit_by_name.keys():
        raise ConfigurationError(
            f"cannot start {topology.name} warm from {last_run}: it has none of its units "
            f"({', '.join(topology.unit_by_name)}), only {', '.join(means)}; is it a run of this topology?"
        )
    return replace(
        topology,
        units=tuple(
            replace(
                unit,
                initial_instances=max(
                    unit.min_instances, min(means.get(unit.name, unit.initial_instances), unit.max_instances)
                ),
            )
            for unit in topology.units
        ),
    )


def mean_instances(last_run: Path, at_s: float = 0.0) -> dict[str, int]:
    """By unit, the instances to start with: the time-weighted mean of the journal's last run.

    Where it lasted a day, the mean of the hour around this time of the day.
    """
    with _opened(last_run) as (connection, run):
        o = OBSERVATIONS.c
        found = connection.execute(
            sa.select(o.unit, o.at_s, o.instances).where(o.run == run).order_by(o.id)
        ).all()
    seen: dict[str, list[tuple[float, int]]] = {}
    for unit, observed_s, instances in found:
        seen.setdefault(unit, []).append((observed_s, instances))
    return {unit: starting_instances(_around(changes, at_s)) for unit, changes in seen.items()}


def earlier_loads(last_run: Path) -> dict[str, Rates]:
    """By unit, what came in the last weeks of an earlier run, in steps of five minutes."""
    with _opened(last_run) as (connection, run):
        newest = sa.select(sa.func.max(OBSERVATIONS.c.at_s)).where(OBSERVATIONS.c.run == run)
        newest_s = float(connection.execute(newest).scalar_one())
        return loads(connection, run, newest_s - COARSE_DAYS * DAY_S)


def earlier_seasons(last_run: Path) -> dict[str, Season]:
    """By unit, what its load usually does over a day or a week, where an earlier run lasted so long."""
    found = {
        unit: season_of(np.array(times), np.array(rates))
        for unit, (times, rates) in earlier_loads(last_run).items()
    }
    return {unit: season for unit, season in found.items() if season is not None}


def _around(changes: Sequence[tuple[float, int]], at_s: float) -> Sequence[tuple[float, int]]:
    """What was observed within half an hour of a time of the day, as if in one go; all of it below a day."""
    if changes[-1][0] - changes[0][0] < DAY_S - AROUND_S:
        return changes
    near, passed_s = [], 0.0
    for (since_s, instances), (until_s, _) in pairwise(changes):
        if abs((since_s - at_s + DAY_S / 2) % DAY_S - DAY_S / 2) <= AROUND_S:
            near.append((passed_s, instances))
            passed_s += until_s - since_s
    return [*near, (passed_s, near[-1][1])] if near else changes


@contextmanager
def _opened(last_run: Path) -> Iterator[tuple[sa.Connection, str]]:
    """The journal of an earlier run, to be read, and the name of the last run in it."""
    file = _journal_in(last_run)
    engine = sa.create_engine(f"sqlite:///file:{file.resolve()}?mode=ro&uri=true")
    try:
        with engine.connect() as connection:
            last = sa.select(OBSERVATIONS.c.run).order_by(OBSERVATIONS.c.id.desc()).limit(1)
            run = connection.execute(last).scalar()
            if run is None:
                raise ConfigurationError(f"cannot start warm: nothing was observed in the run of {file}")
            yield connection, run
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise ConfigurationError(
            f"cannot start warm: expected the journal of a run in {file}, got {cause}"
        ) from error
    finally:
        engine.dispose()


def _journal_in(last_run: Path) -> Path:
    if last_run.is_file():
        return last_run
    for name in JOURNAL_FILES:
        if (last_run / name).is_file():
            return last_run / name
    raise ConfigurationError(
        f"cannot start warm from {last_run}: expected the folder of a run with {' or '.join(JOURNAL_FILES)}, "
        "or a journal's file"
    )
