"""A source read in several branches has several lines in a query's offsets: the right one counts."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.channels.files_taken import FilesConsumption
from penstock.channels.model import Arrival
from penstock.spark.checkpoints import Checkpoint


def a_run_of_three_batches(root: Path) -> tuple[Path, Path, Path]:
    """A checkpoint whose query reads `slow` in two branches before `fast`, and has finished two batches.

    `slow` had files in the first batch only, `fast` in all three; the third is started, not finished.
    """
    checkpoint = root / "checkpoint"
    slow, fast = root / "slow", root / "fast"
    logs = {0: (slow, 1), 1: (fast, 3)}
    for index, (folder, batches) in logs.items():
        log = checkpoint / "sources" / str(index)
        log.mkdir(parents=True)
        for number in range(batches):
            batch = folder / f"batch-{number:09d}-10r-1f"
            batch.mkdir(parents=True)
            (batch / "part.json").write_text("")
            entry = {"path": f"file://{batch}/part.json", "timestamp": 1000 * (number + 1), "batchId": number}
            (log / str(number)).write_text("v1\n" + json.dumps(entry))
    (checkpoint / "offsets").mkdir()
    (checkpoint / "commits").mkdir()
    for number in range(3):
        lines = [json.dumps({"logOffset": offset}) for offset in (0, 0, number)]
        (checkpoint / "offsets" / str(number)).write_text("\n".join(["v1", "{}", *lines]))
        if number < 2:
            (checkpoint / "commits" / str(number)).write_text("v1\n{}")
    return checkpoint, slow, fast


def test_the_line_written_down_for_a_folder_is_used(tmp_path: Path) -> None:
    checkpoint, slow, fast = a_run_of_three_batches(tmp_path)
    Checkpoint(checkpoint).note_places(
        [f"FileSource[{slow}/batch-*]", f"FileSource[{slow}/batch-*]", f"FileSource[{fast}/batch-*]"],
    )
    assert FilesConsumption(slow, checkpoint).backlog() == (0, 0)
    assert FilesConsumption(fast, checkpoint).backlog() == (0, 10)
    assert FilesConsumption(fast, checkpoint).arrivals(1) == [Arrival(2.0, 10.0)]
    by_the_run = FilesConsumption(fast, checkpoint).arrivals(1, lambda told_s: told_s - 1.0)
    assert by_the_run == [Arrival(1.0, 10.0)], "files bear the time of day"
    assert FilesConsumption(slow, checkpoint).arrivals(1) == []
    assert FilesConsumption(fast, checkpoint).clean() == 2


def test_without_it_a_source_and_its_line_have_the_same_number(tmp_path: Path) -> None:
    checkpoint, slow, _ = a_run_of_three_batches(tmp_path)
    assert FilesConsumption(slow, checkpoint).backlog() == (0, 0)
