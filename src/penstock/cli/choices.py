"""Reading choices from the command line: `threshold`, or `threshold:up_queue=100,down_queue=5`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.errors import ConfigurationError, QuantityError, TopologyError
from penstock.quantities import duration_s, number, shown
from penstock.topology.bounded import plain_yaml
from penstock.topology.model import Choice, Topology
from penstock.topology.validation import Known, find_mistakes


def read_choice(text: str) -> Choice:
    """A name with parameters in YAML values after a colon, separated by commas."""
    name, _, rest = text.partition(":")
    parameters = {}
    for part in filter(None, _split(rest)):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f'expected "name:parameter=value,…", got {shown(text)}')
        parameters[key.strip()] = read_value(value, key.strip())
    return Choice(name.strip(), parameters)


def read_value(text: str, whose: str) -> Any:
    """One parameter's value, written as in a topology file: 3, 5 min, true, [1, 2, 3]."""
    try:
        return plain_yaml(text, None, "a value")
    except TopologyError as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(f"{whose}: cannot read {shown(text)} ({reason})") from None


def read_list(text: str) -> list[str]:
    """A list separated by commas; commas inside a choice's parameters are not separators."""
    parts: list[str] = []
    for part in _split(text):
        if parts and "=" in part and ":" in parts[-1] and ":" not in part.split("=")[0]:
            parts[-1] += "," + part
        elif part.strip():
            parts.append(part.strip())
    if not parts:
        raise ConfigurationError(f"expected names separated by commas, got {shown(text)}")
    return parts


def _split(text: str) -> list[str]:
    """Text at its commas, but not at those inside brackets."""
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "[{(") - (character in ")}]")
        if character == "," and depth <= 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def read_span(text: str, option: str) -> float:
    """A duration above 0 from an option such as `--duration`."""
    try:
        found = duration_s(text)
    except QuantityError as error:
        raise ConfigurationError(f"{option}: {error}") from None
    if not found > 0:
        raise ConfigurationError(f"{option}: expected a duration above 0, got {shown(text)}")
    return found


def read_share(text: str, option: str) -> float:
    """A share above 0 and below 1 from an option such as `--keep`: "99%", 99 or 0.99."""
    wrong = ConfigurationError(
        f'{option}: expected a share between 0 and 100 %, such as "99%", got {shown(text)}'
    )
    try:
        found = number(text)
    except QuantityError:
        raise wrong from None
    share = found / 100 if found > 1 and not text.strip().endswith("%") else found
    if not 0 < share < 1:
        raise wrong
    return share


def checked(topology: Topology, known: Known) -> Topology:
    """The topology where it is still right after choices were made on top; TopologyError otherwise."""
    mistakes = find_mistakes(topology, known)
    if mistakes:
        raise TopologyError(mistakes)
    return topology


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
    except (OSError, ValueError) as error:  # a path may hold a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"cannot make the folder {shown(str(out))}: {reason}") from error
    return out
