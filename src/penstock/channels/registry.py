"""All kinds of channel by name, and how a topology's channel becomes one that carries records.

A new kind needs its class and its line here; the topology file's checks and the docs read this table.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from penstock.channels.files import FilesChannel
from penstock.channels.kafka import KafkaChannel
from penstock.channels.model import RecordChannel
from penstock.errors import ConfigurationError
from penstock.topology.model import Channel, Topology

CHANNELS: Mapping[str, type[Any]] = MappingProxyType(
    {kind.kind: kind for kind in (FilesChannel, KafkaChannel)}
)
"""Every kind of channel by its name in topology files."""

_GIVEN = ("self", "root")


def channel_options(kind: str) -> tuple[str, ...]:
    """The options a kind of channel takes in a topology file."""
    return tuple(name for name in inspect.signature(CHANNELS[kind].__init__).parameters if name not in _GIVEN)


def make_channel(
    channel: Channel, topology: Topology, root: Path, bootstrap: str | None = None
) -> RecordChannel:
    """The channel with its options; `root` is the run's folder for channels.

    `bootstrap` is the address of a broker that runs, for a kafka channel that names none.
    """
    kind = CHANNELS.get(channel.kind)
    if kind is None:
        raise ConfigurationError(
            f"channel {channel.name}: unknown kind {channel.kind!r}; known: {', '.join(CHANNELS)}"
        )
    options = dict(channel.options)
    unknown = sorted(set(options) - set(channel_options(channel.kind)))
    if unknown:
        raise ConfigurationError(
            f"channel {channel.name} ({channel.kind}): unknown option {unknown[0]!r}; "
            f"known: {', '.join(channel_options(channel.kind))}"
        )
    if kind is KafkaChannel:
        options.setdefault("bootstrap", bootstrap)
        if options["bootstrap"] is None:
            raise ConfigurationError(
                f"channel {channel.name} (kafka): no broker is named and none runs; set the option "
                "`bootstrap`, or start one with `penstock broker up`"
            )
        options.setdefault("prefix", f"{topology.name}.{channel.name}".replace(" ", "-"))
        # A partition is read by one task at a time: a reading unit at its largest keeps all slots busy.
        slots = [unit.max_instances * unit.slots for unit in topology.units]
        options.setdefault("partitions", min(64, max([4, *slots])))
        made: RecordChannel = KafkaChannel(**options)
        return made
    return FilesChannel(root / channel.name, **options)
