"""Makes a query's checkpoint fit a query that reads other places than before.

Spark asks for the same sources in the same order. A checkpoint that ends with a finished micro-batch can be
rewritten for others: each source keeps its log and its offset, wherever it now stands; a new one begins at
its beginning (a topic where it is told to), one that is gone is forgotten. State and batch numbers stay. It
is done on a copy (hard links), which takes the checkpoint's place by a rename.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.errors import ConfigurationError
from penstock.spark.checkpoints import Checkpoint, rewritten, sync, whole

LOG = logging.getLogger(__name__)

_KNOWN = re.compile(r"^FileSource\[.*/batch-\*\]$|^kafka\[(?P<topic>.+)\]$")
"""How sources are named that can be told apart: by a folder of batches, or by a topic."""
_PLACES = "penstock-places.json"


def fit(checkpoint: Path, places: Sequence[str], has_output: Callable[[int], bool]) -> bool:
    """Rewrite the checkpoint of a query that does not run for one that reads these places; whether it was.

    `has_output` says whether results of a batch are on record already. ConfigurationError where a batch
    that other places read is half done: nobody could finish it.
    """
    whole(checkpoint)
    known = Checkpoint(checkpoint)
    noted = _fitted(checkpoint) or known.places()
    if noted is None or known.started() < 0:
        return False
    old, new = list(noted), list(places)
    told = len(known.offsets(known.finished()))
    if old == new or not all(map(_KNOWN.match, [*old, *new])) or told not in (0, len(old)):
        # What Spark calls other sources tells them not apart: those stay as they are.
        return False
    batch = known.unfinished()
    if batch is not None and has_output(batch):
        raise ConfigurationError(
            f"the checkpoint {checkpoint} ends with batch {batch}, whose results are out in part, and the "
            "unit now reads other streams: start the version before, let it finish, and change it again"
        )
    with rewritten(checkpoint) as copy:
        if batch is not None:
            # Nothing of it is out: its records are found and planned anew.
            _drop(copy / "offsets" / str(batch))
        _rewrite(copy, old, new)
        _drop(copy / _PLACES)
        (copy / _PLACES).write_text(json.dumps(new))
        sync(copy / _PLACES)
    LOG.warning("the checkpoint %s was made to fit other inputs: %s", checkpoint, ", ".join(new))
    return True


def begin(checkpoint: Path, places: Sequence[str], begins: Mapping[str, Mapping[str, int]]) -> None:
    """Let a query that does not run begin to read topics at an offset in each partition, by place.

    Those it has read already go on where they are. Spark writes down what it began with and looks there
    first: so it is written for it.
    """
    known = Checkpoint(checkpoint)
    read = {topic for offset in known.offsets(known.started()) if offset for topic in offset}
    for index, place in enumerate(dict.fromkeys(places)):
        match, log = _KNOWN.match(place), checkpoint / "sources" / str(index)
        topic = match["topic"] if match is not None else None
        if topic is None or place not in begins or topic in read:
            continue
        log.mkdir(parents=True, exist_ok=True)
        first, part = log / "0", log / ".begin"
        part.write_bytes(b"\0v1\n" + json.dumps({topic: begins[place]}).encode())
        sync(part)
        first.with_name(".0.crc").unlink(missing_ok=True)
        part.replace(first)
        sync(log)


def _rewrite(copy: Path, old: Sequence[str], new: Sequence[str]) -> None:
    """Put each source's log and offset where the new order has it."""
    first_old, first_new = list(dict.fromkeys(old)), list(dict.fromkeys(new))
    logs = copy / "sources"
    present = (
        {int(entry.name) for entry in logs.iterdir() if entry.name.isdigit()} if logs.exists() else set()
    )
    if any(index >= len(first_old) for index in present):
        raise ConfigurationError(
            f"the checkpoint {copy.parent} has more sources than the unit has inputs (an operator reads one "
            "several times): its inputs cannot be changed while it runs"
        )
    aside = copy / "sources-before"
    if logs.exists():
        logs.rename(aside)
    logs.mkdir()
    dropped = {index: copy / f"penstock-dropped-{index}.json" for index in present}
    kept = {index: file.read_bytes() for index, file in dropped.items() if file.exists()}
    for file in dropped.values():
        file.unlink(missing_ok=True)
    for place, key in enumerate(first_new):
        index = first_old.index(key) if key in first_old else None
        if index is not None and index in present:
            (aside / str(index)).rename(logs / str(place))
            if index in kept:
                (copy / f"penstock-dropped-{place}.json").write_bytes(kept[index])
    shutil.rmtree(aside, ignore_errors=True)
    finished = Checkpoint(copy).finished()
    for number in (finished, finished - 1):
        file = copy / "offsets" / str(number)
        if file.exists():
            version, metadata, *lines = file.read_text().splitlines()
            by_key = dict(zip(reversed(old), reversed(lines), strict=True))
            text = "\n".join([version, metadata, *(by_key.get(key, "-") for key in new)])
            _drop(file)
            file.write_text(text)
            sync(file)


def _fitted(checkpoint: Path) -> list[str] | None:
    """The places a checkpoint was last made to fit: in it, so that both are there or neither."""
    try:
        found: list[str] = json.loads((checkpoint / _PLACES).read_text())
    except FileNotFoundError:
        return None
    return found


def _drop(file: Path) -> None:
    """Remove an entry of a log with Spark's checksum of it."""
    file.unlink(missing_ok=True)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
