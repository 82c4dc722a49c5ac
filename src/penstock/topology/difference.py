"""The difference between two versions of a topology, as a list of typed changes.

Whoever moves a running topology from one version to the next needs to know what happens to each part, not
that some field differs. Two equal topologies have no difference, and no change goes untold: what has no
type of its own is told as a `SettingChanged`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, TypeAlias

from penstock.topology.model import Choice, HostFlavour, Site, Topology, Unit


@dataclass(frozen=True, slots=True)
class Added:
    """A source, sink, unit, site or channel that was not there before."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} added"


@dataclass(frozen=True, slots=True)
class Removed:
    """A source, sink, unit, site or channel that is not there any more."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} removed"


@dataclass(frozen=True, slots=True)
class OperatorAdded:
    """An operator that was not there before, and the unit it runs in."""

    name: str
    unit: str

    def __str__(self) -> str:
        return f"operator {self.name} added in unit {self.unit}"


@dataclass(frozen=True, slots=True)
class OperatorRemoved:
    """An operator that is not there any more, and the unit it ran in."""

    name: str
    unit: str

    def __str__(self) -> str:
        return f"operator {self.name} removed from unit {self.unit}"


@dataclass(frozen=True, slots=True)
class OperatorMoved:
    """An operator that went from one unit to another."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"operator {self.name} moved from unit {self.before} to {self.after}"


@dataclass(frozen=True, slots=True)
class UnitMoved:
    """A unit that may now be at other sites, or prefers another one."""

    unit: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    def __str__(self) -> str:
        return f"unit {self.unit} may be at {_sites(self.after)} instead of {_sites(self.before)}"


@dataclass(frozen=True, slots=True)
class UnitGoes:
    """A unit that leaves the site it is at for another."""

    unit: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"unit {self.unit} goes from site {self.before} to {self.after}"


@dataclass(frozen=True, slots=True)
class InputsRewired:
    """An operator or sink that takes its records from elsewhere."""

    kind: str
    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} rewired from {_names(self.before)} to {_names(self.after)}"


@dataclass(frozen=True, slots=True)
class Resized:
    """An operator, unit or flavour whose needs, size or bounds changed; `what` is the field."""

    kind: str
    name: str
    what: str
    before: float | None
    after: float | None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.what} {_shown(self.before)} → {_shown(self.after)}"


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """A unit with another policy, or with other parameters of it."""

    unit: str
    before: Choice
    after: Choice

    def __str__(self) -> str:
        return f"unit {self.unit}: policy {_shown(self.before)} → {_shown(self.after)}"


@dataclass(frozen=True, slots=True)
class FilterChanged:
    """A unit with another filter, or with other parameters of it."""

    unit: str
    before: Choice
    after: Choice

    def __str__(self) -> str:
        return f"unit {self.unit}: filter {_shown(self.before)} → {_shown(self.after)}"


@dataclass(frozen=True, slots=True)
class FunctionChanged:
    """A source, operator or sink that runs another function."""

    kind: str
    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: function {_shown(self.before)} → {_shown(self.after)}"


@dataclass(frozen=True, slots=True)
class PriceChanged:
    """A flavour of a site that costs more or less for a billing time unit."""

    site: str
    flavour: str
    before: Decimal
    after: Decimal

    def __str__(self) -> str:
        return f"site {self.site}: flavour {self.flavour} costs {self.after} instead of {self.before}"


@dataclass(frozen=True, slots=True)
class OrderChanged:
    """The same things in another order, where the order means a preference or a default."""

    kind: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} reordered from {_names(self.before)} to {_names(self.after)}"


@dataclass(frozen=True, slots=True)
class SettingChanged:
    """Any other field that changed; `kind` and `name` say whose."""

    kind: str
    name: str
    what: str
    before: Any
    after: Any

    def __str__(self) -> str:
        whose = " ".join(part for part in (self.kind, self.name) if part)
        return f"{whose}: {self.what} {_shown(self.before)} → {_shown(self.after)}"


Change: TypeAlias = (
    Added
    | Removed
    | OperatorAdded
    | OperatorRemoved
    | OperatorMoved
    | UnitMoved
    | UnitGoes
    | InputsRewired
    | Resized
    | PolicyChanged
    | FilterChanged
    | FunctionChanged
    | PriceChanged
    | OrderChanged
    | SettingChanged
)

_SIZES = {
    "operator": ("cores", "memory_mib"),
    "unit": (
        "min_instances",
        "max_instances",
        "initial_instances",
        "slots",
        "max_slots",
        "slot_memory_mib",
        "shards",
    ),
    "flavour": ("cores", "memory_mib", "max_hosts"),
    "site": ("max_hosts",),
}


