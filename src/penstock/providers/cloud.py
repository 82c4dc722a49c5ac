"""A provider over any cloud's API: idempotent, eventually consistent, and never waited for.

What the fleet says is noted and answered at once from what was last seen. A keeper thread looks some times
a second at what is due and hands the calls to worker threads: list, create, delete. The cloud is listed
before the books are looked at, and before anything is created.

- A create of doubtful end is repeated, with its token, only after a later listing does not show it.
- Two machines of one name: the first made is kept, the others are given back.
- What bears our tag and is in no book for a grace period is given back and told.
- What does not join within its time, or fails, is deleted at once; the fleet is shown it as failed.
- Throttling and outages are waited out with growing pauses.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from penstock.clock import Clock, WallClock
from penstock.errors import (
    ClusterError,
    NoCapacityError,
    NotFoundError,
    ProviderError,
    QuotaError,
    ThrottledError,
    UnavailableError,
)
from penstock.fleet.deployment import Host
from penstock.fleet.ports import Offering, Standing, Used
from penstock.providers import cloud_api
from penstock.providers.cloud_api import Api, Machine, MachineState, Order, token_of
from penstock.providers.cloud_machines import Going, Machines
from penstock.providers.cloud_pauses import Gate, Pace
from penstock.providers.cloud_records import Phase, Record
from penstock.providers.joining import Joined
from penstock.providers.surroundings import Surroundings
from penstock.topology.model import HostFlavour, Site

LOG = logging.getLogger(__name__)

OFFERINGS_EVERY_S = 900.0
"""How often prices and availability are asked for."""
JOINED_EVERY_S = 1.0
"""How often the cluster is asked which hosts it sees."""
KEPT_FREE = 3
"""Workers kept free for listings and other questions, however much is to be made and deleted."""


class CloudProvider:
    """Hosts of one site at one cloud. Every call but `close` returns at once; call it from any thread."""

    def __init__(
        self,
        site: Site,
        api: Api,
        surroundings: Surroundings,
        pace: Pace | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not surroundings.owner:
            raise ClusterError(f"site {site.name}: machines for money need an owner to be tagged with")
        self.site = site
        self._api = api
        self._pace = pace or Pace()
        self._clock = clock or surroundings.clock or WallClock()
        self._looked_s = self._awake_s = self._clock.now_s()
        """When the keeper last looked, and when it last looked again after it could not for long."""
        self._owner = surroundings.owner
        self._script = surroundings.join_script
        self._members = surroundings.joined
        self._lock = threading.RLock()
        self._due = threading.Event()
        self._machines = Machines(site, self._pace)
        self._gate = Gate(self._pace)
        self._next_s = {"list": 0.0, "offerings": 0.0, "joined": 0.0}
        self._asking: set[str] = set()
        """Questions under way, of those three."""
        self._calls = 0
        self._joined: Mapping[str, Joined] | None = None
        self._offerings: dict[str, Offering] = {}
        self._scarce: dict[str, tuple[float, int, ProviderError]] = {}
        """Flavours that cannot be had: until when none is asked for, how often in a row, and why."""
        self._ends = False
        self._pool = ThreadPoolExecutor(self._pace.workers, f"cloud-{site.name}")
        self._keeper = threading.Thread(target=self._keep_on, name=f"keeper-{site.name}", daemon=True)
        self._keeper.start()

    # -- what the fleet says and asks -------------------------------------------------------------

    def create(self, host: str, flavour: HostFlavour, now_s: float) -> None:
        """Begin to start a host. A refusal that came meanwhile is the answer to saying it again."""
        with self._lock:
            record = self._machines.records.get(host)
            if record is not None and record.refused is not None:
                self._machines.forget(host)
                raise record.refused
            if record is not None or host in self._machines.past:
                return
            why = self._why_scarce(flavour.name)
            if why is not None:
                self._machines.past.add(host)
                raise why
            self._machines.ask(host, flavour, now_s)
            self._due.set()

    def delete(self, host: str, now_s: float) -> None:
        """Give a host back; where its machine is not known yet, it is deleted as soon as it is seen."""
        with self._lock:
            self._machines.give_back(host)
            self._due.set()

    def hosts(self, now_s: float) -> tuple[Host, ...] | None:
        """Every host of the site as last seen; None before the first listing and look at the books."""
        with self._lock:
            if self._machines.listed_s is None or self._machines.books is None:
                return None
            return self._machines.shown()

    def keep(self, hosts: Collection[str], now_s: float) -> tuple[str, ...]:
        """Say which hosts are in the books; the answer is what is news."""
        with self._lock:
            self._machines.keep(hosts)
            news, self._machines.news = tuple(self._machines.news), []
            return news

    def offerings(self, now_s: float) -> tuple[Offering, ...]:
        """The site's flavours, with the price where the cloud tells one and whether one can be had."""
        with self._lock:
            found = []
            for flavour in self.site.flavours:
                offering = self._offerings.get(flavour.name) or Offering(flavour.name)
                why = self._why_scarce(flavour.name)
                if why is not None:
                    offering = replace(offering, available=False, why_not=str(why))
                found.append(offering)
            return tuple(found)

    def used(self, now_s: float) -> tuple[Used, ...]:
        """Every host whose time is over, once for each."""
        with self._lock:
            taken, self._machines.used = tuple(self._machines.used), []
            return taken

    def standing(self, now_s: float) -> Standing:
        """How old what is shown is, and what is wrong where something is."""
        with self._lock:
            at_s, listed_s = self._clock.now_s(), self._machines.listed_s
            records = self._machines.records.values()
            return Standing(
                float("inf") if listed_s is None else at_s - listed_s,
                len([r for r in records if r.phase is not Phase.LISTED or r.given_back]),
                self._gate.problem if self._gate.away_since is not None else None,
                max(0.0, self._gate.until - at_s),
            )

    def close(self, most_s: float) -> tuple[str, ...]:
        """Wait until what was given back is gone; then end. What is still there after so long is told."""
        end_s = self._clock.now_s() + most_s
        while (left := self._leaving()) and (now_s := self._clock.now_s()) < end_s:
            self._clock.wait_until(min(end_s, now_s + 0.05))
        self._ends = True
        self._due.set()
        self._keeper.join(5.0)
        self._pool.shutdown(wait=False, cancel_futures=True)
        for name in left:
            LOG.warning("site %s: %s could not be given back before the end", self.site.name, name)
        return tuple(left)

    # -- the keeper -------------------------------------------------------------------------------

    def _keep_on(self) -> None:
        while not self._ends:
            try:
                with self._lock:
                    self._look(self._clock.now_s())
            except Exception:  # the keeper must go on whatever happens: hosts are paid for meanwhile
                LOG.exception("site %s: looking after its hosts failed", self.site.name)
            self._due.wait(self._pace.beat_s)
            self._due.clear()

    def _look(self, now_s: float) -> None:
        """Start every call that is due."""
        machines = self._machines
        if now_s - self._looked_s > self._pace.join_within_s / 2:
            self._awake_s = now_s
        self._looked_s = now_s
        if self._members is not None:
            self._ask("joined", JOINED_EVERY_S, self._members, self._enter_joined, now_s)
        for record in machines.records.values():
            before = (record.up_s, record.problem, record.noticed_s)
            record.looked_at(self._joined, self._members is not None, now_s, self._pace, self._awake_s)
            if (record.up_s, record.problem, record.noticed_s) != before:
                machines.touched(record.host)
                if record.up_s is not None and not record.failed:
                    self._scarce.pop(record.flavour.name, None)
                if record.machine is not None and record.machine.state is MachineState.GONE:
                    machines.tell(f"host {record.host}: {record.problem}")
        if now_s < self._gate.until:
            return
        self._ask("list", self._pace.list_every_s, self._api.machines, self._enter, now_s)
        self._ask("offerings", OFFERINGS_EVERY_S, self._api.offerings, self._enter_offerings, now_s)
        if machines.listed_s is None or machines.books is None:
            return
        machines.mark_going(now_s)
        for going in machines.going.values():
            if going.due(now_s) and self._calls < self._pace.workers - KEPT_FREE:
                going.under_way = True
                self._start(self._delete, going)
        for record in machines.records.values():
            if record.due(now_s) and self._calls < self._pace.workers - KEPT_FREE:
                record.phase = Phase.CREATING
                self._start(self._create, record)

    def _start(self, call: Callable[[Any], None], argument: object) -> None:
        self._calls += 1
        self._pool.submit(call, argument)

    def _ask(
        self,
        what: str,
        every_s: float,
        call: Callable[[], Any],
        enter: Callable[[Any, float], None],
        now_s: float,
    ) -> None:
        if what in self._asking or now_s < self._next_s[what]:
            return
        self._asking.add(what)
        self._next_s[what] = now_s + every_s
        self._pool.submit(self._asked, what, call, enter)

    def _asked(self, what: str, call: Callable[[], Any], enter: Callable[[Any, float], None]) -> None:
        begun_s = self._clock.now_s()
        problem = None
        try:
            answer = call()
        except Exception as error:
            problem = _as_provider_error(error)
        with self._lock:
            self._asking.discard(what)
            if what != "joined":  # the cluster's manager is not the cloud
                self._heard(problem)
            if problem is None:
                enter(answer, begun_s)
            else:
                self._soon(what)

    def _heard(self, problem: ProviderError | None) -> float:
        """Note how a call came back; when that was."""
        now_s = self._clock.now_s()
        gate = self._gate
        self._machines.tell(gate.worked(now_s) if problem is None else gate.failed(problem, now_s))
        self._due.set()
        return now_s

    def _soon(self, what: str = "list") -> None:
        """Ask again before it would be time."""
        soon_s = self._clock.now_s() + min(1.0, self._pace.list_every_s)
        self._next_s[what] = min(self._next_s[what], soon_s)

    # -- calls, in worker threads -----------------------------------------------------------------

    def _create(self, record: Record) -> None:
        problem: ProviderError | None = None
        try:
            self._api.create(self._order(record))
        except Exception as error:
            problem = _as_provider_error(error)
        with self._lock:
            self._calls -= 1
            passing = isinstance(problem, ThrottledError | UnavailableError)
            record.tried_s = now_s = self._heard(problem if passing else None)
            self._soon()
            if record.phase is Phase.LISTED:
                pass  # seen before its call came back, whatever that says
            elif problem is None:
                record.phase, record.failures = Phase.ACCEPTED, 0
            elif passing:
                record.failures += 1
                # Throttled: nothing was done. Otherwise nobody knows, and a later listing tells.
                throttled = isinstance(problem, ThrottledError)
                record.phase = Phase.ASKED if throttled else Phase.DOUBTFUL
                record.not_before_s = now_s + self._pace.pause_s(record.failures)
            else:
                self._machines.refuse(record, problem)
                if isinstance(problem, NoCapacityError | QuotaError):
                    self._cannot_be_had(record.flavour.name, problem)
            self._machines.touched(record.host)

    def _delete(self, going: Going) -> None:
        problem: ProviderError | None = None
        gone = False
        try:
            self._api.delete(going.machine)
        except NotFoundError:
            gone = True  # by itself, or by a call before whose answer was lost
        except Exception as error:
            problem = _as_provider_error(error)
        with self._lock:
            self._calls -= 1
            now_s = self._heard(problem)
            going.under_way = False
            if problem is None:
                going.accepted_s = now_s
                going.tried_s = going.tried_s if gone else None
                self._soon()
            else:
                going.failures += 1
                if isinstance(problem, UnavailableError) and going.tried_s is None:
                    going.tried_s = now_s
                going.not_before_s = now_s + self._pace.pause_s(going.failures)

    def _order(self, record: Record) -> Order:
        flavour, site = record.flavour, self.site.name
        token = token_of(self._owner, site, record.host, flavour.name)
        tags = {
            cloud_api.OWNER: self._owner,
            cloud_api.SITE: site,
            cloud_api.HOST: record.host,
            cloud_api.FLAVOUR: flavour.name,
            cloud_api.TOKEN: token,
        }
        script = self._script
        cores, notices = max(1, int(flavour.cores)), self.site.provider.name if flavour.spot else None
        text = "" if script is None else script(record.host, cores, flavour.memory_mib, notices)
        return Order(record.host, flavour, token, tags, text)

    # -- inside -----------------------------------------------------------------------------------

    def _leaving(self) -> list[str]:
        with self._lock:
            return self._machines.leaving()

    def _cannot_be_had(self, flavour: str, why: ProviderError) -> None:
        times = self._scarce.get(flavour, (0.0, 0, why))[1] + 1
        self._scarce[flavour] = (self._clock.now_s() + self._pace.scarce_pause_s(times), times, why)

    def _enter(self, machines: Collection[Machine], begun_s: float) -> None:
        self._machines.enter(machines, begun_s)
        for machine in self._machines.homeless:
            self._cannot_be_had(machine.flavour, NoCapacityError(machine.problem or "no room"))
        self._machines.homeless.clear()

    def _why_scarce(self, flavour: str) -> ProviderError | None:
        until_s, _, why = self._scarce.get(flavour, (0.0, 0, None))
        return why if self._clock.now_s() < until_s else None

    def _enter_joined(self, joined: Mapping[str, Joined] | None, begun_s: float) -> None:
        self._joined = joined

    def _enter_offerings(self, offerings: Collection[Offering], begun_s: float) -> None:
        self._offerings = {offering.flavour: offering for offering in offerings}


def _as_provider_error(error: Exception) -> ProviderError:
    if isinstance(error, ProviderError):
        return error
    if isinstance(error, ClusterError):
        return ProviderError(str(error))
    LOG.debug("an error no cloud's file knows", exc_info=error)
    return UnavailableError(f"{type(error).__name__}: {error}")
