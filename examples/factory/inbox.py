"""The inbox of the person in charge: a folder with one file a message.

A message is named by its record's id. A batch that runs again after a crash writes the same names with
the same content, so every warning and every report is there once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDER_VARIABLE = "FACTORY_INBOX"
DEFAULT_FOLDER = "runs/factory-inbox"


@dataclass(frozen=True, slots=True)
class Message:
    """A warning or a report as the person reads it."""

    id: str
    kind: str
    """`defect`, `temperature` or `report`."""
    machine: str
    sequence: int
    text: str
    document: Path | None
    """The report's PDF."""


def inbox_folder() -> Path:
    """The inbox: what the environment variable FACTORY_INBOX names, or one below `runs/`."""
    return Path(os.environ.get(FOLDER_VARIABLE, DEFAULT_FOLDER))


def put_into_inbox(batch: DataFrame, batch_id: int) -> None:
    """The sink: write every message of a micro-batch into the inbox."""
    folder = inbox_folder()
    for row in batch.collect():
        write_message(folder, row.asDict())


def write_message(folder: Path, message: Mapping[str, Any]) -> None:
    """Write one message; a name that is taken is written again with the same content."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{message['kind']}-{message['record_id']}"
    document = message.get("document")
    if document is not None:
        _replace(folder / f"{name}.pdf", bytes(document))
    content = {key: message[key] for key in ("record_id", "kind", "machine", "sequence", "time_s", "text")}
    content["source_time"] = str(message.get("source_time"))
    _replace(folder / f"{name}.json", json.dumps(content).encode())


def messages_in(folder: Path) -> list[Message]:
    """Every message of an inbox, by name."""
    found = []
    for file in sorted(folder.glob("*.json")):
        content = json.loads(file.read_text())
        document = file.with_suffix(".pdf")
        found.append(
            Message(
                content["record_id"],
                content["kind"],
                content["machine"],
                content["sequence"],
                content["text"],
                document if document.exists() else None,
            )
        )
    return found


def _replace(file: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(file)
