"""Asking a running controller for another version of its topology, and waiting for its answer."""

from __future__ import annotations

import time
from collections.abc import Mapping

from penstock.errors import ClusterError, ConfigurationError
from penstock.runs import commands
from penstock.runs.changes import Preview, preview, require_possible
from penstock.runs.folder import RunFolder
from penstock.runs.part import at_site
from penstock.runs.plan import Handed
from penstock.runs.streams import subscribers
from penstock.spark.unit.specification import topology_text
from penstock.topology.model import Topology

ANSWER_S = 300.0
"""How long the controller may take to answer: until the next version is ready and units have finished."""
LOOK_S = 0.1


class StaleError(ConfigurationError):
    """A change that was written for another version than the one that runs."""


def previewed(
    place: RunFolder,
    topology: Topology,
    places: Mapping[str, str] | None = None,
    handed: Mapping[str, Handed] | None = None,
) -> Preview:
    """What it would do to have a run go on with another version, as far as its folder tells.

    `places` are the sites of units in that version, where somebody has said them, `handed` the notes of units
    that have left other sites' runs by it.
    """
    present, status = place.plan(), place.status()
    leased = None if status is None else {(host.site, host.flavour) for host in status.hosts}
    old = present.read_topology()
    found = preview(
        old,
        topology,
        fed=present.feed,
        places=present.places,
        to=places,
        leased=leased,
        subscribers=subscribers(place),
    )
    return at_site(found, old, topology, present, handed)


def applied(
    place: RunFolder,
    topology: Topology,
    *,
    reason: str = "",
    revision: int | None = None,
    by: str = "",
    give_up_state: bool = False,
    rehearse: bool = False,
    as_revision: int | None = None,
    places: Mapping[str, str] | None = None,
    handed: Mapping[str, Handed] | None = None,
    answer_s: float = ANSWER_S,
) -> tuple[int, Preview]:
    """Have a running run go on with another version; the version that runs then, and what it did.

    `as_revision` and `places` are the number and the units' sites of a version another site runs already,
    `handed` the notes of units that have left other sites' runs by it.
    `revision` is the version it was written for: StaleError where another one runs. ConfigurationError
    where it cannot be done while it runs, with every reason; ClusterError where nobody answers.
    """
    present = place.plan()
    if revision is not None and revision != present.revision:
        raise StaleError(f"it was written for revision {revision}, and revision {present.revision} runs")
    found = previewed(place, topology, places, handed)
    require_possible(found, give_up_state=give_up_state)
    if not found.changes:
        return present.revision, found
    require_running(place)
    text = topology_text(topology)
    wish = commands.Command(
        commands.APPLY,
        reason,
        by=by,
        topology=text,
        revision=present.revision,
        give_up_state=give_up_state,
        rehearse=rehearse,
        as_revision=as_revision,
        places=places or {},
        handed=handed or {},
    )
    said = commands.put(place.commands, wish)
    refused, deadline_s = commands.refusal(said, ""), time.monotonic() + answer_s
    while time.monotonic() < deadline_s:
        status = place.status()
        for notice in status.notices if status is not None else ():
            if notice.startswith(refused):
                raise StaleError(notice.removeprefix(refused))
        now = place.plan()
        noted = all(now.handed.get(unit) == note for unit, note in (handed or {}).items())
        if now.revision >= (as_revision or present.revision + 1) and now.topology == text and noted:
            return now.revision, found
        require_running(place)
        time.sleep(LOOK_S)
    raise ClusterError(f"the controller did not answer within {answer_s:.0f} s; the change waits for it")


def require_running(place: RunFolder) -> None:
    """ConfigurationError where a run is over."""
    if place.result() is not None:
        raise ConfigurationError(f"the run in {place.root} is over")
