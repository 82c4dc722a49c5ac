"""Everything a topology file may choose by name, gathered from the rooms that know it.

The topology room stands below the rooms of policies, filters, providers and workloads, so it cannot ask
them; this is where they are put together for checking a file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from penstock.channels.registry import CHANNELS, channel_options
from penstock.errors import ConfigurationError
from penstock.filters.registry import FILTERS, make_filter
from penstock.infrastructure.providers import PROVIDERS, provider_parameters
from penstock.policies.registry import POLICIES, make_policy
from penstock.topology.model import Choice
from penstock.topology.validation import Known
from penstock.workload.registry import WORKLOADS, make_workload

_WORDS: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    tuple: "a list",
}


def known_names() -> Known:
    """Every policy, filter, provider, workload and channel with its parameters, and what makes them."""
    return Known(
        policies=_parameters(POLICIES),
        filters=_parameters(FILTERS),
        providers=_parameters(PROVIDERS),
        workloads=_parameters(WORKLOADS),
        channels={kind: channel_options(kind) for kind in CHANNELS},
        makers={
            "policy": _typed(POLICIES, make_policy),
            "filter": _typed(FILTERS, make_filter),
            "provider": _typed(PROVIDERS, provider_parameters),
            "workload": make_workload,
        },
    )


def _parameters(registry: Mapping[str, type[Any]]) -> dict[str, tuple[str, ...]]:
    return {
        name: tuple(field.name for field in dataclasses.fields(kind) if field.init)
        for name, kind in registry.items()
    }


def _typed(registry: Mapping[str, type[Any]], make: Callable[[Choice], object]) -> Callable[[Choice], object]:
    """Make the chosen thing after looking whether its parameters have the types of its fields."""

    def maker(choice: Choice) -> object:
        hints = get_type_hints(registry[choice.name])
        for name, value in choice.parameters.items():
            expected = _plain_types(hints[name])
            if expected and not _fits(value, expected):
                words = " or ".join(_WORDS[kind] for kind in expected)
                raise ConfigurationError(f'parameter "{name}": expected {words}, got {value!r}')
        return make(choice)

    return maker


def _plain_types(hint: Any) -> tuple[type, ...]:
    """The plain types a field allows; none where it is not a plain field."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    found = tuple(get_origin(option) or option for option in options if option is not type(None))
    return found if all(kind in _WORDS for kind in found) else ()


def _fits(value: object, expected: tuple[type, ...]) -> bool:
    if value is None or isinstance(value, bool):
        return value is None or bool in expected
    if isinstance(value, int) and float in expected:
        return True
    return isinstance(value, expected)
