"""Reading choices from the command line: `threshold`, or `threshold:up_queue=100,down_queue=5`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import yaml

from penstock.errors import ConfigurationError
from penstock.topology.model import Choice


def read_choice(text: str) -> Choice:
    """A name with parameters in YAML values after a colon, separated by commas."""
    name, _, rest = text.partition(":")
    parameters = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise ConfigurationError(f'expected "name:parameter=value,…", got "{text}"')
        parameters[key.strip()] = yaml.safe_load(value)
    return Choice(name.strip(), parameters)


def read_list(text: str) -> list[str]:
    """A list separated by commas; commas inside a choice's parameters are not separators."""
    parts: list[str] = []
    for part in text.split(","):
        if parts and "=" in part and ":" in parts[-1] and ":" not in part.split("=")[0]:
            parts[-1] += "," + part
        elif part.strip():
            parts.append(part.strip())
    return parts


def new_folder(out: Path | None, name: str) -> Path:
    """The folder a run leaves its results in: the given one, or a new one below `runs`."""
    if out is None:
        stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        out = Path("runs") / f"{name}-{stamp}"
        number = 1
        while out.exists():
            number += 1
            out = Path("runs") / f"{name}-{stamp}-{number}"
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"cannot make the folder {out}: {error.strerror}") from error
    return out
