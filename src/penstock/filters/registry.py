"""The filters by name. A topology file's `filter:`, `--filter` and the docs all read this table.

A new filter is one file with a frozen dataclass for its parameters (each field with its one-line `doc`)
and one line here.
"""

from __future__ import annotations

from dataclasses import Field
from typing import Any, ClassVar, Protocol

from penstock.choosing import Registry
from penstock.filters.gaussian import GaussianParameters
from penstock.filters.kalman import KalmanParameters
from penstock.filters.none import NoneParameters
from penstock.filters.readings import Filter
from penstock.filters.tracking import Tracker
from penstock.topology.model import Choice


class FilterParameters(Protocol):
    """What the registry holds: a frozen dataclass of parameters that makes its filter."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    name: ClassVar[str]

    def make(self) -> Filter:
        """A filter for one run."""
        ...

    def track(self) -> Tracker | None:
        """A filter for a single number of a unit; None where nothing is smoothed."""
        ...


def _filter_of(parameters: FilterParameters) -> Filter:
    return parameters.make()


def _tracker_of(parameters: FilterParameters) -> Tracker | None:
    return parameters.track()


FILTERS = Registry("filter", NoneParameters, GaussianParameters, KalmanParameters, finish=_filter_of)
"""Every filter by name."""
_TRACKERS = Registry("filter", NoneParameters, GaussianParameters, KalmanParameters, finish=_tracker_of)


def make_filter(choice: Choice) -> Filter:
    """The filter a topology names, for one run; ConfigurationError tells what is wrong with the choice."""
    found: Filter = FILTERS.make(choice.name, choice.parameters)
    return found


def make_tracker(choice: Choice) -> Tracker | None:
    """The filter a topology names, for a single number of a unit; None where nothing is smoothed."""
    found: Tracker | None = _TRACKERS.make(choice.name, choice.parameters)
    return found
