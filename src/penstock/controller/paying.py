"""What the loop has to say to providers that lease for money, besides create and delete.

The cloud is listed at the beginning of a tick, the books are told at its end: what a listing shows and no
book knows is the provider's to give back. What the provider recorded is what will be billed, so leases
follow it. A host whose provider gave notice is emptied and replaced before it is taken away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.controller.state import State
from penstock.fleet.actions import Action, ReleaseHost
from penstock.fleet.deployment import HOST_TAKES, Deployment, Host
from penstock.fleet.fleet import Fleet
from penstock.fleet.ports import PaidProvider, Provider, Standing
from penstock.infrastructure.leases import Charge

LAST_S = 180.0
"""How long the end of a run waits until what was given back is gone."""


class Paying:
    """The providers of a run that lease for money."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers
        self._paid = {site: p for site, p in providers.items() if isinstance(p, PaidProvider)}
        self._news: list[str] = []

    def hosts(self, now_s: float) -> dict[str, Sequence[Host]]:
        """What every provider shows, by site; a site of which nothing is known yet is missing."""
        shown = {site: provider.hosts(now_s) for site, provider in self._providers.items()}
        return {site: hosts for site, hosts in shown.items() if hosts is not None}

    def keep(self, fleet: Fleet, now_s: float) -> None:
        """Tell every provider which hosts are in the books."""
        if not self._paid:
            return
        names: dict[str, list[str]] = {site: [] for site in self._paid}
        for host in fleet.deployment().hosts.values():
            if host.site in names:
                names[host.site].append(host.id)
        for site, provider in self._paid.items():
            self._news += provider.keep(names[site], now_s)

    def settle(self, state: State, now_s: float) -> tuple[list[Charge], list[str]]:
        """Bring the leases into line with the providers' records; what is news since the last tick."""
        charges: list[Charge] = []
        for site, provider in self._paid.items():
            for used in provider.used(now_s):
                charges += state.recorded(site, used, now_s)
        news, self._news = self._news, []
        return charges, news

    def noticed(self, deployment: Deployment, asked: Sequence[Action], now_s: float) -> list[Action]:
        """Releases of hosts that their provider will take away soon and that were not asked to go yet."""
        known = {action.subject for action in asked}
        return [
            ReleaseHost(
                host.id, f"its provider takes it away in {max(0.0, host.taken_s - now_s):.0f} s", True
            )
            for host in deployment.hosts.values()
            if host.taken_s is not None and host.state in HOST_TAKES and host.id not in known
        ]

    def withheld(self, now_s: float) -> dict[tuple[str, str], str]:
        """Flavours that cannot be had now, by site and name, in the providers' words."""
        return {
            (site, offering.flavour): f"site {site} gives no {offering.flavour} now: {offering.why_not}"
            for site, provider in self._paid.items()
            for offering in provider.offerings(now_s)
            if not offering.available
        }

    def standings(self, now_s: float) -> dict[str, Standing]:
        """How it stands with each provider, by site."""
        return {site: provider.standing(now_s) for site, provider in self._paid.items()}

    def close(self, most_s: float = LAST_S) -> list[str]:
        """Wait until what was given back is gone; what is left is told, for it is paid for."""
        return [
            f"site {site}: {name} was not given back: look after it at the provider"
            for site, provider in self._paid.items()
            for name in provider.close(most_s)
        ]

    def __bool__(self) -> bool:
        return bool(self._paid)
