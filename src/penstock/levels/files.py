"""Small YAML files with checked content: what is wrong is told with the file's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml

from penstock.errors import ConfigurationError, TopologyError
from penstock.plain import of, plain
from penstock.topology.bounded import plain_yaml, read_text

Made = TypeVar("Made")


def read_yaml(kind: type[Made], file: Path, what: str) -> Made:
    """A value of this type out of a file; ConfigurationError where it cannot be read as one."""
    try:
        given = plain_yaml(read_text(file, what), str(file), what)
    except TopologyError as error:
        mistake = error.mistakes[0]
        place = str(file) if mistake.line is None else f"{file}:{mistake.line}"
        raise ConfigurationError(f"expected {what} in {place}: {mistake.message}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"expected {what} in {file}: {error}") from None
    try:
        made: Made = of(kind, given)
    except ConfigurationError as error:
        raise ConfigurationError(f"expected {what} in {file}: {error}") from None
    return made


def write_yaml(value: Any, file: Path) -> Path:
    """Write a value to a file, making its folder where it is missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=True, width=100))
    return file
