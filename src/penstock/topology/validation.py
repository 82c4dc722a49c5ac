"""Finds every mistake in a topology, not only the first one.

It works on the finished model, so a file and a topology built in Python are held to the same rules; a
file adds the lines. Names of policies, filters, providers and workloads live in rooms above this one, so
whoever knows them passes them in (`Known`); without them their names are not checked.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from penstock.choosing import Registry, nearest
from penstock.errors import Mistake
from penstock.quantities import LONGEST_S, shown
from penstock.topology.findings import Findings, Path, sorted_mistakes
from penstock.topology.model import Choice, Sink, Topology, Unit
from penstock.topology.sizes import check_room, check_whole_cores
from penstock.topology.wiring import check_wiring

SERVICE_SHAPES = ("lognormal", "exponential", "deterministic")
ERROR_REACTIONS = ("stop", "skip", "retry")
CHANNEL_KINDS: Mapping[str, None] = MappingProxyType({"files": None, "kafka": None})

_SQL = re.compile(r"sql:\s*\S.*", re.DOTALL)
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_FOLDER = re.compile(r"(jsonl|parquet):[^\x00-\x1f\x7f]{0,1024}")
"""A built-in sink with its folder."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

LONGEST_NAME = 64
"""Names become parts of folders, topics and addresses, which have limits of their own."""
MOST_INSTANCES = 10_000
MOST_SLOTS = 1_024
MOST_PLACES = 65_536
MOST_SHARDS = 10_000
MOST_HOSTS = 100_000
MOST_CORES = 100_000.0
MOST_RATIO = 1e6
LEAST_INTERVAL_S = 0.001
"""The shortest time between two observations or decisions: what is shorter was not meant."""
LEAST_SILENCE_S = 5.0
"""The shortest silence that can mean something: units report once a second, and Java pauses."""
LEAST_JOURNAL_S = 60.0
"""The shortest time the journal keeps its rows: upkeep comes once in a minute."""


def bad_name(name: str) -> str | None:
    """What is wrong with a name, or None: names become folders, which they must not leave."""
    if len(name) > LONGEST_NAME:
        return f"expected a name of at most {LONGEST_NAME} characters, got {len(name)}"
    if not _NAME.fullmatch(name):
        return "expected a name of letters, digits, _ . or -, the first a letter, a digit or _"
    return None


def _result_folder(sink: Sink) -> str | None:
    """The folder a built-in sink writes into; None for any other sink."""
    if sink.function is None or not _FOLDER.fullmatch(sink.function):
        return None
    return posixpath.normpath(sink.function.partition(":")[2] or sink.name)


Names: TypeAlias = Mapping[str, Collection[str] | None]
"""Known names, each with its parameters; None for parameters means that any are allowed."""


@dataclass(frozen=True, slots=True)
class Known:
    """What may be chosen by name; None for a kind means that its names are not checked."""

    policies: Registry | None = None
    filters: Registry | None = None
    providers: Registry | None = None
    workloads: Registry | None = None
    channels: Registry | Names | None = field(default_factory=lambda: CHANNEL_KINDS)
    rules: Sequence[Callable[[Topology], Iterable[tuple[Path, str, str]]]] = ()
    """What else must hold, as rooms below know it: each gives mistakes as (place, code, message)."""


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
    finder = _Finder(Findings(topology, file, lines, already), known)
    finder.find()
    return sorted_mistakes(finder.findings.mistakes)


