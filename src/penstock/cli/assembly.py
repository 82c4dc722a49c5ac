"""The one place where concrete parts are put together: topology files with registries, choices made on top.

Everything below takes what it needs as arguments; the commands ask here.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from penstock.cli.known import known_names
from penstock.topology.file import load_topology
from penstock.topology.model import Choice, HostFlavour, Topology


def load(path: str | Path) -> Topology:
    """Read a topology file and check every name in it; TopologyError lists all mistakes."""
    return load_topology(path, known_names())


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
            replace(site, btu_s=btu_s, flavours=tuple(_rebilled(f, site.btu_s, btu_s) for f in site.flavours))
            for site in sites
        )
    return replace(topology, units=units, sources=sources, sites=sites)


def _rebilled(flavour: HostFlavour, old_s: float, new_s: float) -> HostFlavour:
    return replace(flavour, price_per_btu=flavour.price_per_btu * Decimal(str(new_s)) / Decimal(str(old_s)))
