"""One whole simulated run: topology in, result out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.clock import VirtualClock
from penstock.controller.journal import Journal
from penstock.controller.loop import Budgeting, Controller, Tick
from penstock.controller.result import RunResult, UnitCount, result_of
from penstock.errors import JournalError
from penstock.monitoring.sla import Compliance, DurationStatistics
from penstock.simulator.cluster import SimulatedCluster, SimulationSettings
from penstock.simulator.kernel import DURATIONS, percentile
from penstock.simulator.station import Floats, Station
from penstock.topology.model import Topology


def simulate(
    topology: Topology,
    settings: SimulationSettings | None = None,
    *,
    duration_s: float,
    journal: str | Path | Journal = "sqlite://",
    each: Callable[[Tick], None] | None = None,
    budgeting: Budgeting | None = None,
) -> RunResult:
    """Run a topology's control loop on a simulated cluster for so many virtual seconds.

    The journal is kept in memory unless a file, a URL or an open journal is given. Leases still open at
    the end are charged for every unit they have started. A simulated run cannot be resumed (its queues
    are gone), so a journal that holds a run of this name already is refused.
    """
    settings = settings or SimulationSettings()
    book = journal if isinstance(journal, Journal) else Journal(journal, topology.name, buffered=True)
    if not book.empty:
        raise JournalError(
            f'expected a journal without a run named "{book.run}", but it holds one; '
            "give the new run another file or another name"
        )
    clock = VirtualClock()
    cluster = SimulatedCluster(topology, settings)
    controller = Controller(topology, cluster, clock, book, budgeting=budgeting)
    controller.run(duration_s, each)
    controller.finish()
    book.flush()
    result = simulated_result(topology, cluster, book, duration_s, settings)
    if book is not journal and str(journal) != "sqlite://":
        book.close()
    return result


def simulated_result(
    topology: Topology,
    cluster: SimulatedCluster,
    journal: Journal,
    duration_s: float,
    settings: SimulationSettings,
) -> RunResult:
    """The result of a simulated run out of what its stations counted and its journal."""
    entries = {
        unit for source in topology.sources for name in topology.successors[source.name]
        if (unit := topology.unit_of.get(name)) is not None
    }  # fmt: skip
    return result_of(
        topology,
        journal,
        {name: _count(station) for name, station in cluster.stations.items()},
        kind="simulated",
        duration_s=duration_s,
        end_s=duration_s,
        end_to_end=_statistics(cluster.end_to_end, cluster.end_to_end_sum_s, cluster.delivered),
        records_in=sum(cluster.emitted_by_sources.values()),
        records_out=cluster.delivered,
        seed=settings.seed,
        settings=_described(topology, settings, sorted(entries)),
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


def _described(topology: Topology, settings: SimulationSettings, entries: list[str]) -> Mapping[str, Any]:
    return {
        "policies": sorted({unit.policy.name for unit in topology.units}),
        "filters": sorted({unit.filter.name for unit in topology.units}),
        "btu_s": {site.name: site.btu_s for site in topology.sites},
        "process": settings.process,
        "reading_noise": settings.reading_noise,
        "entry_units": entries,
    }
