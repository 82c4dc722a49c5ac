"""From a unit to one streaming query: what it reads, which operators it composes, where results leave.

Operators inside a unit are DataFrame functions applied one after the other, so Spark optimises across
them and no record is written between them. Only edges that cross units go through channels. Everything
that leaves a unit leaves in the same micro-batch, so the query's checkpoint covers all of it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.channels.envelope import RECORD_ID, SOURCE_TIME, enveloped, kept
from penstock.channels.feeder import DEFAULT_SCHEMA
from penstock.channels.files import (
    TIMESTAMP_FORMAT,
    ArrivedFile,
    FilesChannel,
    FilesConsumption,
    note_offset_lines,
)
from penstock.channels.kafka import KafkaChannel, taken_from
from penstock.channels.model import RecordChannel, Stream
from penstock.channels.publishing import Publisher
from penstock.channels.registry import make_channel
from penstock.channels.schemas import fitted
from penstock.channels.sinks import folder_format, load_function, make_sink, result_folder
from penstock.errors import ConfigurationError
from penstock.topology.model import Channel, Operator, Sink, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

OBSERVED_INPUT = "penstock-input-"
OBSERVED_OUTPUT = "penstock-output"
"""Names of the metrics a unit's query reports with its progress."""

_OUTLET = "penstock_outlet"
_SQL = "sql:"


@dataclass(frozen=True, slots=True)
class RunFolders:
    """Where a run keeps its streams, checkpoints and results."""

    root: Path

    @property
    def channels(self) -> Path:
        """Streams between units."""
        return self.root / "channels"

    @property
    def sources(self) -> Path:
        """Streams of generated sources."""
        return self.root / "sources"

    @property
    def results(self) -> Path:
        """What built-in sinks write to relative folders."""
        return self.root / "results"

    def unit(self, name: str) -> Path:
        """Everything of one unit."""
        return self.root / "units" / name

    def checkpoint(self, unit: str) -> Path:
        """The checkpoint of a unit's query."""
        return self.unit(unit) / "checkpoint"

    def dead_letters(self, unit: str) -> Path:
        """Records a unit's operators threw on, where they are to be skipped."""
        return self.unit(unit) / "dead-letters"


@dataclass(frozen=True, slots=True)
class UnitInput:
    """Something a unit reads: a source of its own, or the stream of another unit's operator."""

    name: str
    """The source or operator whose records they are."""
    stream: Stream | None
    """None where a source's function is called in the unit itself."""
    channel: str | None = None
    """The channel the stream lies in; None for a generated source's."""


@dataclass(frozen=True, slots=True)
class Outlet:
    """One operator whose records leave the unit, and all who take them."""

    operator: str
    streams: tuple[Stream, ...] = ()
    sinks: tuple[Sink, ...] = ()


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """What a unit's query is made of, in names."""

    unit: str
    inputs: tuple[UnitInput, ...]
    operators: tuple[Operator, ...]
    outlets: tuple[Outlet, ...]
    channel: Channel
    """The channel its outgoing edges cross."""

    @property
    def reads_a_function(self) -> bool:
        """Whether some input is a source's own function, of which no channel knows anything."""
        return any(given.stream is None for given in self.inputs)

    @property
    def branching(self) -> str | None:
        """The operator behind which the unit's ways part, where everything after it is stateless.

        Its records are computed once a micro-batch and kept while the ways behind it are served; None where
        there is one way only, or where the ways share no operator.
        """
        if len(self.outlets) < 2:
            return None
        inside = {operator.name: operator for operator in self.operators}
        for candidate in reversed(self.operators):
            after = _reached_from(candidate.name, self.operators)
            leaving = {outlet.operator for outlet in self.outlets}
            fed_only_by = all(
                name == candidate.name or name in after
                for operator in after
                for name in inside[operator].inputs
            )
            stateless = not any(inside[operator].stateful for operator in after)
            if leaving <= after | {candidate.name} and fed_only_by and stateless:
                return candidate.name
        return None


