"""How long things may take, and what has to be said: the two small values around the fleet."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.fleet.deployment import Host
from penstock.trying import PAUSES, Pauses


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things may take until they count as hung; each is told in words when it is passed."""

    unit_silent_s: float = 120.0
    """A running unit that was not heard of for so long is started again."""
    unit_start_s: float = 300.0
    """The same for one that is starting."""
    host_start_s: float = 900.0
    """A host that does not take instances by then is given up."""
    instance_start_s: float = 180.0
    """An instance that is not granted by then is told of; the wish for it stands."""
    pauses: Pauses = PAUSES
    """After what pauses a unit that went down is started again, and how often until a person is asked."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What has to be said below the fleet now."""

    create: tuple[Host, ...] = ()
    delete: tuple[Host, ...] = ()
    submit: tuple[str, ...] = ()
    tell: tuple[str, ...] = ()

    def with_more(self, later: Orders) -> Orders:
        """These orders and later ones; what is said twice changes nothing."""
        return Orders(
            self.create + later.create,
            self.delete + later.delete,
            self.submit + later.submit,
            self.tell + later.tell,
        )
