"""Started units are paid whole, prolonging pays ahead, early release wastes; the bill is exact."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.infrastructure.leases import Charge, Lease, Ledger
from penstock.topology.model import HostFlavour, Site


def leased(host: str = "h1", *, at_s: float = 0.0, btu_s: float = 600.0, price: str = "1") -> Lease:
    return Lease(host, "c", "m", at_s, btu_s, Decimal(price))


@pytest.mark.parametrize(
    ("now_s", "units"),
    [(0, 1), (1, 1), (599.9, 1), (600, 1), (600.1, 2), (1200, 2), (1201, 3), (6000, 10)],
)
def test_every_started_unit_is_due(now_s: float, units: int) -> None:
    assert leased().units_due(now_s) == units


@pytest.mark.parametrize("btu_s", [1.0, 60.0, 3600.0])
def test_seconds_since_1970_do_not_start_a_unit_by_rounding(btu_s: float) -> None:
    lease = leased(at_s=1_794_780_000.123456, btu_s=btu_s)
    assert [lease.units_due(lease.started_s + n * btu_s) for n in range(1, 500)] == list(range(1, 500))


def test_settling_pays_what_has_started_and_nothing_twice() -> None:
    ledger = Ledger()
    ledger.lease(leased(), "needed")
    assert ledger.settle(600.0) == []
    assert [charge.units for charge in ledger.settle(1300.0)] == [2]
    assert ledger.settle(1300.0) == []
    assert ledger.total == 3


def test_prolonging_pays_one_unit_ahead_and_only_one() -> None:
    ledger = Ledger()
    ledger.lease(leased(), "needed")
    assert ledger.prolong("h1", 590.0, "kept") == Charge("h1", 590.0, 1, Decimal(1), "kept")
    assert ledger.prolong("h1", 595.0, "kept") is None
    assert ledger.leases["h1"].paid_until_s == 1200.0
    assert ledger.settle(1200.0) == []
    assert ledger.prolong("h1", 1200.0, "kept") is not None


def test_releasing_before_the_end_wastes_the_paid_rest() -> None:
    ledger = Ledger()
    ledger.lease(leased(), "needed")
    assert ledger.end("h1", 10.0) is None
    assert ledger.total == 1
    assert ledger.leases["h1"].remaining_s(10.0) == 590.0
    assert ledger.open_leases() == {}
    assert ledger.settle(5000.0) == []


def test_releasing_late_pays_the_units_that_had_started() -> None:
    ledger = Ledger()
    ledger.lease(leased(), "needed")
    charge = ledger.end("h1", 1300.0)
    assert charge is not None
    assert (charge.units, ledger.total) == (2, Decimal(3))


def test_a_lease_said_again_is_not_paid_again() -> None:
    ledger = Ledger()
    ledger.lease(leased(), "needed")
    assert ledger.lease(leased(at_s=60.0), "needed") is None
    assert ledger.end("h1", 70.0) is None
    assert ledger.end("h1", 80.0) is None
    assert ledger.leases["h1"].ended_s == 70.0
    assert ledger.total == 1


def test_unknown_hosts_are_neither_prolonged_nor_ended() -> None:
    ledger = Ledger()
    assert ledger.prolong("h9", 0.0, "") is None
    assert ledger.end("h9", 0.0) is None
    assert not ledger.reopen("h9")


def test_per_second_billing_costs_the_seconds() -> None:
    ledger = Ledger()
    ledger.lease(leased(btu_s=1.0, price="0.0000277"), "needed")
    ledger.end("h1", 3600.0)
    assert ledger.total == Decimal("0.0997200")


def test_a_reopened_lease_goes_on_where_it_was() -> None:
    ledger = Ledger()
    ledger.lease(leased(), "needed")
    ledger.end("h1", 100.0)
    assert ledger.reopen("h1")
    assert not ledger.reopen("h1")
    assert ledger.settle(500.0) == []
    assert [charge.units for charge in ledger.settle(700.0)] == [1]


@pytest.mark.parametrize(("btu_s", "price"), [(0.0, "1"), (-1.0, "1"), (float("nan"), "1"), (60.0, "-1")])
def test_a_lease_needs_a_span_and_a_price(btu_s: float, price: str) -> None:
    with pytest.raises(ConfigurationError, match="billing time unit above 0 s and a price of 0 or more"):
        leased(btu_s=btu_s, price=price)


def test_a_minimum_is_paid_at_once_and_then_every_second() -> None:
    site = Site("c", btu_s=3600.0, minimum_s=60.0, increment_s=1.0)
    ledger = Ledger()
    ledger.lease(Lease.at(site, HostFlavour("m", 4.0, 4096, Decimal(36)), "h1", 1000.0), "needed")
    assert ledger.total == Decimal("0.60")
    assert ledger.settle(1030.0) == []
    assert ledger.prolong("h1", 1030.0, "paid already") is None
    assert [charge.units for charge in ledger.settle(1075.0)] == [15]
    ledger.end("h1", 1080.5)
    assert ledger.total == Decimal("0.81")


def test_a_lease_given_back_within_its_minimum_costs_the_minimum() -> None:
    site = Site("c", btu_s=3600.0, minimum_s=60.0, increment_s=1.0)
    ledger = Ledger()
    ledger.lease(Lease.at(site, HostFlavour("m", 4.0, 4096, Decimal(36)), "h1", 0.0), "needed")
    assert ledger.end("h1", 5.0) is None
    assert ledger.total == Decimal("0.60")


def test_without_minimum_and_increment_a_lease_is_paid_by_the_billing_time_unit() -> None:
    site = Site("c", btu_s=600.0)
    lease = Lease.at(site, HostFlavour("m", 4.0, 4096, Decimal(6)), "h1", 0.0)
    assert (lease.btu_s, lease.units, lease.price_per_btu) == (600.0, 1, Decimal(6))


PRICES = st.one_of(
    st.decimals(0, 1000, places=6),
    # What a price per hour becomes for another span: a fraction without end.
    st.builds(lambda a, b: Decimal(a) / Decimal(b), st.integers(0, 10_000), st.integers(1, 9_999)),
)
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["lease", "prolong", "settle", "end", "reopen"]),
        st.integers(1, 4),
        st.floats(0, 5000),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(OPERATIONS, st.lists(PRICES, min_size=4, max_size=4), st.sampled_from([1.0, 60.0, 600.0, 3600.0]))
def test_the_bill_equals_the_sum_of_the_leases_whatever_was_done(operations, prices, btu_s) -> None:
    ledger, now_s = Ledger(), 1_794_780_000.5
    charges = []
    for kind, number, wait_s in operations:
        now_s += wait_s
        host = f"h{number}"
        if kind == "lease":
            charges.append(ledger.lease(Lease(host, "c", "m", now_s, btu_s, prices[number - 1]), "needed"))
        elif kind == "prolong":
            charges.append(ledger.prolong(host, now_s, "kept"))
        elif kind == "settle":
            charges += ledger.settle(now_s)
        elif kind == "end":
            charges.append(ledger.end(host, now_s))
        else:
            ledger.reopen(host)
        assert ledger.total == sum((lease.cost for lease in ledger.leases.values()), Decimal(0))
        charges = [charge for charge in charges if charge is not None]
        assert ledger.total == sum((charge.amount for charge in charges), Decimal(0))
        assert ledger.open_leases() == {h: lease for h, lease in ledger.leases.items() if lease.open}
    charges += ledger.settle(now_s)
    for lease in ledger.leases.values():
        assert lease.units >= lease.units_due(now_s)
    again = Ledger(ledger.leases.values(), charges)
    assert (again.total, again.open_leases()) == (ledger.total, ledger.open_leases())
