"""Changing a topology while it runs: what a change would do, told before it is done.

A change is two versions of a topology and what lies between them. Most of it needs nobody to stop: policies,
bounds, SLOs, prices, intervals. Where a unit's query is another one, that unit alone is started again and
goes on from its checkpoint. What would lose records or state is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from penstock.errors import ConfigurationError
from penstock.spark.unit.plan import UnitPlan, generated_sources, plan_unit
from penstock.topology.difference import Change, difference
from penstock.topology.model import Operator, Site, Topology


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change would do."""

    changes: tuple[Change, ...] = ()
    restarts: tuple[str, ...] = ()
    """Units that are started again, with the state they have."""
    starts: tuple[str, ...] = ()
    """Units that are new."""
    stops: tuple[str, ...] = ()
    """Units that end; what waits for them is not processed any more."""
    untouched: tuple[str, ...] = ()
    """Units that go on without a missed batch."""
    refused: tuple[str, ...] = field(default=())
    """Why it cannot be done while the topology runs; empty where it can."""

    def lines(self) -> list[str]:
        """All of it in words, a line each."""
        found = [str(change) for change in self.changes] or ["nothing changes"]
        for title, names in (
            ("started again, keeping their state", self.restarts),
            ("new units", self.starts),
            ("units that end", self.stops),
            ("not touched", self.untouched),
        ):
            if names and self.changes:
                found.append(f"{title}: {', '.join(names)}")
        return found + [f"refused: {reason}" for reason in self.refused]


def preview(old: Topology, new: Topology) -> Preview:
    """What it would do to move a running topology from one version to the next."""
    changes = difference(old, new)
    before, after = old.unit_by_name, new.unit_by_name
    refused = list(_refused(old, new))
    stayed = [unit for unit in after if unit in before]
    restarts = []
    for unit in stayed:
        plans = plan_unit(old, unit), plan_unit(new, unit)
        if _query(plans[0]) != _query(plans[1]) or old.unit_shape(unit) != new.unit_shape(unit):
            restarts.append(unit)
            refused += _state_lost(unit, *plans)
    return Preview(
        changes,
        tuple(restarts),
        tuple(unit for unit in after if unit not in before),
        tuple(unit for unit in before if unit not in after),
        tuple(unit for unit in stayed if unit not in restarts),
        tuple(dict.fromkeys(refused)),
    )


def require_possible(found: Preview) -> None:
    """ConfigurationError with every reason why a change cannot be done."""
    if found.refused:
        raise ConfigurationError("this cannot be changed while it runs: " + "; ".join(found.refused))


def _query(plan: UnitPlan) -> UnitPlan:
    """What a unit's query is made of, without what only the control loop and the simulator look at."""
    operators = tuple(
        replace(o, slo_s=1.0, service=None, ratio=1.0, cores=1.0, memory_mib=512) for o in plan.operators
    )
    return replace(plan, operators=operators)


def _refused(old: Topology, new: Topology) -> Iterator[str]:
    if old.name != new.name:
        yield f"the topology is called {old.name}, not {new.name}"
    if old.sources != new.sources or generated_sources(old) != generated_sources(new):
        yield "sources, and the units that read them, stay as they are; begin another run for that"
    if old.channels != new.channels:
        yield "channels stay as they are: records are on their way in them"
    for site in old.sites:
        now = new.site_by_name.get(site.name)
        if now is None:
            yield f"site {site.name} cannot be taken away"
        elif _place(site) != _place(now):
            yield f"site {site.name}: only its prices, billing, flavours, bounds and distances can change"
        else:
            flavours = {flavour.name: flavour for flavour in now.flavours}
            for flavour in site.flavours:
                kept = flavours.get(flavour.name)
                if kept is None or (kept.cores, kept.memory_mib) != (flavour.cores, flavour.memory_mib):
                    yield (
                        f"flavour {flavour.name} of site {site.name} may be leased: "
                        "give another size another name"
                    )
    if any(site.name not in old.site_by_name for site in new.sites):
        yield "a new site begins with a run of its own"
    for unit in new.units:
        known = old.unit_by_name.get(unit.name)
        if known is not None and known.sites != unit.sites:
            yield f"unit {unit.name} stays where it is"
    for name, operator in old.operator_by_name.items():
        other = new.operator_by_name.get(name)
        if other is not None and old.unit_of[name] != new.unit_of[name]:
            yield f"operator {name} stays in unit {old.unit_of[name]}: its place in the input is kept there"
        if other is not None and not _extends(operator.schema, other.schema):
            yield (f"operator {name}: records of its old columns are on their way; new columns go after them")


def _place(site: Site) -> Site:
    """What of a site stays as it is while something runs there."""
    return replace(site, flavours=(), max_hosts=1, btu_s=1.0, minimum_s=None, increment_s=None, distance_s={})


def _extends(old: str | None, new: str | None) -> bool:
    """Whether records of the old columns can be read with the new ones: what is new comes after them."""
    if old is None or new is None:
        return True
    before, after = ([part.strip() for part in text.split(",")] for text in (old, new))
    return after[: len(before)] == before


def _state_lost(unit: str, old: UnitPlan, new: UnitPlan) -> Iterator[str]:
    """Why a unit could not go on from its checkpoint."""
    if [(given.name, given.channel) for given in old.inputs] != [(g.name, g.channel) for g in new.inputs]:
        yield f"unit {unit} would read other streams: its place in what it reads would be lost"
    before = {operator.name: operator for operator in old.operators}
    stateful = [operator for operator in old.operators if operator.stateful]
    after: dict[str, Operator] = {operator.name: operator for operator in new.operators}
    for operator in stateful:
        now = after.get(operator.name)
        if now is None or not now.stateful:
            yield f"operator {operator.name} would lose its state"
        elif (now.function, now.inputs) != (operator.function, operator.inputs):
            yield f"operator {operator.name} has state that may not fit another function or other inputs"
    if any(operator.stateful for name, operator in after.items() if name not in before):
        yield f"unit {unit} would get a further operator with state: give it a unit of its own"
