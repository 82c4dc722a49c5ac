"""The streams of a run that somebody outside of it can subscribe to: those that cross from unit to unit."""

from __future__ import annotations

from pathlib import Path

from penstock.channels.registry import has_server
from penstock.channels.subscriptions import (
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
from penstock.spark.unit.query import Channels


def streams(place: RunFolder) -> dict[str, Path]:
    """The folder of every stream there is, by the operator whose records it has."""
    topology = place.plan().read_topology()
    channels = Channels(topology, place.units, None)
    found = {}
    for unit in topology.unit_by_name:
        plan = plan_unit(topology, unit)
        for outlet in plan.outlets if not has_server(topology, plan.channel.name) else ():
            folder = channels[plan.channel.name].stream(outlet.operator)
            if outlet.streams and folder is not None:
                found[outlet.operator] = folder
    return found


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


def left(place: RunFolder, operator: str, name: str) -> None:
    """Leave a stream; ConfigurationError where nobody of that name had subscribed."""
    if not unsubscribe(_stream(place, operator), name):
        raise ConfigurationError(f"nobody called {name} subscribes to {operator}")


def _stream(place: RunFolder, operator: str) -> Path:
    known = streams(place)
    if operator not in known:
        told = ", ".join(known) or "none"
        raise ConfigurationError(
            f"there is no stream of {operator}; those of operators that another unit reads over files: {told}"
        )
    return known[operator]
