"""What every provider must do. Another one joins by one line in PROVIDERS_UNDER_TEST."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from penstock.errors import ConfigurationError
from penstock.infrastructure.deployment import HostState
from penstock.infrastructure.providers import (
    Provider,
    SimulatedParameters,
    SimulatedProvider,
    known_providers,
    provider_parameters,
)
from penstock.topology.model import Choice
from tests.builders import a_flavour


@dataclass(frozen=True)
class Case:
    """A provider to hold against the contract: how it is made, and when its hosts must be up."""

    make: Callable[[], Provider]
    earliest_up_s: float
    latest_up_s: float


def simulated(seed: int) -> Case:
    parameters = SimulatedParameters()
    return Case(
        lambda: SimulatedProvider(parameters, np.random.default_rng(seed)),
        parameters.host_start_least_s,
        parameters.host_start_most_s,
    )


PROVIDERS_UNDER_TEST = {"simulated": simulated(1), "simulated, other seed": simulated(2)}


@pytest.fixture(params=PROVIDERS_UNDER_TEST.values(), ids=PROVIDERS_UNDER_TEST.keys())
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def test_a_leased_host_is_there_at_once_and_up_within_its_times(case: Case) -> None:
    provider = case.make()
    provider.lease("h1", "c", a_flavour(), 100.0)
    (host,) = provider.hosts(100.0)
    assert (host.id, host.site, host.flavour, host.requested_s) == ("h1", "c", a_flavour(), 100.0)
    if case.earliest_up_s > 0:
        assert host.state in (HostState.REQUESTED, HostState.STARTING)
    (host,) = provider.hosts(100.0 + case.latest_up_s)
    assert host.state is HostState.UP
    assert host.up_s is not None
    assert 100.0 + case.earliest_up_s <= host.up_s <= 100.0 + case.latest_up_s


def test_leasing_again_changes_nothing(case: Case) -> None:
    provider = case.make()
    provider.lease("h1", "c", a_flavour(), 0.0)
    before = provider.hosts(case.latest_up_s)
    provider.lease("h1", "c", a_flavour("other"), 10.0)
    assert provider.hosts(case.latest_up_s) == before


def test_releasing_again_or_an_unknown_host_changes_nothing(case: Case) -> None:
    provider = case.make()
    provider.lease("h1", "c", a_flavour(), 0.0)
    provider.lease("h2", "c", a_flavour(), 0.0)
    provider.release("h9", 1.0)
    assert {h.id for h in provider.hosts(1.0)} == {"h1", "h2"}
    provider.release("h1", 1.0)
    provider.release("h1", 2.0)
    assert [h.id for h in provider.hosts(2.0)] == ["h2"]


def test_a_host_given_back_stays_away_even_if_its_lease_is_said_again(case: Case) -> None:
    provider = case.make()
    provider.lease("h1", "c", a_flavour(), 0.0)
    provider.release("h1", 1.0)
    provider.lease("h1", "c", a_flavour(), 2.0)
    assert provider.hosts(2.0) == ()


def test_reading_has_no_side_effect(case: Case) -> None:
    read, unread = case.make(), case.make()
    for provider in (read, unread):
        provider.lease("h1", "c", a_flavour(), 0.0)
    early = read.hosts(0.0)
    for now_s in np.linspace(0.0, 2 * case.latest_up_s, 50):
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
