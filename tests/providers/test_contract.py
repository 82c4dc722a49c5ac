"""What every provider must do. Another one joins by one line in UNDER_TEST."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from penstock.errors import ClusterError, ConfigurationError
from penstock.fleet.deployment import Host, HostState
from penstock.fleet.ports import Provider
from penstock.machine.processes import ChildProcesses, wait_until
from penstock.providers.joining import Join, Joined, Membership
from penstock.providers.local_hosts import LocalHosts
from penstock.providers.managed import HOST, ManagedProvider
from penstock.providers.registry import PROVIDERS, make_provider, provider_parameters
from penstock.providers.surroundings import Surroundings
from penstock.simulator.provider import SimulatedParameters, SimulatedProvider
from penstock.topology.model import Choice, Site
from tests.builders import a_flavour
from tests.providers.test_clouds import CLOUDS

STARTING = (HostState.REQUESTED, HostState.STARTING)


def a_site_of(provider: str, **parameters: float) -> Site:
    return Site("c", Choice(provider, parameters), flavours=(a_flavour(), a_flavour("other")))


class Case(Protocol):
    """A provider to hold against the contract, and the time it lives in."""

    provider: Provider
    earliest_up_s: float
    latest_up_s: float

    def now_s(self) -> float:
        """The present instant."""
        ...

    def wait(self, until: Callable[[tuple[Host, ...]], bool], most_s: float) -> tuple[Host, ...]:
        """Let time pass until the hosts are as wanted, but no longer than so many seconds; the hosts then."""
        ...

    def die(self, host: str) -> None:
        """Make a host die."""
        ...


class Simulated:
    """Virtual time: it passes by a second a look."""

    def __init__(self, seed: int) -> None:
        parameters = SimulatedParameters()
        provider = make_provider(a_site_of("simulated"), Surroundings(seed=seed))
        assert isinstance(provider, SimulatedProvider)
        self.provider: Provider = provider
        self.die = provider.fail
        self.earliest_up_s = parameters.host_start_least_s
        self.latest_up_s = parameters.host_start_most_s
        self._now_s = 100.0

    def now_s(self) -> float:
        return self._now_s

    def wait(self, until: Callable[[tuple[Host, ...]], bool], most_s: float) -> tuple[Host, ...]:
        end_s = self._now_s + most_s
        while not until(tuple(self.provider.hosts(self._now_s))) and self._now_s < end_s:
            self._now_s += 1.0
        return tuple(self.provider.hosts(self._now_s))


class Local:
    """Processes on this machine, in its own time."""

    earliest_up_s = 0.5
    latest_up_s = 90.0

    def __init__(self, hosts: LocalHosts) -> None:
        site = a_site_of("local", host_start_delay_s=self.earliest_up_s)
        self.provider: Provider = make_provider(site, Surroundings(local_hosts=hosts))
        self.die = hosts.kill

    def now_s(self) -> float:
        return time.time()

    def wait(self, until: Callable[[tuple[Host, ...]], bool], most_s: float) -> tuple[Host, ...]:
        wait_until(lambda: until(tuple(self.provider.hosts(self.now_s()))), most_s)
        return tuple(self.provider.hosts(self.now_s()))


@contextlib.contextmanager
def local_spark(folder: Path) -> Iterator[Case]:
    """Workers of a Spark master."""
    from penstock.spark.managers.local_cluster import LocalCluster

    with LocalCluster(folder=folder) as cluster:
        yield Local(cluster.local_hosts)


class Register:
    """Stands for a cluster's manager: a host has joined once its program has written its address down."""

    PROGRAM = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lost: set[str] = set()
        self.unlisted: set[str] = set()
        self.answers = True
        folder.mkdir()

    def join(self, host: str, address: str, cores: int, memory_mib: int, folder: Path) -> Join:
        folder.mkdir(parents=True)
        return Join((sys.executable, "-S", "-c", self.PROGRAM, str(self.folder / address)))

    def joined(self) -> Mapping[str, Joined] | None:
        if not self.answers:
            return None
        return {
            path.name: Joined(Membership.LOST if path.name in self.lost else Membership.TAKES)
            for path in self.folder.iterdir()
            if path.name not in self.unlisted
        }


@contextlib.contextmanager
def local(folder: Path) -> Iterator[Case]:
    children = ChildProcesses(f"contract-{folder.name}", folder=folder / "processes")
    register = Register(folder / "register")
    hosts = LocalHosts(folder, children, register.join, register.joined)
    try:
        yield Local(hosts)
    finally:
        hosts.close()
        children.stop_all(0.0)


UNDER_TEST: dict[str, Callable[[Path], contextlib.AbstractContextManager[Case]]] = {
    "simulated": lambda _: contextlib.nullcontext(Simulated(1)),
    "simulated, other seed": lambda _: contextlib.nullcontext(Simulated(2)),
    "local": local,
    "local with Spark": local_spark,
}


@pytest.fixture(
    params=[
        pytest.param(make, id=name, marks=[pytest.mark.spark] if "Spark" in name else [])
        for name, make in UNDER_TEST.items()
    ]
)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    with request.param(tmp_path) as found:
        yield found


def names(hosts: tuple[Host, ...]) -> list[str]:
    return [host.id for host in hosts]


def present(case: Case) -> list[str]:
    """Hosts that were not given back: a provider may show one that still goes."""
    return [h.id for h in case.provider.hosts(case.now_s()) if h.state is not HostState.DRAINING]


def is_up(hosts: tuple[Host, ...]) -> bool:
    return all(host.state is HostState.UP for host in hosts)


