"""Metering: instances on hosts that nobody leases are paid by the core and the GiB, to the last second."""

from __future__ import annotations

from decimal import Decimal

from penstock.infrastructure.metering import CHARGE_EVERY_S, Held, InstanceMeter
from penstock.topology.model import Site

PRICED = Site("theirs", core_hour=Decimal("0.04"), gib_hour=Decimal("0.005"))


def total(meter: InstanceMeter, seconds: float, step_s: float, used: Held) -> Decimal:
    amount, now_s = Decimal(0), 1000.0
    meter.charged([used], now_s)
    while now_s < 1000.0 + seconds:
        now_s += step_s
        amount += sum((c.amount for c in meter.charged([used], now_s)), Decimal(0))
    return amount + sum((c.amount for c in meter.charged([], now_s, end=True)), Decimal(0))


def test_an_hour_of_two_cores_and_three_gib_costs_their_prices_however_often_one_looks() -> None:
    used = Held("cluster", "theirs", 2.0, 3072)
    for step_s in (3.0, 7.5, 60.0, 3600.0):
        paid = total(InstanceMeter({"theirs": PRICED}), 3600.0, step_s, used)
        assert abs(paid - Decimal("0.095")) < Decimal("1e-9")


def test_charges_are_few_and_say_what_they_are_for() -> None:
    meter = InstanceMeter({"theirs": PRICED})
    used = [Held("cluster", "theirs", 1.0, 1024)]
    assert meter.charged(used, 0.0) == []
    assert meter.charged(used, CHARGE_EVERY_S - 1) == []
    (charge,) = meter.charged(used, CHARGE_EVERY_S)
    assert charge.host == "cluster"
    assert charge.units == 0
    assert "core hours" in charge.reason
    assert meter.charged(used, CHARGE_EVERY_S, end=True) == []


def test_a_site_without_prices_costs_nothing() -> None:
    meter = InstanceMeter({"theirs": Site("theirs")})
    used = [Held("cluster", "theirs", 4.0, 4096)]
    assert meter.charged(used, 0.0) + meter.charged(used, 7200.0) == []
    assert meter.charged(used, 7200.0, end=True) == []
