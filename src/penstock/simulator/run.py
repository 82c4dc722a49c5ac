"""One whole simulated run: topology in, result out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from penstock.clock import VirtualClock
from penstock.controller.journal import Journal
from penstock.controller.loop import Budgeting, Controller, Tick
from penstock.controller.result import RunResult, UnitCount, result_of
from penstock.errors import JournalError
from penstock.fleet.ports import Ground
from penstock.forecasts.season import Season
from penstock.monitoring.sla import Compliance, DurationStatistics
from penstock.simulator.kernel import DURATIONS, add_to_histogram, percentile
from penstock.simulator.plane import SimulatedPlane, SimulationSettings
from penstock.simulator.station import Floats, Station
from penstock.simulator.traffic import Traffic
from penstock.topology.model import Topology


def simulate(
    topology: Topology,
    settings: SimulationSettings | None = None,
    *,
    duration_s: float,
    journal: str | Path | Journal = "sqlite://",
    each: Callable[[Tick], None] | None = None,
    budgeting: Budgeting | None = None,
    seasons: Mapping[str, Season] | None = None,
    bound_s: float | None = None,
) -> RunResult:
    """Run a topology's control loop on a simulated cluster for so many virtual seconds.

    The journal is kept in memory unless a file, a URL or an open journal is given. Leases still open at
    the end are charged for every unit they have started. A simulated run cannot be resumed (its queues
    are gone), so a journal that holds a run of this name already is refused. `seasons` are what an earlier
    run's journal tells of the units' loads. With `bound_s` the result tells how many records were older when
    they left.
    """
    settings = settings or SimulationSettings()
    book = journal if isinstance(journal, Journal) else Journal(journal, topology.name, buffered=True)
    if not book.empty:
        raise JournalError(
            f'expected a journal without a run named "{book.run}", but it holds one; '
            "give the new run another file or another name"
        )
    clock = VirtualClock()
    plane = SimulatedPlane(topology, settings)
    ground = Ground(plane, plane.providers)
    controller = Controller(topology, ground, clock, book, budgeting=budgeting)
    controller.state.seasons = dict(seasons or {})
    with _undisturbed():
        controller.run(duration_s, each)
        controller.finish()
        book.flush()
        result = simulated_result(topology, plane.traffic, book, duration_s, settings, bound_s)
    if book is not journal and str(journal) != "sqlite://":
        book.close()
    return result


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Spare the garbage collector what was there before (compiled code alone is a million objects).

    A run makes hardly any cycles, so it need not look as often either.
    """
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


def simulated_result(
    topology: Topology,
    traffic: Traffic,
    journal: Journal,
    duration_s: float,
    settings: SimulationSettings,
    bound_s: float | None = None,
) -> RunResult:
    """The result of a simulated run out of what its stations counted and its journal."""
    entries = {
        unit for source in topology.sources for name in topology.successors[source.name]
        if (unit := topology.unit_of.get(name)) is not None
    }  # fmt: skip
    return result_of(
        topology,
        journal,
        {name: _count(station) for name, station in traffic.stations.items()},
        kind="simulated",
        duration_s=duration_s,
        end_s=duration_s,
        end_to_end=_statistics(traffic.end_to_end, traffic.end_to_end_sum_s, traffic.delivered),
        records_in=sum(traffic.emitted_by_sources.values()),
        records_out=traffic.delivered,
        seed=settings.seed,
        settings=_described(topology, settings, sorted(entries)),
        late=None if bound_s is None else _above(traffic.end_to_end, bound_s),
    )


def _count(station: Station) -> UnitCount:
    done = station.done
    return UnitCount(
        station.arrived,
        done,
        station.waiting + station.in_service,
        Compliance(done, *(int(value) for value in station.sums[4:7])),
        _statistics(station.histograms[DURATIONS], float(station.sums[0]), done),
    )


def _statistics(histogram: Floats, total_s: float, count: int) -> DurationStatistics:
    if not count:
        return DurationStatistics()
    return DurationStatistics(
        count, total_s / count, *(float(percentile(histogram, share)) for share in (0.5, 0.95, 0.99))
    )


def _above(histogram: Floats, bound_s: float) -> int:
    """Records of a histogram above a duration, to the width of its bins."""
    where = np.zeros_like(histogram)
    add_to_histogram(np.array([bound_s]), where)
    return int(histogram[int(where.argmax()) + 1 :].sum())


def _described(topology: Topology, settings: SimulationSettings, entries: list[str]) -> Mapping[str, Any]:
    return {
        "policies": sorted({unit.policy.name for unit in topology.units}),
        "filters": sorted({unit.filter.name for unit in topology.units}),
        "btu_s": {site.name: site.btu_s for site in topology.sites},
        "process": settings.process,
        "reading_noise": settings.reading_noise,
        "entry_units": entries,
    }
