"""Mends what a power cut tore in the newest entries of a checkpoint, where that takes no guess.

Spark renames a file into its place without bringing it to the disk first, so after a power cut the newest
entry of a log may be empty or half. A batch that is not finished can be planned anew, and one that is
finished can be finished again; everything else is told, and waits for a person.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.errors import ConfigurationError
from penstock.machine.files import written
from penstock.spark.checkpoints import Checkpoint

LOG = logging.getLogger(__name__)


def mend(checkpoint: Path, has_output: Callable[[int], bool]) -> list[str]:
    """Mend the newest entries of a query that does not run; what was done, in words.

    `has_output` says whether the results of a batch are on record already. ConfigurationError where an entry
    is torn that cannot be made again.
    """
    known = Checkpoint(checkpoint)
    told = []
    finished = known.finished()
    if finished >= 0 and not _whole(checkpoint / "commits" / str(finished)):
        (checkpoint / "commits" / str(finished)).unlink()
        told.append(f"the mark of finished batch {finished} was torn: the batch is finished again")
    told += _begin_anew(checkpoint, known.finished())
    started = known.started()
    torn = [checkpoint / "offsets" / str(started)] if started >= 0 else []
    for index in _numbers(checkpoint / "sources"):
        torn += known.source_log(index).files_after(-1)[-1:]
    torn = [file for file in torn if not _whole(file)]
    if not torn:
        return _said(told)
    batch = known.unfinished()
    names = ", ".join(str(file.relative_to(checkpoint)) for file in torn)
    if batch is None or has_output(batch):
        raise ConfigurationError(
            f"the checkpoint {checkpoint} is torn at {names}, and the results of that batch are out: whoever "
            "made it anew would lose or double records. Put the file back from a copy, or begin with a new "
            "folder"
        )
    # Nothing of this batch is out: without its entries its records are found and planned anew.
    for file in [*torn, checkpoint / "offsets" / str(batch)]:
        file.unlink(missing_ok=True)
    return _said([*told, f"batch {batch} was torn before it had results ({names}): it is planned anew"])


def _begin_anew(checkpoint: Path, finished: int) -> list[str]:
    """Write anew what sources on Kafka began with, where it is torn and a batch has been finished since.

    Spark reads that note at every start, and goes by it before the first batch alone: later ones begin where
    the one before ended, which is in the offsets. So any place it had come to will do.
    """
    told = []
    for index in _numbers(checkpoint / "sources") if finished >= 0 else ():
        file = checkpoint / "sources" / str(index) / "0"
        place = None if _whole(file) else _kafka_place(checkpoint / "offsets" / str(finished), index)
        if place is not None:
            (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
            written(file, f"\0v1\n{place}", durable=True)
            told.append(
                f"what input {index} began with was torn (sources/{index}/0): nothing begins there any more, "
                f"it has the place of batch {finished} now"
            )
    return told


def _kafka_place(entry: Path, index: int) -> str | None:
    """How far a source on Kafka had come by an entry of offsets; None of another source, or a torn entry."""
    try:
        line = entry.read_text().splitlines()[2 + index] if _whole(entry) else "{}"
        topics = json.loads(line)
    except (OSError, ValueError, IndexError):
        return None
    return line if topics and all(isinstance(partitions, dict) for partitions in topics.values()) else None


def _said(told: list[str]) -> list[str]:
    for text in told:
        LOG.warning("%s", text)
    return told


def _whole(file: Path) -> bool:
    """Whether a log's entry has its version and, behind it, nothing but whole lines of JSON."""
    try:
        # What a Kafka source began with is written behind a zero, for the sake of old versions of Spark.
        version, *lines = file.read_text().removeprefix("\0").splitlines()
        return version.startswith("v") and bool(lines) and all(_is_json(line) for line in lines)
    except (FileNotFoundError, ValueError):
        return not file.exists()


def _is_json(line: str) -> bool:
    if line in ("", "-"):
        return True
    try:
        found: Any = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict)


def _numbers(folder: Path) -> list[int]:
    try:
        return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())
    except FileNotFoundError:
        return []
