"""What hosts cost by their providers' own lists, looked at from time to time while a run goes on.

Lists are read in a thread of its own, for they may be slow or away. Prices that a run decided on are kept
in its journal: a unit is moved where prices become others, not where somebody wants it in spite of them.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal

from penstock.controller.journal import Journal
from penstock.errors import JournalUnavailableError
from penstock.infrastructure.siting import PAYS_BACK_UNITS
from penstock.providers.price_lists import Lists, list_of, with_list_prices
from penstock.topology.model import HostFlavour, Site, Topology

LOOK_S = 3600.0
"""How long at least between two looks at the lists."""
KEPT = "list prices"
"""Under this the journal has the prices that were last decided on."""

Prices = Mapping[str, Mapping[str, str]]
"""What a billing time unit costs, by site and flavour."""


class Pricing:
    """Reads the lists of a topology's sites now and then. Use it from the loop's thread."""

    def __init__(self, journal: Journal, note: Callable[[str], None], lists: Lists = list_of) -> None:
        self._journal = journal
        self._note = note
        self._lists = lists
        self._next_s: float | None = None
        self._asking = False
        self._found: queue.SimpleQueue[Prices | str] = queue.SimpleQueue()
        self._problem = ""
        self._new: Prices | None = None

    def look(self, topology: Topology, now_s: float) -> tuple[Topology, Topology] | None:
        """The topology with the prices last decided on, and with those of the lists where they are others.

        None where there is nothing to decide. The same again until `decided` is called.
        """
        every_s = interval_s(topology)
        if every_s is None:
            return None
        if self._next_s is None:
            self._next_s = now_s + every_s  # they were read for the start
        self._take()
        if now_s >= self._next_s and not self._asking:
            self._next_s, self._asking = now_s + every_s, True
            threading.Thread(target=self._read, args=(topology, every_s / 2), daemon=True).start()
        if self._new is None:
            return None
        try:
            kept = self._journal.recall(KEPT)
        except JournalUnavailableError:
            return None  # what was decided on is not known now: it is looked at again
        before, now = topology if kept is None else repriced(topology, kept), repriced(topology, self._new)
        if now == before:
            self._new = None
            return None
        return before, now

    def decided(self) -> None:
        """Take what the lists say as what is known from now on."""
        if self._new is not None:
            with contextlib.suppress(JournalUnavailableError):  # it keeps it, and writes it once it can
                self._journal.remember(KEPT, self._new)
            self._new = None

    def _take(self) -> None:
        if self._found.empty():
            return
        self._asking, found = False, self._found.get()
        if isinstance(found, str):
            if found != self._problem:
                self._note(f"prices stay as they were: {found}")
            self._problem = found
        else:
            self._problem, self._new = "", found

    def _read(self, topology: Topology, fresh_s: float) -> None:
        try:
            self._found.put(listed_prices(with_list_prices(topology, None, self._lists, fresh_s)))
        except Exception as error:  # whatever a list holds: without an answer nobody would ask again
            self._found.put(str(error) or type(error).__name__)


def interval_s(topology: Topology) -> float | None:
    """How often prices are looked at; None where no unit could go because of them.

    Not sooner than a move pays for what it leaves half used, so units do not come and go with prices.
    """
    sites = [site for site in topology.sites if any(flavour.listed for flavour in site.flavours)]
    if not sites or all(len(topology.sites_of(unit)) < 2 for unit in topology.unit_by_name):
        return None
    return max(LOOK_S, PAYS_BACK_UNITS * max(site.btu_s for site in topology.sites))


def listed_prices(topology: Topology) -> dict[str, dict[str, str]]:
    """The prices of a topology that are by a list."""
    return {
        site.name: {flavour.name: str(flavour.price_per_btu) for flavour in site.flavours if flavour.listed}
        for site in topology.sites
    }


def repriced(topology: Topology, prices: Prices) -> Topology:
    """A topology with these prices for what is by a list; others stay."""

    def at(site: Site, flavour: HostFlavour) -> HostFlavour:
        known = prices.get(site.name, {}).get(flavour.name)
        return replace(flavour, price_per_btu=Decimal(known)) if flavour.listed and known else flavour

    sites = (replace(site, flavours=tuple(at(site, f) for f in site.flavours)) for site in topology.sites)
    return replace(topology, sites=tuple(sites))
