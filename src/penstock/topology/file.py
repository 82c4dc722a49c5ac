"""Reads a topology from YAML and writes it back.

Everything that is wrong is told at once, with the line. What is written leaves out what is default, and
reading it again gives an equal topology. The keys themselves are in `grammar`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from decimal import Decimal
from pathlib import Path as FilePath
from typing import Any

import yaml
from yaml.nodes import Node

from penstock import quantities
from penstock.errors import ConfigurationError, Mistake, QuantityError, TopologyError
from penstock.topology.bounded import composed, read_text
from penstock.topology.findings import sorted_mistakes
from penstock.topology.forms import AMOUNT, BLACKOUT, DISTANCES, DURATION, LISTED_PRICE, MEMORY
from penstock.topology.grammar import (
    GRAMMAR,
    LATENCY_BOUND_KEYS,
    LOOP_KEYS,
    OPERATOR_KEYS,
    SERVICE_KEYS,
    SINK_KEYS,
    SITE_KEYS,
    SOURCE_KEYS,
    TOPOLOGY_KEYS,
    UNIT_KEYS,
)
from penstock.topology.model import Choice, HostFlavour, Service, Site, Topology, Unit
from penstock.topology.reading import (
    Form,
    Key,
    Reader,
    RefusedError,
    is_nothing,
    line_of,
    refuse_bombs,
)
from penstock.topology.validation import LONGEST_NAME, NOTHING_KNOWN, Known, find_mistakes

_WHAT = "a topology"


def load_topology(path: str | FilePath, known: Known | None = None) -> Topology:
    """Read a topology file; TopologyError lists all its mistakes, each with its line.

    `known` says which policies, filters, providers and workloads there are; without it any name passes.
    """
    file = FilePath(path)
    try:
        text = read_text(file, _WHAT)
    except ConfigurationError as error:
        raise TopologyError([Mistake(str(error), str(path), None, "unreadable")]) from None
    return parse_topology(text, known, file=str(path), name=name_of(file), folder=file.parent)


def name_of(file: FilePath) -> str:
    """The name of a topology that gives none: its file's, as far as a name may hold it."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", file.stem)[:LONGEST_NAME].lstrip(".-")
    return name or "topology"


def parse_topology(
    text: str,
    known: Known | None = None,
    *,
    file: str | None = None,
    name: str = "topology",
    folder: FilePath | None = None,
) -> Topology:
    """Read a topology from the text of a file; `folder` is what the paths of traces are relative to."""
    node = composed(text, file, _WHAT)
    if node is None or is_nothing(node):
        raise TopologyError(
            [Mistake("the file is empty; expected at least sources and operators", file, 1, "missing")]
        )
    return topology_of(node, known, file=file, name=name, folder=folder)


def topology_of(
    node: Node,
    known: Known | None = None,
    *,
    file: str | None = None,
    name: str = "topology",
    folder: FilePath | None = None,
) -> Topology:
    """The topology a YAML node describes; TopologyError lists all mistakes."""
    reader = Reader(GRAMMAR, file, folder)
    refuse_bombs(node, file)
    reader.lines[()] = line_of(node) or 1
    if file is None:
        reader.lines.clear()
    try:
        found = reader.keys(node, (), TOPOLOGY_KEYS, "a mapping with sources and operators")
    except RefusedError:
        raise TopologyError(reader.mistakes) from None
    units = _with_defaults(found, reader)
    given = {"name": name, "sources": (), "operators": (), **found, "units": units}
    topology = Topology(**given)
    later = find_mistakes(
        topology, known or NOTHING_KNOWN, file=file, lines=reader.lines, already=reader.refused
    )
    mistakes = sorted_mistakes((*reader.mistakes, *later))
    if mistakes:
        raise TopologyError(mistakes)
    return topology


def _with_defaults(found: dict[str, Any], reader: Reader) -> tuple[Unit, ...]:
    """The units of a file, with its own policy and filter where a unit names none."""
    shared = {key: found.pop(key) for key in ("policy", "filter") if key in found}
    written = list(found.get("units", ()))
    taken = {operator for unit in written for operator in unit["operators"]}
    if shared:
        written += [
            {"name": operator.name, "operators": (operator.name,)}
            for operator in found.get("operators", ())
            if operator.name not in taken
        ]
    for key in shared:
        _note_shared(key, [unit["name"] for unit in written if key not in unit], reader)
    units = []
    for unit in written:
        given = {**shared, **unit}
        # A unit that may not go below three instances starts with three.
        given.setdefault("initial_instances", max(1, given.get("min_instances", 1)))
        units.append(Unit(**given))
    return tuple(units)


def _note_shared(key: str, units: Sequence[str], reader: Reader) -> None:
    """Let a mistake in the file's own policy or filter be told once, at its own line."""
    for unit in units[:1]:
        for path, line in list(reader.lines.items()):
            if path[:1] == (key,):
                reader.lines[("units", unit, *path)] = line
    reader.refused.update(("units", unit, key) for unit in units[1:])


# Writing


