"""Images and queries in one stateful unit on Spark: right in every answer, also after a restart."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cv2")

from cells.checking import check, read
from cells.feed import IMAGES, QUERIES, Load, by_tick, image_record, query_record
from cells.laboratory import topology_of
from cells.tissue import make_album

from penstock.channels.batches import publish
from penstock.spark.checkpoints import Checkpoint
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.query import UnitQuery

pytestmark = pytest.mark.spark

LOAD = Load("constant", {"level_per_s": 60}, duration_s=4.0, query_every=8, megapixels=0.05, album=6)


def write(folders: RunFolders, album: Path, ticks: list[Any]) -> None:
    """The records of some ticks, as the feed writes them."""
    import json

    for tick, images, queries in ticks:
        for source, records in (
            (IMAGES, [image_record(image, album, 1.7e9) for image in images]),
            (QUERIES, [query_record(query, 1.7e9) for query in queries]),
        ):
            if records:
                written = folders.sources / f"_writing-{source}-{tick}"
                written.mkdir(parents=True)
                file = written / "records.json"
                file.write_text("\n".join(map(json.dumps, records)) + "\n")
                publish(written, [file], len(records), [folders.sources / source / "lab"], tick)


def test_every_answer_is_that_of_the_batch_also_after_a_restart_that_cut_the_state_anew(
    spark: Any, tmp_path: Path
) -> None:
    topology, folders = topology_of(LOAD, together=True), RunFolders(tmp_path / "units")
    (lab,) = topology.units
    cut = replace(topology, units=(replace(lab, shards=3),))
    album = make_album(tmp_path / "album", LOAD.album, LOAD.seed, LOAD.megapixels)
    ticks = list(by_tick(LOAD))
    half = len(ticks) // 2
    for version, part in ((topology, ticks[:half]), (cut, ticks[half:])):
        write(folders, album.folder, part)
        # A new query from the checkpoint, as after a driver's death.
        query = UnitQuery(spark, version, "lab", folders)
        running = query.start()
        assert query.sharding_problem is None
        running.processAllAvailable()
        running.stop()
        query.stop_publishing()
        assert Checkpoint(folders.checkpoint("lab")).shards() == version.units[0].shards

    results = read(folders.results / "results")
    found = check(LOAD, album, 240, results)

    assert found.right, found.rows
    assert found.accuracy > 0.9
    assert found.rows[3] == ("queries → answers", 30, 30)
    # The check can fail: an answer that is another's is noticed.
    asked = next(r for r in reversed(results) if r.row["kind"] == "query")
    broken = base64.b64encode(bytes(len(base64.b64decode(asked.row["intensities"])))).decode()
    spoiled = replace(asked, row={**asked.row, "intensities": broken})
    assert not check(LOAD, album, 240, [*(r for r in results if r is not asked), spoiled]).right
