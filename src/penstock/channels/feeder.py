"""Makes records at the pace of a workload, in real time: the source of tests and demos.

A process of its own writes JSON lines into the streams of a source, so that what is measured is the run,
not the generator (Spark's `rate` source rounds its times to seconds). Ids are numbered without a gap:
whatever arrives at a sink can be reconciled exactly. The source time is the instant the record was due.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import math
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.channels.batches import last_batch, publish
from penstock.channels.sinks import load_function
from penstock.clock import WallClock
from penstock.errors import ConfigurationError
from penstock.machine.files import written
from penstock.topology.model import Choice
from penstock.workload.arrivals import ArrivalStream
from penstock.workload.registry import make_workload

DEFAULT_SCHEMA = "number long"
"""The columns of a source that has a workload but neither function nor schema."""

TICK_S = 0.1
"""How often a file is written: well below what a micro-batch takes, few enough files."""

FINISHED = "_finished.json"
ALIVE = "_alive"
"""Touched by a feeder about once a second: one that hangs does not."""
ALIVE_EVERY_S = 1.0
FULL_S = 1.0
"""How long is waited before a batch is tried again that a full disk did not take."""

_VALUES: Mapping[str, Callable[[str, int], Any]] = {
    **dict.fromkeys(("tinyint", "byte"), lambda name, number: number % 100),
    **dict.fromkeys(("smallint", "short"), lambda name, number: number % 10_000),
    **dict.fromkeys(("int", "integer", "bigint", "long"), lambda name, number: number),
    **dict.fromkeys(("float", "real", "double"), lambda name, number: float(number)),
    "string": lambda name, number: f"{name}-{number % 100}",
    "boolean": lambda name, number: number % 2 == 0,
}


def generated_columns(schema: str) -> list[tuple[str, Callable[[str, int], Any]]]:
    """The columns to fill and how, of a schema of simple types."""
    columns = []
    for part in schema.split(","):
        words = part.split()
        kind = words[1].lower() if len(words) > 1 else ""
        if kind not in _VALUES:
            raise ConfigurationError(
                f"a generated source fills columns of the types {', '.join(_VALUES)}, "
                f"got {part.strip()!r}; give the source a function for anything else"
            )
        if words[0] not in ("record_id", "source_time"):
            columns.append((words[0], _VALUES[kind]))
    return columns


Made = Callable[[int, NDArray[np.float64]], Sequence[Mapping[str, Any]]]
"""(the first record's number, the instants in seconds since the start) to the columns of each record."""


def filled(schema: str) -> Made:
    """Columns filled by their type."""
    columns = generated_columns(schema)

    def fill(first: int, instants_s: NDArray[np.float64]) -> list[dict[str, Any]]:
        return [
            {name: value(name, first + offset) for name, value in columns}
            for offset in range(len(instants_s))
        ]

    return fill


def made_by(reference: str, source: str) -> Made:
    """What the user's `module:function` gives for a source: it is called once, with the source's name.

    What it gives back is called with every tenth of a second that has records, in order from the first, also
    by a feeder that goes on where another was. Bytes become base64, which Spark reads back as binary.
    """
    made: Made = load_function(reference, f"source {source}, records")(source)
    return made


def as_text(value: Any) -> str:
    """Bytes in JSON: base64, which Spark reads back as binary."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise ConfigurationError(f"a record's column cannot be written as JSON: {type(value).__name__}")


def feed(
    source: str,
    workload: Choice,
    schema: str,
    folders: Sequence[Path],
    started_s: float,
    duration_s: float | None,
    now_s: Callable[[], float] = time.time,
    wait: Callable[[float], None] = time.sleep,
    stopped: Callable[[], bool] = lambda: False,
    records: str | None = None,
    durable: bool = False,
) -> int:
    """Write records until the workload, the duration or `stopped` ends it; gives back how many there were.

    Started again with the same `started_s`, it goes on after the last batch it had written. `records` names
    what makes the columns (see `made_by`); without it they are filled by their type. With `durable` a batch
    is on the disk for good before anybody sees it.
    """
    pattern = make_workload(workload)
    lengths = [length for length in (pattern.duration_s(), duration_s) if length is not None]
    end_s = min(lengths) if lengths else float("inf")
    made = filled(schema) if records is None else made_by(records, source)
    arrivals = ArrivalStream(pattern)
    scratch = folders[0].parent
    done_batches = min((last_batch(folder) for folder in folders), default=-1)
    number = 0
    batch_id = -1
    complete = False
    told_s = -math.inf
    scratch.mkdir(parents=True, exist_ok=True)
    while not stopped():
        if (mono_s := time.monotonic()) >= told_s + ALIVE_EVERY_S:
            with contextlib.suppress(OSError):
                (scratch / ALIVE).touch()
            told_s = mono_s
        batch_id += 1
        # Batches lie on a fixed raster, so a restarted feeder makes the same ones again.
        until_s = min(end_s, (batch_id + 1) * TICK_S)
        if (delay_s := started_s + until_s - now_s()) > 0:
            wait(delay_s)
        instants_s = arrivals.until(until_s)
        # Also for batches that are there already: who makes records may remember those before.
        columns = made(number, instants_s) if len(instants_s) else ()
        if len(instants_s) and batch_id > done_batches:
            lines = []
            for offset, (instant_s, own) in enumerate(zip(instants_s, columns, strict=True)):
                record = {
                    "record_id": f"{source}-{number + offset:09d}",
                    "source_time": datetime.fromtimestamp(
                        started_s + float(instant_s), timezone.utc
                    ).isoformat(timespec="microseconds"),
                }
                record.update(own)
                lines.append(json.dumps(record, default=as_text))
            text = "\n".join(lines) + "\n"
            while not (done := _published(text, len(lines), folders, batch_id, durable)) and not stopped():
                wait(FULL_S)
            if not done:
                break
        number += len(instants_s)
        if until_s >= end_s:
            complete = True
            break
    written(scratch / FINISHED, json.dumps({"records": number, "complete": complete}))
    return number


def _published(text: str, records: int, folders: Sequence[Path], batch_id: int, durable: bool) -> bool:
    """Write a batch for all to see; False where the disk does not take it now."""
    writing = folders[0].parent / f"_writing-{batch_id:09d}"
    try:
        writing.mkdir(parents=True, exist_ok=True)
        file = writing / "records.json"
        file.write_text(text)
        publish(writing, [file], records, folders, batch_id, durable=durable)
    except OSError as error:
        # Its log may lie on the same disk.
        with contextlib.suppress(OSError):
            print(f"batch {batch_id} waits: {error}", file=sys.stderr, flush=True)
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a feeder from a JSON file with the arguments of `feed`."""
    parser = argparse.ArgumentParser(description="Write records at the pace of a workload.")
    parser.add_argument("specification", type=Path)
    given = json.loads(parser.parse_args(arguments).specification.read_text())
    if given.get("code"):
        sys.path.insert(0, given["code"])
    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: ended.append(received))
    feed(
        given["source"],
        Choice(given["workload"]["name"], given["workload"]["parameters"]),
        given["schema"],
        [Path(folder) for folder in given["folders"]],
        given["started_s"],
        given["duration_s"],
        now_s=WallClock(given.get("anchor_s")).now_s,
        stopped=lambda: bool(ended),
        records=given.get("records"),
        durable=given.get("durable", False),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
