"""A controller killed at any point of a tick goes on with its books: no lease forgotten or paid twice."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import VirtualClock
from penstock.controller.loop import Controller
from penstock.infrastructure.leases import Charge, Lease
from penstock.simulator import Fault, SimulatedCluster, SimulationSettings
from penstock.topology.model import Choice, LoopSettings, Topology
from tests.builders import a_flavour, a_site, a_topology
from tests.controller.clusters import KilledError, MortalCluster, MortalJournal

POINTS = (
    "before record", "after record", "before enact", "amid enact", "after enact", "before confirm",
    "after confirm",
)  # fmt: skip
TICKS = 13
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


def run(topology: Topology, folder: Path, point: str | None) -> tuple[Books, int]:
    """Some minutes of a controller that dies at this point of every tick and comes back at once."""
    clock, bomb = VirtualClock(), Bomb(point)
    cluster = MortalCluster(SimulatedCluster(topology, SimulationSettings(seed=3, faults=FAULTS)), bomb)
    path = folder / f"{point}.db"

    def started() -> tuple[MortalJournal, Controller]:
        journal = MortalJournal(path, "r")
        journal.bomb = bomb
        return journal, Controller(topology, cluster, clock, journal)

    journal, controller = started()
    for number in range(TICKS + 1):
        clock.wait_until(number * INTERVAL_S)
        bomb.armed = True
        turn = "tick" if number < TICKS else "finish"
        try:
            getattr(controller, turn)()
        except KilledError:
            journal.die()
            journal, controller = started()
            if point == "before record":
                # Nothing of this tick was on record: it is taken again, with what is left to see.
                getattr(controller, turn)()
    deployment = cluster.deployment()
    view = controller.state.view(deployment, clock.now_s(), ())
    books = Books(
        journal.leases(),
        journal.charges(),
        controller.state.ledger.total,
        dict(view.scalings),
        view.history,
        (view.next_host, view.next_instance),
        tuple(deployment.hosts),
        tuple(deployment.instances),
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
    assert deaths >= (TICKS if point == "before record" else 4)
    assert len(books.leases) > 4
    assert books == undisturbed["fixed"]
    assert balanced(books)
    assert paid_whole(books)


@pytest.mark.parametrize("point", [point for point in POINTS if point != "before record"])
def test_under_threshold_the_books_are_those_of_an_undisturbed_run(
    point: str, tmp_path: Path, undisturbed: dict[str, Books]
) -> None:
    books, deaths = run(THRESHOLD, tmp_path, point)
    assert deaths > TICKS / 2
    assert books == undisturbed["threshold"]
    assert balanced(books)
    assert paid_whole(books)


def test_a_tick_that_was_never_on_record_costs_a_measurement_but_no_money(tmp_path: Path) -> None:
    books, deaths = run(THRESHOLD, tmp_path, "before record")
    assert deaths == TICKS + 1
    assert books.leases
    assert balanced(books)
    assert paid_whole(books)
