"""The provider `managed`: machines belong to the cluster manager, so there is nothing to lease.

To the fleet such a site is one host that is always up, holds everything and costs nothing by itself: what
instances on it use is metered, by the site's prices of a core and of a GiB.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import ClassVar

from penstock.errors import ClusterError
from penstock.fleet.deployment import Host, HostState
from penstock.providers.surroundings import Surroundings
from penstock.topology.model import Choice, HostFlavour, Site

HOST = "cluster"
"""The name and the address of the one host."""
YEAR_S = 365 * 86400.0
MOST_CORES, MOST_MIB = 1e6, 1 << 40
"""How large the one host is where nobody set a limit."""


@dataclass(frozen=True, slots=True)
class ManagedParameters:
    """Machines of an existing cluster: the cluster manager gives them, and instances are paid, not hosts."""

    name: ClassVar[str] = "managed"


class ManagedProvider:
    """One host that is always up, as large as the site's first flavour says; none can be leased."""

    def __init__(self, site: Site, host: str = HOST) -> None:
        """`host` names the one host, where there are several such sites."""
        flavour = replace(site.flavours[0], price_per_btu=Decimal(0))
        self._host = Host(host, site.name, flavour, HostState.UP, up_s=0.0, address=host, leased=False)

    def create(self, host: str, flavour: HostFlavour, now_s: float) -> None:
        """Refused for every host but the one there is."""
        if host != self._host.id:
            raise ClusterError(
                f"hosts of site {self._host.site} belong to its cluster manager: none can be leased"
            )

    def delete(self, host: str, now_s: float) -> None:
        """Refused for the one host; nothing happens for others, which cannot be there."""
        if host == self._host.id:
            raise ClusterError(
                f"the machines of site {self._host.site} belong to its cluster manager: they cannot be given "
                "back"
            )

    def hosts(self, now_s: float) -> tuple[Host, ...]:
        """The one host."""
        return (self._host,)


def managed_site(site: Site) -> Site:
    """A site as the fleet sees it where hosts are the manager's: one host, and none to be leased.

    The first flavour says how much may be used of the cluster, where the site names flavours of its own.
    """
    usual = Site("").flavours
    quota = replace(site.flavours[0], price_per_btu=Decimal(0), max_hosts=None)
    unlimited = HostFlavour("any", MOST_CORES, MOST_MIB, Decimal(0))
    return replace(
        site,
        provider=Choice(ManagedParameters.name),
        btu_s=YEAR_S,
        minimum_s=None,
        increment_s=None,
        flavours=(unlimited if site.flavours == usual else quota,),
        max_hosts=1,
    )


def make(site: Site, parameters: ManagedParameters, surroundings: Surroundings) -> ManagedProvider:
    """The provider of a site."""
    return ManagedProvider(site)
