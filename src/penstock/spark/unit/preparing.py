"""The next version of a unit, made ready beside the one that runs.

A driver that is prepared starts its session and its executors, as far as there is room for them, and takes
the newest records of the unit through the version to come: what comes out goes nowhere, and neither streams
nor checkpoint are touched. It leaves a note of how that went and waits. Told that it is its turn, it goes on
from the checkpoint the version before has left; told that it is not, it ends.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.machine.files import PRIVATE, written
from penstock.machine.secrets import redacted
from penstock.plain import from_json, to_json
from penstock.spark.gateway.errors import cause_of
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.heartbeat import HeartbeatClient
from penstock.spark.unit.rehearsal import OtherTypesError, can_be_rehearsed, rehearse
from penstock.spark.unit.specification import UnitSpecification

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.gateway.executors import ExecutorControl

LOG = logging.getLogger(__name__)

PREPARED = "prepared.json"
"""The file in a unit's folder that says how far its next version is."""
ROOM_S = 20.0
"""How long executors beside those that run are waited for."""
LOOK_S = 0.1
ALONE_S = 60.0
"""A prepared driver whose controller does not answer for so long ends."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """How the preparation of a unit's next version went."""

    records: int | None = None
    """Records that went through it; None where it could not be tried, and `why_not` says why."""
    why_not: str = ""
    problem: str | None = None
    """Why it must not take over; None where nothing is known against it."""

    @staticmethod
    def read(folder: Path) -> Prepared | None:
        """The note in a unit's folder; None where there is none yet."""
        try:
            return from_json(Prepared, (folder / PREPARED).read_text())
        except (OSError, PenstockError):
            return None


def prepare(spark: SparkSession, executors: ExecutorControl, specification: UnitSpecification) -> Prepared:
    """Try the version to come, and write down how it went."""
    found = _tried(spark, executors, specification)
    folder = RunFolders(Path(specification.folder)).unit(specification.unit)
    written(folder / PREPARED, to_json(found), mode=PRIVATE)
    return found


def await_turn(client: HeartbeatClient) -> UnitSpecification:
    """What to run, once it is its turn; SupersededError where it never will be."""
    heard_s = time.monotonic()
    while True:
        found = client.turn()
        if found is not None:
            return found
        if not client.away:
            heard_s = time.monotonic()
        elif time.monotonic() - heard_s > ALONE_S:
            raise PenstockError("its controller is gone")
        time.sleep(LOOK_S)


def _tried(spark: SparkSession, executors: ExecutorControl, specification: UnitSpecification) -> Prepared:
    topology, unit = specification.read_topology(), specification.unit
    if specification.storage is not None or not can_be_rehearsed(topology, unit):
        return Prepared(why_not="its inputs cannot be read beside who reads them")
    deadline_s = time.monotonic() + ROOM_S
    while not executors.present():
        if time.monotonic() >= deadline_s:
            return Prepared(why_not="there was no room for an executor of it beside those that run")
        time.sleep(LOOK_S)
    run = RunFolders(Path(specification.folder))
    apart = Path(tempfile.mkdtemp(prefix="rehearsal-", dir=run.root))
    try:
        return Prepared(rehearse(spark, topology, unit, run, apart, specification.bootstrap))
    except OtherTypesError as error:
        return Prepared(why_not=str(error))
    except PenstockError as error:
        return Prepared(problem=redacted(f"unit {unit}: {error}"))
    except Exception as error:
        return Prepared(problem=redacted(f"unit {unit}: {cause_of(error)}"))
    finally:
        shutil.rmtree(apart, ignore_errors=True)
