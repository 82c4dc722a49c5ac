"""The clusters a run's sites stand for: one of our own each, or an existing one behind its master.

At a site with a `master` hosts are the cluster manager's: the fleet sees one host that is always there, and
instances are scaled and metered. At any other site hosts come and go, and join a master of that site alone.
A unit is at one site, and its executors are nowhere else.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from penstock.channels.registry import channel_kind
from penstock.channels.sinks import folder_format
from penstock.clock import Clock
from penstock.errors import ClusterError, ConfigurationError
from penstock.fleet.ports import Provider
from penstock.providers.managed import HOST, ManagedProvider, managed_site
from penstock.providers.registry import HERE, provider_parameters
from penstock.runs.reach import own_address
from penstock.spark.managers.local_cluster import LocalCluster
from penstock.spark.managers.manager import Manager
from penstock.spark.managers.registry import make_manager, on_this_machine, storage_problem, wrong_masters
from penstock.spark.managers.theirs import remote_storage, shared_folder
from penstock.spark.needs import lacking_to_run
from penstock.spark.unit.plan import UnitPlan, plan_unit
from penstock.topology.model import Site, Topology
from penstock.trying import ASKED, Then, Tries

LOG = logging.getLogger(__name__)

HOST_START_S = 120.0
"""How long a host may take to start and join, besides what its provider takes."""
LOOPBACK = ("127.", "localhost", "[::1]")
"""How an address begins that no other machine reaches."""


class Clusters:
    """The managers of a run's sites, the providers of their hosts, and which unit is at which site."""

    def __init__(self, topology: Topology, places: Mapping[str, str], run: str, folder: Path) -> None:
        """`places` are the sites of units, `run` and `folder` the name and the folder of the run.

        The cluster of a site without a master is started by `open`, once a unit is there.
        """
        self._topology = topology
        self._places = dict(places)
        self._existing = {site.name: make_manager(site) for site in topology.sites if site.master is not None}
        own = [site for site in topology.sites if site.master is None]
        names = {site.name: f"{run}.{site.name}" if len(own) > 1 else run for site in own}
        self.own = {
            site.name: LocalCluster(
                name=names[site.name],
                start_delay_s=start_delay_s(topology),
                folder=folder / "clusters" / site.name if len(own) > 1 else folder / "cluster",
                address=own_address(replace(topology, sites=(site,))),
                network=number,
                siblings=tuple(names.values()),
            )
            for number, site in enumerate(own)
        }
        """The clusters of sites without a master, by site: each a master and hosts of its own."""
        self._open: set[str] = set()
        self._silent: set[str] = set()
        self.tries: defaultdict[str, Tries] = defaultdict(Tries)
        """How often the master of each site was started again."""

    @property
    def only(self) -> LocalCluster:
        """The one cluster of ours; ClusterError where a run has none or several."""
        if len(self.own) != 1:
            raise ClusterError(f"expected one site without a master, there are {len(self.own)}")
        return next(iter(self.own.values()))

    def require(self) -> None:
        """ClusterError where an existing cluster with a unit does not answer; nothing was started yet."""
        for site in dict.fromkeys(self._places.values()):
            if site in self._existing:
                self._existing[site].require()

    def start(self) -> None:
        """Start the clusters at which units are, and take up those that an earlier controller had started."""
        left = [site for site, cluster in self.own.items() if cluster.was_started]
        self.open([*self._places.values(), *left])

    def open(self, sites: Iterable[str]) -> None:
        """Start the clusters of these sites, where they are ours and do not run yet."""
        wanted = [site for site in dict.fromkeys(sites) if site in self.own and site not in self._open]
        if not wanted:
            return
        self._open.update(wanted)  # what was begun is stopped, too
        with ThreadPoolExecutor(len(wanted)) as pool:
            for started in [pool.submit(self.own[site].start, wait=False) for site in wanted]:
                started.result()

    def stop(self) -> None:
        """Stop every cluster that was started here."""
        opened, self._open = self._open, set()
        if opened:
            with ThreadPoolExecutor(len(opened)) as pool:
                list(pool.map(lambda site: self.own[site].stop(), opened))

    def planned(self) -> Topology:
        """The topology as the loop plans with it: every unit at the one site it is at.

        Nothing is leased where hosts are a manager's.
        """
        sites = (managed_site(site) if site.master is not None else site for site in self._topology.sites)
        units = (replace(unit, sites=(self._places[unit.name],)) for unit in self._topology.units)
        return replace(self._topology, sites=tuple(sites), units=tuple(units))

    def change(self, topology: Topology, places: Mapping[str, str]) -> Topology:
        """Go on with another version of the topology, at the same sites; as the loop plans with it."""
        self._topology, self._places = topology, dict(places)
        return self.planned()

    def seeing(self, topology: Topology, places: Mapping[str, str]) -> Clusters:
        """The same clusters, as another version of the topology has its units at their sites."""
        found = copy.copy(self)
        found._topology, found._places = topology, dict(places)
        return found

    def providers(self, clock: Clock | None = None) -> dict[str, Provider]:
        """The provider of each site, by the site's name; `clock` is the run's."""
        found: dict[str, Provider] = {}
        for site in self.planned().sites:
            if site.master is None:
                found[site.name] = self.own[site.name].provider(site, clock)
            else:
                name = HOST if len(self._existing) == 1 else f"{HOST}-{site.name}"
                found[site.name] = ManagedProvider(site, name)
        return found

    def manager(self, unit: str) -> Manager:
        """The manager at which a unit's application runs."""
        site = self._places[unit]
        return self._existing[site] if site in self._existing else self.own[site].manager

    def settings(self, unit: str) -> dict[str, str]:
        """Spark settings of a unit's session: its manager's, then its site's own."""
        return {**self.manager(unit).settings(), **self._site(unit).settings}

    def environment(self, unit: str) -> Mapping[str, str]:
        """Variables of a unit's driver."""
        return self.manager(unit).environment()

    def storage(self, unit: str) -> str | None:
        """The URL a unit's checkpoint lies below; None where it lies in the run's folder."""
        return remote_storage(self._site(unit))

    @property
    def silent(self) -> frozenset[str]:
        """Sites whose existing cluster does not answer now."""
        return frozenset(self._silent)

    @property
    def asks(self) -> tuple[str, ...]:
        """What a person is asked to look at."""
        return tuple(f"{self._master(site)} does not stay up" for site, t in self.tries.items() if t.asks)

    def watch(self, now_s: float) -> list[str]:
        """Look at every cluster; what there is to say. A master of ours that died is started again."""
        notices = [notice for site in sorted(self._open) for notice in self._revived(site, now_s)]
        for site, manager in self._existing.items():
            if manager.alive():
                if site in self._silent:
                    self._silent.discard(site)
                    notices.append(f"{manager.kind} of site {site} answers again")
            elif site not in self._silent:
                self._silent.add(site)
                notices.append(f"{manager.kind} of site {site} does not answer; executors that run go on")
        return notices

    def _revived(self, site: str, now_s: float) -> list[str]:
        manager, tries = self.own[site].manager, self.tries[site]
        if manager.alive():
            tries.well(now_s)
            return []
        then = tries.down(now_s)
        if then is Then.ASK:
            return [f"{self._master(site)} was started {tries.count} times and did not stay up; {ASKED}"]
        if then is Then.TRY:
            try:
                manager.revive()
            except ClusterError as error:
                LOG.warning("%s cannot be started again now: %s", self._master(site), error)
            if tries.count == 1:
                return [f"{self._master(site)} died or hung; it is started again"]
        return []

    def _master(self, site: str) -> str:
        return f"the Spark master of site {site}" if len(self.own) > 1 else "the Spark master"

    def _site(self, unit: str) -> Site:
        return self._topology.site_by_name[self._places[unit]]


