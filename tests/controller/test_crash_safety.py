"""A controller killed at any point of a tick goes on with its books: no lease forgotten or paid twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import VirtualClock
from penstock.controller.loop import Controller
from penstock.fleet.actions import ReleaseHost
from penstock.fleet.ports import Ground
from penstock.infrastructure.leases import Charge, Lease
from penstock.simulator import Fault, SimulatedPlane, SimulationSettings
from penstock.topology.model import Choice, LoopSettings, Topology
from tests.builders import a_flavour, a_site, a_topology
from tests.grounds import KilledError, MortalJournal, mortal

POINTS = (
    "before record", "after record", "before create", "after create", "before delete", "after delete",
    "before submit", "after submit", "before tell", "after tell", "before confirm", "after confirm",
)  # fmt: skip
TICKS = 13
LEAST_DEATHS = {
    "before record": TICKS, "before submit": 1, "after submit": 1, "before create": 2, "after create": 2,
    "before delete": 3, "after delete": 3,
}  # fmt: skip
"""How often there is something to die of, at least."""
INTERVAL_S = 30.0

FAULTS = (
    Fault(95.0, "instance_crash", unit="a"),
    Fault(190.0, "host_crash"),
    Fault(340.0, "host_crash"),
)


@dataclass(frozen=True)
class Books:
    """All there is to compare between two runs."""

    leases: tuple[Lease, ...]
    charges: tuple[Charge, ...]
    bill: Decimal
    scalings: dict[str, int]
    history: tuple[Any, ...]
    names: tuple[int, int]
    hosts: tuple[str, ...]
    instances: tuple[str, ...]
    actions: tuple[tuple[Any, ...], ...]


class Bomb:
    """Kills the process at one point of every tick, once a tick."""

    def __init__(self, point: str | None) -> None:
        self.point = point
        self.armed = True
        self.deaths = 0

    def __call__(self, point: str) -> None:
        if point == self.point and self.armed:
            self.armed = False
            self.deaths += 1
            raise KilledError(point)


def run(
    topology: Topology, folder: Path, point: str | None, asked: Mapping[int, str] | None = None
) -> tuple[Books, int]:
    """Some minutes of a controller that dies at this point of every tick and comes back at once.

    `asked` are hosts that somebody outside wants to be emptied and given back, by the number of the tick.
    """
    clock, bomb = VirtualClock(), Bomb(point)
    plane = SimulatedPlane(topology, SimulationSettings(seed=3, faults=FAULTS))
    ground = mortal(Ground(plane, plane.providers), bomb)
    path = folder / f"{point}.db"

    def started() -> tuple[MortalJournal, Controller]:
        journal = MortalJournal(path, "r")
        journal.bomb = bomb
        return journal, Controller(topology, ground, clock, journal)

    journal, controller = started()
    for number in range(TICKS + 1):
        clock.wait_until(number * INTERVAL_S)
        bomb.armed = True
        turn = "tick" if number < TICKS else "finish"
        wish = (asked or {}).get(number)
        if wish is not None:
            controller.ask(ReleaseHost(wish, "asked for"))
        try:
            getattr(controller, turn)()
        except KilledError:
            journal.die()
            journal, controller = started()
            if wish is not None and point == "before record":
                controller.ask(ReleaseHost(wish, "asked for"))
            # The turn is taken again, with what is left to see and to say.
            getattr(controller, turn)()
    deployment = controller.fleet.deployment()
    view = controller.state.view(deployment, clock.now_s(), ())
    books = Books(
        journal.leases(),
        journal.charges(),
        controller.state.ledger.total,
        dict(view.scalings),
        view.history,
        (view.next_host, view.next_instance),
        tuple(host.id for provider in plane.providers.values() for host in provider.hosts(clock.now_s())),
        tuple(sorted(deployment.instances)),
        tuple((r["at_s"], r["kind"], r["subject"], r["status"]) for r in journal.rows("action")),
    )
    journal.close()
    return books, bomb.deaths


def a_busy_topology(policy: Choice) -> Topology:
    """Load that comes and goes, small hosts, short billing: something happens at nearly every tick."""
    return a_topology(
        units=("a", "b"),
        chained=True,
        policy=policy,
        workload=Choice("square", {"low_per_s": 1.0, "high_per_s": 45.0, "hold_s": 120.0}),
        sites=[a_site(btu_s=45.0, flavours=[a_flavour(cores=2.0, price="0.033333333333333333333333")])],
        loop=LoopSettings(monitoring_s=INTERVAL_S, provisioning_s=INTERVAL_S),
        initial_instances=3,
        max_instances=8,
    )


FIXED = a_busy_topology(Choice("fixed"))
THRESHOLD = a_busy_topology(Choice("threshold", {"up_queue": 5, "up_twice_queue": 50}))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Books]:
    """The books of runs in which nobody dies, by policy."""
    return {
        topology.units[0].policy.name: run(topology, tmp_path_factory.mktemp("undisturbed"), None)[0]
        for topology in (FIXED, THRESHOLD)
    }


def balanced(books: Books) -> bool:
    return (
        books.bill
        == sum((charge.amount for charge in books.charges), Decimal(0))
        == sum((lease.cost for lease in books.leases), Decimal(0))
    )


def paid_whole(books: Books) -> bool:
    return all(
        not lease.open and lease.units >= lease.units_due(TICKS * INTERVAL_S) for lease in books.leases
    )


@pytest.mark.parametrize("point", POINTS)
def test_under_a_fixed_policy_the_books_are_those_of_an_undisturbed_run(
    point: str, tmp_path: Path, undisturbed: dict[str, Books]
) -> None:
    books, deaths = run(FIXED, tmp_path, point)
    assert deaths >= LEAST_DEATHS.get(point, 4)
    assert len(books.leases) > 4
    assert books == undisturbed["fixed"]
    assert balanced(books)
    assert paid_whole(books)


@pytest.mark.parametrize("point", [point for point in POINTS if point != "before record"])
def test_under_threshold_the_books_are_those_of_an_undisturbed_run(
    point: str, tmp_path: Path, undisturbed: dict[str, Books]
) -> None:
    books, deaths = run(THRESHOLD, tmp_path, point)
    assert deaths >= LEAST_DEATHS.get(point, 4)
    assert books == undisturbed["threshold"]
    assert balanced(books)
    assert paid_whole(books)


def test_a_tick_that_was_never_on_record_costs_a_measurement_but_no_money(tmp_path: Path) -> None:
    books, deaths = run(THRESHOLD, tmp_path, "before record")
    assert deaths == TICKS + 1
    assert books.leases
    assert balanced(books)
    assert paid_whole(books)


MOVED = replace(FIXED, sites=(replace(FIXED.sites[0], btu_s=3600.0),))
"""Hosts that are paid for long: what leaves them leaves because somebody asked."""
ASKED = {3: "c-h1", 6: "c-h2"}


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_of_a_migration_a_drain_or_a_release_forgets_and_doubles_nothing(
    point: str, tmp_path: Path
) -> None:
    """Two hosts are emptied and given back, what is on them moves; meanwhile others crash."""
    calm, _ = run(MOVED, tmp_path, None, ASKED)
    moves = [kind for _, kind, _, status in calm.actions if kind == "MigrateInstance" and status == "enacted"]
    assert len(moves) >= 3
    books, deaths = run(MOVED, tmp_path, point, ASKED)
    assert deaths >= 1
    assert books == calm
    assert balanced(books)
