"""Changing a topology while it runs: what a change would do, told before it is done.

A change is two versions of a topology and what lies between them. Most of it needs nobody to stop: policies,
bounds, SLOs, prices, intervals. Where a unit's query is another one, that unit finishes what there is to read
and is started again from its checkpoint. Streams that end are read to their end first, by whoever reads
them. State that no checkpoint could carry over is named, and given up only where that was asked for. What
would lose records is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from penstock.channels.registry import has_server, readers_of, remembers_ids
from penstock.errors import ConfigurationError
from penstock.infrastructure.siting import became_dear, placed, price_per_hour
from penstock.spark.managers.theirs import remote_storage
from penstock.spark.unit.plan import UnitPlan, generated_sources, plan_unit
from penstock.topology.boundary import Edge, Rewired, rewired
from penstock.topology.difference import Change, UnitGoes, difference
from penstock.topology.model import Site, Topology


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change would do."""

    changes: tuple[Change | str, ...] = ()
    """What lies between both versions; in words where another site's service has told it."""
    restarts: tuple[str, ...] = ()
    """Units that are started again, with the state they have."""
    starts: tuple[str, ...] = ()
    """Units that are new."""
    stops: tuple[str, ...] = ()
    """Units that end, after they have processed what waits for them."""
    untouched: tuple[str, ...] = ()
    """Units that go on without a missed batch."""
    refused: tuple[str, ...] = field(default=())
    """Why it cannot be done while the topology runs; empty where it can."""
    renewals: tuple[str, ...] = ()
    """Units that are started again without the state they had."""
    given_up: tuple[str, ...] = ()
    """State that is lost by it, and streams that end for subscribers, in words: done only where that was
    asked for."""
    drains: tuple[str, ...] = ()
    """Units that finish what there is to read before they are changed or end."""
    ending: tuple[Edge, ...] = ()
    """Streams that nobody writes any more; they are read to their end first."""
    places: Mapping[str, str] = field(default_factory=dict)
    """The site of every unit in the next version."""
    costs: tuple[str, ...] = ()
    """What it costs, in words; empty where that stays the same."""
    emptied: tuple[Edge, ...] = ()
    """Streams that go on and are read to their end first all the same: somebody leaves or joins their way."""
    because: tuple[str, ...] = ()
    """Why units pause that are as they were, or one after the other, in words."""

    def lines(self) -> list[str]:
        """All of it in words, a line each."""
        found = [str(change) for change in self.changes] or ["nothing changes"]
        for title, names in (
            ("started again, keeping their state", self.restarts),
            ("started again without their state", self.renewals),
            ("new units", self.starts),
            ("units that end, after what waits for them", self.stops),
            ("units that go on without a stop", self.untouched),
        ):
            if names and self.changes:
                found.append(f"{title}: {', '.join(names)}")
        found += self.because
        found += [f"given up: {state}" for state in self.given_up]
        found += [f"cost: {cost}" for cost in self.costs]
        return found + [f"refused: {reason}" for reason in self.refused]

    def may_drain(self, old: Topology, done: Collection[str]) -> set[str]:
        """The units that may finish what there is to read, where these have: who writes it comes first."""
        streams = (*self.ending, *self.emptied)
        return {unit for unit in self.drains if producers(old, unit, streams) <= set(done)}

    def held(self, old: Topology) -> set[str]:
        """The generated sources that wait meanwhile, so that what they write is read to its end."""
        streams = (*self.ending, *self.emptied)
        return {name for name, _ in streams if name in generated_sources(old)}


