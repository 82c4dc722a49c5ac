"""All workloads by name, and how one is made from a name and parameters.

A new workload needs its class and its line here; help, checks and docs read this table.
"""

from __future__ import annotations

from penstock.choosing import Registry
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

WORKLOADS = Registry(
    "workload", Constant, Linear, Sine, Stepwise, TwoLevel, Pyramid, Square, RandomWalk, DayProfile, Trace
)
"""Every workload by its name in topology files and on the command line."""


def make_workload(choice: Choice) -> Pattern:
    """The workload of this name with these parameters, which may be quantities such as "100/s" or "5 min"."""
    found: Pattern = WORKLOADS.make(choice.name, choice.parameters)
    return found