def difference(old: Topology, new: Topology) -> tuple[Change, ...]:
    """What changed from one version to the next; empty exactly where they are equal."""
    changes: list[Change] = []
    if old.name != new.name:
        changes.append(SettingChanged("topology", "", "name", old.name, new.name))
    changes += _section("source", old.sources, new.sources)
    changes += _operators(old, new)
    changes += _section("sink", old.sinks, new.sinks)
    changes += _section("unit", old.units, new.units)
    changes += _section("site", old.sites, new.sites)
    changes += _section("channel", old.channels, new.channels)
    if old.latency_bounds != new.latency_bounds:
        changes.append(
            SettingChanged("topology", "", "latency_bounds", old.latency_bounds, new.latency_bounds)
        )
    changes += _fields("loop", "", old.loop, new.loop)
    return tuple(changes)


def _operators(old: Topology, new: Topology) -> list[Change]:
    """Operators come with their unit: one that changed its unit has moved."""
    changes: list[Change] = []
    before, after = old.operator_by_name, new.operator_by_name
    changes += [OperatorRemoved(name, old.unit_of[name]) for name in before if name not in after]
    changes += [OperatorAdded(name, new.unit_of[name]) for name in after if name not in before]
    for name in before:
        if name in after:
            if old.unit_of[name] != new.unit_of[name]:
                changes.append(OperatorMoved(name, old.unit_of[name], new.unit_of[name]))
            changes += _fields("operator", name, before[name], after[name])
    return changes + _order("operators", list(before), list(after))


def _section(kind: str, old: Sequence[Any], new: Sequence[Any]) -> list[Change]:
    """Things by name: removed, added, changed, reordered."""
    before: Mapping[str, Any] = {thing.name: thing for thing in old}
    after: Mapping[str, Any] = {thing.name: thing for thing in new}
    changes: list[Change] = [Removed(kind, name) for name in before if name not in after]
    changes += [Added(kind, name) for name in after if name not in before]
    for name in before:
        if name in after:
            changes += _fields(kind, name, before[name], after[name])
    return changes + _order(f"{kind}s", list(before), list(after))


def _order(kind: str, before: list[str], after: list[str]) -> list[Change]:
    """A change of order among the things that stayed."""
    stayed_before = tuple(name for name in before if name in after)
    stayed_after = tuple(name for name in after if name in before)
    return [] if stayed_before == stayed_after else [OrderChanged(kind, stayed_before, stayed_after)]


def _fields(kind: str, name: str, old: Any, new: Any) -> list[Change]:
    """The changes between two things of the same kind and name, field by field."""
    changes: list[Change] = []
    for field in fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before != after:
            changes += _field(kind, name, field.name, before, after, (old, new))
    return changes


def _field(
    kind: str, name: str, what: str, before: Any, after: Any, things: tuple[Any, Any]
) -> Sequence[Change]:
    """The changes one changed field means."""
    if what == "inputs":
        return [InputsRewired(kind, name, before, after)]
    if what == "function":
        return [FunctionChanged(kind, name, before, after)]
    if kind == "unit" and what == "sites":
        return [UnitMoved(name, before, after)]
    if kind == "unit" and what == "policy":
        return [PolicyChanged(name, before, after)]
    if kind == "unit" and what == "filter":
        return [FilterChanged(name, before, after)]
    if kind == "unit" and what == "operators":
        return _members(things[0], things[1])
    if kind == "site" and what == "flavours":
        return _flavours(things[0], things[1])
    if what in _SIZES.get(kind, ()):
        return [Resized(kind, name, what, before, after)]
    return [SettingChanged(kind, name, what, before, after)]


def _members(old: Unit, new: Unit) -> list[Change]:
    """Which operators came and went is told with them; here only what that does not tell."""
    return _order(f"operators of unit {new.name}", list(old.operators), list(new.operators))


def _flavours(old: Site, new: Site) -> list[Change]:
    """Flavours of one site: their names carry the site's."""
    before = {flavour.name: flavour for flavour in old.flavours}
    after = {flavour.name: flavour for flavour in new.flavours}
    changes: list[Change] = [Removed("flavour", f"{new.name}/{n}") for n in before if n not in after]
    changes += [Added("flavour", f"{new.name}/{n}") for n in after if n not in before]
    for name in before:
        if name in after:
            changes += _flavour(new.name, before[name], after[name])
    return changes + _order(f"flavours of site {new.name}", list(before), list(after))


def _flavour(site: str, old: HostFlavour, new: HostFlavour) -> list[Change]:
    changes: list[Change] = []
    if old.price_per_btu != new.price_per_btu:
        changes.append(PriceChanged(site, new.name, old.price_per_btu, new.price_per_btu))
    for what in _SIZES["flavour"]:
        before, after = getattr(old, what), getattr(new, what)
        if before != after:
            changes.append(Resized("flavour", f"{site}/{new.name}", what, before, after))
    for what in ("type", "spot"):
        before, after = getattr(old, what), getattr(new, what)
        if before != after:
            changes.append(SettingChanged("flavour", f"{site}/{new.name}", what, before, after))
    return changes


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names) if names else "nothing"


def _sites(names: tuple[str, ...]) -> str:
    return ", ".join(names) if names else "every site"


def _shown(value: Any) -> str:
    if isinstance(value, Choice):
        given = ", ".join(f"{key}={item}" for key, item in value.parameters.items())
        return f"{value.name}({given})" if given else value.name
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
