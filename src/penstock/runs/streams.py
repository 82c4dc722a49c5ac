"""The streams of a run that somebody outside of it can subscribe to: those that cross from unit to unit.

A stream ends where a change lets nobody read or write it any more. Who subscribed to it keeps what waited on
this disk, reads it to its end, and leaves. Where each site has a run of its own, records of a stream on a
server are kept for subscribers by those who read and clean it, so one subscribes where such a unit is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.channels.registry import has_server, readers_of
from penstock.channels.subscriptions import (
    PREFIX,
    Standing,
    Subscription,
    Terms,
    subscribe,
    subscription,
    subscriptions,
    unsubscribe,
)
from penstock.errors import ConfigurationError
from penstock.infrastructure.siting import placed
from penstock.runs.changes import sent
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.spark.unit.plan import plan_unit
from penstock.spark.unit.streams import Channels
from penstock.topology.model import Topology


def streams(place: RunFolder) -> dict[str, Path]:
    """The folder of every stream whose records are kept here, by the operator whose records it has."""
    plan = place.plan()
    topology = plan.read_topology()
    return {
        operator: place.units.channels / channel / operator
        for operator, channel in sent(topology)
        if plan.site is None or plan.site in _kept_at(plan, topology, operator, channel)
    }


@dataclass(frozen=True, slots=True)
class Listed:
    """A stream, and everybody outside who subscribes to it."""

    operator: str
    ended: bool
    """Whether no more comes here: what waits can be read to its end."""
    standings: tuple[Standing, ...]


def listed(place: RunFolder) -> list[Listed]:
    """The streams there are, and those that have ended and have subscribers still."""
    present = streams(place)
    gone = [(operator, f) for operator, folders in _ended(place, present).items() for f in folders]
    return [
        *(Listed(operator, False, _standings(folder)) for operator, folder in present.items()),
        *(Listed(operator, True, _standings(folder)) for operator, folder in gone),
    ]


def subscribers(place: RunFolder) -> dict[str, tuple[str, ...]]:
    """Who outside subscribes to the streams there are, by operator; streams of nobody are left out."""
    known = {operator: _standings(folder) for operator, folder in streams(place).items()}
    return {operator: tuple(each.name for each in told) for operator, told in known.items() if told}


def other_sites(place: RunFolder, operator: str) -> list[str]:
    """The other sites at which one has to subscribe as well: units of their runs read the stream, too."""
    plan = place.plan()
    topology = plan.read_topology()
    channel = plan_unit(topology, topology.unit_of[operator]).channel.name
    kept = [] if plan.site is None else _kept_at(plan, topology, operator, channel)
    return [site for site in kept if site != plan.site]


@dataclass(frozen=True, slots=True)
class Topic:
    """Where a subscriber finds the records of a stream that is on Kafka."""

    topic: str
    group: str
    """What its client calls itself: by this its place is known, and records are kept for it."""
    bootstrap: str | None
    """The broker, where the channel names one; else the run's own."""


def topic_of(place: RunFolder, operator: str, name: str) -> Topic | None:
    """Where a subscriber reads an operator's records; None where they are files."""
    plan = place.plan()
    topology = plan.read_topology()
    # Of a stream that has ended its folder alone tells the channel.
    channel = topology.channel_by_name[found(place, operator, name).folder.parent.parent.name]
    if not has_server(topology, channel.name):
        return None
    bootstrap = str(channel.options.get("bootstrap") or plan.bootstrap or "") or None
    made = Channels(topology, place.units, bootstrap or "127.0.0.1:1")[channel.name]
    topic = made.topic(operator) or operator
    return Topic(topic, f"{topic}.{PREFIX}{name}", bootstrap)


def subscribed(place: RunFolder, operator: str, terms: Terms) -> Subscription:
    """Subscribe to an operator's records from the next batch on; ConfigurationError where there are none."""
    folder = streams(place).get(operator)
    if folder is None:
        raise _no_stream(place, operator)
    return subscribe(folder, terms)


def found(place: RunFolder, operator: str, name: str) -> Subscription:
    """A subscription; ConfigurationError where there is none of that name.

    Of a stream that has ended and one that goes on elsewhere, the former as long as something waits there.
    """
    each = [subscription(folder, name) for folder in _folders(place, operator)]
    known = [one for one in each if one is not None]
    if not known:
        raise ConfigurationError(f"nobody called {name} subscribes to {operator}")
    return next((one for one in known[1:] if one.waiting()), known[0])


def readable(place: RunFolder, operator: str, name: str) -> Subscription:
    """A subscription that is read here; ConfigurationError where there is none, or it is on Kafka."""
    known, at = found(place, operator, name), topic_of(place, operator, name)
    if at is not None:
        broker = f" at {at.bootstrap}" if at.bootstrap else ""
        raise ConfigurationError(
            f"the records of {operator} are on Kafka: read topic {at.topic}{broker} as group {at.group}"
        )
    return known


def left(place: RunFolder, operator: str, name: str) -> None:
    """Leave a stream; ConfigurationError where nobody of that name had subscribed."""
    known = [unsubscribe(folder, name) for folder in _folders(place, operator)]
    if not any(known):
        raise ConfigurationError(f"nobody called {name} subscribes to {operator}")


def _standings(folder: Path) -> tuple[Standing, ...]:
    return tuple(each.standing() for each in subscriptions(folder))


def _kept_at(plan: RunPlan, topology: Topology, operator: str, channel: str) -> list[str]:
    """The sites whose runs keep an operator's records: of a server's its readers', else its writer's."""
    at = placed(topology, plan.places)
    units = readers_of(topology)[operator] if has_server(topology, channel) else [topology.unit_of[operator]]
    return list(dict.fromkeys(at[unit] for unit in units))


def _ended(place: RunFolder, present: Mapping[str, Path]) -> dict[str, list[Path]]:
    """The folders of streams that are not there any more and have subscribers still, by operator."""
    found: dict[str, list[Path]] = {}
    for folder in sorted(path for path in place.units.channels.glob("*/*") if path.is_dir()):
        if folder != present.get(folder.name) and any(subscriptions(folder)):
            found.setdefault(folder.name, []).append(folder)
    return found


def _folders(place: RunFolder, operator: str) -> list[Path]:
    """The folder of an operator's stream, where there is one, and those of its streams that have ended."""
    present = streams(place)
    known = [folder for name, folder in present.items() if name == operator]
    known += _ended(place, present).get(operator, [])
    if not known:
        raise _no_stream(place, operator)
    return known


def _no_stream(place: RunFolder, operator: str) -> ConfigurationError:
    plan, present = place.plan(), streams(place)
    topology = plan.read_topology()
    known = dict(sent(topology))
    if operator in known and operator not in present:
        sites = " and ".join(_kept_at(plan, topology, operator, known[operator]))
        return ConfigurationError(f"the records of {operator} are not kept here: subscribe at site {sites}")
    told = ", ".join(present) or "none"
    return ConfigurationError(
        f"there is no stream of {operator}; those of operators that another unit reads: {told}"
    )
