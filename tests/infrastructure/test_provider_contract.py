"""What every provider must do. Another one joins by one line in PROVIDERS_UNDER_TEST."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import pytest

from penstock.errors import ConfigurationError
from penstock.infrastructure.deployment import Host, HostState
from penstock.infrastructure.providers import (
    Provider,
    SimulatedParameters,
    SimulatedProvider,
    known_providers,
    provider_parameters,
)
from penstock.topology.model import Choice, Site
from tests.builders import a_flavour

STARTING = (HostState.REQUESTED, HostState.STARTING)


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


class Simulated:
    """Virtual time: it passes by a second a look."""

    def __init__(self, seed: int) -> None:
        parameters = SimulatedParameters()
        self.provider: Provider = SimulatedProvider(parameters, np.random.default_rng(seed))
        self.earliest_up_s = parameters.host_start_least_s
        self.latest_up_s = parameters.host_start_most_s
        self._now_s = 100.0

    def now_s(self) -> float:
        return self._now_s

    def wait(self, until: Callable[[tuple[Host, ...]], bool], most_s: float) -> tuple[Host, ...]:
        end_s = self._now_s + most_s
        while not until(self.provider.hosts(self._now_s)) and self._now_s < end_s:
            self._now_s += 1.0
        return self.provider.hosts(self._now_s)


class Local:
    """Spark workers on this machine, in its own time."""

    earliest_up_s = 0.5
    latest_up_s = 60.0

    def __init__(self, cluster: object) -> None:
        from penstock.spark.local_provider import LocalProvider

        self.provider: Provider = LocalProvider(cluster, Site("c", flavours=(a_flavour(),)))  # type: ignore[arg-type]

    def now_s(self) -> float:
        return time.time()

    def wait(self, until: Callable[[tuple[Host, ...]], bool], most_s: float) -> tuple[Host, ...]:
        from penstock.spark.processes import wait_until

        wait_until(lambda: until(self.provider.hosts(self.now_s())), most_s)
        return self.provider.hosts(self.now_s())


@contextlib.contextmanager
def local() -> Iterator[Case]:
    from penstock.spark.local_cluster import LocalCluster

    with LocalCluster(start_delay_s=Local.earliest_up_s) as cluster:
        yield Local(cluster)


PROVIDERS_UNDER_TEST: dict[str, Callable[[], contextlib.AbstractContextManager[Case]]] = {
    "simulated": lambda: contextlib.nullcontext(Simulated(1)),
    "simulated, other seed": lambda: contextlib.nullcontext(Simulated(2)),
    "local": local,
}


@pytest.fixture(
    params=[
        pytest.param(make, id=name, marks=[pytest.mark.spark] if name == "local" else [])
        for name, make in PROVIDERS_UNDER_TEST.items()
    ]
)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with request.param() as found:
        yield found


def names(hosts: tuple[Host, ...]) -> list[str]:
    return [host.id for host in hosts]


def present(hosts: tuple[Host, ...]) -> list[str]:
    """Hosts that were not given back: a provider may show one that still drains."""
    return [host.id for host in hosts if host.state is not HostState.DRAINING]


def test_a_leased_host_is_there_at_once_and_up_within_its_times(case: Case) -> None:
    began_s = case.now_s()
    case.provider.lease("h1", "c", a_flavour(), began_s)
    (host,) = case.provider.hosts(began_s)
    assert (host.id, host.site, host.flavour) == ("h1", "c", a_flavour())
    assert host.requested_s == pytest.approx(began_s, abs=0.5)
    assert host.state in STARTING
    (host,) = case.wait(lambda hosts: hosts[0].state is HostState.UP, case.latest_up_s)
    assert host.state is HostState.UP
    assert host.up_s is not None
    assert began_s + case.earliest_up_s <= host.up_s <= began_s + case.latest_up_s


def test_leasing_again_changes_nothing(case: Case) -> None:
    case.provider.lease("h1", "c", a_flavour(), case.now_s())
    (before,) = case.wait(lambda hosts: hosts[0].state is HostState.UP, case.latest_up_s)
    case.provider.lease("h1", "c", a_flavour("other"), case.now_s())
    assert case.provider.hosts(case.now_s()) == (before,)


def test_a_host_given_back_goes_and_saying_so_again_changes_nothing(case: Case) -> None:
    now_s = case.now_s()
    case.provider.lease("h1", "c", a_flavour(), now_s)
    case.provider.lease("h2", "c", a_flavour(), now_s)
    case.provider.release("h9", now_s)
    assert sorted(names(case.provider.hosts(now_s))) == ["h1", "h2"]
    case.provider.release("h1", now_s)
    case.provider.release("h1", now_s)
    assert present(case.provider.hosts(now_s)) == ["h2"]
    assert names(case.wait(lambda hosts: len(hosts) == 1, 60.0)) == ["h2"]
    case.provider.release("h1", case.now_s())
    assert names(case.provider.hosts(case.now_s())) == ["h2"]


def test_a_host_given_back_stays_away_even_if_its_lease_is_said_again(case: Case) -> None:
    case.provider.lease("h1", "c", a_flavour(), case.now_s())
    case.provider.release("h1", case.now_s())
    case.provider.lease("h1", "c", a_flavour(), case.now_s())
    assert present(case.provider.hosts(case.now_s())) == []
    assert case.wait(lambda hosts: not hosts, 60.0) == ()


def test_reading_simulated_hosts_has_no_side_effect() -> None:
    read, unread = Simulated(1).provider, Simulated(1).provider
    for provider in (read, unread):
        provider.lease("h1", "c", a_flavour(), 0.0)
    early = read.hosts(0.0)
    for now_s in np.linspace(0.0, 120.0, 50):
        read.hosts(float(now_s))
    assert read.hosts(0.0) == early
    for provider in (read, unread):
        provider.lease("h2", "c", a_flavour(), 5.0)
    assert read.hosts(200.0) == unread.hosts(200.0)


def test_a_simulated_host_that_dies_stays_listed_until_it_is_given_back() -> None:
    provider = SimulatedProvider(SimulatedParameters(), np.random.default_rng(1))
    provider.lease("h1", "c", a_flavour(), 0.0)
    provider.fail("h1")
    provider.fail("h9")
    for now_s in (1.0, 100.0):
        host = provider.host("h1", now_s)
        assert host is not None
        assert host.state is HostState.FAILED
    provider.release("h1", 101.0)
    assert provider.host("h1", 101.0) is None


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice("simulatd"), 'did you mean "simulated"'),
        (Choice("simulated", {"host_start_lest_s": 1}), 'did you mean "host_start_least_s"'),
        (Choice("simulated", {"host_start_least_s": 99}), "0 <= least <= most"),
        (Choice("simulated", {"image_pull_s": -1}), "0 or more"),
        (Choice("simulated", {"host_start_most_s": "soon"}), "host_start_most_s"),
    ],
)
def test_a_wrong_choice_of_provider_is_told_with_what_would_be_right(choice: Choice, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        provider_parameters(choice)


def test_the_registry_names_every_provider_and_parameter() -> None:
    assert set(known_providers()) == {"simulated", "local"}
    assert "image_pull_s" in known_providers()["simulated"]