def dump_topology(topology: Topology) -> str:
    """The topology as the text of a file, without what is default; reading it gives an equal topology."""
    document: dict[str, Any] = {"name": topology.name}
    document["sources"] = {source.name: _fields_of(source, SOURCE_KEYS) for source in topology.sources}
    document["operators"] = {o.name: _fields_of(o, OPERATOR_KEYS) for o in topology.operators}
    if topology.sinks:
        document["sinks"] = {sink.name: _fields_of(sink, SINK_KEYS) for sink in topology.sinks}
    units = _units_to_write(topology)
    if units:
        document["units"] = {unit.name: _unit_fields(unit) for unit in units}
    if topology.sites != _default(Topology, "sites"):
        document["sites"] = {site.name: _site_fields(site) for site in topology.sites}
    if topology.channels != _default(Topology, "channels"):
        document["channels"] = {
            channel.name: {"kind": channel.kind, **_written(dict(channel.options))}
            for channel in topology.channels
        }
    if topology.latency_bounds:
        document["latency_bounds"] = [_fields_of(b, LATENCY_BOUND_KEYS) for b in topology.latency_bounds]
    loop = _fields_of(topology.loop, LOOP_KEYS)
    if loop:
        document["loop"] = loop
    try:
        return yaml.safe_dump(
            document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110
        )
    except yaml.representer.RepresenterError as error:
        raise ConfigurationError(f"a parameter cannot be written to a topology file: {error}") from None


def _units_to_write(topology: Topology) -> tuple[Unit, ...]:
    """The units without those a reader adds by itself, where leaving them out keeps the order."""
    written = [unit for unit in topology.units if unit != Unit(unit.name, (unit.name,))]
    same = replace(topology, units=tuple(written)).units == topology.units
    return tuple(written) if same else topology.units


def _default(kind: type[Any], attribute: str) -> Any:
    """The model's default of an attribute; MISSING where it must be given."""
    found = next(field for field in fields(kind) if field.name == attribute)
    return found.default if found.default_factory is MISSING else found.default_factory()


def _fields_of(thing: Any, keys: Sequence[Key]) -> dict[str, Any]:
    """The keys of a thing whose values differ from the model's defaults."""
    return {
        key.name: _value_written(getattr(thing, key.attribute), key.form)
        for key in keys
        if getattr(thing, key.attribute) != _default(type(thing), key.attribute)
    }


def _unit_fields(unit: Unit) -> dict[str, Any]:
    written = _fields_of(unit, UNIT_KEYS)
    written.pop("initial_instances", None)
    if unit.initial_instances != max(1, unit.min_instances):
        written["initial_instances"] = unit.initial_instances
    return written


def _site_fields(site: Site) -> dict[str, Any]:
    written = _fields_of(site, SITE_KEYS)
    if "flavours" in written:
        written["flavours"] = {flavour.name: _flavour_fields(flavour) for flavour in site.flavours}
    return written


def _flavour_fields(flavour: HostFlavour) -> dict[str, Any]:
    written: dict[str, Any] = {
        "cores": flavour.cores,
        "memory": memory_text(flavour.memory_mib),
        "price": _price_written(flavour),
    }
    if flavour.max_hosts is not None:
        written["max_hosts"] = flavour.max_hosts
    if flavour.type is not None:
        written["type"] = flavour.type
    if flavour.spot:
        written["spot"] = True
    return written


def _price_written(flavour: HostFlavour) -> str:
    if flavour.unread:
        return LISTED_PRICE
    return f"{LISTED_PRICE} " * flavour.listed + f"{flavour.price_per_btu}/BTU"


def _value_written(value: Any, form: Form) -> Any:
    """A model's value as the file writes it."""
    if value is None:
        return None
    if form is DURATION:
        return duration_text(value)
    if form is MEMORY:
        return memory_text(value)
    if form is AMOUNT:
        return str(value)
    if form is DISTANCES:
        return {site: duration_text(distance_s) for site, distance_s in value.items()}
    if form is BLACKOUT:
        return [f"{_clock(start)}-{_clock(end)}" for start, end in value]
    if isinstance(value, Service):
        return _fields_of(value, SERVICE_KEYS)
    if isinstance(value, Choice):
        if not value.parameters:
            return value.name
        return {"name": value.name, **_written(dict(value.parameters))}
    return _written(value)


def _written(value: Any) -> Any:
    """Plain data that YAML can hold: tuples become lists, amounts text."""
    if isinstance(value, Mapping):
        return {str(key): _written(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_written(item) for item in value]
    return str(value) if isinstance(value, Decimal) else value


def _clock(hour: float) -> str:
    minutes = round(hour * 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def duration_text(seconds: float) -> str:
    """A duration as a file writes it, in the unit that makes it short; reading it gives the same number."""
    if seconds == 0:
        return "0 s"
    texts = [
        f"{seconds / factor:.12g} {unit}"
        for unit, factor in (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))
    ]
    exact = [text for text in texts if "e" not in text and _read_s(text) == seconds]
    short = [text for text in exact if "." not in text]
    return (short or exact or [f"{seconds!r} s"])[0]


def _read_s(text: str) -> float | None:
    """The duration that a text is read as; None where rounding made it too long to be read."""
    try:
        return quantities.duration_s(text)
    except QuantityError:
        return None


def memory_text(mib: int) -> str:
    """An amount of memory as a file writes it."""
    return f"{mib // 1024} GiB" if mib and mib % 1024 == 0 else f"{mib} MiB"
