"""The controller's books: what hosts cost, also those whose flavour is not in the topology any more."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from penstock.controller.state import State
from penstock.fleet.actions import LeaseHost
from penstock.fleet.ports import Used
from tests.builders import a_flavour, a_site
from tests.policies.views import a_topology


def test_a_provider_has_the_last_word_on_a_host_whose_flavour_was_taken_away_since() -> None:
    site = a_site(btu_s=60.0, flavours=[a_flavour(), a_flavour("large", price="2")])
    state = State(replace(a_topology(), sites=(site,)))
    state.book([LeaseHost("c-h1", "c", "large", "for a while")], 0.0)
    state.returned(["c-h1"], 50.0)
    state.topology = replace(state.topology, sites=(replace(site, flavours=site.flavours[:1]),))
    state.recorded("c", Used("c-h1", "large", 0.0, 130.0), 200.0)
    assert state.ledger.leases["c-h1"].cost == Decimal(6)
