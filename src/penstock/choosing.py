"""Choosing a thing by name out of a registry, with its parameters.

Policies, filters, providers and workloads are all frozen dataclasses in a table by name; this makes one
of a name and some parameters, and says what would have been right where either is unknown.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_type_hints

from penstock.errors import ConfigurationError, PenstockError


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as `; did you mean "threshold"?`, or the list of known names where none is near."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f'; did you mean "{close[0]}"?'
    return f" (known: {', '.join(names)})" if names else " (there are none)"


def parameters_of(kind: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """The parameters of a registered dataclass by name."""
    return {field.name: field for field in dataclasses.fields(kind) if field.init}


def made(what: str, registry: Mapping[str, type[Any]], name: str, parameters: Mapping[str, Any]) -> Any:
    """The registered thing of this name with these parameters; ConfigurationError where either is unknown."""
    kind = registry.get(name)
    if kind is None:
        raise ConfigurationError(f'unknown {what} "{name}"{nearest(name, registry)}')
    known = parameters_of(kind)
    for parameter in parameters:
        if parameter not in known:
            raise ConfigurationError(
                f'{what} "{name}" has no parameter "{parameter}"{nearest(parameter, known)}'
            )
    hints = get_type_hints(kind)
    for parameter, value in parameters.items():
        expected = _expected(hints[parameter], value)
        if expected is not None:
            raise ConfigurationError(f'{what} "{name}", {parameter}: expected {expected}, got {value!r}')
    try:
        return kind(**parameters)
    except PenstockError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f'{what} "{name}": {error}') from error


def _expected(hint: Any, value: object) -> str | None:
    """What a value of this type has to be, in words; None where it is right or the type is no scalar."""
    kinds = set(get_args(hint)) or {hint}
    if not kinds <= {bool, int, float, str, type(None)}:
        return None
    if value is None or isinstance(value, bool | str):
        right = type(value) in kinds
    elif isinstance(value, int):
        right = bool(kinds & {int, float})
    else:
        right = isinstance(value, float) and float in kinds and not math.isnan(value)
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return None if right else " or ".join(word for kind, word in words.items() if kind in kinds)
