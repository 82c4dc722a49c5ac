"""Finds every mistake in a topology, not only the first one.

It works on the finished model, so a file and a topology built in Python are held to the same rules; a
file adds the lines. Names of policies, filters, providers and workloads live in rooms above this one, so
whoever knows them passes them in (`Known`); without them their names are not checked.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from penstock.choosing import nearest
from penstock.errors import ConfigurationError, Mistake
from penstock.topology.model import Choice, Site, Topology, Unit

Path: TypeAlias = tuple[str, ...]
"""Where in the file something stands, such as `("operators", "parse", "slo")`."""

SERVICE_SHAPES = ("lognormal", "exponential", "deterministic")
ERROR_REACTIONS = ("stop", "skip", "retry")
CHANNEL_KINDS: Mapping[str, None] = MappingProxyType({"files": None, "kafka": None})

_FUNCTION = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")
_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")

Names: TypeAlias = Mapping[str, Collection[str] | None]
"""Known names, each with its parameters; None for parameters means that any are allowed."""


@dataclass(frozen=True, slots=True)
class Known:
    """What may be chosen by name; None for a kind means that its names are not checked."""

    policies: Names | None = None
    filters: Names | None = None
    providers: Names | None = None
    workloads: Names | None = None
    channels: Names | None = field(default_factory=lambda: CHANNEL_KINDS)
    makers: Mapping[str, Callable[[Choice], object]] = field(default_factory=dict)
    """For a kind ("policy", "filter", "provider", "workload"), what makes the chosen thing: a
    ConfigurationError it raises is a mistake of the file."""


NOTHING_KNOWN = Known()


def find_mistakes(
    topology: Topology,
    known: Known = NOTHING_KNOWN,
    *,
    file: str | None = None,
    lines: Mapping[Path, int] | None = None,
    already: Collection[Path] = (),
) -> tuple[Mistake, ...]:
    """Every mistake of a topology, in the order of the file; empty where it is right.

    `already` names places whose mistakes were told before, so that their consequences are not told too.
    """
    finder = _Finder(topology, known, file, lines or {}, frozenset(already))
    finder.find()
    return sorted_mistakes(finder.mistakes)


def sorted_mistakes(mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
    """Mistakes in the order of their lines, each one once."""
    return tuple(sorted(dict.fromkeys(mistakes), key=lambda m: (m.line is None, m.line or 0, m.message)))


def find_cycles(inputs: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Cycles that share no node, each in the direction records flow, starting at its first node given."""
    place = {name: i for i, name in enumerate(inputs)}
    remaining = {name: {i: None for i in names if i in inputs} for name, names in inputs.items()}
    found: list[tuple[str, ...]] = []
    while remaining := _on_or_behind_cycles(remaining):
        # Every node left has an input left: walking back must come to a node a second time.
        walk = [next(iter(remaining))]
        while (before := next(iter(remaining[walk[-1]]))) not in walk:
            walk.append(before)
        cycle = walk[walk.index(before) :][::-1]
        first = min(range(len(cycle)), key=lambda i: place[cycle[i]])
        found.append(tuple(cycle[first:] + cycle[:first]))
        for name in cycle:
            del remaining[name]
    return tuple(found)


def _on_or_behind_cycles(inputs: Mapping[str, Mapping[str, None]]) -> dict[str, dict[str, None]]:
    """What is left after taking away, again and again, whatever has no input left."""
    waits = {name: {i: None for i in names if i in inputs} for name, names in inputs.items()}
    takers: dict[str, list[str]] = {}
    for name, names in waits.items():
        for wanted in names:
            takers.setdefault(wanted, []).append(name)
    ready = [name for name, names in waits.items() if not names]
    while ready:
        name = ready.pop()
        del waits[name]
        for taker in takers.get(name, ()):
            del waits[taker][name]
            if not waits[taker]:
                ready.append(taker)
    return waits


