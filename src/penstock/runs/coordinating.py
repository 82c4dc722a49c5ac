"""Latency budgets over several services: paper 004's hierarchy, live.

One service coordinates. It knows the whole topology with its bounds, and for each unit the run of a service
that has it. It asks these runs which units are where by now, as units go between them, and every unit what a
budget would cost there, distributes the bounds, and hands the budgets out. Units keep their own policies, and
tell nothing but prices. One that does not answer keeps the budget it has, and so does everybody where no
distribution can be found.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import math
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.budgets.distribution import (
    QUANTILE,
    Distribution,
    Load,
    at_places,
    distribute,
    instance_price_per_h,
    loads_from_measurements,
    loads_from_sources,
)
from penstock.budgets.queues import SharedQueue
from penstock.budgets.remote import RemoteCost
from penstock.controller.state import WINDOW
from penstock.errors import ClusterError, ConfigurationError, PenstockError, told
from penstock.machine.asking import NO_ANSWER
from penstock.machine.files import PRIVATE, written
from penstock.machine.secrets import remember
from penstock.plain import from_json, to_json
from penstock.runs.assembly import source_rates
from penstock.runs.folder import RunFolder
from penstock.runs.known import known_names
from penstock.runs.part import here
from penstock.topology.file import parse_topology
from penstock.topology.model import Topology

LOG = logging.getLogger(__name__)

FILE = "budgets.json"
AVERAGE_S = 120.0
"""The span over which a unit's load is averaged."""
TIMEOUT_S = 3.0
EVERY_S = 60.0


# --- a site's side: what a budget would cost ---------------------------------------------------------


def part_here(place: RunFolder) -> Topology:
    """What of its topology a run runs, as its loop sees it: at one site of several, the units there."""
    plan = place.plan()
    return here(plan.read_topology(), plan.places, plan.site)


def cost_of(place: RunFolder, unit: str, latency_s: float) -> float:
    """What a unit of a run costs an hour at a latency budget, by its load now; infinite where it cannot.

    ConfigurationError where there is no such unit or nothing is known of its load yet.
    """
    plan = place.plan()
    topology = at_places(plan.read_topology(), plan.places)
    found = part_here(place).unit_by_name.get(unit)
    if found is None:
        raise ConfigurationError(f"there is no unit {unit} here")
    load = _loads(place, topology).get(unit)
    if load is None:
        raise ConfigurationError(f"nothing was measured of unit {unit} yet")
    price = instance_price_per_h(topology, unit)
    least = max(1, found.min_instances)
    rate, service_s = load.arrival_rate_per_s, load.service_s
    queue = SharedQueue(
        rate, service_s, load.arrival_cv, load.service_cv, price, found.max_instances, found.slots, least,
        QUANTILE,
    )  # fmt: skip
    return queue.cost(latency_s)


def budgets_of(place: RunFolder) -> dict[str, float]:
    """The latency a run's units have to keep now: their budgets, or their SLOs where they have none."""
    topology = part_here(place)
    with place.opened() as journal:
        restored = journal.restore(1)
    given = {} if restored is None else restored.budgets
    return {unit: given.get(unit, topology.unit_slo_s(unit)) for unit in topology.unit_by_name}


def _loads(place: RunFolder, topology: Topology) -> dict[str, Load]:
    with place.opened() as journal:
        restored = journal.restore(WINDOW)
    expected: dict[str, Load] = {}
    with contextlib.suppress(ConfigurationError):
        expected = loads_from_sources(topology, source_rates(topology))
    if restored is None:
        return expected
    since_s = (restored.last_tick_s or 0.0) - AVERAGE_S
    windows = {
        unit: [s.measurement for s in restored.signals if s.unit == unit and s.at_s > since_s]
        for unit in topology.unit_by_name
    }
    return expected | loads_from_measurements(topology, windows)


# --- the coordinator's side --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """Where a unit is: a run of a service."""

    run: str
    """The run's address, such as `http://host:8765/api/v1/runs/shop`."""
    token: str
    """The token of its service."""


@dataclass(frozen=True, slots=True)
class Coordination:
    """What is coordinated."""

    topology: str
    """The text of the whole topology, with its latency bounds."""
    members: Mapping[str, Member]
    every_s: float = EVERY_S
    """How often the bounds are distributed."""
    others: tuple[Member, ...] = ()
    """Further runs that units may go to."""
    budgets_s: Mapping[str, float] = field(default_factory=dict)
    """The budgets handed out last."""


