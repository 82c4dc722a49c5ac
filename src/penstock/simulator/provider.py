"""Simulated hosts: they take a drawn time to start and are gone at once when given back.

Spot hosts are taken away after a drawn time, with notice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from penstock.choosing import made
from penstock.errors import ConfigurationError
from penstock.fleet.deployment import Host, HostState
from penstock.topology.model import Choice, HostFlavour, Site


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
    taken_after_s: float = 0.0
    """Mean time until a host is taken away, as spot hosts are (where none is, every host); 0 means never."""
    notice_s: float = 120.0
    """How long before that the host is given notice."""

    def __post_init__(self) -> None:
        for least, most in (
            (self.host_start_least_s, self.host_start_most_s),
            (self.instance_start_least_s, self.instance_start_most_s),
        ):
            if not 0 <= least <= most:
                raise ConfigurationError(
                    f"expected 0 <= least <= most for a start time, got {least} and {most}"
                )
        for name in ("image_pull_s", "instance_stop_s", "taken_after_s", "notice_s"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"expected {name} of 0 or more, got {getattr(self, name)}")


def simulated_times(choice: Choice) -> SimulatedParameters:
    """The times of a site; a site that is not simulated is given the default times."""
    if choice.name != SimulatedParameters.name:
        return SimulatedParameters()
    known = {SimulatedParameters.name: SimulatedParameters}
    times: SimulatedParameters = made("provider", known, choice.name, choice.parameters)
    return times


class SimulatedProvider:
    """Hosts of one simulated site. Whoever runs things on them is told when one is gone."""

    def __init__(self, site: Site, parameters: SimulatedParameters, rng: np.random.Generator) -> None:
        self._site = site.name
        self._some_stay = any(flavour.spot for flavour in site.flavours)
        """Whether hosts are taken away of some flavours only."""
        self._parameters = parameters
        self._rng = rng
        self._hosts: dict[str, tuple[Host, Host]] = {}
        """Every host not yet given back: as it is before it is up, and from then on."""
        self._up_s: dict[str, float] = {}
        self.when_gone: list[Callable[[str], None]] = []
        """Called with the name of a host that was given back."""
        self._taken_s: dict[str, float] = {}
        self.when_taken: list[Callable[[str, float], None]] = []
        """Called with the name of a host that will be taken away, and when."""

    def create(self, host: str, flavour: HostFlavour, now_s: float) -> None:
        """Begin to start a host: it is up after a time drawn between the two start times."""
        if host in self._up_s:
            return
        parameters = self._parameters
        delay_s = float(self._rng.uniform(parameters.host_start_least_s, parameters.host_start_most_s))
        self._up_s[host] = up_s = now_s + delay_s
        starting = Host(host, self._site, flavour, HostState.STARTING, now_s, address=host)
        self._hosts[host] = (starting, starting.moved(HostState.UP, up_s=up_s))
        if parameters.taken_after_s > 0 and (flavour.spot or not self._some_stay):
            self._taken_s[host] = taken_s = up_s + float(self._rng.exponential(parameters.taken_after_s))
            for told in self.when_taken:
                told(host, taken_s)

    def delete(self, host: str, now_s: float) -> None:
        """Give a host back at once."""
        if self._hosts.pop(host, None) is not None:
            for told in self.when_gone:
                told(host)

    def hosts(self, now_s: float) -> tuple[Host, ...]:
        """Every host not yet given back, as it is now."""
        return tuple([self._as_of(lives, now_s) for lives in self._hosts.values()])

    def host(self, host: str, now_s: float) -> Host | None:
        """One host as it is now; None where it is unknown or was given back."""
        lives = self._hosts.get(host)
        return None if lives is None else self._as_of(lives, now_s)

    def _as_of(self, lives: tuple[Host, Host], now_s: float) -> Host:
        before, after = lives
        shown = after if self._up_s[after.id] <= now_s else before
        taken_s = self._taken_s.get(shown.id)
        if taken_s is not None and now_s >= taken_s - self._parameters.notice_s:
            return replace(shown, taken_s=taken_s)
        return shown

    def up_s(self, host: str) -> float:
        """When a host is or was up."""
        return self._up_s[host]

    def fail(self, host: str) -> None:
        """The host dies; it stays in the list, failed, until it is given back."""
        if host in self._hosts:
            before, after = (life.moved(HostState.FAILED) for life in self._hosts[host])
            self._hosts[host] = (before, after)