def test_every_provider_is_held_against_the_contract() -> None:
    tested = {name.split()[0].rstrip(",") for name in UNDER_TEST}
    elsewhere = {"managed", "ssh"}  # the first gives no hosts: see below; the second: tests/rig/test_ssh.py
    assert tested | {*elsewhere, *CLOUDS} == set(PROVIDERS)


def test_a_host_is_there_at_once_and_up_within_its_times_and_twice_asked_is_once_given(case: Case) -> None:
    began_s = case.now_s()
    case.provider.create("h1", a_flavour(), began_s)
    (host,) = case.provider.hosts(began_s)
    assert (host.id, host.site, host.flavour) == ("h1", "c", a_flavour())
    assert host.requested_s == pytest.approx(began_s, abs=0.5)
    assert host.state in STARTING
    case.provider.create("h1", a_flavour("other"), case.now_s())
    (host,) = case.wait(is_up, case.latest_up_s)
    assert host.state is HostState.UP
    assert host.address
    assert host.up_s is not None
    assert began_s + case.earliest_up_s <= host.up_s <= began_s + case.latest_up_s
    case.provider.create("h1", a_flavour("other"), case.now_s())
    (again,) = case.provider.hosts(case.now_s())
    assert again is host, "the same object while nothing changed"


def test_a_host_given_back_goes_and_saying_so_again_changes_nothing(case: Case) -> None:
    now_s = case.now_s()
    case.provider.create("h1", a_flavour(), now_s)
    case.provider.create("h2", a_flavour(), now_s)
    case.provider.delete("h9", now_s)
    case.wait(is_up, case.latest_up_s)
    assert sorted(present(case)) == ["h1", "h2"]
    addresses = {host.address for host in case.provider.hosts(case.now_s())}
    assert len(addresses) == 2, "each host has an address of its own"
    began_s = time.monotonic()
    case.provider.delete("h1", case.now_s())
    case.provider.delete("h1", case.now_s())
    assert time.monotonic() - began_s < 1.0, "giving back does not wait"
    assert present(case) == ["h2"]
    assert names(case.wait(lambda hosts: len(hosts) == 1, 60.0)) == ["h2"]
    case.provider.delete("h1", case.now_s())
    case.provider.create("h1", a_flavour(), case.now_s())
    assert present(case) == ["h2"], "a name is given once"


def test_a_host_may_be_given_back_while_it_starts(case: Case) -> None:
    case.provider.create("h1", a_flavour(), case.now_s())
    case.provider.delete("h1", case.now_s())
    case.provider.create("h1", a_flavour(), case.now_s())
    assert present(case) == []
    assert case.wait(lambda hosts: not hosts, 60.0) == ()


def test_a_host_that_dies_is_shown_as_failed_until_it_is_given_back(case: Case) -> None:
    case.provider.create("h1", a_flavour(), case.now_s())
    case.wait(is_up, case.latest_up_s)
    case.die("h1")
    case.die("h9")
    (host,) = case.wait(lambda hosts: hosts[0].state is HostState.FAILED, 30.0)
    assert host.state is HostState.FAILED
    case.provider.create("h1", a_flavour(), case.now_s())
    assert case.provider.hosts(case.now_s())[0] is host, "what failed is not started again under its name"
    case.provider.delete("h1", case.now_s())
    assert case.wait(lambda hosts: not hosts, 60.0) == ()


def test_a_simulated_host_may_die_while_it_starts_and_reading_has_no_side_effect() -> None:
    read, unread = Simulated(1), Simulated(1)
    for one in (read, unread):
        one.provider.create("h1", a_flavour(), 0.0)
    early = read.provider.hosts(0.0)
    for now_s in np.linspace(0.0, 120.0, 50):
        read.provider.hosts(float(now_s))
    assert read.provider.hosts(0.0) == early
    for one in (read, unread):
        one.die("h1")
        one.provider.create("h2", a_flavour(), 5.0)
    assert read.provider.hosts(200.0) == unread.provider.hosts(200.0)
    assert [host.state for host in read.provider.hosts(1.0)] == [HostState.FAILED, HostState.STARTING]


def test_a_managed_site_is_one_host_that_is_always_up_and_costs_nothing() -> None:
    site = Site("yarn", Choice("managed"), flavours=(a_flavour(cores=100.0),))
    provider = make_provider(site, Surroundings())
    assert isinstance(provider, ManagedProvider)
    (host,) = provider.hosts(0.0)
    assert (host.id, host.site, host.state, host.address) == (HOST, "yarn", HostState.UP, HOST)
    assert host.flavour == replace(site.flavours[0], price_per_btu=Decimal(0))
    provider.create(HOST, a_flavour(), 1.0)
    provider.delete("h9", 1.0)
    with pytest.raises(ClusterError, match="none can be leased"):
        provider.create("h1", a_flavour(), 1.0)
    with pytest.raises(ClusterError, match="cannot be given back"):
        provider.delete(HOST, 1.0)
    assert provider.hosts(1000.0)[0] is host


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice("simulatd"), 'did you mean "simulated"'),
        (Choice("simulated", {"host_start_lest_s": 1}), 'did you mean "host_start_least_s"'),
        (Choice("simulated", {"host_start_least_s": 99}), "0 <= least <= most"),
        (Choice("simulated", {"image_pull_s": -1}), "0 or more"),
        (Choice("simulated", {"host_start_most_s": "soon"}), "host_start_most_s"),
        (Choice("managed", {"price": 1}), 'no parameter "price"'),
    ],
)
def test_a_wrong_choice_of_provider_is_told_with_what_would_be_right(choice: Choice, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        provider_parameters(choice)


def test_local_hosts_need_a_local_cluster() -> None:
    with pytest.raises(ClusterError, match="need a local cluster"):
        make_provider(a_site_of("local"), Surroundings())