def _reached_from(name: str, operators: Iterable[Operator]) -> set[str]:
    reached: set[str] = set()
    for operator in operators:
        if any(given == name or given in reached for given in operator.inputs):
            reached.add(operator.name)
    return reached


def plan_unit(topology: Topology, unit_name: str) -> UnitPlan:
    """What the unit's query is made of; ConfigurationError where an edge that crosses units has no schema."""
    unit = topology.unit_by_name[unit_name]
    operators = tuple(o for o in topology.operators_in_order if o.name in unit.operators)
    inputs: dict[str, UnitInput] = {}
    for operator in operators:
        for name in operator.inputs:
            if name in inputs or name in unit.operators:
                continue
            inputs[name] = _input(topology, unit_name, name)
    outlets = []
    for operator in operators:
        takers = topology.successors.get(operator.name, ())
        sinks = tuple(sink for sink in topology.sinks if operator.name in sink.inputs)
        consumers = dict.fromkeys(
            topology.unit_of[taker]
            for taker in takers
            if taker in topology.unit_of and topology.unit_of[taker] != unit_name
        )
        streams = tuple(Stream(operator.name, consumer, _schema(operator)) for consumer in consumers)
        if streams or sinks:
            outlets.append(Outlet(operator.name, streams, sinks))
        elif not any(operator.name in other.inputs for other in operators):
            # Nobody takes its records: they are computed all the same, for what its function does.
            outlets.append(Outlet(operator.name, (), (Sink(f"{operator.name}-discarded", (operator.name,)),)))
    return UnitPlan(
        unit_name, tuple(inputs.values()), operators, tuple(outlets), _channel(topology, unit_name)
    )


def not_run_yet(topology: Topology) -> list[str]:
    """What a topology may say and `penstock run` cannot do yet, each in a sentence."""
    return [
        f"site {site.name}: `penstock run` cannot submit to an existing master ({site.master}) yet, it "
        "brings up a local cluster; leave `master` out, or use `penstock.attach` in a job at that master"
        for site in topology.sites
        if site.master is not None
    ]


def _channel(topology: Topology, unit: str) -> Channel:
    name = topology.unit_by_name[unit].channel
    if name is None:
        return topology.channels[0]
    if name not in topology.channel_by_name:
        known = ", ".join(topology.channel_by_name)
        raise ConfigurationError(f"unit {unit}: unknown channel {name!r}; known: {known}")
    return topology.channel_by_name[name]


def _schema(operator: Operator) -> str:
    if operator.schema is None:
        raise ConfigurationError(
            f"operator {operator.name}: its records cross to another unit, so its columns must be declared: "
            'give it a schema such as "word string, count long"'
        )
    return operator.schema


def _input(topology: Topology, unit: str, name: str) -> UnitInput:
    source = topology.source_by_name.get(name)
    if source is None:
        producer = topology.operator_by_name[name]
        return UnitInput(
            name, Stream(name, unit, _schema(producer)), _channel(topology, topology.unit_of[name]).name
        )
    if source.function is not None:
        return UnitInput(name, None)
    if source.workload is None:
        raise ConfigurationError(
            f"source {name}: expected a function (module:function) or a workload to generate, got neither"
        )
    return UnitInput(name, Stream(name, unit, source.schema or DEFAULT_SCHEMA))


def generated_sources(topology: Topology) -> dict[str, tuple[str, ...]]:
    """Sources whose records a feeder writes, and the units that read each."""
    found: dict[str, list[str]] = {}
    for source in topology.sources:
        if source.function is None and source.workload is not None:
            units = [topology.unit_of[o.name] for o in topology.operators if source.name in o.inputs]
            found[source.name] = list(dict.fromkeys(units))
    return {name: tuple(units) for name, units in found.items()}