class _Finder:
    """One search: the topology, what is known, where things stand, and the mistakes so far."""

    def __init__(
        self,
        topology: Topology,
        known: Known,
        file: str | None,
        lines: Mapping[Path, int],
        already: frozenset[Path],
    ) -> None:
        self.topology = topology
        self.known = known
        self.file = file
        self.lines = lines
        self.already = already
        self.mistakes: list[Mistake] = []
        self.cyclic = False
        self.written = {path[:2] for path in lines}
        self.operators = {operator.name: operator for operator in topology.operators}
        self.sites = {site.name: site for site in topology.sites}

    def find(self) -> None:
        """Look at everything, from names to sizes."""
        self._names()
        self._sources()
        self._operators()
        self._sinks()
        self._graph()
        self._units()
        self._sites()
        self._channels()
        self._latency_bounds()
        self._loop()

    def tell(self, path: Path, code: str, message: str) -> None:
        """Note a mistake at the line of the path, or of the nearest thing around it."""
        if path in self.already:
            return
        line = next((self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines), None)
        self.mistakes.append(Mistake(message, self.file, line, code))

    # Names

    def _names(self) -> None:
        topology = self.topology
        kinds: tuple[tuple[str, str, list[str]], ...] = (
            ("source", "sources", [source.name for source in topology.sources]),
            ("operator", "operators", [operator.name for operator in topology.operators]),
            ("sink", "sinks", [sink.name for sink in topology.sinks]),
            ("unit", "units", [unit.name for unit in topology.units]),
            ("site", "sites", [site.name for site in topology.sites]),
            ("channel", "channels", [channel.name for channel in topology.channels]),
        )
        for kind, section, names in kinds:
            if not names and section in ("sources", "operators", "sites", "channels"):
                self.tell((section,), "missing", f"a topology needs at least one {kind}, got none")
            for name, count in Counter(names).items():
                if count > 1:
                    hint = (
                        " (an operator that no unit names gets a unit of its own name)"
                        if kind == "unit"
                        else ""
                    )
                    self.tell(
                        (section, name),
                        "doubled-name",
                        f'{kind} "{name}" is there {count} times; give each {kind} a name of its own{hint}',
                    )
                if not _NAME.match(name):
                    self.tell(
                        (section, name),
                        "bad-name",
                        f"{kind} {name!r}: expected a name of letters, digits, _ . or -",
                    )
        # Sources, operators and sinks share one space of names: inputs refer to them without a kind.
        seen: dict[str, str] = {}
        for kind, section, names in kinds[:3]:
            for name in dict.fromkeys(names):
                if name in seen:
                    self.tell(
                        (section, name),
                        "doubled-name",
                        f'"{name}" is the name of a {seen[name]} and of this {kind}; '
                        "give one of them another name",
                    )
                seen.setdefault(name, kind)

    # Values

    def _positive(self, path: Path, what: str, value: float, shown: str = "") -> None:
        if not (value > 0 and math.isfinite(value)):
            self.tell(path, "not-positive", f"{what}: expected more than 0, got {shown or f'{value:g}'}")

    def _not_negative(self, path: Path, what: str, value: float) -> None:
        if not (value >= 0 and math.isfinite(value)):
            self.tell(path, "negative", f"{what}: expected 0 or more, got {value:g}")

    def _at_least(self, path: Path, what: str, value: int | None, least: int) -> None:
        if value is not None and value < least:
            self.tell(path, "out-of-range", f"{what}: expected {least} or more, got {value}")

    def _one_of(self, path: Path, what: str, value: str, known: Collection[str]) -> None:
        if value not in known:
            self.tell(path, "unknown-value", f'{what}: unknown "{value}"{nearest(value, known)}')

    def _function(self, path: Path, what: str, function: str | None) -> None:
        if function is not None and not _FUNCTION.match(function):
            self.tell(
                path, "bad-function", f'{what}: expected a function as "module:function", got {function!r}'
            )

    def _choice(self, path: Path, what: str, kind: str, choice: Choice, known: Names | None) -> None:
        """A name out of a registry and its parameters."""
        if path in self.already:
            return
        right = True
        if known is not None:
            if choice.name not in known:
                self.tell(
                    path,
                    f"unknown-{kind}",
                    f'{what}: unknown {kind} "{choice.name}"{nearest(choice.name, known)}',
                )
                return
            parameters = known[choice.name]
            for parameter in choice.parameters:
                if parameters is not None and parameter not in parameters:
                    right = False
                    self.tell(
                        (*path, parameter),
                        "unknown-parameter",
                        f'{what}: {kind} "{choice.name}" has no parameter "{parameter}"'
                        f"{nearest(parameter, parameters)}",
                    )
        maker = self.known.makers.get(kind)
        if maker is None or not right or any((*path, p) in self.already for p in choice.parameters):
            return
        try:
            maker(choice)
        except (ConfigurationError, TypeError, ValueError) as error:
            # A dataclass may compare a text with a number before it finds words for it.
            about = "" if str(error).startswith(f"{kind} ") else f'{kind} "{choice.name}": '
            self.tell(path, "bad-parameter", f"{what}: {about}{error}")

    # Sections

    def _sources(self) -> None:
        for source in self.topology.sources:
            path, what = ("sources", source.name), f'source "{source.name}"'
            self._function((*path, "function"), f"{what}, function", source.function)
            self._positive((*path, "share"), f"{what}, share", source.share)
            if source.workload is not None:
                self._choice((*path, "workload"), what, "workload", source.workload, self.known.workloads)

    def _operators(self) -> None:
        for operator in self.topology.operators:
            path, what = ("operators", operator.name), f'operator "{operator.name}"'
            self._function((*path, "function"), f"{what}, function", operator.function)
            self._positive((*path, "slo"), f"{what}, slo", operator.slo_s, f"{operator.slo_s:g} s")
            self._positive((*path, "cores"), f"{what}, cores", operator.cores)
            self._positive((*path, "memory"), f"{what}, memory", operator.memory_mib)
            self._not_negative((*path, "ratio"), f"{what}, ratio", operator.ratio)
            self._one_of((*path, "on_error"), f"{what}, on_error", operator.on_error, ERROR_REACTIONS)
            if operator.service is not None:
                service, at = operator.service, (*path, "service")
                self._positive((*at, "mean"), f"{what}, mean service time", service.mean_s)
                self._not_negative((*at, "cv"), f"{what}, cv of the service time", service.cv)
                self._one_of(
                    (*at, "shape"), f"{what}, shape of the service time", service.shape, SERVICE_SHAPES
                )

    def _sinks(self) -> None:
        for sink in self.topology.sinks:
            self._function(("sinks", sink.name, "function"), f'sink "{sink.name}", function', sink.function)

    # The graph

    def _graph(self) -> None:
        topology = self.topology
        sources = {source.name for source in topology.sources}
        emitting = sources | set(self.operators)
        sinks = {sink.name for sink in topology.sinks}
        takers = [("operators", "operator", o.name, o.inputs) for o in topology.operators]
        takers += [("sinks", "sink", k.name, k.inputs) for k in topology.sinks]
        broken: set[str] = set()
        for section, kind, name, inputs in takers:
            path = (section, name, "inputs")
            for i, wanted in enumerate(inputs):
                at = (*path, str(i))
                if wanted not in emitting:
                    broken.add(name)
                    reason = (
                        " is a sink, which emits nothing; expected a source or an operator"
                        if wanted in sinks
                        else f" is neither a source nor an operator{nearest(wanted, emitting - {name})}"
                    )
                    self.tell(at, "dangling-input", f'{kind} "{name}": its input "{wanted}"{reason}')
                elif wanted in inputs[:i]:
                    self.tell(at, "doubled-name", f'{kind} "{name}": its input "{wanted}" is there twice')
            if not inputs and kind == "sink":
                self.tell(
                    path, "dangling-input", f'sink "{name}" names no input; expected inputs: [an operator]'
                )
        inputs_of = {operator.name: operator.inputs for operator in topology.operators}
        cycles = find_cycles(inputs_of)
        self.cyclic = bool(cycles)
        for cycle in cycles:
            self.tell(
                ("operators", cycle[0], "inputs"),
                "cycle",
                f"the operators form a cycle: {' → '.join((*cycle, cycle[0]))}; remove one of these inputs",
            )
        broken.update(name for cycle in cycles for name in cycle)
        reached = self._downstream(sources)
        explained = self._downstream(broken) | broken
        for operator in topology.operators:
            path = ("operators", operator.name, "inputs")
            if operator.name in reached or operator.name in explained or path in self.already:
                continue
            why = (
                "none of its inputs is reached either"
                if operator.inputs
                else "it names no input; expected inputs: [a source or an operator]"
            )
            self.tell(
                path, "unreachable", f'operator "{operator.name}" is not reached from any source: {why}'
            )
        taken = {wanted for _, _, _, inputs in takers for wanted in inputs}
        for source in topology.sources:
            if source.name not in taken and not broken and ("operators",) not in self.already:
                self.tell(
                    ("sources", source.name),
                    "unused-source",
                    f'source "{source.name}": nothing takes its records; name it as an input or remove it',
                )

    def _downstream(self, names: Iterable[str]) -> set[str]:
        """Every operator reached from these names."""
        successors: dict[str, list[str]] = {}
        for operator in self.topology.operators:
            for wanted in operator.inputs:
                successors.setdefault(wanted, []).append(operator.name)
        reached: set[str] = set()
        waiting = list(names)
        while waiting:
            for name in successors.get(waiting.pop(), ()):
                if name not in reached:
                    reached.add(name)
                    waiting.append(name)
        return reached

    # Units and sites

    def _units(self) -> None:
        taken: dict[str, str] = {}
        for unit in self.topology.units:
            path, what = self._unit_path(unit), f'unit "{unit.name}"'
            if not unit.operators:
                self.tell((*path, "operators"), "missing", f"{what} has no operators; expected at least one")
            for i, name in enumerate(unit.operators):
                at = (*path, "operators", str(i))
                if name not in self.operators:
                    self.tell(
                        at,
                        "unknown-name",
                        f'{what}: unknown operator "{name}"{nearest(name, self.operators)}',
                    )
                elif name in taken:
                    where = "twice in it" if taken[name] == unit.name else f'in unit "{taken[name]}" already'
                    self.tell(at, "doubled-name", f'{what}: operator "{name}" is {where}; one unit only')
                taken.setdefault(name, unit.name)
            for i, name in enumerate(unit.sites):
                if name not in self.sites:
                    self.tell(
                        (*path, "sites", str(i)),
                        "unknown-name",
                        f'{what}: unknown site "{name}"{nearest(name, self.sites)}',
                    )
            self._choice((*path, "policy"), what, "policy", unit.policy, self.known.policies)
            self._choice((*path, "filter"), what, "filter", unit.filter, self.known.filters)
            self._bounds(path, what, unit)
            channels = {channel.name for channel in self.topology.channels}
            if unit.channel is not None and unit.channel not in channels:
                self.tell(
                    (*path, "channel"),
                    "unknown-channel",
                    f'{what}: unknown channel "{unit.channel}"{nearest(unit.channel, channels)}',
                )
            self._size(path, what, unit)
        self._unit_cycles()

    def _unit_path(self, unit: Unit) -> Path:
        """Where a unit stands; one that an operator got by itself stands where the operator does."""
        written = ("units", unit.name)
        return written if written in self.written or not unit.operators else ("operators", unit.operators[0])

    def _bounds(self, path: Path, what: str, unit: Unit) -> None:
        self._at_least((*path, "slots"), f"{what}, slots", unit.slots, 1)
        self._at_least((*path, "min_instances"), f"{what}, min_instances", unit.min_instances, 0)
        self._at_least((*path, "max_instances"), f"{what}, max_instances", unit.max_instances, 1)
        if unit.min_instances > unit.max_instances >= 1:
            self.tell(
                (*path, "min_instances"),
                "out-of-range",
                f"{what}: expected min_instances not above max_instances ({unit.max_instances}), "
                f"got {unit.min_instances}",
            )
        elif not unit.min_instances <= unit.initial_instances <= max(unit.max_instances, 1):
            self.tell(
                (*path, "initial_instances"),
                "out-of-range",
                f"{what}: expected initial_instances from {unit.min_instances} to {unit.max_instances}, "
                f"got {unit.initial_instances}",
            )

    def _size(self, path: Path, what: str, unit: Unit) -> None:
        """Whether some host of an allowed site can hold one instance."""
        members = [self.operators[name] for name in unit.operators if name in self.operators]
        allowed = [self.sites[name] for name in unit.sites if name in self.sites]
        if not unit.sites:
            allowed = list(self.topology.sites)
        flavours = [flavour for site in allowed for flavour in site.flavours]
        if not members or not flavours:
            return
        cores = unit.slots * max(operator.cores for operator in members)
        memory_mib = sum(operator.memory_mib for operator in members)
        if any(f.cores >= cores and f.memory_mib >= memory_mib for f in flavours):
            return
        biggest = max(flavours, key=lambda f: (f.cores, f.memory_mib))
        self.tell(
            path,
            "too-big",
            f"{what}: one instance needs {cores:g} cores and {memory_mib} MiB, more than any host of "
            f'{_listed("site", allowed)} has (the biggest, "{biggest.name}": {biggest.cores:g} cores, '
            f"{biggest.memory_mib} MiB); allow another site, offer a bigger flavour or need less",
        )

    def _unit_cycles(self) -> None:
        """Units that wait for each other although their operators do not."""
        unit_of = {name: unit.name for unit in self.topology.units for name in unit.operators}
        inputs: dict[str, list[str]] = {unit.name: [] for unit in self.topology.units}
        for operator in self.topology.operators:
            own = unit_of.get(operator.name)
            for wanted in operator.inputs:
                other = unit_of.get(wanted)
                if own is not None and other is not None and other != own:
                    inputs[own].append(other)
        # Operators in a circle are told as such, and their units would only say it again.
        for cycle in () if self.cyclic else find_cycles(inputs):
            self.tell(
                ("units", cycle[0]),
                "unit-cycle",
                f"the units form a cycle: {' → '.join((*cycle, cycle[0]))}; "
                "put their operators into one unit, or cut them elsewhere",
            )

    def _sites(self) -> None:
        for site in self.topology.sites:
            path, what = ("sites", site.name), f'site "{site.name}"'
            self._choice((*path, "provider"), what, "provider", site.provider, self.known.providers)
            self._positive((*path, "btu"), f"{what}, btu", site.btu_s, f"{site.btu_s:g} s")
            self._at_least((*path, "max_hosts"), f"{what}, max_hosts", site.max_hosts, 1)
            if not site.flavours:
                self.tell((*path, "flavours"), "missing", f"{what} has no flavours; expected at least one")
            for name, count in Counter(flavour.name for flavour in site.flavours).items():
                if count > 1:
                    self.tell(
                        (*path, "flavours", name), "doubled-name", f'{what}: flavour "{name}" is there twice'
                    )
            for flavour in site.flavours:
                at, which = (*path, "flavours", flavour.name), f'{what}, flavour "{flavour.name}"'
                self._positive((*at, "cores"), f"{which}, cores", flavour.cores)
                self._positive((*at, "memory"), f"{which}, memory", flavour.memory_mib)
                self._not_negative((*at, "price"), f"{which}, price", float(flavour.price_per_btu))
                self._at_least((*at, "max_hosts"), f"{which}, max_hosts", flavour.max_hosts, 1)
            for other, distance_s in site.distance_s.items():
                at = (*path, "distance", other)
                self._not_negative(at, f'{what}, distance to "{other}"', distance_s)
                if other not in self.sites:
                    self.tell(
                        at,
                        "unknown-name",
                        f'{what}: distance to unknown site "{other}"{nearest(other, self.sites)}',
                    )

        currencies = {site.currency: site for site in self.topology.sites if site.currency}
        if len(currencies) > 1:
            *_, (currency, site) = currencies.items()
            self.tell(
                ("sites", site.name, "currency"),
                "mixed-currencies",
                f'site "{site.name}" is paid in {currency}, site "{next(iter(currencies.values())).name}" in '
                f"{next(iter(currencies))}; expected one currency, so that there is one bill",
            )

    def _channels(self) -> None:
        for channel in self.topology.channels:
            choice = Choice(channel.kind, channel.options)
            path = ("channels", channel.name)
            at = (*path, "kind") if (*path, "kind") in self.lines else path
            self._choice(at, f'channel "{channel.name}"', "channel", choice, self.known.channels)

    def _latency_bounds(self) -> None:
        sources = {source.name for source in self.topology.sources}
        sinks = {sink.name for sink in self.topology.sinks}
        ends = {o.name for o in self.topology.operators if not self.topology.successors.get(o.name)}
        for i, bound in enumerate(self.topology.latency_bounds):
            path, what = ("latency_bounds", str(i)), "latency bound"
            self._positive((*path, "bound"), what, bound.bound_s, f"{bound.bound_s:g} s")
            if bound.source is not None and bound.source not in sources:
                self.tell(
                    (*path, "source"),
                    "unknown-name",
                    f'{what}: unknown source "{bound.source}"{nearest(bound.source, sources)}',
                )
            if bound.sink is not None and bound.sink not in sinks | ends:
                self.tell(
                    (*path, "sink"),
                    "unknown-name",
                    f'{what}: unknown sink "{bound.sink}"{nearest(bound.sink, sinks | ends)}',
                )

    def _loop(self) -> None:
        loop = self.topology.loop
        self._positive(("loop", "monitoring"), "loop, monitoring", loop.monitoring_s)
        self._positive(("loop", "provisioning"), "loop, provisioning", loop.provisioning_s)
        self._not_negative(("loop", "cooldown"), "loop, cooldown", loop.cooldown_s)
        self._at_least(("loop", "largest_step"), "loop, largest_step", loop.largest_step, 1)
        self._at_least(("loop", "hold_backlog"), "loop, hold_backlog", loop.hold_backlog, 0)
        self._not_negative(("loop", "penalty"), "loop, penalty", float(loop.penalty))
        for i, (start, end) in enumerate(loop.blackout):
            if not (0 <= start <= 24 and 0 <= end <= 24 and start != end):
                self.tell(
                    ("loop", "blackout", str(i)),
                    "out-of-range",
                    f"loop, blackout: expected two different hours from 0 to 24, got {start:g}-{end:g}",
                )


def _listed(kind: str, sites: Sequence[Site]) -> str:
    names = ", ".join(f'"{site.name}"' for site in sites)
    return f"{kind} {names}" if len(sites) == 1 else f"the {kind}s {names}"