class _Finder:
    """The checks of names, values, choices and sections, one method each."""

    def __init__(self, findings: Findings, known: Known) -> None:
        self.findings = findings
        self.known = known
        self.topology = findings.topology
        self.tell = findings.tell

    def find(self) -> None:
        """Look at everything, from names to sizes."""
        self._names()
        self._sources()
        self._operators()
        self._sinks()
        check_wiring(self.findings)
        self._units()
        self._sites()
        check_whole_cores(self.findings)
        self._channels()
        self._latency_bounds()
        self._loop()
        for rule in self.known.rules:
            for path, code, message in rule(self.topology):
                self.tell(path, code, message)

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
        wrong = bad_name(topology.name.replace(" ", "_"))
        if wrong is not None:
            self.tell(("name",), "bad-name", f"the topology's name {shown(topology.name)}: {wrong}")
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
                wrong = bad_name(name)
                if wrong is not None:
                    self.tell((section, name), "bad-name", f"{kind} {shown(name)}: {wrong}")
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

    def _choice(self, path: Path, what: str, choice: Choice, known: Registry | None) -> None:
        """A name out of a registry and its parameters."""
        if known is None or path in self.findings.already:
            return
        if any((*path, parameter) in self.findings.already for parameter in choice.parameters):
            return
        for wrong in known.mistakes(choice.name, choice.parameters):
            at = path if wrong.parameter is None else (*path, wrong.parameter)
            self.tell(at, wrong.code, f"{what}: {wrong.message}")

    # Sections

    def _sources(self) -> None:
        for source in self.topology.sources:
            path, what = ("sources", source.name), f'source "{source.name}"'
            self._function((*path, "function"), f"{what}, function", source.function)
            self._function((*path, "records"), f"{what}, records", source.records)
            self.findings.positive((*path, "share"), f"{what}, share", source.share, MOST_RATIO)
            if source.workload is not None:
                self._choice((*path, "workload"), what, source.workload, self.known.workloads)

    def _operators(self) -> None:
        for operator in self.topology.operators:
            path, what = ("operators", operator.name), f'operator "{operator.name}"'
            if operator.function is None or not _SQL.fullmatch(operator.function):
                self._function((*path, "function"), f"{what}, function", operator.function)
            self.findings.positive((*path, "slo"), f"{what}, slo", operator.slo_s, LONGEST_S, " s")
            self.findings.positive((*path, "cores"), f"{what}, cores", operator.cores, MOST_CORES)
            self.findings.positive((*path, "memory"), f"{what}, memory", operator.memory_mib)
            self.findings.not_negative((*path, "ratio"), f"{what}, ratio", operator.ratio, MOST_RATIO)
            self.findings.one_of((*path, "on_error"), f"{what}, on_error", operator.on_error, ERROR_REACTIONS)
            if operator.service is not None:
                service, at = operator.service, (*path, "service")
                self.findings.positive((*at, "mean"), f"{what}, mean service time", service.mean_s)
                self.findings.not_negative((*at, "cv"), f"{what}, cv of the service time", service.cv, 100.0)
                self.findings.one_of(
                    (*at, "shape"), f"{what}, shape of the service time", service.shape, SERVICE_SHAPES
                )

    def _sinks(self) -> None:
        writers: dict[str, str] = {}
        for sink in self.topology.sinks:
            path = ("sinks", sink.name, "function")
            folder = _result_folder(sink)
            if folder is None:
                self._function(path, f'sink "{sink.name}", function', sink.function)
            if folder is not None and folder in writers:
                self.tell(
                    path,
                    "shared-folder",
                    f'sink "{sink.name}": two sinks write to one folder, "{folder}" is written by sink '
                    f'"{writers[folder]}" already; each would drop the other\'s records: give it its own',
                )
            elif folder is not None:
                writers[folder] = sink.name

    def _function(self, path: Path, what: str, function: str | None) -> None:
        if function is not None and not _FUNCTION.fullmatch(function):
            self.tell(
                path, "bad-function", f'{what}: expected a function as "module:function", got {function!r}'
            )

    # Units and sites

    def _units(self) -> None:
        taken: dict[str, str] = {}
        for unit in self.topology.units:
            path, what = self.findings.unit_path(unit), f'unit "{unit.name}"'
            if not unit.operators:
                self.tell((*path, "operators"), "missing", f"{what} has no operators; expected at least one")
            for i, name in enumerate(unit.operators):
                at = (*path, "operators", str(i))
                if name not in self.findings.operators:
                    self.tell(
                        at,
                        "unknown-name",
                        f'{what}: unknown operator "{name}"{nearest(name, self.findings.operators)}',
                    )
                elif name in taken:
                    where = "twice in it" if taken[name] == unit.name else f'in unit "{taken[name]}" already'
                    self.tell(at, "doubled-name", f'{what}: operator "{name}" is {where}; one unit only')
                taken.setdefault(name, unit.name)
            for i, name in enumerate(unit.sites):
                if name not in self.findings.sites:
                    self.tell(
                        (*path, "sites", str(i)),
                        "unknown-name",
                        f'{what}: unknown site "{name}"{nearest(name, self.findings.sites)}',
                    )
            self._choice((*path, "policy"), what, unit.policy, self.known.policies)
            self._choice((*path, "filter"), what, unit.filter, self.known.filters)
            self._bounds(path, what, unit)
            channels = {channel.name for channel in self.topology.channels}
            if unit.channel is not None and unit.channel not in channels:
                self.tell(
                    (*path, "channel"),
                    "unknown-channel",
                    f'{what}: unknown channel "{unit.channel}"{nearest(unit.channel, channels)}',
                )
            check_room(self.findings, unit)

    def _bounds(self, path: Path, what: str, unit: Unit) -> None:
        within = self.findings.within
        within((*path, "slots"), f"{what}, slots", unit.slots, 1, MOST_SLOTS)
        within((*path, "places"), f"{what}, places", unit.places, 1, MOST_PLACES)
        self.findings.not_negative((*path, "trigger"), f"{what}, trigger", unit.trigger_s, LONGEST_S)
        if unit.max_slots is not None:
            least = max(1, unit.slots)
            within((*path, "max_slots"), f"{what}, max_slots", unit.max_slots, least, MOST_SLOTS)
        if unit.shards is not None:
            within((*path, "shards"), f"{what}, shards", unit.shards, 1, MOST_SHARDS)
        within((*path, "min_instances"), f"{what}, min_instances", unit.min_instances, 0, MOST_INSTANCES)
        within((*path, "max_instances"), f"{what}, max_instances", unit.max_instances, 1, MOST_INSTANCES)
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

    def _sites(self) -> None:
        for site in self.topology.sites:
            path, what = ("sites", site.name), f'site "{site.name}"'
            self._choice((*path, "provider"), what, site.provider, self.known.providers)
            for key, span_s in (
                ("btu", site.btu_s), ("minimum", site.minimum_s), ("increment", site.increment_s)
            ):  # fmt: skip
                if span_s is not None:
                    self.findings.positive((*path, key), f"{what}, {key}", span_s, LONGEST_S, " s")
            for key, price in (
                ("core_hour", site.core_hour),
                ("gib_hour", site.gib_hour),
                ("budget", site.budget),
            ):
                self.findings.not_negative((*path, key), f"{what}, {key}", float(price))
            self.findings.within((*path, "max_hosts"), f"{what}, max_hosts", site.max_hosts, 1, MOST_HOSTS)
            if not site.flavours:
                self.tell((*path, "flavours"), "missing", f"{what} has no flavours; expected at least one")
            for name, count in Counter(flavour.name for flavour in site.flavours).items():
                if count > 1:
                    self.tell(
                        (*path, "flavours", name), "doubled-name", f'{what}: flavour "{name}" is there twice'
                    )
            for flavour in site.flavours:
                at, which = (*path, "flavours", flavour.name), f'{what}, flavour "{flavour.name}"'
                self.findings.positive((*at, "cores"), f"{which}, cores", flavour.cores, MOST_CORES)
                self.findings.positive((*at, "memory"), f"{which}, memory", flavour.memory_mib)
                self.findings.not_negative((*at, "price"), f"{which}, price", float(flavour.price_per_btu))
                self.findings.within(
                    (*at, "max_hosts"), f"{which}, max_hosts", flavour.max_hosts, 1, MOST_HOSTS
                )
            for other, distance_s in site.distance_s.items():
                at = (*path, "distance", other)
                self.findings.not_negative(at, f'{what}, distance to "{other}"', distance_s)
                if other not in self.findings.sites:
                    self.tell(
                        at,
                        "unknown-name",
                        f'{what}: distance to unknown site "{other}"{nearest(other, self.findings.sites)}',
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
        known = self.known.channels
        for channel in self.topology.channels:
            path, what = ("channels", channel.name), f'channel "{channel.name}"'
            at = (*path, "kind") if (*path, "kind") in self.findings.lines else path
            if known is None or isinstance(known, Registry):
                self._choice(at, what, Choice(channel.kind, channel.options), known)
            elif channel.kind not in known:
                hint = nearest(channel.kind, known)
                self.tell(at, "unknown-channel", f'{what}: unknown channel "{channel.kind}"{hint}')
            else:
                self._options(path, what, channel.kind, channel.options, known[channel.kind])

    def _options(
        self, path: Path, what: str, kind: str, options: Iterable[str], known: Collection[str] | None
    ) -> None:
        for option in options:
            if known is not None and option not in known:
                message = f'{what}: channel "{kind}" has no parameter "{option}"{nearest(option, known)}'
                self.tell((*path, option), "unknown-parameter", message)

    def _latency_bounds(self) -> None:
        sources = {source.name for source in self.topology.sources}
        sinks = {sink.name for sink in self.topology.sinks}
        ends = {o.name for o in self.topology.operators if not self.topology.successors.get(o.name)}
        for i, bound in enumerate(self.topology.latency_bounds):
            path, what = ("latency_bounds", str(i)), "latency bound"
            self.findings.positive((*path, "bound"), what, bound.bound_s, LONGEST_S, " s")
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
        for key, value_s in (("monitoring", loop.monitoring_s), ("provisioning", loop.provisioning_s)):
            self.findings.positive(("loop", key), f"loop, {key}", value_s)
            if 0 < value_s < LEAST_INTERVAL_S:
                self.tell(
                    ("loop", key),
                    "out-of-range",
                    f"loop, {key}: expected {LEAST_INTERVAL_S * 1000:g} ms or more, got {value_s:g} s",
                )
        self.findings.not_negative(("loop", "cooldown"), "loop, cooldown", loop.cooldown_s)
        self.findings.within(
            ("loop", "largest_step"), "loop, largest_step", loop.largest_step, 1, MOST_INSTANCES
        )
        self.findings.within(("loop", "hold_backlog"), "loop, hold_backlog", loop.hold_backlog, 0, 10**12)
        if loop.silence_s < LEAST_SILENCE_S:
            problem = f"expected {LEAST_SILENCE_S:g} s or more, got {loop.silence_s:g} s"
            self.tell(("loop", "silence"), "out-of-range", f"loop, silence: {problem}")
        if loop.journal_s < LEAST_JOURNAL_S:
            problem = f"expected {LEAST_JOURNAL_S:g} s or more, got {loop.journal_s:g} s"
            self.tell(("loop", "journal"), "out-of-range", f"loop, journal: {problem}")
        self.findings.not_negative(("loop", "penalty"), "loop, penalty", float(loop.penalty))
        for i, (start, end) in enumerate(loop.blackout):
            if not (0 <= start <= 24 and 0 <= end <= 24 and start != end):
                self.tell(
                    ("loop", "blackout", str(i)),
                    "out-of-range",
                    f"loop, blackout: expected two different hours from 0 to 24, got {start:g}-{end:g}",
                )
