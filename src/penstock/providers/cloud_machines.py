"""The books a provider over an API keeps of its machines: what was asked, what is seen, what has to go.

Pure but for being changed: no thread, no call, no clock. `cloud.py` holds the lock and does what is due.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal

from penstock.errors import ProviderError
from penstock.fleet.deployment import Host
from penstock.fleet.ports import Used
from penstock.providers.cloud_api import Machine, MachineState
from penstock.providers.cloud_pauses import Pace
from penstock.providers.cloud_records import LIVING, Phase, Record
from penstock.topology.model import HostFlavour, Site

LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Going:
    """A machine that has to go."""

    machine: Machine
    name: str
    """Its name in the bill."""
    under_way: bool = False
    accepted_s: float | None = None
    tried_s: float | None = None
    """When a call came back of which nobody knows what it did, unless the machine was seen since."""
    not_before_s: float = 0.0
    failures: int = 0

    def due(self, now_s: float) -> bool:
        """Whether the cloud has to be told now."""
        return self.accepted_s is None and not self.under_way and now_s >= self.not_before_s


class Machines:
    """Every host that was asked for and every machine that was seen, of one site."""

    def __init__(self, site: Site, pace: Pace) -> None:
        self._site, self._pace = site, pace
        self.records: dict[str, Record] = {}
        self.past: set[str] = set()
        """Names that were given back or refused: a name is given once."""
        self.books: frozenset[str] | None = None
        self.going: dict[str, Going] = {}
        self.listed_s: float | None = None
        """When the newest listing began; what it shows was so then."""
        self.news: list[str] = []
        self.used: list[Used] = []
        self.homeless: list[Machine] = []
        """Machines the cloud had promised and found no room for."""
        self._seen: dict[str, Machine] = {}
        self._strays_s: dict[str, float] = {}
        """Since when a machine is seen that is in no book, by its id."""
        self._over: set[str] = set()
        """Machines whose time was accounted for, by id."""
        self._dirty: set[str] = set()
        self._shown: dict[str, Host] = {}
        self._answer: tuple[Host, ...] = ()

    # -- what is asked ----------------------------------------------------------------------------

    def ask(self, host: str, flavour: HostFlavour, now_s: float) -> None:
        """A host is wanted."""
        self.records[host] = Record(host, flavour, now_s)
        self._dirty.add(host)

    def give_back(self, host: str) -> None:
        """A host is not wanted any more; where its machine is not known yet, it goes once it is seen."""
        self.past.add(host)
        record = self.records.get(host)
        if record is None or record.given_back:
            return
        record.given_back = True
        never_made = record.phase is Phase.ASKED and record.failures == 0
        gone = record.failed and (record.machine is None or record.machine.id in self._over)
        if never_made or gone or record.refused is not None:
            self.forget(host)
        self._dirty.add(host)

    def refuse(self, record: Record, problem: ProviderError) -> None:
        """The cloud will not make it; what is made all the same is given back."""
        record.phase, record.refused = Phase.ASKED, problem
        self.past.add(record.host)
        if record.given_back:
            self.forget(record.host)

    def forget(self, host: str) -> None:
        """Nothing of it is left."""
        self.records.pop(host, None)
        self.past.add(host)
        self._dirty.add(host)

    def touched(self, host: str) -> None:
        """It has to be shown anew."""
        self._dirty.add(host)

    def tell(self, news: str | None) -> None:
        """Note what is news, where something is."""
        if news is not None:
            LOG.info("site %s: %s", self._site.name, news)
            self.news.append(f"site {self._site.name}: {news}")

    # -- what is shown ----------------------------------------------------------------------------

    def shown(self) -> tuple[Host, ...]:
        """Every host, the same object as last time where nothing changed."""
        if self._dirty:
            for name in self._dirty:
                record = self.records.get(name)
                if record is None or record.refused is not None:
                    self._shown.pop(name, None)
                    continue
                host = record.shown(self._site.name)
                if self._shown.get(name) != host:
                    self._shown[name] = host
            self._dirty.clear()
            self._answer = tuple(self._shown.values())
        return self._answer

    def leaving(self) -> list[str]:
        """What was given back, or has to be, and is not gone."""
        strays = [key for key in self._strays_s if self._seen[key].host in self.past]
        back = [record.host for record in self.records.values() if record.given_back]
        return sorted({*back, *strays, *(going.name for going in self.going.values())})

    # -- what is seen -----------------------------------------------------------------------------

    def keep(self, hosts: Collection[str]) -> None:
        """These are in the books, and no others."""
        first, self.books = self.books is None, frozenset(hosts)
        if first and self.listed_s is not None:
            self.enter(tuple(self._seen.values()), self.listed_s)

    def enter(self, machines: Collection[Machine], begun_s: float) -> None:
        """Take in a listing that began then."""
        self.listed_s = begun_s
        self._seen = {machine.id: machine for machine in machines}
        by_host: dict[str, list[Machine]] = {}
        for machine in machines:
            by_host.setdefault(machine.host, []).append(machine)
        for name, found in by_host.items():
            record = self.records.get(name)
            if record is None and self.books is not None and name in self.books and name not in self.past:
                # Made by an earlier controller of this run, which is in its books.
                record = self.records[name] = Record(name, self._flavour(found[0]), begun_s, Phase.LISTED)
            if record is not None:
                self._see(record, found, begun_s)
        for record in [r for r in self.records.values() if r.host not in by_host]:
            self._miss(record, begun_s)
        for going in tuple(self.going.values()):
            self._goes(going, begun_s)
        strays = [m.id for m in machines if self._is_stray(m)]
        self._strays_s = {key: self._strays_s.get(key, begun_s) for key in strays}

    def _is_stray(self, machine: Machine) -> bool:
        record = self.records.get(machine.host)
        ours = record is not None and record.machine is not None and record.machine.id == machine.id
        there = machine.state in LIVING or machine.state is MachineState.BROKEN
        return not ours and there and machine.id not in self.going

    def _see(self, record: Record, found: Collection[Machine], begun_s: float) -> None:
        known = [m for m in found if record.machine is not None and m.id == record.machine.id]
        living = sorted((m for m in found if m.state in LIVING), key=lambda m: (m.created_s or 0.0, m.id))
        machine = (known or living or [*found])[0]
        if record.refused is not None:
            return  # made all the same: it is in no book any more
        record.seen_s = begun_s
        if machine.never_ran and not record.failed:
            self.homeless.append(machine)
        if machine != record.machine or record.phase is not Phase.LISTED:
            record.machine, record.phase, record.failures = machine, Phase.LISTED, 0
            self._dirty.add(record.host)

    def _miss(self, record: Record, begun_s: float) -> None:
        lost = record.unseen(begun_s, self._pace)
        if record.given_back and record.phase is Phase.ASKED and record.machine is None:
            self.forget(record.host)
        if lost is None or record.failed or (record.machine is not None and record.machine.id in self.going):
            return
        self._account(record.machine, record.host, begun_s)
        if record.given_back:
            self.forget(record.host)
        else:
            record.problem = lost
            self.tell(f"host {record.host}: {lost}")
            self._dirty.add(record.host)

    # -- what has to go ---------------------------------------------------------------------------

    def mark_going(self, now_s: float) -> None:
        """Note every machine that has to go: given back, failed, doubled, or in no book for too long."""
        for record in tuple(self.records.values()):
            machine = record.machine
            if machine is None or machine.id in self.going or not (record.given_back or record.failed):
                continue
            if machine.state is MachineState.GONE or machine.id in self._over:
                self._account(machine, record.host, machine.ended_s or now_s)
                if record.given_back:
                    self.forget(record.host)
            else:
                self.going[machine.id] = Going(machine, record.host)
        for key, since_s in tuple(self._strays_s.items()):
            machine = self._seen[key]
            record_of_name = self.records.get(machine.host)
            doubled = record_of_name is not None and record_of_name.machine is not None
            if doubled or machine.host in self.past or now_s - since_s >= self._pace.grace_s:
                del self._strays_s[key]
                why = "a second one of its name" if doubled else "in no book"
                self.tell(f"machine {key} (host {machine.host}) bears our tag and is {why}: it is given back")
                leased = machine.host in self.past and not doubled
                self.going[key] = Going(machine, machine.host if leased else f"{machine.host}+{key}")

    def _goes(self, going: Going, begun_s: float) -> None:
        """What a listing that began then says of a machine that has to go."""
        machine, seen = going.machine, self._seen.get(going.machine.id)
        if seen is not None and seen.state is not MachineState.GONE:
            if going.tried_s is not None and begun_s > going.tried_s and seen.state in LIVING:
                going.tried_s = None
            late = going.accepted_s is not None and begun_s > going.accepted_s + self._pace.settle_s
            if late and seen.state in LIVING:
                going.accepted_s = None  # it was said, and nothing came of it
            return
        if going.under_way or (going.accepted_s is not None and begun_s <= going.accepted_s):
            return
        ended_s = seen.ended_s if seen is not None else None
        del self.going[machine.id]
        self._over.discard(machine.id)  # seen again after it was thought to be lost: its time was longer
        self._account(machine, going.name, ended_s or going.tried_s or going.accepted_s or begun_s)
        record = self.records.get(machine.host)
        ours = record is not None and record.machine is not None and record.machine.id == machine.id
        if record is not None and ours and record.given_back:
            self.forget(record.host)

    def _account(self, machine: Machine | None, name: str, until_s: float) -> None:
        if machine is None or machine.id in self._over:
            return
        self._over.add(machine.id)
        from_s = machine.created_s if machine.created_s is not None else until_s
        until_s = from_s if machine.never_ran else max(from_s, until_s)
        self.used.append(Used(name, machine.flavour, from_s, until_s))

    def _flavour(self, machine: Machine) -> HostFlavour:
        for flavour in self._site.flavours:
            if flavour.name == machine.flavour:
                return flavour
        # The site does not offer it any more: what is left to know of it is its name.
        return HostFlavour(machine.flavour, 1.0, 1, Decimal(0))
