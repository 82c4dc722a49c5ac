"""The controller's books: what hosts cost, also of a flavour that is gone; what was late, by whose limit."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from penstock.controller.state import State
from penstock.fleet.actions import LeaseHost
from penstock.fleet.deployment import Deployment
from penstock.fleet.ports import Used
from tests.builders import a_flavour, a_site
from tests.policies.views import a_signal, a_topology


def test_a_provider_has_the_last_word_on_a_host_whose_flavour_was_taken_away_since() -> None:
    site = a_site(btu_s=60.0, flavours=[a_flavour(), a_flavour("large", price="2")])
    state = State(replace(a_topology(), sites=(site,)))
    state.book([LeaseHost("c-h1", "c", "large", "for a while")], 0.0)
    state.returned(["c-h1"], 50.0)
    state.topology = replace(state.topology, sites=(replace(site, flavours=site.flavours[:1]),))
    state.recorded("c", Used("c-h1", "large", 0.0, 130.0), 200.0)
    assert state.ledger.leases["c-h1"].cost == Decimal(6)


def test_what_was_late_is_told_by_a_unit_s_budget_and_not_by_its_wider_slo() -> None:
    state = State(a_topology(slo_s=5.0))
    for number in range(1, 9):
        if number == 5:
            state.budgets["a"] = 0.1
        signal = a_signal(at_s=15.0 * number, duration_s=0.5)
        state.remember([replace(signal, measurement=replace(signal.measurement, on_time=150))])
    on_slo, on_budget = state.view(Deployment({}, {}), 120.0, ("a",)).loads["a"].late
    assert on_slo == 0
    assert on_budget == pytest.approx(600 * 0.9)
