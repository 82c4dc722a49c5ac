"""What one cloud has to be able to do: four calls over its own SDK, and its errors in our words.

Everything that makes a slow, forgetful and failing API into a dependable provider is in `cloud.py`, once.
A cloud is one file beside it that implements `Api`: no thread, no pause, no second try is in it.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from penstock.errors import (
    ClusterError,
    NotFoundError,
    ProviderError,
    ThrottledError,
    UnauthorisedError,
    UnavailableError,
)
from penstock.fleet.ports import Offering
from penstock.plain import Word
from penstock.providers.cloud_pauses import Pace
from penstock.topology.model import HostFlavour

OWNER, SITE, HOST, FLAVOUR, TOKEN = (
    "penstock-owner",
    "penstock-site",
    "penstock-host",
    "penstock-flavour",
    "penstock-token",
)
"""The tags every machine bears: whose it is, for which site, under which name, of which flavour."""


@dataclass(frozen=True, slots=True)
class CloudParameters:
    """What every cloud can be told."""

    join_within_s: float = 600.0
    """A machine that has not joined its cluster so long after it was made is given up and deleted."""
    orphan_grace_s: float = 30.0
    """What bears our tag and is in no book for so long is given back."""
    list_every_s: float = 5.0
    """How often the cloud is listed while nothing is waited for."""

    @property
    def pace(self) -> Pace:
        """The times these make."""
        return Pace(
            join_within_s=self.join_within_s, grace_s=self.orphan_grace_s, list_every_s=self.list_every_s
        )


class MachineState(Word):
    """What a cloud says of a machine."""

    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    """It was told to go, by us or by somebody else."""
    GONE = "gone"
    """Not there any more, though still listed."""
    BROKEN = "broken"
    """It stopped or could not be started; it has to be deleted all the same."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as its cloud lists it."""

    id: str
    """The cloud's own name for it."""
    host: str
    """Our name for it, from its tag."""
    flavour: str
    """The flavour it was asked for as, from its tag."""
    state: MachineState
    address: str | None = None
    created_s: float | None = None
    """Since when it is paid for, by the cloud's clock, in seconds since 1970."""
    ended_s: float | None = None
    """When it ended, where the cloud tells it."""
    problem: str | None = None
    taken_s: float | None = None
    """When the cloud will take it away, where it has given notice."""
    never_ran: bool = False
    """Whether the cloud found no room for it after it had said yes: it costs nothing."""


@dataclass(frozen=True, slots=True)
class Order:
    """A machine to be made."""

    host: str
    flavour: HostFlavour
    token: str
    """The same for every try at the same host: a cloud that honours it makes one machine of many tries."""
    tags: Mapping[str, str]
    user_data: str
    """The shell script it runs when it starts; empty where its image needs none."""


class Api(Protocol):
    """One cloud's calls. Each may block, for as long as its own timeouts allow, and may be called from
    several threads at once. Errors are those of `penstock.errors`: a kind of ProviderError that says what
    happened. UnavailableError means that nobody knows.
    """

    def create(self, order: Order) -> None:
        """Make a machine, bearing these tags from its first moment on."""
        ...

    def machines(self) -> Sequence[Machine]:
        """Every machine that bears the owner's and the site's tag; no other."""
        ...

    def delete(self, machine: Machine) -> None:
        """Take a machine away with all that was made for it; NotFoundError where it is gone already."""
        ...

    def offerings(self) -> Sequence[Offering]:
        """The site's flavours as the cloud offers them now; empty where it cannot tell."""
        ...


def sdk(module: str, extra: str) -> Any:
    """A cloud's SDK, imported now; ClusterError says how to get it where it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ClusterError(
            f"the provider needs {error.name or module}, which is not installed: "
            f"`pip install 'penstock[{extra}]'`"
        ) from error


def error_of(status: int, text: str, retry_after: str | None = None) -> ProviderError:
    """The error an HTTP status means where a cloud says nothing more exact."""
    if status in (413, 429):
        return ThrottledError(text, float(retry_after) if retry_after and retry_after.isdigit() else None)
    if status in (401, 403):
        return UnauthorisedError(text)
    if status == 404:
        return NotFoundError(text)
    if 400 <= status < 500 and status != 408:
        return ProviderError(text)
    return UnavailableError(text)


def group_of(owner: str, site: str) -> str:
    """One short word for all machines of an owner at a site, such as every cloud takes as a tag or label."""
    return f"penstock-{hashlib.sha256(f'{owner}/{site}'.encode()).hexdigest()[:16]}"


def name_of(order: Order) -> str:
    """A name for a machine where a cloud knows machines by names: the host's, and a part of its token.

    Lower-case letters, digits and dashes, at most 60, a letter first: what every such cloud allows. The
    part of the token tells it from the machine of another run with the same host.
    """
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in order.host.lower()).strip("-")
    return f"{plain if plain[:1].isalpha() else f'h{plain}'}"[:51].rstrip("-") + f"-{order.token[:8]}"


def token_of(owner: str, site: str, host: str, flavour: str) -> str:
    """The token of a host: a UUID that is the same whenever the same host is asked for.

    The flavour is in it: clouds refuse a token that comes back with other parameters. A name is never given
    twice, so a new attempt is a new host and a new token.
    """
    digest = hashlib.sha256("\0".join((owner, site, host, flavour)).encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))
