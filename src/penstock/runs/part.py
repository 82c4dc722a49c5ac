"""What of a run runs at one site, where every site has a run of its own.

Such runs share nothing but the text of the topology and the brokers between them: each has its own folder,
journal, master and hosts, goes on when the others cannot be reached, and knows which units are elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from penstock.channels.registry import has_server, remembers_ids
from penstock.errors import ConfigurationError
from penstock.infrastructure.siting import placed
from penstock.runs.changes import Preview, begun
from penstock.runs.plan import Handed, RunPlan
from penstock.spark.managers.theirs import remote_storage
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


def at_site(
    found: Preview,
    old: Topology,
    new: Topology,
    plan: RunPlan,
    handed: Mapping[str, Handed] | None = None,
) -> Preview:
    """What a change does at the site of a run; refused where sites would have to wait for each other.

    A unit that goes to another site's run ends here, once it has finished what there is to read; one that
    comes from there is a new one. `handed` are the notes of those it has left.
    """
    if plan.site is None:
        return found
    was, now = placed(old, plan.places), found.places
    own = {unit for at in (was, now) for unit, site in at.items() if site == plan.site}
    gone = [unit for unit in was if unit in now and was[unit] == plan.site != now[unit]]
    come = [unit for unit in was if unit in now and was[unit] != plan.site == now[unit]]

    def here_of(units: Collection[str], without: Collection[str] = ()) -> tuple[str, ...]:
        return tuple(unit for unit in units if unit in own and unit not in without)

    return replace(
        found,
        restarts=here_of(found.restarts, (*gone, *come)),
        starts=(*here_of(found.starts), *come),
        stops=(*here_of(found.stops), *gone),
        untouched=here_of(found.untouched),
        renewals=here_of(found.renewals, (*gone, *come)),
        drains=here_of(found.drains, come),
        ending=tuple((name, reader) for name, reader in found.ending if reader in own),
        emptied=tuple((name, reader) for name, reader in found.emptied if reader in own),
        refused=(
            *found.refused,
            *_elsewhere(old, new, was, now, plan, handed or {}),
            *_together(found, old, was),
            *_unknown(old, new, plan.site, now),
        ),
    )


def _elsewhere(
    old: Topology,
    new: Topology,
    was: Mapping[str, str],
    now: Mapping[str, str],
    plan: RunPlan,
    handed: Mapping[str, Handed],
) -> Iterator[str]:
    """Units that cannot go between the runs of two sites, or not by this run's word."""
    for unit in [unit for unit in was if was[unit] != now.get(unit, was[unit])]:
        goes = f"unit {unit} goes from site {was[unit]} to {now[unit]}, and each site has a run of its own"
        note = handed.get(unit)
        if was[unit] != plan.site:
            if note is None or note.site != now[unit]:
                yield f"{goes}: tell the one it is at"
        elif old != new:
            yield f"{goes}: let it go first, and change the topology then"
        else:
            for reason in kept_by(old, unit, was[unit]):
                yield f"{goes}: {reason}"


def kept_by(topology: Topology, unit: str, site: str) -> Iterator[str]:
    """What a unit at a site has that no other run could go on with: all but its place in topics."""
    plan, storage = plan_unit(topology, unit), remote_storage(topology.site_by_name[site])
    if storage is not None:
        yield f"its checkpoint is at {storage}, and only this one goes on with it"
    for operator in plan.operators:
        if operator.stateful:
            yield f"the state of operator {operator.name} is in this one's folder"
    if plan.reads_a_function:
        yield "its place in a source of its own is in this one's folder"
    for given in plan.inputs:
        if given.stream is not None and not has_server(topology, given.channel):
            yield f"what it reads of {given.name} lies on this one's disk"
        elif given.stream is not None and remembers_ids(topology, given.channel):
            yield f"the ids it remembers of {given.name} (deduplicate) are in this one's folder"
    if any(outlet.streams for outlet in plan.outlets) and not has_server(topology, plan.channel.name):
        yield f"what it writes to channel {plan.channel.name} lies on this one's disk"


def _together(found: Preview, old: Topology, was: Mapping[str, str]) -> Iterator[str]:
    """What only all sites together could do."""
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