def preview(
    old: Topology,
    new: Topology,
    *,
    fed: bool = True,
    places: Mapping[str, str] | None = None,
    to: Mapping[str, str] | None = None,
    leased: Collection[tuple[str, str]] | None = None,
    subscribers: Mapping[str, Collection[str]] | None = None,
) -> Preview:
    """What it would do to move a running topology from one version to the next.

    `fed` says whether the run itself writes the generated sources' records. `places` are the sites units are
    at, `to` those that some of them shall go to: each leaves its site as it is changed, and starts there.
    `leased` are site and flavour of the hosts there are; None where nobody knows: there may be any.
    `subscribers` are those outside who subscribe to an operator's records.
    """
    was = placed(old, places)
    stays = {unit: site for unit, site in was.items() if not _is_dear(old, new, unit, was)}
    now = placed(new, {**stays, **(to or {})})
    goes = [UnitGoes(u, was[u], site) for u, site in now.items() if u in was and was[u] != site]
    changes = (*difference(old, new), *goes)
    before, after = old.unit_by_name, new.unit_by_name
    ways = tuple(rewired(old, new))
    refused = [*_refused(old, new, fed), *still_leased(old, new, leased), *_out_of_reach(old, new, goes)]
    refused += _not_held(old, ways, fed)
    stayed = [unit for unit in after if unit in before]
    leaving = {move.unit for move in goes}
    storage = {unit: remote_storage(old.site_by_name[was[unit]]) for unit in stayed}
    fates = {unit: _fate(unit, old, new, storage[unit]) for unit in stayed}
    ended, emptied = tuple(ending(old, new)), tuple(dict.fromkeys(e for way in ways for e in way.emptied))
    pausing = {unit for edge in emptied for unit in _ends(old, edge)}
    because = tuple(_because(old, ways, {u for u in pausing if u in fates and not fates[u].drains}))
    fates |= {u: replace(fates[u], restarts=True, drains=True) for u in fates if u in leaving | pausing}
    stops = tuple(unit for unit in before if unit not in after)
    given_up = [state for fate in fates.values() for state in fate.given_up]
    given_up += [state for unit in stops for state in _ended_state(unit, old, new)]
    given_up += _cut_off(old, new, subscribers or {})
    return Preview(
        changes,
        tuple(unit for unit, fate in fates.items() if fate.restarts and not fate.renewed),
        tuple(unit for unit in after if unit not in before),
        stops,
        tuple(unit for unit, fate in fates.items() if not fate.restarts),
        tuple(dict.fromkeys([*refused, *(reason for fate in fates.values() for reason in fate.refused)])),
        tuple(unit for unit, fate in fates.items() if fate.renewed),
        tuple(dict.fromkeys(given_up)),
        (*(unit for unit, fate in fates.items() if fate.drains), *stops),
        ended,
        now,
        tuple(_costs(old, was, new, now)) if changes else (),
        tuple(edge for edge in emptied if edge not in ended),
        because,
    )


def _ends(topology: Topology, edge: Edge) -> Iterator[str]:
    """The units at both ends of a stream; a source is none."""
    yield from producers(topology, edge[1], (edge,))
    yield edge[1]


def _because(old: Topology, ways: Iterable[Rewired], only_for_it: Collection[str]) -> Iterator[str]:
    """Why units finish one after the other, and which of them would not have stopped otherwise."""
    order = [unit.name for unit in old.units_in_order]
    for way in ways:
        units = sorted({unit for edge in way.emptied for unit in _ends(old, edge)}, key=order.index)
        if len(units) > 1 or units[0] in only_for_it:
            others = [unit for unit in units if unit in only_for_it]
            said = f"; {', '.join(others)} would not stop otherwise" if others else ""
            yield (
                f"{way.kind} {way.name} gets its records by another way, each by one of them: "
                f"{', '.join(units)} finish one after the other{said}"
            )


def _not_held(old: Topology, ways: Iterable[Rewired], fed: bool) -> Iterator[str]:
    """Ways that part at a source which nobody here can let wait."""
    for way in ways:
        for name in dict.fromkeys(producer for producer, _ in way.emptied):
            if name in old.source_by_name and not (fed and name in generated_sources(old)):
                yield (
                    f"{way.kind} {way.name} would get the records of source {name} by another way, and "
                    "nobody here can let that source wait: some would come twice or never"
                )


def _costs(old: Topology, was: Mapping[str, str], new: Topology, now: Mapping[str, str]) -> Iterator[str]:
    """What an hour of the least and of the most instances costs, where that changes."""
    for what, most in (("with the least instances", False), ("with the most instances", True)):
        before, after = _per_hour(old, was, most), _per_hour(new, now, most)
        if before != after:
            currency = next((site.currency for site in new.sites if site.currency), "")
            yield f"{what} an hour costs {after:.4g} instead of {before:.4g} {currency}".rstrip()


def _per_hour(topology: Topology, places: Mapping[str, str], most: bool) -> float:
    units = {
        u: unit.max_instances if most else unit.min_instances for u, unit in topology.unit_by_name.items()
    }
    sites = topology.site_by_name
    return sum(n * price_per_hour(topology, unit, sites[places[unit]]) for unit, n in units.items() if n)


def require_possible(found: Preview, *, give_up_state: bool = False) -> None:
    """ConfigurationError with every reason why a change cannot be done.

    `give_up_state` says that the state it names may be lost.
    """
    if found.refused:
        raise ConfigurationError("this cannot be changed while it runs: " + "; ".join(found.refused))
    if found.given_up and not give_up_state:
        raise ConfigurationError(
            f"this would give up {'; '.join(found.given_up)}. Say that it may (--give-up-state)"
        )


def ending(old: Topology, new: Topology) -> Iterator[Edge]:
    """The streams that nobody writes any more in the next version, or that carry other columns there."""
    now = _streams(new)
    for edge, (channel, schema) in _streams(old).items():
        then = now.get(edge)
        if then is None or then[0] != channel or not _extends(schema, then[1]):
            yield edge


