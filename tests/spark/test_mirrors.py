"""A checkpoint that lies on another file system says here what it says there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.checkpoints import Checkpoint
from penstock.spark.gateway.remote import RemoteFiles
from penstock.spark.mirrors import Mirror


class OtherDisk:
    """A folder of this machine, reached by location as any file system is."""

    def names(self, folder: str) -> list[str]:
        place = Path(folder)
        return [path.name for path in place.iterdir()] if place.exists() else []

    def text(self, file: str) -> str:
        return Path(file).read_text()


def begin(checkpoint: Path, batch: int) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"topic": {{"0": {batch}}}}}')


def finish(checkpoint: Path, batch: int) -> None:
    (checkpoint / "commits").mkdir(parents=True, exist_ok=True)
    (checkpoint / "commits" / str(batch)).write_text("v1\n{}")


def test_a_mirror_follows_batches_as_they_begin_end_and_are_forgotten(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    mirror, told = Mirror(OtherDisk(), str(there), here), Checkpoint(here)
    mirror.refresh()
    assert told.started() == told.finished() == -1, "a checkpoint that is not there yet has begun nothing"
    begin(there, 0)
    finish(there, 0)
    begin(there, 1)
    (there / "sources" / "0").mkdir(parents=True)
    (there / "sources" / "0" / "0").write_text('v1\n{"topic": {"0": 0}}')
    (there / "offsets" / ".2.tmp").write_text("half written")
    mirror.refresh()
    assert (told.finished(), told.started(), told.unfinished()) == (0, 1, 1)
    assert told.offsets(1) == [{"topic": {"0": 1}}]
    assert told.source_of('"topic"') == 0
    assert told.first_offsets(0) == {"topic": {"0": 0}}
    identity = told.identity()
    finish(there, 1)
    (there / "offsets" / "0").unlink()
    mirror.refresh()
    assert told.unfinished() is None
    assert told.offsets(0) == []
    assert told.identity() == identity, "what is only here stays"


def test_a_file_system_that_does_not_answer_changes_nothing(tmp_path: Path) -> None:
    class Silent(OtherDisk):
        def names(self, folder: str) -> list[str]:
            raise OSError("no answer")

    finish(tmp_path, 3)
    Mirror(Silent(), "nobodys://here", tmp_path).refresh()
    assert Checkpoint(tmp_path).finished() == 3


@pytest.mark.spark
@pytest.mark.skipif("PENSTOCK_CLUSTERS" not in os.environ, reason="set PENSTOCK_CLUSTERS=1")
def test_a_mirror_tells_through_hadoop_what_a_query_has_started_and_finished(
    spark: Any, tmp_path: Path
) -> None:
    there, here = f"file://{tmp_path}/there", tmp_path / "here"
    mirror = Mirror(RemoteFiles(spark), there, here)
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", there).start()
    real, told = Checkpoint(tmp_path / "there"), Checkpoint(here)
    while real.finished() < 2:
        assert query.awaitTermination(0.05) is not True
    query.stop()
    mirror.refresh()
    assert (told.finished(), told.started()) == (real.finished(), real.started())
    assert told.offsets(2) == real.offsets(2) != []