@dataclass(frozen=True, slots=True)
class Handed:
    """What a distribution came to."""

    budgets_s: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Units that did not answer, or did not take their budget, and why."""
    requests: int = 0
    """How often costs were asked for."""
    problem: str | None = None
    """Why nothing was handed out."""


class Coordinator:
    """Distributes the bounds of one topology over the runs of several services."""

    def __init__(self, root: Path) -> None:
        """`root` is the service's folder, where what is coordinated is kept."""
        self._file = root / FILE
        self._lock = threading.Lock()
        self._last: Distribution | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.handed: Handed | None = None
        """What the last distribution came to."""

    @property
    def coordination(self) -> Coordination | None:
        """What is coordinated; None where nothing is."""
        try:
            found = from_json(Coordination, self._file.read_text())
        except OSError:
            return None
        except PenstockError as error:
            LOG.warning("%s cannot be read: %s", self._file, error)
            return None
        for member in (*found.members.values(), *found.others):
            remember(member.token)
        return found

    def set(self, coordination: Coordination) -> None:
        """Coordinate this from now on; ConfigurationError where it cannot be."""
        topology = parse_topology(coordination.topology, known=known_names())
        if not topology.latency_bounds:
            raise ConfigurationError(f"topology {topology.name} has no latency bound to distribute")
        missing = sorted(set(topology.unit_by_name) - set(coordination.members))
        unknown = sorted(set(coordination.members) - set(topology.unit_by_name))
        if missing or unknown:
            wrong = [f"nobody says where unit {unit} is" for unit in missing]
            raise ConfigurationError("; ".join(wrong + [f"there is no unit {unit}" for unit in unknown]))
        with self._lock:
            written(self._file, to_json(coordination), mode=PRIVATE)
            self._last = self.handed = None

    def clear(self) -> None:
        """Coordinate nothing any more; budgets that were handed out stay."""
        with self._lock:
            self._file.unlink(missing_ok=True)
            self._last = self.handed = None

    def distribute(self) -> Handed:
        """Ask, distribute and hand out once; ConfigurationError where nothing is coordinated."""
        with self._lock:
            given = self.coordination
            if given is None:
                raise ConfigurationError("nothing is coordinated")
            self.handed = self._distributed(given)
            return self.handed

    def start(self) -> None:
        """Distribute from time to time, as often as what is coordinated says."""
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-budgets")
        self._thread.start()

    def stop(self) -> None:
        """Distribute no more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        last_s = time.monotonic()
        while not self._ended.wait(1.0):
            given = self.coordination
            if given is None or time.monotonic() - last_s < given.every_s:
                continue
            last_s = time.monotonic()
            try:
                self.distribute()
            except (PenstockError, OSError) as error:
                LOG.warning("budgets were not distributed: %s", error)

    def _distributed(self, given: Coordination) -> Handed:
        members, places, away = _found(given)
        topology = at_places(parse_topology(given.topology), places)
        costs = {
            unit: RemoteCost(
                f"{member.run}/budgets/{unit}/cost", timeout_s=TIMEOUT_S, retries=1, token=member.token
            )
            for unit, member in members.items()
        }
        try:
            found = distribute(
                topology, {}, reason="asked of every unit", last=self._last, costs=costs,
                kept_s=given.budgets_s,
            )  # fmt: skip
        except PenstockError as error:
            asked = sum(cost.requests for cost in costs.values())
            return Handed(given.budgets_s, requests=asked, problem=str(error))
        self._last = found
        silent = {unit: away.get(unit, why) for unit, why in found.solution.kept.items()}
        for unit, member in members.items():
            if unit not in silent and (problem := _hand_out(member, unit, found)) is not None:
                silent[unit] = problem
        kept = {unit: s for unit, s in given.budgets_s.items() if unit in silent}
        budgets_s = {**found.budgets_s, **kept}
        written(self._file, to_json(replace(given, budgets_s=budgets_s)), mode=PRIVATE)
        asked = sum(cost.requests for cost in costs.values())
        return Handed(budgets_s, found.reason, silent, asked)


@dataclass(frozen=True, slots=True)
class _Told:
    """What a run says of where units are."""

    site: str | None
    places: Mapping[str, str]

    def has(self, unit: str) -> bool:
        """Whether a unit is at it; one that runs all units has every one that it is said to have."""
        return self.site is None or self.places.get(unit) == self.site


def _found(given: Coordination) -> tuple[dict[str, Member], dict[str, str], dict[str, str]]:
    """The run that has each unit now, the site of each, and why none has it where no run known here does.

    Which run has a unit is said by that run alone. Where the one that had it does not answer, and no other
    one has it, it is asked all the same.
    """
    runs = {member.run: member for member in (*given.members.values(), *given.others)}
    told = {run: said for run, member in runs.items() if (said := _where(member)) is not None}
    members, places, away = dict(given.members), {}, {}
    for unit, member in given.members.items():
        before = told.get(member.run)
        if before is None or not before.has(unit):
            having = [run for run, said in told.items() if said.site is not None and said.has(unit)]
            members[unit] = runs[having[0]] if having else member
            if not having and before is not None:
                away[unit] = f"it is at site {before.places.get(unit)}, and no run there is known here"
        said = told.get(members[unit].run)
        if said is not None and unit in said.places:
            places[unit] = said.places[unit]
    return members, places, away


def _where(member: Member) -> _Told | None:
    """Where a run says that units are; None where it does not answer."""
    request = urllib.request.Request(
        f"{member.run}/topology", headers={"Authorization": f"Bearer {member.token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            said = json.load(answer)
        places = {str(unit): str(site) for unit, site in said["places"].items()}
        return _Told(None if said["site"] is None else str(said["site"]), places)
    except (OSError, ValueError, LookupError, AttributeError, TypeError, http.client.HTTPException) as error:
        LOG.warning("%s does not say where units are: %s", member.run, told(f"{error}"[:200]))
        return None


def _hand_out(member: Member, unit: str, found: Distribution) -> str | None:
    """Give a unit's run its budget; why it did not take it, None where it did."""
    body = json.dumps({"budgets_s": {unit: found.budgets_s[unit]}, "reason": found.reason[:400]})
    headers = {"Authorization": f"Bearer {member.token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{member.run}/budgets", body.encode(), headers, method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S):
            return None
    except (*NO_ANSWER, ValueError) as error:
        return told(f"{type(error).__name__}: {error}"[:200])


def finite(cost: float) -> float | None:
    """A cost as it goes over the wire: None where the budget cannot be kept."""
    if math.isnan(cost):
        raise ClusterError("a cost function answered with no number")
    return cost if math.isfinite(cost) else None
