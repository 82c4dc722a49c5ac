"""Room for the next version of units beside those that run, for as long as it is made ready and taken up.

Who places executors may put those of the next version, and those that move meanwhile, on any host with room.
So it is not this or that host that is kept, but as much room as is needed: hosts are leased until there is,
and none is given back before the next version was heard of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.controller.deciding import room_for
from penstock.fleet.actions import Action
from penstock.fleet.units import UnitLife, UnitState
from penstock.policies.view import View
from penstock.topology.model import Topology


@dataclass(slots=True)
class Room:
    """The room that is kept, if any."""

    _units: Sequence[str] = ()
    _topology: Topology | None = None
    _reason: str = ""
    _until_s: float = -math.inf
    hosts: frozenset[str] = field(default=frozenset())
    """Hosts that are counted on at present."""

    def make(self, units: Sequence[str], topology: Topology, reason: str) -> None:
        """Have room for one instance more of each of these units, as they are in a version to come."""
        self._units, self._topology, self._reason = tuple(units), topology, reason
        self._until_s = math.inf

    def end(self, at_s: float) -> None:
        """Lease nothing for it any more, and keep what there is until this instant at the latest."""
        self._topology, self.hosts, self._until_s = None, frozenset(), at_s

    def leases(self, view: View) -> list[Action]:
        """What has to be leased so that there is room."""
        if self._topology is None:
            return []
        hosts, leases = room_for(replace(view, topology=self._topology), self._units, self._reason)
        self.hosts = frozenset(hosts)
        return leases

    def keeps(self, view: View, units: Mapping[str, UnitLife]) -> bool:
        """Whether no host is given back: the next version is not there, or was not heard of yet."""
        if view.now_s >= self._until_s:
            return False
        running = view.deployment.running
        heard = all(u.state is UnitState.RUNNING and running.get(name) for name, u in units.items())
        return self._topology is not None or not heard