def taken_by(topology: Topology, unit: str, folders: RunFolders, bootstrap: str | None) -> int | None:
    """Records of every micro-batch a unit has finished, by its checkpoint; None where that cannot tell.

    Exact whoever was killed meanwhile: what a driver counts it may die before telling, a checkpoint stays.
    """
    total, checkpoint = 0, folders.checkpoint(unit)
    for given in plan_unit(topology, unit).inputs:
        if given.stream is None:
            return None
        channel: RecordChannel = FilesChannel(folders.sources, format="json")
        if given.channel is not None:
            found = topology.channel_by_name[given.channel]
            channel = make_channel(found, topology, folders.channels, bootstrap)
        if isinstance(channel, FilesChannel):
            total += channel.consumption(given.stream, checkpoint).taken()
        elif isinstance(channel, KafkaChannel):
            total += taken_from(channel.topic(given.stream.producer), checkpoint)
        else:
            return None
    return total


class UnitQuery:
    """A unit's query in a session: built, started, measured and cleaned up behind."""

    def __init__(
        self,
        spark: SparkSession,
        topology: Topology,
        unit: str,
        folders: RunFolders,
        bootstrap: str | None = None,
        skipped: Iterable[str] = (),
    ) -> None:
        """`skipped` are ids of records that are left out, because an operator throws on them."""
        self.spark = spark
        self.topology = topology
        self.plan = plan_unit(topology, unit)
        self.folders = folders
        self.skipped = set(skipped)
        self._bootstrap = bootstrap
        self._channels: dict[str, RecordChannel] = {}
        # A feeder writes ten files a second: five seconds of records at most in a micro-batch.
        self._feeds = FilesChannel(folders.sources, format="json", max_files_per_batch=50)
        self._consumptions: list[FilesConsumption] | None = None
        self._publisher: Publisher | None = None
        self._published = 0

    @property
    def checkpoint(self) -> Path:
        """The query's checkpoint."""
        return self.folders.checkpoint(self.plan.unit)

    def channel(self, name: str | None) -> RecordChannel:
        """A channel of the topology by name; None means the one generated sources write to."""
        if name is None:
            return self._feeds
        if name not in self._channels:
            found = self.topology.channel_by_name[name]
            self._channels[name] = make_channel(found, self.topology, self.folders.channels, self._bootstrap)
        return self._channels[name]

    def start(self) -> StreamingQuery:
        """Start the one query of the unit from its checkpoint (or anew, where there is none)."""
        self._prepare()
        frames = self._input_frames()
        outgoing = self.channel(self.plan.channel.name)
        outlets = self.plan.outlets
        name = self.plan.unit
        to_kafka_only = isinstance(outgoing, KafkaChannel) and not any(outlet.sinks for outlet in outlets)
        branching = self.plan.branching
        file_format = self._folder_format(outgoing)
        self.stop_publishing()
        if isinstance(outgoing, KafkaChannel) and to_kafka_only and (branching is None):
            # The connector's own sink, several edges by its topic column: no callback into Python.
            self.apply(frames)
            encoded = [outgoing.encoded(frames[o.operator], o.streams[0]) for o in outlets]
            leaving = encoded[0]
            for more in encoded[1:]:
                leaving = leaving.unionAll(more)
            writer = leaving.writeStream.format("kafka").options(**outgoing.sink_options())
            frame = leaving
        elif file_format is not None and not _aggregates(self._only_result(frames)):
            # Spark's own file sink, and a thread that publishes what it has finished.
            only = outlets[0]
            frame = frames[only.operator]
            if only.streams:
                frame = fitted(frame, only.streams[0].schema, f"operator {only.operator}")
            self._publisher = Publisher(
                self.folders.unit(name) / "staging", self._taking_folders(only, outgoing), file_format
            )
            self._publisher.start()
            writer = (
                frame.writeStream.format(file_format)
                .option("path", str(self._publisher.staging))
                .option("compression", "none")
                # The sink's log forgets files that were published (and deleted) long ago.
                .option("retention", "1h")
            )
            if file_format == "json":
                writer = writer.option("timestampFormat", TIMESTAMP_FORMAT)
        else:
            frame, serve = self._served(frames, outgoing, branching)
            writer = self._counted(frame).writeStream.foreachBatch(serve)
        note_offset_lines(self.checkpoint, _sources_read(frame))
        return (
            writer.queryName(name)
            .outputMode("update" if _aggregates(frame) else "append")
            .option("checkpointLocation", str(self.checkpoint))
            .start()
        )

    def publish(self) -> None:
        """Make everything finished visible to its takers now, not at the publisher's next look."""
        if self._publisher is not None:
            self._publisher.publish()

    def stop_publishing(self) -> None:
        """Publish what is finished and end the publisher; to be called when the query has ended."""
        if self._publisher is not None:
            self._publisher.stop()
            self._published += self._publisher.published
            self._publisher = None

    @property
    def published(self) -> int:
        """Records published to folders by this process."""
        return self._published + (self._publisher.published if self._publisher is not None else 0)

    def arrivals(self, batch_id: int) -> list[ArrivedFile]:
        """When the records of a micro-batch arrived in files, and what is known of those."""
        return [arrival for consumption in self._files() for arrival in consumption.arrivals(batch_id)]

    @property
    def publishing_problem(self) -> str | None:
        """Why finished batches cannot be published at present, such as a full disk; None where they are."""
        problem = self._publisher.problem if self._publisher is not None else None
        return None if problem is None else str(problem)

    def _only_result(self, frames: dict[str, DataFrame]) -> DataFrame:
        if any(operator.name not in frames for operator in self.plan.operators):
            self.apply(frames)
        return frames[self.plan.outlets[0].operator]

    def _folder_format(self, outgoing: RecordChannel) -> str | None:
        """The file format, where all that leaves is one operator's records into folders of batches."""
        if len(self.plan.outlets) != 1:
            return None
        only = self.plan.outlets[0]
        formats = {folder_format(sink.function) for sink in only.sinks}
        if only.streams:
            formats.add(outgoing.format if isinstance(outgoing, FilesChannel) else None)
        return formats.pop() if len(formats) == 1 else None

    def _taking_folders(self, outlet: Outlet, outgoing: RecordChannel) -> list[Path]:
        folders = [
            result_folder(str(_own_function(sink, outlet.operator)), self.folders.results, sink.name)
            for sink in outlet.sinks
        ]
        if isinstance(outgoing, FilesChannel):
            folders += [outgoing.folder(stream) for stream in outlet.streams]
        return folders

    def apply(self, frames: dict[str, DataFrame], only: Iterable[str] | None = None) -> None:
        """Add the results of the unit's operators to `frames`, in order; `only` names those to apply."""
        names = None if only is None else set(only)
        for operator in self.plan.operators:
            if names is None or operator.name in names:
                frames[operator.name] = self.applied(operator, frames)

    def applied(self, operator: Operator, frames: Mapping[str, DataFrame]) -> DataFrame:
        """One operator's records, with their envelope."""
        given = {name: frames[name] for name in operator.inputs}
        result = _called(self.spark, operator, given)
        return kept(result, operator.name, operator.stateful)

    def read_batch(self, batch_id: int) -> dict[str, DataFrame]:
        """The unit's inputs of one micro-batch again, as ordinary DataFrames, without skipped records.

        Inputs that a source's own function makes cannot be read again and are missing.
        """
        found = {}
        for given in self.plan.inputs:
            if given.stream is not None:
                channel = self.channel(given.channel)
                records = channel.read_batch(self.spark, given.stream, self.checkpoint, batch_id)
                found[given.name] = self._without_skipped(records)
        return found

    def waiting(self) -> int | None:
        """Records that wait in files; None where the unit reads no files (Kafka tells by its progress)."""
        counted = self.counted()
        return None if counted is None else counted[0]

    def counted(self) -> tuple[int, int] | None:
        """Records that wait in files, and records of a started micro-batch; None where it reads no files."""
        consumptions = self._files()
        if not consumptions:
            return None
        pairs = [consumption.counted() for consumption in consumptions]
        return sum(waiting for waiting, _ in pairs), sum(in_service for _, in_service in pairs)

    def clean(self) -> int:
        """Delete the files the query is done with; gives back how many."""
        return sum(consumption.clean() for consumption in self._files())

    def _files(self) -> list[FilesConsumption]:
        if self._consumptions is None:
            self._consumptions = [
                channel.consumption(given.stream, self.checkpoint)
                for given in self.plan.inputs
                if given.stream is not None
                and isinstance(channel := self.channel(given.channel), FilesChannel)
            ]
        return self._consumptions

    def _prepare(self) -> None:
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        incoming: dict[str | None, list[Stream]] = {}
        for given in self.plan.inputs:
            if given.stream is not None:
                incoming.setdefault(given.channel, []).append(given.stream)
        for outlet in self.plan.outlets:
            incoming.setdefault(self.plan.channel.name, []).extend(outlet.streams)
        for name, streams in incoming.items():
            # Whoever comes first makes a stream: units start in any order.
            if streams:
                self.channel(name).prepare(self.spark, streams)

    def _input_frames(self) -> dict[str, DataFrame]:
        frames = {}
        for given in self.plan.inputs:
            if given.stream is None:
                source = self.topology.source_by_name[given.name]
                function = load_function(str(source.function), f"source {given.name}")
                records = _measured(enveloped(function(self.spark), given.name), given.name)
            else:
                # Channels tell by themselves when records arrived and from when they are.
                records = self.channel(given.channel).read(self.spark, given.stream)
            frames[given.name] = self._without_skipped(records)
        return frames

    def _without_skipped(self, records: DataFrame) -> DataFrame:
        from pyspark.sql import functions as sql

        if not self.skipped:
            return records
        return records.filter(~sql.col(RECORD_ID).isin(sorted(self.skipped)))

    def _counted(self, leaving: DataFrame) -> DataFrame:
        from pyspark.sql import functions as sql

        return leaving.observe(OBSERVED_OUTPUT, sql.count(sql.lit(1)).alias("records"))

    def _served(
        self, frames: dict[str, DataFrame], outgoing: RecordChannel, branching: str | None
    ) -> tuple[DataFrame, Callable[[DataFrame, int], None]]:
        """The DataFrame the query computes, and what is done with each micro-batch of it."""
        outlets = self.plan.outlets
        writers = {outlet.operator: self._writers(outlet, outgoing) for outlet in outlets}
        if len(outlets) == 1:
            self._only_result(frames)
            only = outlets[0]

            def serve_one(batch: DataFrame, batch_id: int) -> None:
                _write_all(batch, batch_id, writers[only.operator])

            return frames[only.operator], serve_one
        if branching is not None:
            behind = _reached_from(branching, self.plan.operators)
            self.apply(frames, [o.name for o in self.plan.operators if o.name not in behind])

            def serve_branches(batch: DataFrame, batch_id: int) -> None:
                # Kept while the ways behind it are served: one pass over what came in.
                batch.persist()
                try:
                    parts = {branching: batch}
                    self.apply(parts, behind)
                    for outlet in outlets:
                        _write_all(parts[outlet.operator], batch_id, writers[outlet.operator])
                finally:
                    batch.unpersist()

            return frames[branching], serve_branches
        self.apply(frames)
        tagged = _tagged({outlet.operator: frames[outlet.operator] for outlet in outlets})

        def serve_tagged(batch: DataFrame, batch_id: int) -> None:
            batch.persist()
            try:
                for outlet in outlets:
                    own = batch.filter(batch[_OUTLET] == outlet.operator).select(f"`{outlet.operator}`.*")
                    _write_all(own, batch_id, writers[outlet.operator])
            finally:
                batch.unpersist()

        return tagged, serve_tagged

    def _writers(self, outlet: Outlet, outgoing: RecordChannel) -> list[Callable[[DataFrame, int], None]]:
        writers: list[Callable[[DataFrame, int], None]] = []
        if outlet.streams:
            streams = outlet.streams
            writers.append(lambda batch, batch_id: outgoing.append(batch, streams, batch_id))
        for sink in outlet.sinks:
            writers.append(make_sink(_own_function(sink, outlet.operator), self.folders.results, sink.name))
        return writers


