"""A unit's streaming query: reads its inputs, composes its operators, and hands on what leaves.

Where all that leaves can go by a sink of Spark's own (`RecordChannel.native_writer`), it does; else each
micro-batch is served in a call. Either way one checkpoint covers everything the unit reads and gives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.channels import lookups
from penstock.channels.batches import Writer, has_batch
from penstock.channels.envelope import admitted, enveloped, identified, kept
from penstock.channels.model import (
    Arrival,
    Backlog,
    Consumption,
    FinishedBatch,
    Leaving,
    NativeWriter,
    RecordChannel,
    Stream,
)
from penstock.channels.publishing import FolderWriter, folder_writer
from penstock.channels.sinks import folder_format, load_function, make_sink, result_folder
from penstock.errors import ClusterError
from penstock.spark.checkpoints import Checkpoint, SinkLog
from penstock.spark.evolution import begin, fit
from penstock.spark.gateway.plans import output_mode, sources_read
from penstock.spark.gateway.remote import RemoteFiles
from penstock.spark.mending import mend
from penstock.spark.mirrors import Mirror
from penstock.spark.sharding import reshard
from penstock.spark.unit.composition import OUTLET, aged, called, counted, tagged, write_all
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.heartbeat import SupersededError
from penstock.spark.unit.plan import Outlet, plan_unit, reached_from
from penstock.spark.unit.streams import Channels, begins_of, folders_written
from penstock.topology.model import Operator, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOG = logging.getLogger(__name__)


class UnitQuery:
    """A unit's query in a session: built, started, measured and cleaned up behind."""

    def __init__(
        self,
        spark: SparkSession,
        topology: Topology,
        unit: str,
        folders: RunFolders,
        bootstrap: str | None = None,
        skipped: Iterable[tuple[str, str]] = (),
        storage: str | None = None,
        attempt: int = 0,
    ) -> None:
        """`bootstrap` is the server the run's channels use, where their options name none.

        `skipped` are records to leave out because an operator throws on them, as (input, record id).
        `storage` is the URL checkpoints lie below, where they do not lie in the run's folder.
        `attempt` is which attempt at the unit this is: once another has taken its place, nothing is started,
        published or cleaned away any more. 0 is for a unit that nobody else runs.
        """
        self.spark = spark
        self._attempt = attempt
        lookups.provide(folders.lookups)
        self.topology = topology
        self.plan = plan_unit(topology, unit)
        self.folders = folders
        self.skipped = set(skipped)
        self._left_out_of: int | None = None
        self._channels = Channels(topology, folders, bootstrap)
        self._mirror = None
        if storage is not None:
            location = f"{storage.rstrip('/')}/{folders.name()}/{unit}"
            self._mirror = Mirror(RemoteFiles(spark), location, self.checkpoint)
        self._consumptions: dict[str, Consumption] | None = None
        self._running: StreamingQuery | None = None
        self._native: NativeWriter | None = None
        self._published = 0
        self._draining = False
        self._mended: list[str] = []
        self.cleaning_problem: str | None = None
        """Why what was read cannot be cleaned away at present; None where it is. It is tried again."""
        self.sharding_problem: str | None = None
        """Why its state is in other shards than it shall be; None where it is not. A start tries again."""

    @property
    def checkpoint(self) -> Path:
        """The query's checkpoint, or what has been copied of it where it lies elsewhere."""
        return self.folders.checkpoint(self.plan.unit)

    def channel(self, name: str | None) -> RecordChannel:
        """A channel of the topology by name; None means the one generated sources write to."""
        return self._channels[name]

    @property
    def channels(self) -> dict[str, RecordChannel]:
        """The topology's channels that the unit reads from or writes to, by name."""
        names = {given.channel for given in self.plan.inputs} | {self.plan.channel.name}
        return {name: self.channel(name) for name in sorted(filter(None, names))}

    def start(self, *, drain: bool = False) -> StreamingQuery:
        """Start the one query of the unit from its checkpoint (or anew, where there is none).

        With `drain` it ends by itself once it has finished all there is to read now.

        SupersededError where another attempt at the unit has taken this one's place.
        """
        self._fence()
        self.stop_publishing()
        self._draining = drain
        if self._mirror is None:
            self._mended += mend(self.checkpoint, self._has_output)
            self.sharding_problem = reshard(self.spark, self.checkpoint, self.plan.shards)
        self._prepare()
        self._look()
        for consumption in self._consumed().values():
            consumption.shorten()
        frames = self._input_frames()
        self._native = self._native_writer(frames)
        if self._native is not None:
            if isinstance(self._native, FolderWriter):
                SinkLog(self.folders.staging(self.plan.unit)).fill(Checkpoint(self.checkpoint).finished())
            self._native.start()
            records, writer = self._native.records, self._native.writer()
        else:
            records, serve = self._served(frames)
            records_out = counted(records, [o.operator for o in self.plan.outlets])
            writer = records_out.writeStream.foreachBatch(self._fenced(serve))
        places = sources_read(records)
        if self._mirror is None:
            fit(self.checkpoint, places, self._has_output)
            begin(self.checkpoint, places, begins_of(self.plan, self.folders, self._channels))
            self._consumptions = None  # sources may have other places than before
        Checkpoint(self.checkpoint).note_places(places)
        if drain:
            writer = writer.trigger(availableNow=True)
        elif self.plan.trigger_s > 0:
            writer = writer.trigger(processingTime=f"{self.plan.trigger_s * 1000:.0f} milliseconds")
        self._fence()
        self._running = (
            writer.queryName(self.plan.unit)
            .outputMode(output_mode(records))
            .option("checkpointLocation", self._mirror.location if self._mirror else str(self.checkpoint))
            .start()
        )
        return self._running

    def mended(self) -> list[str]:
        """What was torn in the checkpoint and mended by a start, in words, since this was last asked."""
        told, self._mended = self._mended, []
        return told

    def reached(self) -> dict[str, Mapping[str, int]]:
        """How far the streams go, by operator, that the unit writes to a server; ask once it has drained."""
        outgoing = self.channel(self.plan.channel.name)
        named = [outlet.operator for outlet in self.plan.outlets if outlet.streams]
        return {name: ends for name in named if (ends := outgoing.reached(self.spark, name))}

    def _has_output(self, batch_id: int) -> bool:
        """Whether results of a micro-batch are on record: in the sink's log, or published."""
        if SinkLog(self.folders.staging(self.plan.unit)).numbers_from(batch_id):
            return True
        return any(has_batch(folder, batch_id) for folder in self._written_to())

    def _written_to(self) -> list[Path]:
        """The folders of batches in which the unit's records are left."""
        return folders_written(self.plan, self.folders, self.channel(self.plan.channel.name))

    # --- what leaves -------------------------------------------------------------------------------

    def publish(self) -> None:
        """Make everything finished visible to its takers now, not at the publisher's next look."""
        if self._native is not None:
            self._native.publish()

    def publish_all(self) -> None:
        """Publish what is finished and end the publisher; ClusterError where that cannot be done now."""
        try:
            self.publish()
        except Exception as error:
            raise ClusterError(f"results cannot be published: {error}") from error
        self.stop_publishing()

    def stop_publishing(self) -> None:
        """Publish what is finished and end the publisher; to be called when the query has ended."""
        if self._native is not None:
            self._native.stop()
            self._published += self._native.published
            self._native = None

    @property
    def published(self) -> int:
        """Records published to folders by this process."""
        return self._published + (self._native.published if self._native is not None else 0)

    @property
    def publishing_problem(self) -> str | None:
        """Why finished batches cannot be published at present, such as a full disk; None where they are."""
        return self._native.problem if self._native is not None else None

    def _native_writer(self, frames: dict[str, DataFrame]) -> NativeWriter | None:
        """A sink of Spark's own for all that leaves; None where each micro-batch has to be served."""
        if self.plan.branching is not None:
            return None  # what all ways share is computed once, and kept while they are served
        given = tuple(frames.values())
        self.apply(frames)
        leaving = [self._leaving(outlet, frames[outlet.operator], given) for outlet in self.plan.outlets]
        outgoing = self.channel(self.plan.channel.name)
        staging, mark = self.folders.staging(self.plan.unit), self._mark(leaving[0].operator)
        native = outgoing.native_writer(leaving, staging, mark)
        if native is None and len(leaving) == 1 and not leaving[0].streams and self._mirror is None:
            native = folder_writer(leaving[0], leaving[0].folders, staging, mark, durable=outgoing.durable)
        return native

    def _leaving(self, outlet: Outlet, records: DataFrame, given: tuple[DataFrame, ...]) -> Leaving:
        folders = []
        for sink in outlet.sinks:
            file_format = folder_format(sink.function)
            if file_format is not None:
                folders.append((result_folder(sink, outlet.operator, self.folders.results), file_format))
        others = len(folders) < len(outlet.sinks)
        own = identified(records, outlet.operator, given)
        return Leaving(outlet.operator, own, outlet.streams, tuple(folders), others)

    def _mark(self, operator: str) -> Writer:
        """Who writes an operator's records: folders carry it, so that no second writer gets in between."""
        return Writer(self.folders.writer(self.plan.unit, operator), self._fence)

    def _fence(self) -> None:
        if self.folders.is_superseded(self.plan.unit, self._attempt):
            raise SupersededError(
                f"attempt {self.folders.attempt(self.plan.unit)} at unit {self.plan.unit} runs, "
                f"this is {self._attempt}"
            )

    def _fenced(self, serve: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
        """What is done with each micro-batch, once it is known that no other attempt does it."""

        def checked(batch: DataFrame, batch_id: int) -> None:
            self._fence()
            serve(batch, batch_id)

        return checked

    def _served(self, frames: dict[str, DataFrame]) -> tuple[DataFrame, Callable[[DataFrame, int], None]]:
        """The DataFrame the query computes, and what is done with each micro-batch of it."""
        outlets = self.plan.outlets
        outgoing = self.channel(self.plan.channel.name)
        writers = {outlet.operator: self._writers(outlet, outgoing) for outlet in outlets}
        branching = self.plan.branching
        if branching is not None:
            behind = reached_from(branching, self.plan.operators)
            self.apply(frames, [o.name for o in self.plan.operators if o.name not in behind])

            def serve_branches(batch: DataFrame, batch_id: int) -> None:
                # Kept while the ways behind it are served: one pass over what came in.
                batch.persist()
                try:
                    parts = {branching: batch}
                    self.apply(parts, behind)
                    for outlet in outlets:
                        own = identified(parts[outlet.operator], outlet.operator)
                        write_all(own, batch_id, writers[outlet.operator])
                finally:
                    batch.unpersist()

            return frames[branching], serve_branches
        leaving = {o.operator: identified(frames[o.operator], o.operator) for o in outlets}
        if len(outlets) == 1:
            only = outlets[0].operator

            def serve_one(batch: DataFrame, batch_id: int) -> None:
                write_all(batch, batch_id, writers[only])

            return leaving[only], serve_one

        def serve_tagged(batch: DataFrame, batch_id: int) -> None:
            batch.persist()
            try:
                for outlet in outlets:
                    own = batch.filter(batch[OUTLET] == outlet.operator).select(f"`{outlet.operator}`.*")
                    write_all(own, batch_id, writers[outlet.operator])
            finally:
                batch.unpersist()

        return tagged(leaving), serve_tagged

    def _writers(self, outlet: Outlet, outgoing: RecordChannel) -> list[Callable[[DataFrame, int], None]]:
        writers: list[Callable[[DataFrame, int], None]] = []
        mark = self._mark(outlet.operator)
        if outlet.streams:
            streams = outlet.streams
            writers.append(lambda batch, batch_id: outgoing.append(batch, streams, batch_id, mark))
        for sink in outlet.sinks:
            results, gathered = self.folders.results, self._mirror is not None
            writers.append(
                make_sink(sink, outlet.operator, results, mark, gathered=gathered, durable=outgoing.durable)
            )
        return writers

    # --- what is composed --------------------------------------------------------------------------

    def apply(self, frames: dict[str, DataFrame], only: Iterable[str] | None = None) -> None:
        """Add the results of the unit's operators to `frames`, in order; `only` names those to apply."""
        names = None if only is None else set(only)
        for operator in self.plan.operators:
            if names is None or operator.name in names:
                frames[operator.name] = self.applied(operator, frames)

    def applied(self, operator: Operator, frames: Mapping[str, DataFrame]) -> DataFrame:
        """One operator's records, with their envelope."""
        given = {name: frames[name] for name in operator.inputs}
        result = called(self.spark, operator, given)
        return kept(result, operator.name, operator.stateful)

    # --- what comes in -----------------------------------------------------------------------------

    def read_batch(self, batch_id: int) -> dict[str, DataFrame] | None:
        """The unit's inputs of one micro-batch again, as ordinary DataFrames, before their door.

        None where an input is a source's own function, for that cannot be read again.
        """
        from pyspark.sql import functions as sql

        self._look()
        found = {}
        for given in self.plan.inputs:
            if given.stream is None:
                return None
            channel = self.channel(given.channel)
            records = channel.read_batch(self.spark, given.stream, self.checkpoint, batch_id)
            left_out = self._left_out(given.name)
            found[given.name] = records.filter(~sql.col("record_id").isin(left_out)) if left_out else records
        return found

    def backlog(self) -> Backlog:
        """Records that wait in the unit's inputs, and records of a started micro-batch."""
        found = self.backlogs().values()
        return Backlog(sum(each.waiting for each in found), sum(each.in_service for each in found))

    def backlogs(self) -> dict[str, Backlog]:
        """The same by input, but for those that are sources' own functions."""
        self._look()
        return {name: consumption.backlog() for name, consumption in self._consumed().items()}

    def places(self, batch_id: int) -> dict[str, str]:
        """By input, up to where in its stream a micro-batch went: the same word for the same place."""
        self._look()
        return {name: consumption.place(batch_id) for name, consumption in self._consumed().items()}

    def note(self, batch: FinishedBatch) -> None:
        """Tell the channels of a finished micro-batch, each once and in order."""
        for consumption in self._consumed().values():
            consumption.note(batch)

    def arrivals(self, batch_id: int, at_s: Callable[[float], float] = float) -> dict[str, list[Arrival]]:
        """When the records of a micro-batch arrived, by input, and what is known of those."""
        return {name: each.arrivals(batch_id, at_s) for name, each in self._consumed().items()}

    def clean(self) -> int:
        """Give back the room of what was read; how much, as the channels count it. Never raises.

        Also stops a query that shall be started again: one whose results could not be published for too long
        (it then waits until they can be), or whose books have grown long.
        """
        if self.folders.is_superseded(self.plan.unit, self._attempt):
            return 0
        done, problem, overgrown = 0, None, False
        for consumption in self._consumed().values():
            try:
                done += consumption.clean()
                overgrown = overgrown or consumption.overgrown
            except Exception as error:
                # What is not cleaned now is cleaned later; nothing else must wait for it.
                problem = str(error)
                LOG.warning("what was read cannot be cleaned away: %s", error)
        self.cleaning_problem = problem
        has_to_stop = self._native is not None and self._native.has_to_stop
        if (
            self._running is not None
            and (has_to_stop or overgrown)
            and not self._draining
            and self._running.isActive
        ):
            self._running.stop()
        return done

    def _look(self) -> None:
        """See what a checkpoint that lies elsewhere says now."""
        if self._mirror is not None:
            self._mirror.refresh()

    def _consumed(self) -> dict[str, Consumption]:
        if self._consumptions is None:
            self._consumptions = {
                given.name: self.channel(given.channel).consumption(given.stream, self.checkpoint, self.spark)
                for given in self.plan.inputs
                if given.stream is not None
            }
        return self._consumptions

    def _prepare(self) -> None:
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        streams: dict[str | None, list[Stream]] = {}
        for given in self.plan.inputs:
            if given.stream is not None:
                streams.setdefault(given.channel, []).append(given.stream)
        for outlet in self.plan.outlets:
            streams.setdefault(self.plan.channel.name, []).extend(outlet.streams)
        for name, wanted in streams.items():
            # Whoever comes first makes a stream: units start in any order.
            if wanted:
                self.channel(name).prepare(self.spark, wanted)

    def _input_frames(self) -> dict[str, DataFrame]:
        frames = {}
        for given in self.plan.inputs:
            left_out = self._left_out(given.name)
            if given.stream is None:
                source = self.topology.source_by_name[given.name]
                function = load_function(str(source.function), f"source {given.name}")
                records = enveloped(function(self.spark), given.name)
                frames[given.name] = aged(admitted(records, f"source {given.name}", left_out), given.name)
            else:
                # Channels tell by themselves when records arrived and from when they are.
                frames[given.name] = self.channel(given.channel).read(self.spark, given.stream, left_out)
        return frames

    def leaves_out_of(self, batch_id: int | None) -> None:
        """Records are left out of this micro-batch; of one before it none is read again."""
        if batch_id is not None and self._left_out_of not in (None, batch_id):
            self.skipped.clear()
        self._left_out_of = batch_id if batch_id is not None else self._left_out_of

    def _left_out(self, name: str) -> list[str]:
        return sorted(record_id for given, record_id in self.skipped if given == name)
