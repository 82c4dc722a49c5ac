"""Placement: which host takes an instance, and which flavour is leased when none does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from penstock.quantities import counted
from penstock.topology.model import HostFlavour, Site, Topology


class Room(NamedTuple):
    """Room left on a host: cores and memory. A tuple, for a tick makes one for each of thousands of hosts."""

    cores: float
    memory_mib: int

    def holds(self, cores: float, memory_mib: int) -> bool:
        """Whether an instance of these needs fits."""
        # Needs such as 0.1 + 0.2 cores must not fail on the last bit.
        return self.cores >= cores - 1e-9 and self.memory_mib >= memory_mib

    def less(self, cores: float, memory_mib: int) -> Room:
        """The room left after an instance of these needs is placed."""
        return Room(self.cores - cores, self.memory_mib - memory_mib)

    def more(self, cores: float, memory_mib: int) -> Room:
        """The room left after an instance of these needs is gone."""
        return Room(self.cores + cores, self.memory_mib + memory_mib)


def flavour_to_lease(
    topology: Topology,
    unit: str,
    leased: Mapping[str, Mapping[str, int]],
    withheld: Mapping[tuple[str, str], str] | None = None,
    wanted: int | None = None,
) -> tuple[Site, HostFlavour] | str:
    """The site and flavour to lease for an instance of a unit: first allowed site, least price a core.

    Where so many instances are `wanted`, it is the flavour that holds them for the least money: a large host
    is the cheaper a core, but not for one instance. `leased` counts the living hosts by site and flavour;
    `withheld` are flavours that cannot be had now, with the reason. Where nothing can be leased, the answer
    is the reason in words.
    """
    cores, memory_mib = topology.unit_cores(unit), topology.unit_memory_mib(unit)
    obstacles: list[str] = []
    for site in topology.sites_of(unit):
        counts = leased.get(site.name, {})
        if sum(counts.values()) >= site.max_hosts:
            obstacles.append(f"site {site.name} has its {counted(site.max_hosts, 'host')}")
            continue
        fitting = [f for f in site.flavours if Room(f.cores, f.memory_mib).holds(cores, memory_mib)]
        free = [f for f in fitting if f.max_hosts is None or counts.get(f.name, 0) < f.max_hosts]
        if free and withheld:
            reasons = {withheld[site.name, f.name] for f in free if (site.name, f.name) in withheld}
            free = [f for f in free if (site.name, f.name) not in withheld]
            if not free:
                obstacles += sorted(reasons)
                continue
        if free:
            return site, min(free, key=lambda flavour: _price(flavour, cores, memory_mib, wanted))
        obstacles.append(
            f"site {site.name} has no more hosts of a fitting flavour"
            if fitting
            else f"no flavour of site {site.name} holds {cores:g} cores and {memory_mib} MiB"
        )
    return "; ".join(obstacles)


def held(flavour: HostFlavour, cores: float, memory_mib: int) -> int:
    """How many instances of these needs an empty host of a flavour holds."""
    return int(min(flavour.cores / cores + 1e-9, flavour.memory_mib / max(memory_mib, 1)))


def share(flavour: HostFlavour, cores: float, memory_mib: int) -> float:
    """The part of a host of a flavour that such an instance takes: of cores or memory, the larger."""
    return max(cores / flavour.cores, memory_mib / flavour.memory_mib)


def _price(flavour: HostFlavour, cores: float, memory_mib: int, wanted: int | None) -> tuple[float, float]:
    """What the wanted instances cost on hosts of a flavour, where that is asked; then the price a core."""
    price = float(flavour.price_per_btu)
    hosts = math.ceil(wanted / held(flavour, cores, memory_mib)) if wanted else 0
    return hosts * price, price / flavour.cores