def result_folders(sink: Sink, results: Path) -> list[Path]:
    """Where the records of a sink that writes folders of batches are."""
    return [result_folder(str(_own_function(sink, operator)), results, sink.name) for operator in sink.inputs]


def _own_function(sink: Sink, operator: str) -> str | None:
    """A sink with several inputs is served by each: a result folder each keeps batch numbers apart."""
    if len(sink.inputs) > 1 and folder_format(sink.function) is not None:
        word, _, rest = str(sink.function).partition(":")
        return f"{word}:{rest or sink.name}/{operator}"
    return sink.function


def _write_all(batch: DataFrame, batch_id: int, writers: list[Callable[[DataFrame, int], None]]) -> None:
    kept_in_memory = len(writers) > 1 and not batch.is_cached
    if kept_in_memory:
        batch.persist()
    try:
        for write in writers:
            write(batch, batch_id)
    finally:
        if kept_in_memory:
            batch.unpersist()


def _tagged(parts: Mapping[str, DataFrame]) -> DataFrame:
    """Records of several kinds in one DataFrame: a column of their own each, and one that says which."""
    from pyspark.sql import functions as sql

    union: DataFrame | None = None
    for name, records in parts.items():
        columns = sql.struct(*(sql.col(f"`{column}`") for column in records.columns)).alias(name)
        part = records.select(sql.lit(name).alias(_OUTLET), columns)
        union = part if union is None else union.unionByName(part, allowMissingColumns=True)
    if union is None:
        raise ConfigurationError("expected a unit with at least one operator, got none")
    return union


