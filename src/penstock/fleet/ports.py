"""The two ports below the fleet: who gives hosts, and where units run.

Both are level-triggered: what is wanted is said until it is seen. Looking never changes anything, and
saying the same thing twice changes nothing. The simulator, a Spark cluster and an attached session are
implementations of these and of nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple, Protocol, runtime_checkable

from penstock.fleet.deployment import Host, InstanceState
from penstock.fleet.units import UnitState
from penstock.monitoring.measurements import Measurement
from penstock.topology.model import HostFlavour


class Provider(Protocol):
    """Gives hosts to one site and takes them back. Calls return at once; `hosts` tells how far they came.

    Eventually consistent: a host that was asked for may be shown a little later, one given back may still
    be shown while it goes. A refusal is a ClusterError with the reason in words, a ProviderError of a kind
    where it is known what to do about it. Where the refusal comes late, it is the answer to saying it again.
    """

    def create(self, host: str, flavour: HostFlavour, now_s: float) -> None:
        """Begin to start a host of this name; nothing happens where it exists already."""
        ...

    def delete(self, host: str, now_s: float) -> None:
        """Give a host back; nothing happens where it is unknown or already given back."""
        ...

    def hosts(self, now_s: float) -> Sequence[Host] | None:
        """Every host not yet given back, as last seen, with its address. Reading changes nothing.

        A host about which nothing changed is the same object as last time. None: nothing is known yet,
        which is not the same as there being none.
        """
        ...


@dataclass(frozen=True, slots=True)
class Offering:
    """A flavour as its provider offers it now."""

    flavour: str
    """Its name in the topology."""
    price_per_hour: Decimal | None = None
    """What an hour costs by the provider's price list; None where it has none."""
    available: bool = True
    why_not: str | None = None
    """Why none can be had now, in the provider's words."""
    currency: str = ""
    source: str = ""
    """Where the price is from."""
    dated_s: float | None = None
    """When the price was read."""


@dataclass(frozen=True, slots=True)
class Used:
    """A host's whole time at its provider, as the provider tells it, once it is over."""

    host: str
    """Its name in the books; one that was in no book has its provider's id after a `+`."""
    flavour: str
    from_s: float
    until_s: float
    """The same instant where it never ran: then it costs nothing."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands with a provider that is reached over an API."""

    age_s: float
    """How long ago what it shows was seen."""
    waiting: int = 0
    """Hosts that were asked for, or given back, and of which the provider has not heard yet."""
    problem: str | None = None
    """Why nothing newer is known, where something is wrong."""
    next_try_s: float = 0.0
    """In how many seconds it is asked again."""


@runtime_checkable
class PaidProvider(Provider, Protocol):
    """A provider that leases machines for money over an API that may be slow, throttled or away.

    No call waits for the API: answers are from what was last seen. The cloud is listed before the books
    are looked at: what bears our tag and is in no book is given back after a grace period.
    """

    def keep(self, hosts: Collection[str], now_s: float) -> Sequence[str]:
        """Say which hosts are in the books, all of them; the answer is what is news, in words."""
        ...

    def offerings(self, now_s: float) -> Sequence[Offering]:
        """The flavours of the site with the price and whether one can be had, as last seen."""
        ...

    def used(self, now_s: float) -> Sequence[Used]:
        """Every host whose time at the provider is over, once for each: what has to be paid for."""
        ...

    def standing(self, now_s: float) -> Standing:
        """How old what is shown is, and what is wrong where something is."""
        ...

    def close(self, most_s: float) -> Sequence[str]:
        """Wait until what was given back is gone, and end; the names of what is still there after so long."""
        ...


class SeenInstance(NamedTuple):
    """An instance as the plane shows it."""

    id: str
    """The plane's own name for it, such as a Spark executor's id; a new one for every start."""
    state: InstanceState
    """STARTING, RUNNING or RETIRING."""
    address: str | None = None
    """Where it runs: a host's address or, where hosts have none, its name."""
    since_s: float | None = None
    """When it began to serve, where it does."""
    name: str | None = None
    """The fleet's name for it, where the plane knows it."""


@dataclass(frozen=True, slots=True)
class UnitReport:
    """What the plane tells of a unit: what it was last seen doing, and what was measured since last time."""

    unit: str
    at_s: float
    """When it was heard of."""
    state: UnitState
    application: str | None = None
    instances: tuple[SeenInstance, ...] = ()
    """Those alive now; the same object as last time where nothing changed."""
    measurement: Measurement | None = None
    """Readings in it carry the plane's own names of instances."""
    notices: tuple[str, ...] = ()
    problem: str | None = None
    """Why it is down or failed."""


class WantedInstance(NamedTuple):
    """An instance that shall serve."""

    name: str
    host: str | None
    """The host it is meant for, by name; a plane that places by itself takes it as a wish."""
    cores: float
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a unit, all of it; said again until it is so."""

    instances: tuple[WantedInstance, ...] = ()
    """Those that shall serve, oldest first."""
    plugs: int = 0
    """Instances beyond those, kept for a while so that a draining host has no room for new ones."""
    retire: tuple[str, ...] = ()
    """Instances, by the plane's own names, that finish what they have begun and go."""
    kill: tuple[str, ...] = ()
    """Instances, by the plane's own names, that go at once."""
    stop: bool = False
    """End the unit."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """How many slots instances have, by the plane's own names, where they are other than the unit's usual."""
    drain: bool = False
    """Finish what there is to read now, and leave: the unit is about to be changed."""

    @property
    def target(self) -> int:
        """How many instances there shall be in all, those that retire left out."""
        return len(self.instances) + self.plugs


@dataclass(frozen=True, slots=True)
class Submission:
    """A unit to be run, and which attempt at it this is."""

    unit: str
    revision: int
    """The version of the topology it shall run."""
    attempt: int
    """Counts up each time its application died or hung. The same attempt said again changes nothing."""
    wanted: Wanted


class Plane(Protocol):
    """Where units run. Calls return at once; `reports` tells what came of them."""

    def submit(self, submission: Submission) -> None:
        """Start a unit's application, ending one of an earlier attempt first. ClusterError where refused."""
        ...

    def tell(self, unit: str, wanted: Wanted, now_s: float) -> None:
        """Say what is wanted of a unit from now on."""
        ...

    def reports(self, now_s: float) -> tuple[Sequence[UnitReport], Sequence[str]]:
        """What was heard of units since the last call, and further news in words. Changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Ground:
    """All the fleet stands on: one plane, and a provider for each site."""

    plane: Plane
    providers: Mapping[str, Provider] = field(default_factory=dict)
