"""Filters: readings in, estimates out, so that scaling decides on a state and not on noise.

Numbers in, numbers out: a filter knows instances by name only. All instances of all units that chose
the same filter are stepped in one call. `registry` has them by name; each is one file.
"""

from penstock.filters.bootstrap import starting_instances
from penstock.filters.readings import Estimates, Filter, Readings
from penstock.filters.registry import FILTERS, FilterParameters, make_filter, make_tracker

__all__ = [
    "FILTERS",
    "Estimates",
    "Filter",
    "FilterParameters",
    "Readings",
    "make_filter",
    "make_tracker",
    "starting_instances",
]