def not_runnable(
    topology: Topology, folder: Path | None = None, sites: Collection[str] | None = None
) -> list[str]:
    """Why `penstock run` cannot use the topology's clusters as they are written; empty where it can.

    `folder` is the run's: everything of it must lie where all machines of an existing cluster see it. `sites`
    are those that are looked at; by default all.
    """
    found = [message for _, _, message in wrong_masters(topology)]
    with contextlib.suppress(ClusterError):  # that there is no Spark at all is told by whoever needs it
        found += filter(None, [lacking_to_run()])
    for site in topology.sites if not found else ():
        if sites is not None and site.name not in sites:
            continue
        try:
            found += _not_at(topology, site, folder)
        except ConfigurationError as error:  # a unit that no plan can be made of, wherever it is
            found.append(str(error))
    return list(dict.fromkeys(found))


def _not_at(topology: Topology, site: Site, folder: Path | None) -> list[str]:
    """Why a site cannot be used as it is written."""
    if site.master is None:
        return _on_other_hosts(topology, site, folder)
    found = []
    try:
        make_manager(site)
    except ConfigurationError as error:
        found.append(f"site {site.name}: {error}")
    found += _own_brokers(topology, site)
    problem = storage_problem(site)
    if problem is not None:
        return [*found, f"site {site.name}: {problem}"]
    if remote_storage(site) is not None:
        return [*found, *_on_this_disk(topology, site)]
    return [*found, *_not_below(topology, site, folder)]


