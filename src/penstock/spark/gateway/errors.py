"""Errors of Spark's in one telling line: what was the matter, not through how many layers it came."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

_TRACEBACK = "Traceback (most recent call last):"
_NAMED = re.compile(r"^\s*(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Warning)\w*: ?.*$")
_WRAPPERS = (
    "PythonException",
    "StreamingQueryException",
    "SparkException",
    "Py4JJavaError",
    "InvocationTargetException",
    "ExecutionException",
    "UndeclaredThrowableException",
)
"""Errors that only say that there was another one."""
_CALLING = "An error occurred while calling"
"""How py4j begins the text of every Java error."""
_MOST_CAUSES = 20


def cause_of(error: BaseException | str) -> str:
    """The line of an error that says why: the last Python error in it, else Java's innermost cause.

    Takes an exception of PySpark, of py4j or of Python, or the text of one.
    """
    told = list(_java_causes(error))
    text = "\n".join([*_messages(error), *told])
    # Below py4j's own line, Java's begins with a colon.
    lines = [line.strip().removeprefix(": ") for line in text.splitlines()]
    python = _python_error(text)
    if python is not None and _CALLING not in python:
        return python
    telling = [cause.splitlines()[0].strip() for cause in told if _tells(cause)]
    if telling:
        return telling[-1]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    telling = [cause for cause in causes if _tells(cause)]
    if telling:
        return telling[-1]
    named = [line for line in lines if _NAMED.match(line) and "py4j" not in line.lower() and _tells(line)]
    if named:
        return named[-1]
    remaining = [line for line in lines if line and not line.startswith(_CALLING)]
    return remaining[0] if remaining else type(error).__name__


def _messages(error: BaseException | str) -> Iterator[str]:
    """The text of an error and of those it was raised from, the outermost first."""
    if isinstance(error, str):
        yield error
        return
    current: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if current is None:
            return
        yield str(current) or type(current).__name__
        current = current.__cause__


def _java_causes(error: BaseException | str) -> Iterator[str]:
    """Java's own words of an error and its causes, the outermost first; nothing where Java is gone."""
    thrown: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with contextlib.suppress(Exception):
        for _ in range(_MOST_CAUSES):
            if thrown is None:
                return
            yield str(thrown.toString())
            thrown = thrown.getCause()


def _tells(line: str) -> bool:
    """Whether a line `some.Exception: message` has a message and is not just about another error."""
    name, _, message = line.strip().partition(":")
    return bool(message.strip()) and name.rpartition(".")[2] not in _WRAPPERS


def _python_error(text: str) -> str | None:
    """The last line of the last Python traceback in a text: the first one that is not indented."""
    if _TRACEBACK not in text:
        return None
    for line in text.rpartition(_TRACEBACK)[2].splitlines()[1:]:
        if line and not line[0].isspace():
            return line.strip()
    return None
