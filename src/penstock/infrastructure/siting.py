"""Which site a unit is at: where it is cheapest, once the way its records have to go is weighed in.

A unit is one application with a driver beside its executors, so it is at one site at a time. A record that
comes over a distance has less of the unit's SLO left, and what is left has to be kept with more capacity: a
site's price counts as many times as the SLO is longer than what is left of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from penstock.infrastructure.placement import share
from penstock.topology.model import Site, Topology

HOUR_S = 3600.0
DEAR = 1.25
"""A site that has come to cost so many times the best one is left: a move costs a pause, and paid time."""
PAYS_BACK_UNITS = DEAR / (DEAR - 1)
"""After so many billing time units a unit that left a dear site has saved the one it left half used."""


def placed(topology: Topology, kept: Mapping[str, str] | None = None) -> dict[str, str]:
    """The site of every unit, by names. A unit stays where `kept` has it, as long as it may be there."""
    found: dict[str, str] = {}
    for unit in topology.units_in_order:
        allowed = [site.name for site in topology.sites_of(unit.name)]
        known = (kept or {}).get(unit.name)
        found[unit.name] = known if known in allowed else best_site(topology, unit.name, found)
    return found


def best_site(topology: Topology, unit: str, places: Mapping[str, str], without: Collection[str] = ()) -> str:
    """The allowed site that is worth most to a unit; the first of those that are equal.

    `places` are the sites of other units, as far as they are known; sites in `without` are not looked at, as
    long as there are others.
    """
    allowed = topology.sites_of(unit)
    left = [site for site in allowed if site.name not in without] or list(allowed)
    return min(left, key=lambda site: weighed(topology, unit, site, places)).name


def became_dear(old: Topology, new: Topology, unit: str, places: Mapping[str, str]) -> bool:
    """Whether the site of a unit costs far more than the best one, and did not in the version before.

    Where it did before, somebody wants the unit there.
    """
    here = places[unit]
    if here not in [site.name for site in new.sites_of(unit)]:
        return False
    return _excess(new, unit, here, places) > DEAR >= _excess(old, unit, here, places)


def too_dear(
    before: Topology, now: Topology, unit: str, places: Mapping[str, str], without: Collection[str] = ()
) -> tuple[str, str] | None:
    """The site a unit saves by going to now that prices are others, and why; None where it had better stay.

    `before` and `now` have the prices as they were and as they are; nobody goes to sites in `without`.
    """
    here = places[unit]
    left = [site for site in now.sites_of(unit) if site.name not in without]
    if here not in [site.name for site in left]:
        return None
    there = min(left, key=lambda site: weighed(now, unit, site, places)).name
    was, has = _times(before, unit, here, there, places), _times(now, unit, here, there, places)
    if not has > DEAR >= was:
        return None
    prices = [weighed(now, unit, now.site_by_name[site], places)[0] for site in (here, there)]
    return there, (
        f"an instance costs {prices[0]:.4g} an hour at site {here}, {has:.2f} times the {prices[1]:.4g} at "
        f"{there}, with the way weighed in; it was {was:.2f} times"
    )


def _excess(topology: Topology, unit: str, here: str, places: Mapping[str, str]) -> float:
    """How many times the best site's price a site costs a unit."""
    return _times(topology, unit, here, best_site(topology, unit, places), places)


def _times(topology: Topology, unit: str, here: str, there: str, places: Mapping[str, str]) -> float:
    """How many times the price of one site another costs a unit; at least 1."""
    sites = topology.site_by_name
    price, least = (weighed(topology, unit, sites[site], places)[0] for site in (here, there))
    if price <= least:
        return 1.0
    return price / least if least > 0 else math.inf


def weighed(topology: Topology, unit: str, site: Site, places: Mapping[str, str]) -> tuple[float, float]:
    """What an instance of a unit costs for an hour at a site, the way weighed in; and that way in seconds.

    price × SLO / (SLO − way); without end where the way alone takes the SLO.
    """
    way_s = distance_s(topology, unit, site, places)
    left_s = topology.unit_slo_s(unit) - way_s
    price = price_per_hour(topology, unit, site)
    return (price * topology.unit_slo_s(unit) / left_s if left_s > 0 else math.inf), way_s


def distance_s(topology: Topology, unit: str, site: Site, places: Mapping[str, str]) -> float:
    """The longest way records of a unit have to go to it and from it, if it were at a site."""
    before = [other for other in topology.unit_inputs[unit] if other in places]
    after = [u for u, inputs in topology.unit_inputs.items() if unit in inputs and u in places]
    return _longest_s(topology, site, before, places) + _longest_s(topology, site, after, places)


def price_per_hour(topology: Topology, unit: str, site: Site) -> float:
    """What an instance of a unit costs at a site for an hour: its share of the host that makes that cheapest.

    Infinite without a host that holds it.
    """
    shape = topology.unit_shape(unit)
    if site.master is not None:
        return float(site.core_hour) * shape.cores + float(site.gib_hour) * shape.memory_mib / 1024
    prices = [
        float(flavour.price_per_btu) * HOUR_S / site.btu_s * share(flavour, shape.cores, shape.memory_mib)
        for flavour in site.flavours
        if shape.fits(flavour)
    ]
    return min(prices, default=math.inf)


def _longest_s(topology: Topology, site: Site, others: list[str], places: Mapping[str, str]) -> float:
    return max((_between_s(topology, site.name, places[other]) for other in others), default=0.0)


def _between_s(topology: Topology, here: str, there: str) -> float:
    """The one-way delay between two sites; either of them may tell it."""
    if here == there:
        return 0.0
    known = topology.site_by_name
    told = [known[here].distance_s.get(there), known[there].distance_s.get(here)]
    return max((way_s for way_s in told if way_s is not None), default=0.0)
