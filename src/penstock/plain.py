"""Values as JSON has them, and back: dataclasses, named tuples, enumerations, money and paths.

What comes back is checked against the types of its fields, so that a message or a file that was torn, edited
or made up ends in a ConfigurationError that names the place, never in a value of a wrong type.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from penstock.errors import ConfigurationError
from penstock.quantities import shown

_MOST = sys.float_info.max
"""The largest number there is: what is not below it is infinite, or none."""


class Word(str, enum.Enum):
    """An enumeration of words that print as themselves (Python 3.10 has no StrEnum)."""

    __str__ = str.__str__

    def __format__(self, format_spec: str) -> str:
        return str.__format__(self, format_spec)


Made = TypeVar("Made")


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, bool | int | float) or type(value) is str:
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Decimal | Path | str):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(part) for name, part in zip(value._fields, value, strict=True)}
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, Sequence | frozenset | set):
        return [plain(part) for part in value]
    raise TypeError(f"{type(value).__name__} has no plain form")


def to_json(value: Any) -> str:
    """A value as JSON text."""
    return json.dumps(plain(value), allow_nan=False)


def from_json(kind: type[Made], text: str | bytes) -> Made:
    """A value of this type out of JSON text; ConfigurationError where it is none."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"expected JSON, got what is none: {error}") from None
    made: Made = of(kind, given)
    return made


def of(kind: Any, given: Any, place: str = "") -> Any:
    """A value of this type out of plain values; ConfigurationError names the place of a mistake."""
    origin = get_origin(kind)
    if kind is Any:
        return given
    if origin in (Union, UnionType):
        options = get_args(kind)
        if given is None and NoneType in options:
            return None
        (wanted,) = [option for option in options if option is not NoneType]
        return of(wanted, given, place)
    if dataclasses.is_dataclass(kind) or (isinstance(kind, type) and hasattr(kind, "_fields")):
        return _record(kind, given, place)
    if origin is tuple:
        _require(isinstance(given, list), "a list", given, place)
        parts = get_args(kind)
        if len(parts) == 2 and parts[1] is Ellipsis:
            return tuple(of(parts[0], part, f"{place}[{n}]") for n, part in enumerate(given))
        _require(len(given) == len(parts), f"a list of {len(parts)}", given, place)
        return tuple(of(p, g, f"{place}[{n}]") for n, (p, g) in enumerate(zip(parts, given, strict=True)))
    if origin is not None and issubclass(origin, Mapping):
        _require(isinstance(given, dict), "a mapping", given, place)
        inner = get_args(kind)[1]
        return {name: of(inner, part, f"{place}.{name}") for name, part in given.items()}
    return _scalar(kind, given, place)


def _scalar(kind: Any, given: Any, place: str) -> Any:
    if kind is bool:
        _require(isinstance(given, bool), "true or false", given, place)
        return given
    if kind is int:
        _require(isinstance(given, int) and not isinstance(given, bool), "a whole number", given, place)
        return given
    if kind is float:
        number = isinstance(given, int | float) and not isinstance(given, bool) and abs(given) <= _MOST
        _require(number, "a number", given, place)
        return float(given)
    if kind is str:
        _require(isinstance(given, str), "text", given, place)
        return given
    _require(isinstance(given, str | int | float), "a value", given, place)
    try:
        return kind(given)
    except (ValueError, TypeError, InvalidOperation):
        raise ConfigurationError(
            f"{place or 'value'}: expected a {kind.__name__}, got {shown(given)}"
        ) from None


def _record(kind: Any, given: Any, place: str) -> Any:
    _require(isinstance(given, dict), f"the fields of a {kind.__name__}", given, place)
    hints = _hints(kind)
    unknown = sorted(str(name) for name in set(given) - set(hints))
    _require(not unknown, f"fields of a {kind.__name__}", ", ".join(unknown), place)
    values = {name: of(hints[name], value, f"{place}.{name}".lstrip(".")) for name, value in given.items()}
    try:
        return kind(**values)
    except TypeError as error:
        raise ConfigurationError(f"{place or kind.__name__}: {error}") from None


@cache
def _hints(kind: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind) if field.init]
    else:
        names = list(kind._fields)
    hints = get_type_hints(kind)
    return {name: hints[name] for name in names}


def _require(right: bool, expected: str, given: Any, place: str) -> None:
    if not right:
        raise ConfigurationError(f"{place or 'value'}: expected {expected}, got {shown(given)}")
