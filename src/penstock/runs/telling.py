"""Telling a running controller something: what cannot be, as far as its folder says, is refused at once.

What is another thing by the time the controller takes a command is refused then, among the run's news, by
the command's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.controller.status import Status
from penstock.errors import ConfigurationError
from penstock.infrastructure.siting import best_site, placed
from penstock.runs import commands
from penstock.runs.applying import StaleError, previewed, require_running
from penstock.runs.changes import Preview
from penstock.runs.commands import Command
from penstock.runs.folder import RunFolder
from penstock.runs.part import here
from penstock.runs.plan import RunPlan
from penstock.topology.file import parse_topology
from penstock.topology.model import Topology

OF_A_VERSION = ("undo", "move-unit")
"""What changes the version that runs: who says it means the one there is at that moment, if no other."""


def told(place: RunFolder, command: Command) -> Command:
    """Put a command where a run's controller takes it; with its id, by which a later refusal is known.

    ConfigurationError where the run is over, or has nothing of that name; StaleError where another version
    runs than the one it was written for.
    """
    require_running(place)
    plan = place.plan()
    if command.revision is None and command.kind in OF_A_VERSION:
        command = replace(command, revision=plan.revision)
    require_fresh(command, plan.revision)
    _require_known(place, plan, command)
    return commands.put(place.commands, command)


def require_fresh(command: Command, revision: int) -> None:
    """StaleError where a command was written for another version than this one, which runs."""
    if command.revision not in (None, revision):
        raise StaleError(
            f"it was written for revision {command.revision}, and revision {revision} runs; look at what has "
            "changed and say it again"
        )


def destination(topology: Topology, places: Mapping[str, str], unit: str, to: str | None) -> str:
    """The site a unit goes to that is told to move; ConfigurationError where it cannot go there."""
    if unit not in topology.unit_by_name:
        raise ConfigurationError(f"there is no unit {unit}")
    allowed = [site.name for site in topology.sites_of(unit)]
    target = to or best_site(topology, unit, places, without=(places[unit],))
    if target not in allowed:
        raise ConfigurationError(f"unit {unit} may be at {', '.join(allowed)}, not at {target}")
    if target == places[unit]:
        raise ConfigurationError(f"unit {unit} is at {target} already")
    return target


def before_of(plan: RunPlan) -> str:
    """The text of the version that `undo` goes back to; ConfigurationError where there is none."""
    if plan.before is None:
        raise ConfigurationError("nothing was changed yet")
    return plan.before


def taken_back(place: RunFolder) -> tuple[int, Preview]:
    """The version that runs, and what taking its change back would do; nothing is changed."""
    plan = place.plan()
    return plan.revision, previewed(place, parse_topology(before_of(plan)), plan.places_before)


def _require_known(place: RunFolder, plan: RunPlan, command: Command) -> None:
    """ConfigurationError where a command is about something that is not there."""
    subject = str(command.subject)
    if command.kind == "undo":
        before_of(plan)
    elif command.kind == "move-unit":
        topology = plan.read_topology()
        destination(topology, placed(topology, plan.places), subject, command.to)
    elif command.kind == "restart":
        if subject not in here(plan.read_topology(), plan.places, plan.site).unit_by_name:
            raise ConfigurationError(f"there is no unit {subject} here")
    elif command.kind == "drain":
        _require_host(_status(place), subject)
    elif command.kind == "move":
        status = _status(place)
        if not any(subject in unit.members for unit in status.units):
            raise ConfigurationError(f"there is no instance {subject}")
        if command.to is not None:
            _require_host(status, command.to)


def _status(place: RunFolder) -> Status:
    status = place.status()
    if status is None:
        raise ConfigurationError("nothing is known of its hosts yet")
    return status


def _require_host(status: Status, host: str) -> None:
    if host not in [known.name for known in status.hosts]:
        raise ConfigurationError(f"there is no host {host}")
