"""The clusters a run's sites stand for: a local one of its own, and existing ones behind their masters.

At a site with a `master` hosts are the cluster manager's: the fleet sees one host that is always there, and
instances are scaled and metered. At any other site hosts come and go on this machine.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from penstock.channels.registry import channel_kind
from penstock.channels.sinks import folder_format
from penstock.errors import ClusterError, ConfigurationError
from penstock.fleet.ports import Provider
from penstock.providers.managed import HOST, ManagedProvider, managed_site
from penstock.spark.installation import spark_version, too_old_to_run
from penstock.spark.managers.local_cluster import LocalCluster
from penstock.spark.managers.manager import Manager
from penstock.spark.managers.registry import make_manager, on_this_machine, storage_problem, wrong_masters
from penstock.spark.managers.theirs import ExistingCluster, remote_storage, shared_folder
from penstock.spark.unit.plan import UnitPlan, plan_unit
from penstock.topology.model import Site, Topology

LOG = logging.getLogger(__name__)

LOOPBACK = ("127.", "localhost", "[::1]")
"""How an address begins that no other machine reaches."""


class Clusters:
    """The managers of a run's sites, and the providers of their hosts."""

    def __init__(self, topology: Topology, local: LocalCluster) -> None:
        """`local` serves the sites without a master; it is started by its owner, where one needs it."""
        self._topology = topology
        self._local = local
        self._existing: dict[str, ExistingCluster] = {}
        """One for each master, by the site that names it first."""
        self._silent: set[str] = set()
        for site in topology.sites:
            if site.master is not None:
                self._existing[site.name] = make_manager(site)

    @property
    def needs_local(self) -> bool:
        """Whether some site is on this machine."""
        return any(site.master is None for site in self._topology.sites)

    def require(self) -> None:
        """ClusterError where an existing cluster does not answer; nothing was started yet."""
        for manager in self._existing.values():
            manager.require()

    def planned(self) -> Topology:
        """The topology as the loop plans with it: nothing is leased where hosts are a manager's."""
        sites = (managed_site(site) if site.master is not None else site for site in self._topology.sites)
        return replace(self._topology, sites=tuple(sites))

    def change(self, topology: Topology) -> Topology:
        """Go on with another version of the topology, at the same sites; as the loop plans with it."""
        self._topology = topology
        return self.planned()

    def seeing(self, topology: Topology) -> Clusters:
        """The same clusters for another version of the topology, at the same sites."""
        other = copy.copy(self)
        other._topology = topology
        return other

    def providers(self) -> dict[str, Provider]:
        """The provider of each site, by the site's name."""
        found: dict[str, Provider] = {}
        for site in self.planned().sites:
            if site.master is None:
                found[site.name] = self._local.provider(site)
            else:
                name = HOST if len(self._existing) == 1 else f"{HOST}-{site.name}"
                found[site.name] = ManagedProvider(site, name)
        return found

    def manager(self, unit: str) -> Manager:
        """The manager at which a unit's application runs."""
        return self._existing.get(self._site(unit).name, self._local.manager)

    def settings(self, unit: str) -> dict[str, str]:
        """Spark settings of a unit's session: its manager's, then its site's own."""
        return {**self.manager(unit).settings(), **self._site(unit).settings}

    def environment(self, unit: str) -> Mapping[str, str]:
        """Variables of a unit's driver."""
        return self.manager(unit).environment()

    def storage(self, unit: str) -> str | None:
        """The URL a unit's checkpoint lies below; None where it lies in the run's folder."""
        return remote_storage(self._site(unit))

    def watch(self) -> list[str]:
        """What there is to say of existing clusters: which has gone silent, and which answers again."""
        notices = []
        for site, manager in self._existing.items():
            if manager.alive():
                if site in self._silent:
                    self._silent.discard(site)
                    notices.append(f"{manager.kind} of site {site} answers again")
            elif site not in self._silent:
                self._silent.add(site)
                notices.append(f"{manager.kind} of site {site} does not answer; executors that run go on")
        return notices

    def revive_local(self) -> list[str]:
        """Start the local master again where it died; what there is to say about it."""
        try:
            if self._local.manager.revive():
                return ["the Spark master died or hung; it was started again"]
        except ClusterError as error:
            LOG.warning(
                "the Spark master could not be started again, it is tried at the next tick: %s", error
            )
        return []

    def _site(self, unit: str) -> Site:
        return self._topology.sites_of(unit)[0]


