"""What a unit's driver has to know. It travels over the heartbeat, never over a disk or a command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.fleet.ports import Wanted
from penstock.topology.file import dump_topology, parse_topology
from penstock.topology.model import Topology


@dataclass(frozen=True, slots=True)
class UnitSpecification:
    """One attempt at one unit, all of it."""

    run: str
    unit: str
    attempt: int
    revision: int
    topology: str
    """The text of the topology's file."""
    master: str
    folder: str
    """Where the run keeps its streams, checkpoints and results."""
    wanted: Wanted
    """What is wanted of it as it starts."""
    code: str | None = None
    """The folder whose Python modules the topology's functions are in; shipped to executors."""
    bootstrap: str | None = None
    """The broker, where the topology needs one."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The user's own `spark.*` settings; they win."""
    storage: str | None = None
    """The URL its checkpoint lies below; None where it lies in the folder."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that have to be set before its Java starts, such as HADOOP_CONF_DIR."""

    on_trial_s: float = 0.0
    """How long it has yet to prove itself: where all records fail so soon, its version is to blame."""
    anchor_s: float | None = None
    """The anchor of the run's clock, which it measures by; None where it shall take one of its own."""
    prepare: bool = False
    """Whether it shall be ready to take its unit over, and wait until it is told to."""

    def read_topology(self) -> Topology:
        """The topology it is a unit of."""
        return parse_topology(self.topology)


def topology_text(topology: Topology) -> str:
    """A topology as it travels."""
    return dump_topology(topology)
