"""Workloads: how many records arrive, and when.

`patterns` are synthetic, `traces` come from files, `registry` knows both by name; `arrivals` turns a
workload into the instants of single records. Everything is a function of time and seed, never of a clock.
"""

from penstock.workload.arrivals import ArrivalStream, arrivals
from penstock.workload.curve import RateCurve
from penstock.workload.model import Pattern, Workload, scaled
from penstock.workload.registry import WORKLOADS, make_workload

__all__ = [
    "WORKLOADS",
    "ArrivalStream",
    "Pattern",
    "RateCurve",
    "Workload",
    "arrivals",
    "make_workload",
    "scaled",
]