def not_runnable(topology: Topology, folder: Path | None = None) -> list[str]:
    """Why `penstock run` cannot use the topology's clusters as they are written; empty where it can.

    `folder` is the run's: everything of it must lie where all machines of an existing cluster see it.
    """
    found = [message for _, _, message in wrong_masters(topology)]
    with contextlib.suppress(ClusterError):  # that there is no Spark at all is told by whoever needs it
        found += filter(None, [too_old_to_run(spark_version())])
    for site in topology.sites if not found else ():
        if site.master is None:
            continue
        try:
            make_manager(site)
        except ConfigurationError as error:
            found.append(f"site {site.name}: {error}")
        found += _own_brokers(topology, site)
        problem = storage_problem(site)
        shared = shared_folder(site)
        if problem is not None:
            found.append(f"site {site.name}: {problem}")
        elif remote_storage(site) is not None:
            found += _on_this_disk(topology, site)
        elif shared is not None and folder is not None and not folder.resolve().is_relative_to(shared):
            found.append(
                f"site {site.name}: its machines share {shared}, and the run's folder {folder.resolve()} is "
                f"not below it; choose another one, such as --out {shared}/{topology.name}"
            )
    return found


def _plans_at(topology: Topology, site: Site) -> Iterator[UnitPlan]:
    """What the units at a site take and give."""
    for unit in topology.units:
        if site in topology.sites_of(unit.name):
            yield plan_unit(topology, unit.name)


def _crossed(plan: UnitPlan) -> list[str]:
    """The channels a unit reads from or writes to."""
    found = {given.channel for given in plan.inputs if given.channel is not None}
    return sorted(found | {plan.channel.name for outlet in plan.outlets if outlet.streams})


def _own_brokers(topology: Topology, site: Site) -> list[str]:
    """Channels of units at a site elsewhere whose server would listen to this machine alone."""
    if on_this_machine(site):
        return []
    found = []
    for name in [name for plan in _plans_at(topology, site) for name in _crossed(plan)]:
        channel = topology.channel_by_name[name]
        service = channel_kind(channel.kind, channel.options).service()
        if service is not None and (service.named is None or service.named.startswith(LOOPBACK)):
            found.append(
                f"site {site.name}: its machines cannot reach channel {name}, for a {service.name} of this "
                "machine listens to itself alone; write bootstrap: with one that all reach"
            )
    return list(dict.fromkeys(found))


def _on_this_disk(topology: Topology, site: Site) -> list[str]:
    """What of a site's units would lie on this machine's disk, where machines share a file system by URL."""
    found = []
    why = f"site {site.name}: its machines share {site.storage}, and not this machine's disk"
    for plan in _plans_at(topology, site):
        for given in plan.inputs:
            if given.stream is not None and given.channel is None:
                found.append(f"{why}, where source {given.name} is generated; give it a function that reads")
        for name in _crossed(plan):
            channel = topology.channel_by_name[name]
            if channel_kind(channel.kind, channel.options).service() is None:
                found.append(f"{why}, where channel {name} of kind {channel.kind} is; write kind: kafka")
        for sink in {sink.name: sink for outlet in plan.outlets for sink in outlet.sinks}.values():
            if folder_format(sink.function) is not None:
                found.append(f"{why}, where sink {sink.name} writes a folder; give it a function")
    return list(dict.fromkeys(found))