def _on_other_hosts(topology: Topology, site: Site, folder: Path | None) -> list[str]:
    """What hosts that are leased elsewhere would miss of this machine's disk."""
    if isinstance(provider_parameters(site.provider), HERE):
        return []
    if shared_folder(site) is not None:
        return _not_below(topology, site, folder)
    found = [*_own_brokers(topology, site), *_on_this_disk(topology, site)]
    for plan in _plans_at(topology, site) if site.storage is None else ():
        sinks = [sink for outlet in plan.outlets for sink in outlet.sinks if folder_format(sink.function)]
        if sinks or any(operator.stateful for operator in plan.operators):
            found.append(
                f"site {site.name}: its hosts share no disk, and unit {plan.unit} keeps state or results "
                "that more than one host writes; name what they share: storage: hdfs://…, or a folder"
            )
    return found


def _not_below(topology: Topology, site: Site, folder: Path | None) -> list[str]:
    """That the run's folder is not in the one that a site's machines share."""
    shared = shared_folder(site)
    if shared is None or folder is None or folder.resolve().is_relative_to(shared):
        return []
    return [
        f"site {site.name}: its machines share {shared}, and the run's folder {folder.resolve()} is "
        f"not below it; choose another one, such as --out {shared}/{topology.name}"
    ]


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
    if site.master is not None and on_this_machine(site):
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
    why = f"site {site.name}: its machines share {site.storage or 'nothing'}, and not this machine's disk"
    for plan in _plans_at(topology, site):
        for given in plan.inputs:
            if given.stream is not None and given.channel is None:
                found.append(f"{why}, where source {given.name} is generated; give it a function that reads")
        for name in _crossed(plan):
            channel = topology.channel_by_name[name]
            if channel_kind(channel.kind, channel.options).service() is None:
                found.append(f"{why}, where channel {name} of kind {channel.kind} is; write kind: kafka")
    return list(dict.fromkeys(found))


def start_delay_s(topology: Topology) -> float:
    """How long a host of the topology's local sites takes before it begins to start."""
    delays = [site.provider.parameters.get("host_start_delay_s", 0.0) for site in topology.sites]
    return max((float(delay) for delay in delays), default=0.0)


def host_start_s(topology: Topology) -> float:
    """How long a host may take until it is given up: longer than its own provider waits for it to join."""
    parameters = [provider_parameters(site.provider) for site in topology.sites]
    joins_s = [getattr(one, "join_within_s", 0.0) for one in parameters]
    return max([HOST_START_S + start_delay_s(topology), *(HOST_START_S + span_s for span_s in joins_s)])
