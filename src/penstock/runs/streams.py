"""The streams of a run that somebody outside of it can subscribe to: those that cross from unit to unit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.channels.registry import has_server
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
from penstock.runs.folder import RunFolder
from penstock.spark.unit.plan import plan_unit
from penstock.spark.unit.streams import Channels


def streams(place: RunFolder) -> dict[str, Path]:
    """The folder of every stream there is, by the operator whose records it has."""
    topology = place.plan().read_topology()
    channels = Channels(topology, place.units, None)
    found = {}
    for unit in topology.unit_by_name:
        plan = plan_unit(topology, unit)
        for outlet in plan.outlets:
            if outlet.streams and not has_server(topology, plan.channel.name):
                folder = channels[plan.channel.name].stream(outlet.operator)
            else:
                folder = place.units.channels / plan.channel.name / outlet.operator
            if outlet.streams and folder is not None:
                found[outlet.operator] = folder
    return found


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
    channel = plan_unit(topology, topology.unit_of[operator]).channel
    if not has_server(topology, channel.name):
        return None
    bootstrap = str(channel.options.get("bootstrap") or plan.bootstrap or "") or None
    made = Channels(topology, place.units, bootstrap or "127.0.0.1:1")[channel.name]
    topic = made.topic(operator) or operator
    return Topic(topic, f"{topic}.{PREFIX}{name}", bootstrap)


def standings(place: RunFolder, operator: str) -> list[Standing]:
    """Everybody outside who subscribes to an operator's records, and how far each is."""
    return [each.standing() for each in subscriptions(_stream(place, operator))]


def subscribed(place: RunFolder, operator: str, terms: Terms) -> Subscription:
    """Subscribe to an operator's records from the next batch on; ConfigurationError where there are none."""
    return subscribe(_stream(place, operator), terms)


def found(place: RunFolder, operator: str, name: str) -> Subscription:
    """A subscription; ConfigurationError where there is none of that name."""
    known = subscription(_stream(place, operator), name)
    if known is None:
        raise ConfigurationError(f"nobody called {name} subscribes to {operator}")
    return known


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
    if not unsubscribe(_stream(place, operator), name):
        raise ConfigurationError(f"nobody called {name} subscribes to {operator}")


def _stream(place: RunFolder, operator: str) -> Path:
    known = streams(place)
    if operator not in known:
        told = ", ".join(known) or "none"
        raise ConfigurationError(
            f"there is no stream of {operator}; those of operators that another unit reads: {told}"
        )
    return known[operator]
