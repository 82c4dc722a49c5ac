"""The provider `local`: hosts are workers of a local cluster, under the contract of every provider."""

from __future__ import annotations

from penstock.infrastructure.deployment import Host
from penstock.spark.local_cluster import LocalCluster
from penstock.topology.model import HostFlavour, Site


class LocalProvider:
    """Leases and releases hosts of one local cluster, which knows neither sites nor flavours nor prices.

    A host that somebody else started there counts as one of the home site's first flavour.
    """

    def __init__(self, cluster: LocalCluster, home: Site) -> None:
        self._cluster = cluster
        self._home = home
        self._given_back: set[str] = set()
        self.leased: dict[str, tuple[str, HostFlavour]] = {}
        """Site and flavour of every host that is not gone yet; what an earlier one leased is put in here."""

    def lease(self, host: str, site: str, flavour: HostFlavour, now_s: float) -> None:
        """Begin to start a host; one that failed is started anew."""
        if host in self._given_back:
            return
        self.leased.setdefault(host, (site, flavour))
        self._cluster.add_host(host, max(1, int(flavour.cores)), flavour.memory_mib)

    def release(self, host: str, now_s: float) -> None:
        """Give a host back: it drains for a while and is gone."""
        self._given_back.add(host)
        self._cluster.remove_host(host, wait=False)

    def hosts(self, now_s: float) -> tuple[Host, ...]:
        """Every host that is not gone yet, as it is now."""
        present = self._cluster.hosts()
        for gone in self._given_back & (self.leased.keys() - present.keys()):
            del self.leased[gone]
        found = []
        for host in present.values():
            site, flavour = self.leased.get(host.id, (self._home.name, self._home.flavours[0]))
            found.append(Host(host.id, site, flavour, host.state, host.requested_s, host.up_s))
        return tuple(found)

    def host_at(self, address: str) -> str | None:
        """The name of the host with this address; None where it is not one of ours."""
        return self._cluster.host_at(address)
