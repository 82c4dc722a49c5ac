"""What a run has that a provider may need in order to be made; each takes what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.clock import Clock
from penstock.providers.joining import JoinScript, Members
from penstock.providers.local_hosts import LocalHosts


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is there when the providers of a run's sites are made."""

    seed: int = 0
    """For what is drawn by chance, as the start times of simulated hosts."""
    local_hosts: LocalHosts | None = None
    """Processes of this machine that stand for hosts, where there is a local cluster."""
    owner: str = ""
    """Whose machines these are, unlike any other run's: a tag on everything that is leased."""
    join_script: JoinScript | None = None
    """What a machine elsewhere runs to join the run's cluster; none where an image does it by itself."""
    joined: Members | None = None
    """Which hosts the cluster sees, by address. Without it a machine that runs counts as joined."""
    clock: Clock | None = None
    """The run's, whose instants a provider is told; without it one that begins now."""
    cache: Path | None = None
    """A folder for what may be fetched again, such as price lists."""
