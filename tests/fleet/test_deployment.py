"""Hosts and instances move only along their tables; a deployment answers what runs where."""

from __future__ import annotations

from itertools import product

import pytest

from penstock.errors import TransitionError
from penstock.fleet.deployment import (
    HOST_TRANSITIONS,
    INSTANCE_TRANSITIONS,
    Deployment,
    HostState,
    InstanceState,
)
from penstock.infrastructure.placement import Room, flavour_to_lease
from tests.builders import a_flavour, a_host, a_site, a_topology, an_instance

# Written out by hand, apart from the code: what each state may become.
HOST_LIFE = {
    "requested": "starting up failed draining released",
    "starting": "up failed draining released",
    "up": "draining released failed",
    "draining": "released failed up",
    "released": "",
    "failed": "released",
}
INSTANCE_LIFE = {
    "requested": "starting running stopped failed",
    "starting": "running requested stopped failed",
    "running": "retiring requested stopped failed",
    "retiring": "stopped failed",
    "stopped": "",
    "failed": "",
}


@pytest.mark.parametrize(("before", "after"), tuple(product(HostState, HostState)))
def test_a_host_moves_only_along_its_life(before: HostState, after: HostState) -> None:
    host = a_host(state=before)
    if before is after or after in HOST_LIFE[before].split():
        assert host.moved(after).state is after
    else:
        with pytest.raises(TransitionError, match=f"host h1 cannot go from {before} to {after}"):
            host.moved(after)


@pytest.mark.parametrize(("before", "after"), tuple(product(InstanceState, InstanceState)))
def test_an_instance_moves_only_along_its_life(before: InstanceState, after: InstanceState) -> None:
    instance = an_instance(state=before)
    if before is after or after in INSTANCE_LIFE[before].split():
        assert instance.moved(after, host="h2").host == "h2"
    else:
        with pytest.raises(TransitionError, match=f"instance a-1 cannot go from {before} to {after}"):
            instance.moved(after)


def test_every_state_is_in_its_table() -> None:
    assert set(HOST_TRANSITIONS) == set(HostState)
    assert set(INSTANCE_TRANSITIONS) == set(InstanceState)


def test_a_deployment_tells_who_serves_and_what_is_free() -> None:
    deployment = Deployment.of(
        [a_host("h1"), a_host("h2", state=HostState.FAILED)],
        [
            an_instance("a-1"),
            an_instance("a-2", state=InstanceState.RETIRING),
            an_instance("a-3", state=InstanceState.REQUESTED, host=None),
            an_instance("b-4", unit="b", state=InstanceState.FAILED),
        ],
    )
    assert [i.id for i in deployment.of_unit("a")] == ["a-1", "a-3"]
    assert [i.id for i in deployment.on_host("h1")] == ["a-1", "a-2"]
    assert deployment.of_unit("b") == deployment.on_host("h2") == ()
    assert deployment.room == {"h1": Room(3.0, 7168)}  # once what retires is gone
    assert deployment.leased == {"c": {"m": 1}}


def test_needs_that_add_up_by_rounding_still_fit() -> None:
    room = Room(0.3, 100).less(0.1, 10)
    assert room.holds(0.2, 90)
    assert not room.holds(0.2, 91)
    assert not room.holds(0.21, 90)
    assert room.more(0.1, 10).holds(0.3, 100)


@pytest.mark.parametrize(
    ("leased", "found"),
    [
        ({}, ("near", "cheap")),
        ({"near": {"cheap": 1}}, ("near", "dear")),
        ({"near": {"cheap": 1, "dear": 1}}, ("far", "m")),
        ({"near": {"cheap": 2}, "far": {"m": 9}}, "site near has its 2 hosts; site far has its 9 hosts"),
    ],
)
def test_the_first_site_with_a_host_gives_its_cheapest_core(leased, found) -> None:
    near = a_site(
        "near",
        flavours=[a_flavour("dear", price="8"), a_flavour("cheap", price="6", max_hosts=1)],
        max_hosts=2,
    )
    topology = a_topology(sites=[near, a_site("far", max_hosts=9)])
    answer = flavour_to_lease(topology, "a", leased)
    assert (answer if isinstance(answer, str) else (answer[0].name, answer[1].name)) == found


@pytest.mark.parametrize(
    ("wanted", "flavour"),
    [(None, "large"), (1, "small"), (6, "small"), (7, "large"), (8, "large"), (16, "large"), (17, "small")],
)
def test_the_flavour_is_the_one_that_holds_what_is_wanted_for_the_least_money(wanted, flavour) -> None:
    """Large hosts are cheaper a core: 0.95 for eight, where small ones take 0.25 for two."""
    site = a_site(
        flavours=[
            a_flavour("small", price="0.25", cores=2, memory_mib=2048),
            a_flavour("large", price="0.95", cores=8, memory_mib=8192),
        ]
    )
    found = flavour_to_lease(a_topology(sites=[site]), "a", {}, wanted=wanted)
    assert not isinstance(found, str)
    # Seventeen: the odd one on a small host first, and then sixteen fill two large ones.
    assert found[1].name == flavour


def test_a_flavour_too_small_for_the_unit_is_told() -> None:
    topology = a_topology(sites=[a_site(flavours=[a_flavour(memory_mib=512)])])
    assert flavour_to_lease(topology, "a", {}) == "no flavour of site c holds 1 cores and 1024 MiB"
