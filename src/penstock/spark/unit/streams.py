"""The streams of a run: its channels, where units leave records, and how far units are in what they read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.channels.files import FilesChannel, FilesOptions
from penstock.channels.model import RecordChannel
from penstock.channels.registry import is_durable, make_channel
from penstock.channels.sinks import folder_format, result_folder
from penstock.spark.gateway.plans import place_of_topic
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.plan import UnitInput, UnitPlan, plan_unit
from penstock.topology.model import Topology


class Channels:
    """The channels of a run, opened when first asked for."""

    def __init__(self, topology: Topology, folders: RunFolders, address: str | None) -> None:
        """`address` is the server the run uses, for channels that name none."""
        self._topology = topology
        self._folders = folders
        self._address = address
        # A feeder writes ten files a second: five seconds of records at most in a micro-batch.
        feeds = FilesOptions(format="json", max_files_per_batch=50, durable=is_durable(topology))
        self._opened: dict[str | None, RecordChannel] = {None: FilesChannel(folders.sources, feeds)}

    def __getitem__(self, name: str | None) -> RecordChannel:
        """A channel by name; None means the one generated sources write to."""
        if name not in self._opened:
            found = self._topology.channel_by_name[str(name)]
            root, run = self._folders.channels, self._folders.name()
            self._opened[name] = make_channel(found, self._topology, root, run, self._address)
        return self._opened[name]

    def taken(self, given: UnitInput, checkpoint: Path) -> int | None:
        """Records of an input that a query has finished; None where no channel knows."""
        if given.stream is None:
            return None
        return self[given.channel].consumption(given.stream, checkpoint).taken()


def folders_written(plan: UnitPlan, folders: RunFolders, channel: RecordChannel | None) -> list[Path]:
    """The folders of batches a unit writes: its outgoing streams, where they are such, and its sinks."""
    found: list[Path] = []
    for outlet in plan.outlets:
        if channel is not None:
            found += filter(None, (channel.batches_of(stream) for stream in outlet.streams))
        for sink in outlet.sinks:
            if folder_format(sink.function):
                found.append(result_folder(sink, outlet.operator, folders.results))
    return found


def taken_by(topology: Topology, unit: str, folders: RunFolders, bootstrap: str | None) -> int | None:
    """Records of every micro-batch a unit has finished, by its checkpoint; None where that cannot tell.

    Exact whoever was killed meanwhile: what a driver counts it may die before telling, a checkpoint stays.
    """
    channels, total = Channels(topology, folders, bootstrap), folders.taken_before(unit)
    for given in plan_unit(topology, unit).inputs:
        taken = channels.taken(given, folders.checkpoint(unit))
        if taken is None:
            return None
        total += taken
    return total


def begins_of(plan: UnitPlan, folders: RunFolders, channels: Channels) -> dict[str, Mapping[str, int]]:
    """By its place in a query: where a unit begins in a topic it has not read yet, as was written down."""
    noted = folders.begin(plan.unit)
    found: dict[str, Mapping[str, int]] = {}
    for given in plan.inputs:
        topic = None if given.stream is None else channels[given.channel].topic(given.name)
        if topic is not None and given.name in noted:
            found[place_of_topic(topic)] = noted[given.name]
    return found