def _called(spark: SparkSession, operator: Operator, given: Mapping[str, DataFrame]) -> DataFrame:
    from pyspark.sql import DataFrame as PySparkDataFrame

    frames = list(given.values())
    if operator.function is None:
        result = frames[0]
        for more in frames[1:]:
            result = result.unionByName(more, allowMissingColumns=True)
        return result
    if operator.function.startswith(_SQL):
        return spark.sql(operator.function.removeprefix(_SQL), **given)
    function = load_function(operator.function, f"operator {operator.name}")
    if len(frames) == 1:
        answer = function(frames[0])
    else:
        answer = function(**{name.replace("-", "_"): frame for name, frame in given.items()})
    if not isinstance(answer, PySparkDataFrame):
        raise ConfigurationError(
            f"operator {operator.name}: expected {operator.function} to give back a DataFrame, "
            f"got {type(answer).__name__}"
        )
    return answer


def _measured(records: DataFrame, name: str) -> DataFrame:
    """The records of a source's own function, with their ages reported at every progress event.

    Nothing else tells from when they are. Mean and minimum only: percentiles would cost more than a light
    operator does.
    """
    from pyspark.sql import functions as sql

    instant = sql.unix_millis(SOURCE_TIME)
    mean, first = sql.avg(instant).alias("source_mean_ms"), sql.min(instant).alias("source_first_ms")
    return records.observe(f"{OBSERVED_INPUT}{name}", mean, first)


def _sources_read(frame: DataFrame) -> list[str]:
    """What a plan reads, place by place, in the order of a query's offsets."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    return [str(leaves.apply(index).toString()) for index in range(leaves.size())]


def _aggregates(frame: DataFrame) -> bool:
    """Whether the plan aggregates over the stream: its rows change and are emitted again."""
    plan = frame._jdf.queryExecution().analyzed().toString()
    return any(line.lstrip(" +-:~").startswith("Aggregate [") for line in plan.splitlines())


def check_outgoing(query: UnitQuery, frames: Mapping[str, DataFrame]) -> None:
    """Check what leaves the unit against the declared schemas, without running anything."""
    for outlet in query.plan.outlets:
        if outlet.streams:
            fitted(frames[outlet.operator], outlet.streams[0].schema, f"operator {outlet.operator}")
