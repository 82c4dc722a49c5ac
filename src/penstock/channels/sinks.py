"""Where results leave: the user's function, or one of three built-in sinks.

`jsonl:FOLDER` and `parquet:FOLDER` write each micro-batch into a folder of its own, by one rename: a batch
that is written again after a crash is dropped, so results are there exactly once. Without a function,
records are counted and discarded. A user's function gets `(batch, batch_id)` and may be called again with
the same number after a crash: it keeps results single by that number or by the records' ids.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.channels.batches import batches_in, data_files, write_batch
from penstock.errors import ConfigurationError
from penstock.topology.model import Sink, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUILT_IN = {"jsonl": "json", "parquet": "parquet"}
"""Built-in sinks by the word before the colon, and their file format."""

SinkFunction = Callable[["DataFrame", int], None]


def make_sink(
    sink: Sink,
    operator: str,
    results: Path,
    writer: str,
    *,
    gathered: bool = False,
    durable: bool = False,
) -> SinkFunction:
    """What takes an operator's records for a sink; relative result folders are below `results`.

    `writer` is the mark of whoever writes, for a folder has one writer. `gathered` is for executors that do
    not share this machine's disk: the driver writes what they made. With `durable` a batch in a folder is on
    the disk for good before it counts.
    """
    if sink.function is None:
        return discard
    file_format = folder_format(sink.function)
    if file_format is not None:
        return _folder_sink(result_folder(sink, operator, results), file_format, writer, gathered, durable)
    found: SinkFunction = load_function(sink.function, f"sink {sink.name}")
    return found


def folder_format(function: str | None) -> str | None:
    """The file format of a built-in sink that writes folders of batches; None for any other sink."""
    return BUILT_IN.get(function.partition(":")[0]) if function is not None else None


def result_folder(sink: Sink, operator: str, results: Path) -> Path:
    """Where a built-in sink writes an operator's records; relative folders are below `results`.

    A sink with several inputs is served by each: a folder each keeps batch numbers apart.
    """
    folder = results / (str(sink.function).partition(":")[2] or sink.name)
    return folder / operator if len(sink.inputs) > 1 else folder


def result_folders(sink: Sink, results: Path) -> list[Path]:
    """Where the records of a sink that writes folders of batches are."""
    return [result_folder(sink, operator, results) for operator in sink.inputs]


def clashing_folders(topology: Topology) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Mistakes of sinks whose folder is another's too, as (place in the file, code, message)."""
    run = Path("/run")
    taken: dict[str, str] = {}
    for sink in topology.sinks:
        if folder_format(sink.function) is None:
            continue
        at = ("sinks", sink.name, "function")
        for folder in result_folders(sink, run / "results"):
            place = os.path.normpath(folder)
            shown = os.path.relpath(place, run / "results") if place.startswith("/run/") else place
            if place in taken:
                whose = f'sink "{taken[place]}"' if taken[place] != sink.name else "another input of it"
                yield (
                    at,
                    "doubled-folder",
                    (
                        f'sink "{sink.name}": its folder "{shown}" is also that of {whose}; records would be '
                        "lost: give each a folder of its own"
                    ),
                )
            elif place.startswith("/run/") and not place.startswith("/run/results/"):
                yield (
                    at,
                    "doubled-folder",
                    (
                        f'sink "{sink.name}": its folder "{shown}" is among those the run keeps for itself '
                        "(channels, sources, units); expected a folder below its results, or an absolute one"
                    ),
                )
            taken.setdefault(place, sink.name)


def discard(batch: DataFrame, batch_id: int) -> None:
    """Compute the records and drop them."""
    batch.write.format("noop").mode("overwrite").save()


def _folder_sink(folder: Path, file_format: str, writer: str, gathered: bool, durable: bool) -> SinkFunction:
    def write(batch: DataFrame, batch_id: int) -> None:
        write_batch(
            batch, folder, [folder], batch_id, file_format, writer, durable=durable, gathered=gathered
        )

    return write


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Everything a `jsonl:` sink has written, batch by batch, without Spark."""
    records: list[dict[str, Any]] = []
    for batch in batches_in(folder):
        for file in data_files(batch.path):
            records.extend(json.loads(line) for line in file.read_text().splitlines())
    return records


def load_function(reference: str, whose: str) -> Callable[..., Any]:
    """The function `module:function` names; the working folder is looked in too, as with `python -m`."""
    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise ConfigurationError(f"{whose}: expected a function as module:function, got {reference!r}")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigurationError(
            f"{whose}: module {module_name!r} cannot be imported ({error}); it is looked for beside the "
            "topology file, in the working folder and among installed packages"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigurationError(f"{whose}: module {module_name!r} has no function {name!r}")
    loaded: Callable[..., Any] = function
    return loaded
