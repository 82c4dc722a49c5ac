"""The one place where concrete parts are put together: topology files with registries, choices made on top.

Everything below takes what it needs as arguments; the command line asks here, and so can an API.
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from penstock.controller.budgeting import LatencyBudgeting
from penstock.errors import ConfigurationError
from penstock.providers.price_lists import with_list_prices
from penstock.runs.known import known_names
from penstock.topology.file import load_topology, parse_topology
from penstock.topology.model import Choice, HostFlavour, Topology
from penstock.workload.registry import make_workload


def load(path: str | Path) -> Topology:
    """Read a topology file and check every name in it; TopologyError lists all mistakes.

    Prices that are written as `list` are read from their providers' own lists.
    """
    return with_list_prices(load_topology(path, known_names()))


def parse(text: str) -> Topology:
    """The same of a text, as the page and the API are sent one."""
    return with_list_prices(parse_topology(text, known=known_names()))


def with_choices(
    topology: Topology,
    *,
    policy: Choice | None = None,
    filter: Choice | None = None,
    workload: Choice | None = None,
    btu_s: float | None = None,
) -> Topology:
    """The topology with another policy or filter for every unit, workload for every source, or BTU.

    Prices are kept per time: a flavour at 6 for 60 minutes costs 1 for 10 minutes.
    """
    units = tuple(
        replace(unit, policy=policy or unit.policy, filter=filter or unit.filter) for unit in topology.units
    )
    sources = tuple(replace(source, workload=workload or source.workload) for source in topology.sources)
    sites = topology.sites
    if btu_s is not None:
        sites = tuple(
            replace(
                site,
                btu_s=btu_s,
                minimum_s=None,
                increment_s=None,
                flavours=tuple(_rebilled(f, site.btu_s, btu_s) for f in site.flavours),
            )
            for site in sites
        )
    return replace(topology, units=units, sources=sources, sites=sites)


def _rebilled(flavour: HostFlavour, old_s: float, new_s: float) -> HostFlavour:
    return replace(flavour, price_per_btu=flavour.price_per_btu * Decimal(str(new_s)) / Decimal(str(old_s)))


def source_rates(topology: Topology) -> dict[str, float]:
    """Records a second every source emits on average, by its workload; ConfigurationError without one."""
    found = {}
    for source in topology.sources:
        if source.workload is None:
            raise ConfigurationError(
                f"source {source.name!r} has no workload to take its load from; give one, or a rate for all "
                'sources such as --rate "100/s"'
            )
        curve = make_workload(source.workload).curve
        span_s = curve.length_s if math.isfinite(curve.length_s) else 86_400.0
        found[source.name] = float(curve.records(span_s)) / span_s * source.share
    return found


def budgeting_for(topology: Topology) -> LatencyBudgeting | None:
    """What distributes the topology's bounds in the loop; None where it has none."""
    if not topology.latency_bounds:
        return None
    known = all(source.workload is not None for source in topology.sources)
    return LatencyBudgeting(source_rates_per_s=source_rates(topology) if known else None)
