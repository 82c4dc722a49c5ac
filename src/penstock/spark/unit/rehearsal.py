"""Tries the next version of a unit on records of the one that runs, beside it and without touching it.

The newest records of the unit's inputs (hard links of files, copies of what a server has, in a folder that
is gone afterwards) go through the new version's operators. What comes out goes nowhere: sinks are left out,
and streams end in that folder.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.channels import lookups
from penstock.channels.batches import BatchFolder, batches_in, data_files
from penstock.channels.files import FilesOptions
from penstock.channels.registry import has_server
from penstock.errors import PenstockError
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.plan import plan_unit
from penstock.spark.unit.query import UnitQuery
from penstock.spark.unit.streams import Channels
from penstock.topology.model import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_BATCHES = 5
"""Batches of each input that are tried, the newest ones, where they are files."""
MOST_RECORDS = 1000
"""About so many records of each input are tried, the newest ones, where a server has them."""


def can_be_rehearsed(topology: Topology, unit: str) -> bool:
    """Whether a unit's inputs are streams of the run: others cannot be read beside who reads them."""
    return all(given.stream is not None for given in plan_unit(topology, unit).inputs)


class OtherTypesError(PenstockError):
    """What lies in a unit's inputs is of other types than its next version reads.

    It never sees those records: such a stream is read to its end before the next version begins.
    """


def rehearse(
    spark: SparkSession,
    topology: Topology,
    unit: str,
    run: RunFolders,
    apart: Path,
    address: str | None = None,
) -> int:
    """Run a unit's next version on copies of what lies in its inputs, below a folder; how many records.

    `address` is that of the run's server, where it has one. Raises what an operator throws, and
    OtherTypesError where those records are none for it.
    """
    quiet = replace(
        topology,
        sinks=tuple(replace(sink, function=None) for sink in topology.sinks),
        channels=tuple(
            replace(channel, kind=FilesOptions.name, options={})
            if has_server(topology, channel.name)
            else channel
            for channel in topology.channels
        ),
    )
    channels, copies = Channels(topology, run, address), Channels(quiet, RunFolders(apart), None)
    records = 0
    for given in plan_unit(quiet, unit).inputs:
        assert given.stream is not None
        served = channels[given.channel].newest(spark, given.stream, MOST_RECORDS)
        if served is not None:
            served.persist()
            copies[given.channel].append(served, [given.stream], 0, "rehearsal")
            records += served.count()
            served.unpersist()
            continue
        real = channels[given.channel].stream(given.stream.producer)
        copy = copies[given.channel].batches_of(given.stream)
        if real is not None and copy is not None:
            records += _copied(real, copy)
            if given.stream.schema is not None and _is_of_other_types(spark, copy, given.stream.schema):
                raise OtherTypesError("what lies in its inputs is of other types than it will read")
    query = UnitQuery(spark, quiet, unit, RunFolders(apart))
    # Look-ups are those of the run.
    lookups.provide(run.lookups)
    running = query.start(drain=True)
    running.awaitTermination()
    query.publish_all()
    return records


def _copied(stream: Path, copy: Path) -> int:
    """Link the newest batches that lie in some reader's folder of a stream; how many records."""
    copy.mkdir(parents=True, exist_ok=True)
    for reader in _readers(stream):
        done = 0
        for batch in _lying(reader)[-MOST_BATCHES:]:
            (copy / batch.path.name).mkdir(exist_ok=True)
            # Whoever reads it may delete it at this moment: then there is one less.
            with contextlib.suppress(FileNotFoundError):
                for file in data_files(batch.path):
                    os.link(file, copy / batch.path.name / file.name)
                done += batch.records
        if done:
            return done
    return 0


def _is_of_other_types(spark: SparkSession, copy: Path, schema: str) -> bool:
    # JSON has no types of its own: whatever it is read with fits, or is told as a bad record.
    file = next(copy.rglob("*.parquet"), None)
    if file is None:
        return False
    found = {field.name: field.dataType for field in spark.read.parquet(str(file)).schema}
    wanted = spark.createDataFrame([], schema).schema
    return any(found.get(field.name, field.dataType) != field.dataType for field in wanted)


def _readers(stream: Path) -> list[Path]:
    """The folders of a stream's readers; beside them lies a source's sign of life."""
    return sorted(entry for entry in stream.iterdir() if entry.is_dir()) if stream.exists() else []


def _lying(reader: Path) -> list[BatchFolder]:
    """The batches of a reader that are not deleted yet."""
    return [batch for batch in batches_in(reader) if _filled(batch.path)]


def _filled(folder: Path) -> bool:
    try:
        return bool(data_files(folder))
    except FileNotFoundError:
        return False
