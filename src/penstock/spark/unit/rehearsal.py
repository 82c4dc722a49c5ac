"""Tries the next version of a unit on records of the one that runs, beside it and without touching it.

Started as `python -m penstock.spark.unit.rehearsal SPECIFICATION`. A session of its own on this machine takes
the newest records that lie in the unit's inputs (hard links, in a folder that is gone afterwards) through the
new version's operators. What comes out goes nowhere: sinks are left out. Code 0 says that nothing threw,
anything else that the change would fail, with the reason in the last line written.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.channels import lookups
from penstock.channels.batches import batches_in, data_files
from penstock.channels.registry import has_server
from penstock.errors import PenstockError
from penstock.machine.files import PRIVATE, written
from penstock.machine.secrets import log_redacted, redacted
from penstock.spark.gateway.errors import cause_of
from penstock.spark.settings import start_session
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.plan import plan_unit
from penstock.spark.unit.query import Channels, UnitQuery
from penstock.topology.file import parse_topology
from penstock.topology.model import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_BATCHES = 5
"""Batches of each input that are tried, the newest ones."""
LONGEST_S = 120.0
"""A rehearsal that is not over by then has failed."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What has to be tried."""

    folder: str
    """The run's folder."""
    unit: str
    topology: str
    """The text of the version to come."""
    code: str | None = None
    settings: dict[str, str] = field(default_factory=dict)

    def write(self, file: Path) -> None:
        """Write it down for the process that tries it; settings may hold secrets."""
        written(file, json.dumps(asdict(self)), mode=PRIVATE)


def can_be_rehearsed(topology: Topology, unit: str) -> bool:
    """Whether a unit's inputs lie on this machine's disk: others cannot be read beside who reads them."""
    return all(
        given.stream is not None and not has_server(topology, given.channel)
        for given in plan_unit(topology, unit).inputs
    )


def rehearse(spark: SparkSession, topology: Topology, unit: str, run: RunFolders, apart: Path) -> int:
    """Run a unit's next version on copies of what lies in its inputs, below a folder; how many records.

    Raises what an operator throws.
    """
    quiet = replace(topology, sinks=tuple(replace(sink, function=None) for sink in topology.sinks))
    channels, copies = Channels(topology, run, None), Channels(quiet, RunFolders(apart), None)
    records = 0
    for given in plan_unit(quiet, unit).inputs:
        assert given.stream is not None
        real = channels[given.channel].stream(given.stream.producer)
        copy = copies[given.channel].batches_of(given.stream)
        if real is not None and copy is not None:
            records += _copied(real, copy)
    query = UnitQuery(spark, quiet, unit, RunFolders(apart))
    # Look-ups are those of the run.
    os.environ[lookups.VARIABLE] = str(run.lookups)
    running = query.start(drain=True)
    running.awaitTermination()
    query.publish_all()
    return records


def _copied(stream: Path, copy: Path) -> int:
    """Link the newest batches that lie in some reader's folder of a stream; how many records."""
    copy.mkdir(parents=True, exist_ok=True)
    for reader in sorted(stream.iterdir()) if stream.exists() else ():
        newest = [batch for batch in batches_in(reader) if _filled(batch.path)][-MOST_BATCHES:]
        done = 0
        for batch in newest:
            (copy / batch.path.name).mkdir(exist_ok=True)
            # Whoever reads it may delete it at this moment: then there is one less.
            with contextlib.suppress(FileNotFoundError):
                for file in data_files(batch.path):
                    os.link(file, copy / batch.path.name / file.name)
                done += batch.records
        if done:
            return done
    return 0


def _filled(folder: Path) -> bool:
    try:
        return bool(data_files(folder))
    except FileNotFoundError:
        return False


def main(arguments: list[str] | None = None) -> int:
    """Try what a specification names; its last line says why it failed."""
    given = Rehearsal(**json.loads(Path((arguments or sys.argv[1:])[0]).read_text()))
    log_redacted()
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if given.code is not None:
        sys.path.insert(0, given.code)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [given.code, os.environ.get("PYTHONPATH")]))
    run = RunFolders(Path(given.folder))
    apart = Path(tempfile.mkdtemp(prefix="rehearsal-", dir=run.root))
    try:
        topology = parse_topology(given.topology)
        spark = start_session(f"rehearsal/{given.unit}", "local[1]", settings=given.settings)
        records = rehearse(spark, topology, given.unit, run, apart)
        print(f"unit {given.unit}: {records} records went through the next version", flush=True)
        return 0
    except PenstockError as error:
        print(redacted(f"unit {given.unit}: {error}"), flush=True)
    except Exception as error:
        print(redacted(f"unit {given.unit}: {cause_of(error)}"), flush=True)
    finally:
        shutil.rmtree(apart, ignore_errors=True)
    return 1


if __name__ == "__main__":
    sys.stdout.flush()
    code = main()
    os._exit(code)  # its Java ends with it; nothing of it is needed any more
