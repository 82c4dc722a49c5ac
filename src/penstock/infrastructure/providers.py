"""Providers: who gives us hosts.

A provider is told to lease and release hosts by the names we chose, and reports what it has. Saying the
same thing twice changes nothing. `simulated` lives here; `local` starts Spark workers on this machine and
lives in the Spark room, only its parameters are here, so that a topology file can be checked without Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from penstock.choosing import made, parameters_of
from penstock.errors import ConfigurationError
from penstock.infrastructure.deployment import Host, HostState
from penstock.topology.model import Choice, HostFlavour


class Provider(Protocol):
    """Leases and releases hosts. Calls return at once; `hosts` tells how far they have come."""

    def lease(self, host: str, site: str, flavour: HostFlavour, now_s: float) -> None:
        """Begin to start a host of this name; nothing happens where it exists already."""
        ...

    def release(self, host: str, now_s: float) -> None:
        """Give a host back; nothing happens where it is unknown or already given back."""
        ...

    def hosts(self, now_s: float) -> tuple[Host, ...]:
        """Every host leased and not yet given back, as it is now. Reading changes nothing.

        One given back may still be shown while it drains.
        """
        ...


@dataclass(frozen=True, slots=True)
class SimulatedParameters:
    """Times of a simulated site, with the defaults of paper 000's evaluation."""

    name: ClassVar[str] = "simulated"
    host_start_least_s: float = 30.0
    """Shortest time from lease to a usable host."""
    host_start_most_s: float = 60.0
    """Longest time from lease to a usable host."""
    instance_start_least_s: float = 5.0
    """Shortest start of an instance whose image is cached on the host."""
    instance_start_most_s: float = 10.0
    """Longest start of an instance whose image is cached on the host."""
    image_pull_s: float = 15.0
    """Added to an instance's start where its image is not on the host yet."""
    instance_stop_s: float = 1.0
    """Time an instance takes to go once it has finished its last record."""

    def __post_init__(self) -> None:
        for least, most in (
            (self.host_start_least_s, self.host_start_most_s),
            (self.instance_start_least_s, self.instance_start_most_s),
        ):
            if not 0 <= least <= most:
                raise ConfigurationError(
                    f"expected 0 <= least <= most for a start time, got {least} and {most}"
                )
        for name in ("image_pull_s", "instance_stop_s"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"expected {name} of 0 or more, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class LocalParameters:
    """Spark workers on this machine, each on a loopback address of its own."""

    name: ClassVar[str] = "local"
    host_start_delay_s: float = 0.0
    """Waited before a worker starts, to be like a real machine."""


PROVIDERS: Mapping[str, type[Any]] = {kind.name: kind for kind in (SimulatedParameters, LocalParameters)}
"""Parameters of every provider by name."""


def provider_parameters(choice: Choice) -> Any:
    """The parameters a choice of provider names; ConfigurationError where something is unknown."""
    return made("provider", PROVIDERS, choice.name, choice.parameters)


def known_providers() -> dict[str, frozenset[str]]:
    """The names of every provider and of its parameters."""
    return {name: frozenset(parameters_of(kind)) for name, kind in PROVIDERS.items()}


class SimulatedProvider:
    """Hosts that take a drawn time to start and are gone at once when released."""

    def __init__(self, parameters: SimulatedParameters, rng: np.random.Generator) -> None:
        self._parameters = parameters
        self._rng = rng
        self._hosts: dict[str, tuple[Host, Host]] = {}
        """Every host not yet given back: as it is before it is up, and from then on."""
        self._up_s: dict[str, float] = {}

    def lease(self, host: str, site: str, flavour: HostFlavour, now_s: float) -> None:
        """Begin to start a host: it is up after a time drawn between the two start times."""
        if host in self._up_s:
            return
        parameters = self._parameters
        delay_s = float(self._rng.uniform(parameters.host_start_least_s, parameters.host_start_most_s))
        self._up_s[host] = up_s = now_s + delay_s
        starting = Host(host, site, flavour, HostState.STARTING, now_s)
        self._hosts[host] = (starting, starting.moved(HostState.UP, up_s=up_s))

    def release(self, host: str, now_s: float) -> None:
        """Give a host back at once."""
        self._hosts.pop(host, None)

    def hosts(self, now_s: float) -> tuple[Host, ...]:
        """Every host not yet given back, as it is now."""
        return tuple(self._as_of(lives, now_s) for lives in self._hosts.values())

    def host(self, host: str, now_s: float) -> Host | None:
        """One host as it is now; None where it is unknown or was given back."""
        lives = self._hosts.get(host)
        return None if lives is None else self._as_of(lives, now_s)

    def _as_of(self, lives: tuple[Host, Host], now_s: float) -> Host:
        before, after = lives
        return after if self._up_s[after.id] <= now_s else before

    def up_s(self, host: str) -> float:
        """When a host is or was up."""
        return self._up_s[host]

    def fail(self, host: str) -> None:
        """The host dies; it stays in the list, failed, until it is given back."""
        if host in self._hosts:
            before, after = (life.moved(HostState.FAILED) for life in self._hosts[host])
            self._hosts[host] = (before, after)
