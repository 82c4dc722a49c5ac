"""Where results leave: the user's function, or one of three built-in sinks.

`jsonl:FOLDER` and `parquet:FOLDER` write each micro-batch into a folder of its own, by one rename: a batch
that is written again after a crash is dropped, so results are there exactly once. Without a function,
records are counted and discarded. A user's function gets `(batch, batch_id)` and may be called again with
the same number after a crash: it keeps results single by that number or by the records' ids.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.channels.files import batches_in, data_files, write_batch
from penstock.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUILT_IN = {"jsonl": "json", "parquet": "parquet"}
"""Built-in sinks by the word before the colon, and their file format."""

SinkFunction = Callable[["DataFrame", int], None]


def make_sink(function: str | None, folder: Path, name: str) -> SinkFunction:
    """A sink's function by its text in the topology; relative result folders are below `folder`."""
    if function is None:
        return discard
    word = function.partition(":")[0]
    if word in BUILT_IN:
        return _folder_sink(result_folder(function, folder, name), BUILT_IN[word])
    found: SinkFunction = load_function(function, f"sink {name}")
    return found


def folder_format(function: str | None) -> str | None:
    """The file format of a built-in sink that writes folders of batches; None for any other sink."""
    return BUILT_IN.get(function.partition(":")[0]) if function is not None else None


def result_folder(function: str, folder: Path, name: str) -> Path:
    """Where a built-in sink writes; relative folders are below `folder`."""
    return folder / (function.partition(":")[2] or name)


def discard(batch: DataFrame, batch_id: int) -> None:
    """Compute the records and drop them."""
    batch.write.format("noop").mode("overwrite").save()


def _folder_sink(folder: Path, file_format: str) -> SinkFunction:
    def write(batch: DataFrame, batch_id: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_batch(batch, folder, [folder], batch_id, file_format)

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
