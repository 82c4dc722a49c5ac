"""The filters by name. A topology file's `filter:`, `--filter` and the docs all read this table.

A new filter is one file with a frozen dataclass for its parameters (each field with its one-line `doc`)
and one line here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from penstock.errors import ConfigurationError
from penstock.filters.gaussian import GaussianParameters
from penstock.filters.kalman import KalmanParameters
from penstock.filters.none import NoneParameters
from penstock.filters.readings import Filter
from penstock.quantities import duration_s, ratio
from penstock.topology.model import Choice


class FilterParameters(Protocol):
    """What the registry holds: a frozen dataclass of parameters that makes its filter."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    name: ClassVar[str]

    def make(self) -> Filter:
        """A filter for one run."""
        ...


FILTERS: Mapping[str, type[FilterParameters]] = MappingProxyType(
    {parameters.name: parameters for parameters in (NoneParameters, GaussianParameters, KalmanParameters)}
)
"""Every filter by name."""


@dataclass(frozen=True, slots=True)
class ParameterDoc:
    """One parameter for people to read: its name, default and meaning."""

    name: str
    default: object
    doc: str


def parameters_of(name: str) -> tuple[ParameterDoc, ...]:
    """The parameters of a filter, in order; ConfigurationError for an unknown filter."""
    return tuple(
        ParameterDoc(
            item.name, None if item.default is MISSING else item.default, item.metadata.get("doc", "")
        )
        for item in fields(_found(name))
    )


def describe(name: str) -> str:
    """What a filter does, in one line."""
    return (_found(name).__doc__ or "").strip().splitlines()[0]


def make_filter(choice: Choice) -> Filter:
    """The filter a topology names, for one run; ConfigurationError names the nearest known spelling."""
    parameters = _found(choice.name)
    known = [item.name for item in fields(parameters)]
    for given in choice.parameters:
        if given not in known:
            raise ConfigurationError(
                f"filter {choice.name} has no parameter {given!r}{_nearest(given, known)} "
                f"(known: {', '.join(known) or 'none'})"
            )
    return parameters(**{key: _read(key, value) for key, value in choice.parameters.items()}).make()


def _found(name: str) -> type[FilterParameters]:
    if name not in FILTERS:
        raise ConfigurationError(
            f"expected a filter out of {', '.join(FILTERS)}, got {name!r}{_nearest(name, FILTERS)}"
        )
    return FILTERS[name]


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def _read(key: str, value: object) -> object:
    """Quantities may come as text from a file or the command line: "10 s", "80 %"."""
    if isinstance(value, str) and key.endswith("_s"):
        return duration_s(value)
    if isinstance(value, str) and key.endswith(("_ratio", "_floor", "_ceiling", "_sigma")):
        return ratio(value)
    return value
