"""The provider `local`: hosts are processes on this machine, each on a loopback address of its own.

A host has an address (127.0.0.11, 127.0.0.12, …), declared cores and memory, and a start delay like a real
machine's. What it runs to join a cluster, and which hosts have joined, is told by the cluster's manager.
Hosts outlive a crash of their owner, and the next owner goes on with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from penstock.errors import ClusterError
from penstock.fleet.deployment import Host
from penstock.providers.local_hosts import LocalHost, LocalHosts
from penstock.providers.surroundings import Surroundings
from penstock.topology.model import HostFlavour, Site


@dataclass(frozen=True, slots=True)
class LocalParameters:
    """Processes on this machine, each on a loopback address of its own."""

    name: ClassVar[str] = "local"
    host_start_delay_s: float = 0.0
    """Waited before a host starts, to be like a real machine."""


class LocalProvider:
    """Hosts of one site out of a machine's local hosts; others there are not shown and not touched."""

    def __init__(self, site: Site, hosts: LocalHosts, host_start_delay_s: float | None = None) -> None:
        """`host_start_delay_s` is this site's own start delay; without it, it is that of `hosts`."""
        self.site = site
        self._hosts = hosts
        self._start_delay_s = host_start_delay_s
        self._given_back: set[str] = set()
        self._flavours: dict[str, HostFlavour] = {}
        self._shown: dict[str, Host] = {}

    def create(self, host: str, flavour: HostFlavour, now_s: float) -> None:
        """Begin to start a host; ClusterError where it is not of whole cores or its name is another's."""
        if host in self._given_back:
            return
        if flavour.cores != int(flavour.cores):
            raise ClusterError(
                f"a local host has whole cores, and {flavour.name} of site {self.site.name} has "
                f"{flavour.cores:g}"
            )
        made = self._hosts.add(
            host,
            int(flavour.cores),
            flavour.memory_mib,
            now_s=now_s,
            delay_s=self._start_delay_s,
            site=self.site.name,
            flavour=flavour.name,
        )
        if made.site != self.site.name:
            raise ClusterError(
                f"host {host} exists on this machine already and does not belong to site {self.site.name}"
            )
        self._flavours.setdefault(host, flavour)

    def delete(self, host: str, now_s: float) -> None:
        """Give a host back: it is shown as draining for a second or two and is gone."""
        known = self._hosts.get(host)
        if known is not None and known.site == self.site.name:
            self._given_back.add(host)
            self._hosts.give_back(host)

    def hosts(self, now_s: float) -> tuple[Host, ...]:
        """Every host of the site that is not gone yet, as it is now."""
        shown: dict[str, Host] = {}
        for local in self._hosts.observed(now_s).values():
            if local.site == self.site.name:
                host = self._seen(local)
                known = self._shown.get(local.id)
                shown[local.id] = known if known == host else host
        self._shown = shown
        for gone in self._flavours.keys() - shown.keys():
            del self._flavours[gone]
        return tuple(shown.values())

    def _seen(self, local: LocalHost) -> Host:
        flavour = self._flavours.get(local.id) or self._flavour_of(local)
        return Host(
            local.id,
            self.site.name,
            flavour,
            local.state,
            local.requested_s,
            local.up_s,
            address=local.address,
            problem=local.problem,
        )

    def _flavour_of(self, local: LocalHost) -> HostFlavour:
        """The flavour of a host that an earlier owner asked for."""
        for flavour in self.site.flavours:
            if flavour.name == local.flavour:
                self._flavours[local.id] = flavour
                return flavour
        # The site does not offer it any more: what is known of it is its size.
        return HostFlavour(local.flavour or "", float(local.cores), local.memory_mib, Decimal(0))


def make(site: Site, parameters: LocalParameters, surroundings: Surroundings) -> LocalProvider:
    """The provider of a site; ClusterError where there is no local cluster for its hosts to join."""
    if surroundings.local_hosts is None:
        raise ClusterError(f"site {site.name}: local hosts need a local cluster to join, and there is none")
    return LocalProvider(site, surroundings.local_hosts, parameters.host_start_delay_s)
