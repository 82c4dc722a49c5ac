"""A loop over a provider for money: notice, no capacity and a budget become what they should."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from benchmarks.slow_cloud import OnItsHosts

from penstock.clock import WallClock
from penstock.controller.journal import Journal, database
from penstock.controller.loop import Controller
from penstock.controller.status import Watching
from penstock.fleet.deployment import HostState, InstanceState
from penstock.fleet.ports import Ground, UnitReport
from penstock.infrastructure.leases import Lease
from penstock.providers.cloud import CloudProvider
from penstock.providers.cloud_pauses import Pace
from penstock.providers.surroundings import Surroundings
from penstock.topology.model import Choice, HostFlavour, LoopSettings, Operator, Site, Source, Topology, Unit
from tests.providers.fakes.cloud import FakeCloud
from tests.providers.fakes.simulated_api import SimulatedCloudApi

QUICK = Pace(
    list_every_s=0.1, settle_s=0.3, grace_s=0.5, shortest_pause_s=0.05, longest_pause_s=0.5, beat_s=0.02
)
SITE = Site(
    "c",
    flavours=(
        HostFlavour("small", 1.0, 1024, Decimal("0.12")),
        HostFlavour("dear", 1.0, 1024, Decimal("0.50")),
    ),
    minimum_s=60.0,
    increment_s=1.0,
)


def a_topology(site: Site, instances: int = 2, most: int = 9) -> Topology:
    unit = Unit("u", ("u",), policy=Choice("fixed"), min_instances=instances, max_instances=most)
    return Topology(
        "paid",
        (Source("s"),),
        (Operator("u", ("s",)),),
        units=(unit,),
        sites=(site,),
        loop=LoopSettings(monitoring_s=0.1, provisioning_s=0.2),
    )


class Leaving(OnItsHosts):
    """A plane whose instances leave a host that is given notice, as executors leave their worker."""

    def reports(self, now_s: float) -> tuple[Sequence[UnitReport], Sequence[str]]:
        taken = {host.id for host in self._provider.hosts(now_s) or () if host.taken_s is not None}
        reports, news = super().reports(now_s)
        return [
            replace(report, instances=tuple(i for i in report.instances if i.address not in taken))
            for report in reports
        ], news


class Driven:
    """A controller that is ticked until something is so."""

    def __init__(
        self, topology: Topology, cloud: FakeCloud, journal: Journal, provider: CloudProvider, leaves: bool
    ) -> None:
        plane = (Leaving if leaves else OnItsHosts)(["u"], provider)
        self.cloud, self.provider, self.clock = cloud, provider, WallClock()
        self.controller = Controller(topology, Ground(plane, {"c": provider}), self.clock, journal)
        self.watching = Watching(self.controller, "paid")
        self.news: list[str] = []

    def until(self, wanted: Callable[[], object], most_s: float = 20.0) -> None:
        end_s = time.monotonic() + most_s
        while time.monotonic() < end_s:
            self.news += self.watching.see(self.controller.tick())
            if wanted():
                return
            self.clock.wait_until(self.clock.now_s() + 0.1)
        raise AssertionError((self.controller.fleet.deployment(), self.news[-20:]))

    def running(self) -> dict[str, str]:
        """The hosts of the instances that serve, by instance."""
        members = self.controller.fleet.deployment().instances.values()
        return {i.id: str(i.host) for i in members if i.state is InstanceState.RUNNING}


@contextmanager
def driven(folder: Path, topology: Topology, cloud: FakeCloud, leaves: bool = True) -> Iterator[Driven]:
    site = topology.sites[0]
    api = SimulatedCloudApi(cloud, "ours")
    provider = CloudProvider(site, api, Surroundings(owner="ours"), QUICK)
    journal = Journal(folder / "journal.db", "paid")
    journal.claim()
    try:
        yield Driven(topology, cloud, journal, provider, leaves)
    finally:
        provider.close(0.0)
        journal.close()


@pytest.mark.parametrize("most", [9, 2])
def test_notice_becomes_drain_and_replace_also_where_the_unit_may_not_grow(tmp_path: Path, most: int) -> None:
    cloud = FakeCloud()
    with driven(tmp_path, a_topology(SITE, most=most), cloud) as run:
        run.until(lambda: len(run.running()) == 2)
        (taken, other) = sorted(run.running().values())
        cloud.gives_notice(taken, 60.0)
        run.until(lambda: len(run.running()) == 2 and taken not in run.running().values())
        assert other in run.running().values(), "the other one was left alone"
        run.until(lambda: taken not in cloud.hosts())
        assert any("its provider takes it away" in text for text in run.news)
        run.controller.finish()
        assert cloud.living() == []
        ledger = run.controller.state.ledger
        assert len(ledger.leases) == 3
        record = [
            Lease.at(SITE, SITE.flavour(r.flavour), r.host, r.from_s).ended(r.until_s or 0.0).cost
            for r in cloud.records.values()
        ]
        assert ledger.total == sum(record), "each ran for less than its minimum, so both come to the same"


def test_a_host_with_notice_makes_room_for_another_where_its_site_has_no_more(tmp_path: Path) -> None:
    cloud = FakeCloud()
    with driven(tmp_path, a_topology(replace(SITE, max_hosts=2), most=2), cloud) as run:
        run.until(lambda: len(run.running()) == 2)
        (taken, other) = sorted(run.running().values())
        cloud.gives_notice(taken, 600.0)
        run.until(lambda: taken not in cloud.hosts())
        run.until(lambda: len(run.running()) == 2)
        assert other in run.running().values(), "the other one was left alone"
        assert len(cloud.records) == 3
        run.controller.finish()
        assert cloud.living() == []


def test_how_long_a_host_with_notice_has_left_is_told_anew_while_it_cannot_be_replaced(
    tmp_path: Path,
) -> None:
    cloud = FakeCloud()
    with driven(tmp_path, a_topology(replace(SITE, max_hosts=2)), cloud, leaves=False) as run:
        run.until(lambda: len(run.running()) == 2)
        cloud.gives_notice(sorted(run.running().values())[0], 60.0)
        left: list[str] = []

        def two() -> bool:
            left.extend(text.rpartition(" in ")[2] for text in run.news if "takes it away in" in text)
            return len(set(left)) >= 2

        run.until(two)
        assert len(run.running()) == 2, "what is on it goes on"
        run.controller.finish()


def test_a_flavour_that_cannot_be_had_is_replaced_by_another(tmp_path: Path) -> None:
    cloud = FakeCloud(faults=["capacity"] * 2)
    with driven(tmp_path, a_topology(SITE), cloud) as run:
        run.until(lambda: len(run.running()) == 2)
        assert {record.flavour for record in cloud.records.values()} == {"dear"}
        refused = [lease for lease in run.controller.state.ledger.leases.values() if lease.units == 0]
        assert {lease.flavour for lease in refused} == {"small"}
        status = run.watching.status(run.clock.now_s())
        assert status.month == "720.00", "two hosts at 0.50 an hour"
        assert "720.00 a month at this rate" in str(status)
        assert status.standings[0].startswith("c: seen 0 s ago")
        run.controller.finish()
        assert cloud.living() == []


def test_a_budget_that_is_spent_stops_growth_and_is_told(tmp_path: Path) -> None:
    # A lease costs 60 s of 0.12 an hour at once: 0.002. Two fit into 0.005, three do not.
    cloud = FakeCloud()
    site = replace(SITE, budget=Decimal("0.005"), flavours=SITE.flavours[:1])
    with driven(tmp_path, a_topology(site, instances=3), cloud) as run:
        run.until(lambda: len(run.running()) == 2)
        run.until(lambda: any("its budget is spent (0.00" in text for text in run.news))
        run.until(lambda: any("budget: 0.00" in text and "are left at site c" in text for text in run.news))
        assert len([h for h in run.provider.hosts(0.0) or () if h.state is HostState.UP]) == 2
        run.controller.finish()
        assert len(cloud.records) == 2


def test_machines_are_given_back_at_the_end_though_the_journal_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "WAIT_S", 0.05)
    cloud = FakeCloud()
    with driven(tmp_path, a_topology(SITE), cloud) as run:
        run.until(lambda: len(run.running()) == 2)
        other = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        run.controller.finish()
        assert cloud.living() == []
        for host in run.running().values():
            assert f"host {host} was given back" in caplog.text
        other.close()
    with Journal(tmp_path / "journal.db", "paid") as seen:
        assert not [lease for lease in seen.leases() if lease.open], "on record once it is free"


def test_two_clusters_of_one_name_are_two_owners_and_the_next_controller_the_same_one(tmp_path: Path) -> None:
    from penstock.spark.managers.local_cluster import LocalCluster

    owners = [LocalCluster(0, name="web", folder=tmp_path / place)._owner() for place in ("a", "b", "a")]
    assert owners[0] == owners[2]
    assert owners[0] != owners[1], "else one would give back the other's machines as orphans"
    assert all(owner.startswith("web-") for owner in owners)


def test_a_run_waits_for_a_host_longer_than_its_provider_does() -> None:
    from penstock.runs.clusters import HOST_START_S, host_start_s

    slow = replace(SITE, provider=Choice("openstack", {"image": "debian-13", "join_within_s": 900.0}))
    assert host_start_s(a_topology(slow)) == HOST_START_S + 900.0
    local = replace(SITE, provider=Choice("local", {"host_start_delay_s": 5.0}))
    assert host_start_s(a_topology(local)) == HOST_START_S + 5.0
