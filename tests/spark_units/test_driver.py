"""A unit's driver as a process of its own: attempts that overlap, and what is heard of a start."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.channels.batches import Writer, batches_in, link_into
from penstock.channels.sinks import read_results
from penstock.fleet.ports import Wanted
from penstock.machine.processes import wait_until
from penstock.spark.checkpoints import Checkpoint, SinkLog
from penstock.spark.drivers import Drivers
from penstock.spark.unit.driver import EXIT_SUPERSEDED
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.heartbeat import HeartbeatServer, SupersededError
from penstock.spark.unit.specification import UnitSpecification, topology_text

from .conftest import HERE, one_operator, put

STARTED_S = 120.0


class Started:
    """A unit's driver, and a controller that hears it and never tells it to end."""

    def __init__(self, folder: Path) -> None:
        self.folders = RunFolders(folder)
        self.notices: list[str] = []
        self.drivers = Drivers(f"test-driver-{os.getpid()}-{folder.name}", self.folders)
        self._given = UnitSpecification(
            "run", "unit", 1, 1, topology_text(one_operator()), "local[1]", str(folder), Wanted(), str(HERE)
        )
        self._server = HeartbeatServer(folder, self._hear, lambda unit, n: replace(self._given, attempt=n))

    def _hear(self, beat) -> Wanted:
        self.notices += beat.report.notices
        return Wanted()

    def __enter__(self) -> Started:
        self._server.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.drivers.stop(0.0)
        self._server.stop()

    def ids(self) -> list[str]:
        return sorted(record["record_id"] for record in read_results(self.folders.results / "out"))

    def has_out(self, records: int) -> bool:
        return wait_until(lambda: len(self.ids()) >= records, STARTED_S)

    def log(self) -> str:
        return self.drivers.log("unit").read_text()


def test_what_an_older_attempt_wrote_does_not_become_visible(tmp_path):
    folders = RunFolders(tmp_path)

    def fence():
        if folders.is_superseded("unit", 1):
            raise SupersededError("attempt 2 at unit unit runs, this is 1")

    older = Writer("operator op of unit unit", fence)
    (tmp_path / "part.json").write_text("{}\n")
    folders.note_attempt("unit", 1)
    link_into([tmp_path / "part.json"], 1, [tmp_path / "out"], 0, older)

    folders.note_attempt("unit", 2)
    with pytest.raises(SupersededError):
        link_into([tmp_path / "part.json"], 1, [tmp_path / "out"], 1, older)
    link_into([tmp_path / "part.json"], 1, [tmp_path / "out"], 1, "operator op of unit unit")

    assert [batch.batch_id for batch in batches_in(tmp_path / "out")] == [0, 1]


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_an_older_driver_that_wakes_up_publishes_nothing_and_ends(tmp_path):
    put(tmp_path, range(3))
    with Started(tmp_path) as older:
        older.drivers.start("unit", 1)
        assert older.has_out(3), older.log()
        older.drivers.signal("unit", signal.SIGSTOP)
        # Its Java goes on, and finishes what comes meanwhile.
        put(tmp_path, range(3, 6), batch_id=1)
        staged = SinkLog(older.folders.staging("unit"))
        assert wait_until(lambda: bool(staged.numbers_from(1)), STARTED_S), older.log()

        older.folders.note_attempt("unit", 2)
        older.drivers.signal("unit", signal.SIGCONT)

        assert wait_until(lambda: not older.drivers.alive("unit"), STARTED_S), older.log()
        assert f"ended with code {EXIT_SUPERSEDED}" in older.drivers.last_words("unit")
        assert older.ids() == [f"r{n:06d}" for n in range(3)]


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_what_a_driver_mends_in_a_torn_checkpoint_reaches_its_controller(tmp_path):
    put(tmp_path, range(3))
    with Started(tmp_path) as run:
        run.drivers.start("unit", 1)
        assert run.has_out(3), run.log()
        checkpoint = Checkpoint(run.folders.checkpoint("unit"))
        assert wait_until(lambda: checkpoint.finished() == 0, STARTED_S), run.log()
        run.drivers.signal("unit", signal.SIGKILL)
        assert wait_until(lambda: not run.drivers.alive("unit"), STARTED_S)
        # As a power cut leaves it: the file is there, and nothing in it.
        (checkpoint.folder / "commits" / "0").write_bytes(b"")

        run.drivers.start("unit", 2)

        told = "unit unit: the mark of finished batch 0 was torn: the batch is finished again"
        assert wait_until(lambda: told in run.notices, STARTED_S), run.log()
        put(tmp_path, range(3, 6), batch_id=1)
        assert run.has_out(6), run.log()
        assert run.ids() == [f"r{n:06d}" for n in range(6)]
