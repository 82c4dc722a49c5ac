"""The topology of a run in its journal, where no folder of the run has it: an attached session's.

It is kept as plain values and not as the text of a file: what is said of somebody else's executors (a memory
that is none of ours, one machine for all of them) need not be what a file may say.
"""

from __future__ import annotations

from penstock.controller.journal import Journal
from penstock.plain import of, plain
from penstock.topology.model import Topology

TOPOLOGY = "topology"
"""What it is remembered as."""


def keep_topology(journal: Journal, topology: Topology) -> None:
    """Put a run's topology on record."""
    journal.remember(TOPOLOGY, plain(topology))


def kept_topology(journal: Journal) -> Topology | None:
    """The topology on record; None where there is none."""
    found = journal.recall(TOPOLOGY)
    if found is None:
        return None
    topology: Topology = of(Topology, found, TOPOLOGY)
    return topology
