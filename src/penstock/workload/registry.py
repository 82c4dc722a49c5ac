"""All workloads by name, and how one is made from a name and parameters.

A new workload needs its class and its line here; help, checks and docs read this table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from penstock import quantities
from penstock.choosing import nearest
from penstock.errors import ConfigurationError, QuantityError
from penstock.topology.model import Choice
from penstock.workload.model import Pattern
from penstock.workload.patterns import (
    Constant,
    DayProfile,
    Linear,
    Pyramid,
    RandomWalk,
    Sine,
    Square,
    Stepwise,
    TwoLevel,
)
from penstock.workload.traces import Trace

WORKLOADS: Mapping[str, type[Pattern]] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Constant, Linear, Sine, Stepwise, TwoLevel, Pyramid, Square, RandomWalk, DayProfile, Trace,
        )
    }
)  # fmt: skip
"""Every workload by its name in topology files and on the command line."""


def workload_parameters(name: str) -> tuple[str, ...]:
    """The names of a workload's parameters."""
    return tuple(field.name for field in dataclasses.fields(WORKLOADS[name]))


def make_workload(choice: Choice) -> Pattern:
    """The workload of this name with these parameters, which may be quantities such as "100/s" or "5 min"."""
    kind = WORKLOADS.get(choice.name)
    if kind is None:
        raise ConfigurationError(f'unknown workload "{choice.name}"{nearest(choice.name, WORKLOADS)}')
    hints = get_type_hints(kind)
    known = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    arguments: dict[str, Any] = {}
    for name, value in choice.parameters.items():
        if name not in known:
            raise ConfigurationError(
                f'workload "{choice.name}" has no parameter "{name}"{nearest(name, known)}'
            )
        try:
            arguments[name] = _read(name, known[name], value)
        except QuantityError as error:
            raise ConfigurationError(f'workload "{choice.name}", {name}: {error}') from None
    if kind is Trace and not arguments.get("path"):
        raise ConfigurationError('workload "trace" needs the parameter "path": the file to read')
    try:
        return kind(**arguments)
    except ConfigurationError as error:
        raise ConfigurationError(f'workload "{choice.name}": {error}') from None


def _reader(name: str) -> Callable[[object], float]:
    """How a number is read: the end of its name says its unit."""
    if name.endswith("_per_s"):
        return quantities.rate_per_s
    if name.endswith("_s"):
        return quantities.duration_s
    return quantities.ratio


def _read(name: str, hint: Any, value: object) -> object:
    """A parameter's value in the type of its field; QuantityError says what was expected instead."""
    if get_origin(hint) in (Union, UnionType):
        if value is None:
            return None
        hint = next(option for option in get_args(hint) if option is not type(None))
    if get_origin(hint) is tuple:
        if isinstance(value, str) or not isinstance(value, (list, tuple)):
            raise QuantityError(f"expected a list of numbers, got {value!r}")
        return tuple(_reader(name)(item) for item in value)
    if hint is bool:
        if not isinstance(value, bool):
            raise QuantityError(f"expected true or false, got {value!r}")
        return value
    if hint is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise QuantityError(f"expected a whole number, got {value!r}")
        return value
    if hint is str:
        if isinstance(value, (bool, dict, list)) or value is None:
            raise QuantityError(f"expected text, got {value!r}")
        return str(value)
    return _reader(name)(value)
