"""All kinds of channel by name, and how a topology's channels become ones that carry records.

A new kind needs its file and its line here; the topology file's checks and the docs read this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from penstock.channels.files import FilesOptions
from penstock.channels.kafka import KafkaOptions
from penstock.channels.model import ChannelKind, ChannelPlace, ChannelService, RecordChannel
from penstock.choosing import Registry
from penstock.errors import ConfigurationError
from penstock.topology.model import Channel, Topology

CHANNELS = Registry("channel", FilesOptions, KafkaOptions)
"""Every kind of channel by its name in topology files."""


def channel_kind(kind: str, options: Mapping[str, Any]) -> ChannelKind:
    """A kind of channel with its options; ConfigurationError where either is wrong."""
    return cast(ChannelKind, CHANNELS.make(kind, options))


def make_channel(
    channel: Channel, topology: Topology, root: Path, run: str, address: str | None = None
) -> RecordChannel:
    """The channel with its options; `root` is the run's folder for channels, `run` its name.

    `address` is the server that the run uses, for a channel that names none.
    """
    try:
        kind = channel_kind(channel.kind, channel.options)
        return kind.opened(
            ChannelPlace(
                channel.name,
                run,
                root / channel.name,
                address,
                max([1, *(unit.max_instances * topology.most_slots(unit.name) for unit in topology.units)]),
                readers_of(topology),
            )
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"channel {channel.name} ({channel.kind}): {error}") from None


def has_server(topology: Topology, channel: str | None) -> bool:
    """Whether the records of a channel go through a server; None means that of generated sources."""
    if channel is None:
        return False
    found = topology.channel_by_name[channel]
    return channel_kind(found.kind, found.options).service() is not None


def remembers_ids(topology: Topology, channel: str | None) -> bool:
    """Whether a unit that reads a channel keeps ids in its state; None means that of generated sources."""
    if channel is None:
        return False
    found = topology.channel_by_name[channel]
    return channel_kind(found.kind, found.options).remembers_ids


def is_durable(topology: Topology) -> bool:
    """Whether a channel of a topology is durable: the records of its generated sources are then, too."""
    return any(kind.durable for kind in _kinds(topology))


def readers_of(topology: Topology) -> dict[str, tuple[str, ...]]:
    """The units that read each operator's records from another unit."""
    found: dict[str, dict[str, None]] = {}
    for taker in topology.operators:
        for producer in taker.inputs:
            own, other = topology.unit_of.get(producer), topology.unit_of[taker.name]
            if own is not None and own != other:
                found.setdefault(producer, {})[other] = None
    return {producer: tuple(units) for producer, units in found.items()}


def jars_of(topology: Topology) -> list[Path]:
    """Jars a session needs for a topology's channels, each once."""
    return list(dict.fromkeys(jar for kind in _kinds(topology) for jar in kind.jars()))


def service_of(topology: Topology) -> ChannelService | None:
    """The server a topology's channels need, the one to be found or started before one the user named.

    A run starts one server at most; ConfigurationError where channels need two of different kinds.
    """
    services = [service for kind in _kinds(topology) if (service := kind.service()) is not None]
    to_find = {service.name: service for service in services if service.named is None}
    if len(to_find) > 1:
        raise ConfigurationError(
            f"the channels need a {' and a '.join(sorted(to_find))}; a run starts one server only: "
            "name the address of the others in the channels' options"
        )
    return next(iter([*to_find.values(), *services]), None)


def _kinds(topology: Topology) -> list[ChannelKind]:
    return [channel_kind(channel.kind, channel.options) for channel in topology.channels]