def producers(topology: Topology, unit: str, edges: tuple[Edge, ...]) -> set[str]:
    """The units that write some of these streams to a unit."""
    return {
        topology.unit_of[name] for name, reader in edges if reader == unit and name in topology.unit_of
    } - {unit}


def _streams(topology: Topology) -> dict[Edge, tuple[str | None, str | None]]:
    """Every stream with its channel and columns; a generated source's has none of the first."""
    found: dict[Edge, tuple[str | None, str | None]] = {}
    for unit in topology.unit_by_name:
        for given in plan_unit(topology, unit).inputs:
            if given.stream is not None:
                found[given.name, unit] = (given.channel, given.stream.schema)
    return found


@dataclass(frozen=True, slots=True)
class _Fate:
    """What happens to a unit that is in both versions."""

    restarts: bool = False
    drains: bool = False
    renewed: bool = False
    given_up: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def _fate(unit: str, old: Topology, new: Topology, storage: str | None = None) -> _Fate:
    """`storage` is where its checkpoint lies, where that is not in the folder of the run."""
    plans = plan_unit(old, unit), plan_unit(new, unit)
    same_readers = _readers(old, plans[0]) == _readers(new, plans[1])
    if _query(plans[0]) == _query(plans[1]) and same_readers:
        return _Fate(restarts=old.unit_shape(unit) != new.unit_shape(unit))
    lost = tuple(_state_lost(unit, old, new, plans))
    stays = any(operator.stateful for operator in plans[1].operators)
    renewed = stays and (bool(lost) or _new_state(plans))
    refused = []
    if _inputs(plans[0]) != _inputs(plans[1]) and any(plan.reads_a_function for plan in plans):
        refused.append(f"unit {unit} reads a source of its own: its place in that would be lost")
    elif renewed and plans[0].reads_a_function:
        refused.append(
            f"unit {unit} reads a source of its own, which would begin anew without its checkpoint"
        )
    others = _inputs(plans[0]) != _inputs(plans[1])
    if storage is not None and (others or renewed):
        refused.append(
            f"unit {unit} has its checkpoint at {storage}, with its place in what it reads: its inputs stay "
            "as they are; give operators whose state cannot be kept a unit of their own"
        )
    elif others and not renewed and any(map(_remembers, (old, new), plans)):
        refused.append(
            f"unit {unit} remembers ids of what it reads from a server (deduplicate), by the order of its "
            "inputs: those stay as they are"
        )
    return _Fate(True, True, renewed, lost, tuple(refused))


def _query(plan: UnitPlan) -> UnitPlan:
    """What a unit's query is made of, without what only the control loop and the simulator look at."""
    operators = tuple(
        replace(o, slo_s=1.0, service=None, ratio=1.0, cores=1.0, memory_mib=512) for o in plan.operators
    )
    return replace(plan, operators=operators)


def _inputs(plan: UnitPlan) -> list[tuple[str, str | None]]:
    return [(given.name, given.channel) for given in plan.inputs]


def _remembers(topology: Topology, plan: UnitPlan) -> bool:
    return any(remembers_ids(topology, given.channel) for given in plan.inputs)


def _readers(topology: Topology, plan: UnitPlan) -> Mapping[str, tuple[str, ...]]:
    """Who else reads what a unit reads from a server: what all have read is deleted there."""
    known = readers_of(topology)
    return {g.name: known.get(g.name, ()) for g in plan.inputs if has_server(topology, g.channel)}


def _refused(old: Topology, new: Topology, fed: bool) -> Iterator[str]:
    if old.name != new.name:
        yield f"the topology is called {old.name}, not {new.name}"
    if old.sources != new.sources:
        yield "sources stay as they are; begin another run for that"
    elif not fed and generated_sources(old) != generated_sources(new):
        yield "somebody else writes the sources' records, for the units that read them now"
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
                kept = flavours.get(flavour.name, flavour)
                if (kept.cores, kept.memory_mib) != (flavour.cores, flavour.memory_mib):
                    yield (
                        f"flavour {flavour.name} of site {site.name} may be leased: "
                        "give another size another name"
                    )
    if any(site.name not in old.site_by_name for site in new.sites):
        yield "a new site begins with a run of its own"


def still_leased(old: Topology, new: Topology, leased: Collection[tuple[str, str]] | None) -> Iterator[str]:
    """Flavours that are taken away while there are hosts of them; `leased` as for `preview`."""
    for site in old.sites:
        now = new.site_by_name.get(site.name)
        kept = {flavour.name for flavour in now.flavours} if now is not None else set()
        for flavour in site.flavours if now is not None else ():
            if flavour.name not in kept and (leased is None or (site.name, flavour.name) in leased):
                yield (
                    f"flavour {flavour.name} of site {site.name} cannot be taken away while there are hosts "
                    "of it: drain them first"
                )


