"""Files and YAML from outside, read within bounds: nothing in them takes all the memory, or all day.

The topology file is one such file; configuration maps, daily profiles, calibrations and values on the command
line are others. A few lines can stand for billions of values, a device has no end, and a value can bear a tag
that it does not fit. All of them are refused here, in words.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import Node

from penstock.errors import ConfigurationError, Mistake, TopologyError
from penstock.topology.reading import DEEPEST, line_of, refuse_bombs, refuse_tags

LARGEST_FILE = 256 * 1024
"""Bytes of a file: a topology of a thousand operators has less than half of it."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader in C where it is there: ten times as fast."""


def read_text(file: Path, what: str, most: int = LARGEST_FILE) -> str:
    """The text of a file of at most so many bytes; ConfigurationError says why there is none.

    `what` is expected there, as messages say it. They leave out the file's name: who calls puts it first.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(most + 1)
    except (OSError, ValueError) as error:  # a path may hold a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"cannot be read: {reason}") from None
    if len(content) > most:
        raise ConfigurationError(f"larger than {most // 1024} KiB; expected {what}, which is smaller")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError("expected UTF-8 text") from None


def composed(text: str, file: str | None, what: str) -> Node | None:
    """The node that a YAML text describes, None for nothing; TopologyError where it is none, or too deep."""
    if len(text) > LARGEST_FILE:
        message = f"longer than {LARGEST_FILE:,} characters; expected {what}, which is shorter"
        raise TopologyError([Mistake(message, file, None, "unreadable")])
    try:
        _refuse_depth(text, file, what)
        node: Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise TopologyError([_syntax_mistake(error, file)]) from None
    except UnicodeEncodeError:
        raise TopologyError([Mistake("expected UTF-8 text", file, None, "unreadable")]) from None
    except RecursionError:
        raise TopologyError([Mistake(f"nested too deep to be {what}", file, None, "bad-yaml")]) from None
    return node


def plain_yaml(text: str, file: str | None, what: str) -> Any:
    """The values that a YAML text holds, None for nothing; TopologyError says what is wrong with it."""
    node = composed(text, file, what)
    if node is None:
        return None
    refuse_bombs(node, file)
    refuse_tags(node, file)
    try:
        return yaml.constructor.SafeConstructor().construct_document(node)
    except yaml.YAMLError as error:
        raise TopologyError([_syntax_mistake(error, file)]) from None
    except (ValueError, ArithmeticError) as error:  # a date of a thirteenth month, an hour beyond numbers
        raise TopologyError([Mistake(f"expected {what}: {error}", file, line_of(node), "bad-yaml")]) from None


def _refuse_depth(text: str, file: str | None, what: str) -> None:
    """TopologyError for a text nested too deep; the faster loader would otherwise end the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            message = f"nested deeper than {DEEPEST} levels; {what} needs fewer"
            mark = event.start_mark
            raise TopologyError([Mistake(message, file, None if mark is None else mark.line + 1, "bad-yaml")])


def _syntax_mistake(error: yaml.YAMLError, file: str | None) -> Mistake:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = None if mark is None else int(mark.line) + 1
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    context = getattr(error, "context", None)
    return Mistake(
        f"not valid YAML: {problem}{f' ({context})' if context else ''}; "
        "check the indentation, colons and quotes around this line",
        file,
        line,
        "bad-yaml",
    )
