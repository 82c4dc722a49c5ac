"""Topologies: what is to be computed, in which units, at which sites, within which bounds.

`model` holds the frozen vocabulary, `file` reads it from YAML, `builder` makes it in Python,
`validation` finds every mistake, `difference` compares two versions, `drawing` shows one.
"""

from penstock.topology.model import (
    Channel,
    Choice,
    HostFlavour,
    LatencyBound,
    LoopSettings,
    Operator,
    Service,
    Sink,
    Site,
    Source,
    Topology,
    Unit,
)

__all__ = [
    "Channel",
    "Choice",
    "HostFlavour",
    "LatencyBound",
    "LoopSettings",
    "Operator",
    "Service",
    "Sink",
    "Site",
    "Source",
    "Topology",
    "Unit",
]