def _is_dear(old: Topology, new: Topology, unit: str, places: Mapping[str, str]) -> bool:
    return unit in new.unit_by_name and became_dear(old, new, unit, places)


def _out_of_reach(old: Topology, new: Topology, goes: list[UnitGoes]) -> Iterator[str]:
    """Moves to a site at which a unit would not find what it has written down."""
    for move in goes:
        here, there = (remote_storage(t.site_by_name[s]) for t, s in ((old, move.before), (new, move.after)))
        if here != there:
            yield (
                f"unit {move.unit} cannot go from site {move.before} to {move.after}: its checkpoint lies in "
                f"{here or 'the folder of the run'}, which {there or 'the folder of the run'} is not"
            )


def begun(old: Topology, new: Topology) -> Iterator[Edge]:
    """Streams on a server from before that a unit begins to read for operators that were there before."""
    written = {producer for producer, _ in _streams(old)}
    for (producer, unit), (channel, _) in _streams(new).items():
        known = (producer, unit) in _streams(old)
        if known or producer not in written or not has_server(new, channel):
            continue
        takers = [o.name for o in new.operators if producer in o.inputs and new.unit_of[o.name] == unit]
        if any(taker in old.operator_by_name for taker in takers):
            yield producer, unit


def _place(site: Site) -> Site:
    """What of a site stays as it is while something runs there."""
    return replace(site, flavours=(), max_hosts=1, btu_s=1.0, minimum_s=None, increment_s=None, distance_s={})


def _extends(old: str | None, new: str | None) -> bool:
    """Whether records of the old columns can be read with the new ones: what is new comes after them."""
    if old is None or new is None:
        return True
    before, after = ([part.strip() for part in text.split(",")] for text in (old, new))
    return after[: len(before)] == before


def _state_lost(unit: str, old: Topology, new: Topology, plans: tuple[UnitPlan, UnitPlan]) -> Iterator[str]:
    """The state of a unit's operators that its next version could not go on with, and why."""
    before = [operator for operator in plans[0].operators if operator.stateful]
    after = {operator.name: operator for operator in plans[1].operators}
    order = [operator.name for operator in plans[1].operators if operator.stateful]
    others: list[str] = []
    for operator in before:
        now = after.get(operator.name)
        if now is None and operator.name in new.operator_by_name:
            yield f"state of operator {operator.name}: it goes to unit {new.unit_of[operator.name]}"
        elif now is None:
            yield f"state of operator {operator.name}: it is taken away"
        elif not now.stateful:
            yield f"state of operator {operator.name}: it has none in the next version"
        elif now.function != operator.function or now.inputs != operator.inputs:
            yield f"state of operator {operator.name}: it may not fit another function or other inputs"
        elif not all(_same_columns(old, new, name) for name in operator.inputs):
            yield f"state of operator {operator.name}: it may not fit other columns"
        else:
            others.append(operator.name)
    if others and others != order:
        # Spark numbers the operators with state: where one comes or goes, the others' is not found again.
        for name in others:
            yield f"state of operator {name}: another operator with state comes or goes in unit {unit}"


def _new_state(plans: tuple[UnitPlan, UnitPlan]) -> bool:
    """Whether operators with state come to a unit: Spark would look for their state in the checkpoint."""
    before = {operator.name for operator in plans[0].operators if operator.stateful}
    return any(operator.stateful and operator.name not in before for operator in plans[1].operators)


def _ended_state(unit: str, old: Topology, new: Topology) -> Iterator[str]:
    """The state that ends with a unit although its operator goes on elsewhere."""
    for name in old.unit_by_name[unit].operators:
        if old.operator_by_name[name].stateful and name in new.operator_by_name:
            yield f"state of operator {name}: it goes to unit {new.unit_of[name]}"


def _cut_off(old: Topology, new: Topology, subscribers: Mapping[str, Collection[str]]) -> Iterator[str]:
    """The streams that end although somebody outside subscribes to them."""
    before, now = (dict(sent(topology)) for topology in (old, new))
    for name, known in subscribers.items():
        if known and name in before and before[name] != now.get(name):
            other = f"goes over channel {now[name]} from then on" if name in now else "ends"
            yield f"stream of operator {name}: it {other}, and {', '.join(known)} subscribed to it"


def sent(topology: Topology) -> Iterator[tuple[str, str]]:
    """The operators whose records cross from unit to unit, and the channel each goes by."""
    for unit in topology.unit_by_name:
        plan = plan_unit(topology, unit)
        for outlet in plan.outlets:
            if outlet.streams:
                yield outlet.operator, plan.channel.name


def _same_columns(old: Topology, new: Topology, name: str) -> bool:
    before, after = old.operator_by_name.get(name), new.operator_by_name.get(name)
    return before is None or after is None or _extends(before.schema, after.schema)
