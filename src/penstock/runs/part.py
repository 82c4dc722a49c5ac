"""What of a run runs at one site, where every site has a run of its own.

Such runs share nothing but the text of the topology and the brokers between them: each has its own folder,
journal, master and hosts, goes on when the others cannot be reached, and knows which units are elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from penstock.channels.registry import has_server
from penstock.errors import ConfigurationError
from penstock.infrastructure.siting import placed
from penstock.runs.changes import Preview, begun
from penstock.runs.plan import RunPlan
from penstock.spark.unit.plan import generated_sources, plan_unit
from penstock.topology.model import Topology
from penstock.topology.part import crossing, part_of


def here(topology: Topology, places: Mapping[str, str], site: str | None) -> Topology:
    """What of a topology runs at a site (None: all of it); ConfigurationError where that cannot be apart."""
    if site is None:
        return topology
    if site not in topology.site_by_name:
        known = ", ".join(topology.site_by_name)
        raise ConfigurationError(f"the topology has no site {site}; it has {known}")
    at = placed(topology, places)
    for producer, reader in crossing(topology, at):
        channel = plan_unit(topology, topology.unit_of[producer]).channel.name
        if not has_server(topology, channel):
            raise ConfigurationError(
                f"the stream from {producer} to unit {reader} crosses sites over channel {channel}, which "
                "lies on one machine's disk; give its unit a kafka channel with a broker that both reach"
            )
    for source, units in generated_sources(topology).items():
        if len({at[unit] for unit in units}) > 1:
            raise ConfigurationError(
                f"source {source} is generated where it is read, and is read at several sites; let a unit at "
                "one site read it and send its records on"
            )
    return part_of(topology, [unit for unit, place in at.items() if place == site], (site,))


def at_site(found: Preview, old: Topology, new: Topology, plan: RunPlan) -> Preview:
    """What a change does at the site of a run; refused where sites would have to wait for each other."""
    if plan.site is None:
        return found
    was = placed(old, plan.places)
    own = {unit for at in (was, found.places) for unit, site in at.items() if site == plan.site}

    def here_of(units: Collection[str]) -> tuple[str, ...]:
        return tuple(unit for unit in units if unit in own)

    return replace(
        found,
        restarts=here_of(found.restarts),
        starts=here_of(found.starts),
        stops=here_of(found.stops),
        untouched=here_of(found.untouched),
        renewals=here_of(found.renewals),
        drains=here_of(found.drains),
        ending=tuple((name, reader) for name, reader in found.ending if reader in own),
        emptied=tuple((name, reader) for name, reader in found.emptied if reader in own),
        refused=(*found.refused, *_together(found, old, was), *_unknown(old, new, plan.site, found.places)),
    )


def _together(found: Preview, old: Topology, was: Mapping[str, str]) -> Iterator[str]:
    """What only all sites together could do."""
    for unit, site in found.places.items():
        if was.get(unit, site) != site:
            yield f"unit {unit} goes from site {was[unit]} to {site}, and each site has a run of its own"
    for name, reader in found.ending:
        writer = old.unit_of.get(name)
        if writer is not None and was[writer] != was[reader]:
            yield f"the stream from {name} to unit {reader} ends, and crosses sites with runs of their own"
    for name, reader in found.emptied:
        writer = old.unit_of.get(name)
        if writer is not None and was[writer] != was[reader]:
            yield (
                f"the stream from {name} to unit {reader} has to be empty for it, and crosses sites with "
                "runs of their own"
            )


def _unknown(old: Topology, new: Topology, site: str, places: Mapping[str, str]) -> Iterator[str]:
    """Streams that a unit here would begin to read, of which only another site knows where they begin."""
    for producer, unit in begun(old, new):
        writer = old.unit_of[producer]
        if places.get(unit) == site and places.get(writer) != site:
            yield (
                f"unit {unit} would begin to read {producer}, which another site writes, with records from "
                "before: they would be processed twice"
            )
