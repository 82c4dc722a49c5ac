"""Placement: which host takes an instance, and which flavour is leased when none does."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.infrastructure.deployment import Room
from penstock.topology.model import HostFlavour, Site, Topology

__all__ = ["Room", "flavour_to_lease"]


def flavour_to_lease(
    topology: Topology, unit: str, leased: Mapping[str, Mapping[str, int]]
) -> tuple[Site, HostFlavour] | str:
    """The site and flavour to lease for an instance of a unit: first allowed site, least price a core.

    `leased` counts the living hosts by site and flavour. Where nothing can be leased, the answer is the
    reason in words.
    """
    cores, memory_mib = topology.unit_cores(unit), topology.unit_memory_mib(unit)
    obstacles: list[str] = []
    for site in topology.sites_of(unit):
        counts = leased.get(site.name, {})
        if sum(counts.values()) >= site.max_hosts:
            obstacles.append(f"site {site.name} has its {site.max_hosts} hosts")
            continue
        fitting = [f for f in site.flavours if Room(f.cores, f.memory_mib).holds(cores, memory_mib)]
        free = [f for f in fitting if f.max_hosts is None or counts.get(f.name, 0) < f.max_hosts]
        if free:
            return site, min(free, key=lambda flavour: float(flavour.price_per_btu) / flavour.cores)
        obstacles.append(
            f"site {site.name} has no more hosts of a fitting flavour"
            if fitting
            else f"no flavour of site {site.name} holds {cores:g} cores and {memory_mib} MiB"
        )
    return "; ".join(obstacles)
