"""A warm start: units begin with the mean number of instances of their last run, paper 001, section 2.4.

What a unit needed last time is the best guess at what it will need, and a filter that starts under the load
it was made for starts well. The last run is read from its journal.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from penstock.controller.journal import OBSERVATIONS
from penstock.errors import ConfigurationError
from penstock.filters.bootstrap import starting_instances
from penstock.topology.model import Topology

JOURNAL_FILES = ("journal.db", "journal.sqlite")
"""What a run's folder calls its journal: a simulated run's, a run's on Spark."""


def warm_started(topology: Topology, last_run: Path) -> Topology:
    """The topology whose units start with the last run's mean instances, within their bounds.

    `last_run` is a run's folder or its journal. A unit that was not in it keeps its own number.
    """
    means = mean_instances(last_run)
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


def mean_instances(last_run: Path) -> dict[str, int]:
    """By unit, the instances to start with: the time-weighted mean of the journal's last run."""
    file = _journal_in(last_run)
    engine = sa.create_engine(f"sqlite:///file:{file.resolve()}?mode=ro&uri=true")
    seen: dict[str, list[tuple[float, int]]] = {}
    try:
        with engine.connect() as connection:
            columns = OBSERVATIONS.c
            last = sa.select(columns.run).order_by(columns.id.desc()).limit(1).scalar_subquery()
            found = connection.execute(
                sa.select(columns.unit, columns.at_s, columns.instances)
                .where(columns.run == last)
                .order_by(columns.id)
            )
            for unit, at_s, instances in found:
                seen.setdefault(unit, []).append((at_s, instances))
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise ConfigurationError(
            f"cannot start warm: expected the journal of a run in {file}, got {cause}"
        ) from error
    finally:
        engine.dispose()
    if not seen:
        raise ConfigurationError(f"cannot start warm: nothing was observed in the run of {file}")
    return {unit: starting_instances(changes) for unit, changes in seen.items()}


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
