"""The grammar of topology files: every key, how it is written, and where it goes in the model.

The reader, its error messages and docs/topology-file.md all follow the tables at the end. Reading goes on
after a mistake, with the default in its place, so that one run tells every mistake; it works on YAML's
nodes, not on its dicts, because only nodes know their line and show a doubled name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path as FilePath
from typing import Any, TypeAlias

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from penstock import quantities
from penstock.choosing import nearest
from penstock.errors import Mistake, QuantityError
from penstock.topology.model import (
    Channel,
    Choice,
    HostFlavour,
    LatencyBound,
    LoopSettings,
    Operator,
    Service,
    Sink,
    Site,
    Source,
)
from penstock.topology.validation import Path


class RefusedError(Exception):
    """A value could not be read; its mistake is noted and the default takes its place."""


Read: TypeAlias = Callable[["Reader", Node, Path], Any]


@dataclass(frozen=True, slots=True)
class Form:
    """How a value is written, in words and in code."""

    words: str
    read: Read


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the file: its name, the model's attribute it fills, how it is written, what it means."""

    name: str
    attribute: str
    form: Form
    meaning: str


class Reader:
    """One reading of one file: its mistakes so far, and the line of everything in it."""

    def __init__(self, file: str | None, folder: FilePath | None) -> None:
        self.file = file
        self.folder = folder
        self.mistakes: list[Mistake] = []
        self.lines: dict[Path, int] = {}
        self.refused: set[Path] = set()

    def refuse(self, node: Node, path: Path, code: str, message: str) -> RefusedError:
        """Note that a value is unreadable; the caller raises what comes back where it cannot go on."""
        self.note(node, path, code, message)
        self.refused.add(path)
        return RefusedError()

    def note(self, node: Node, path: Path, code: str, message: str) -> None:
        """Note a mistake at a node."""
        what = _place_in_words(path)
        self.mistakes.append(
            Mistake(f"{what}: {message}" if what else message, self.file, line_of(node), code)
        )

    def mapping(self, node: Node, path: Path, expected: str) -> list[tuple[str, Node, Node]]:
        """The (key, key node, value node) of a mapping, doubled keys noted and dropped; empty for nothing."""
        if is_nothing(node):
            return []
        if not isinstance(node, MappingNode):
            raise self.refuse(node, path, "wrong-type", f"expected {expected}, got {_shown(node)}")
        found: dict[str, tuple[str, Node, Node]] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self.note(key_node, path, "wrong-type", f"expected a name, got {_shown(key_node)}")
                continue
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged += value_node.value if isinstance(value_node, SequenceNode) else [value_node]
                continue
            key = str(key_node.value)
            if key in found:
                first = line_of(found[key][1])
                again = f" (first in line {first})" if first is not None else ""
                self.note(
                    key_node,
                    (*path, key),
                    "doubled-name",
                    f'"{key}" is there twice{again}; give each a name of its own or remove one',
                )
                continue
            found[key] = (key, key_node, value_node)
            line = line_of(key_node)
            if line is not None:
                self.lines[(*path, key)] = line
        for other in merged:
            for key, key_node, value_node in self.mapping(other, path, "a mapping to merge"):
                found.setdefault(key, (key, key_node, value_node))
        return list(found.values())

    def keys(self, node: Node, path: Path, keys: Sequence[Key], expected: str) -> dict[str, Any]:
        """The model's attributes given in a mapping; unknown keys and unreadable values are noted."""
        known = {key.name: key for key in keys}
        found: dict[str, Any] = {}
        for name, key_node, value_node in self.mapping(node, path, expected):
            key = known.get(name)
            if key is None:
                self.note(key_node, path, "unknown-key", f'unknown key "{name}"{_meant(name, known)}')
                continue
            value = self.value(key.form, value_node, (*path, name))
            if value is not _REFUSED:
                found[key.attribute] = value
        return found

    def value(self, form: Form, node: Node, path: Path) -> Any:
        """A value in its form, or _REFUSED with its mistake noted."""
        line = line_of(node)
        if line is not None:
            self.lines.setdefault(path, line)
        try:
            return form.read(self, node, path)
        except RefusedError:
            return _REFUSED

    def items(self, node: Node, path: Path, form: Form, expected: str) -> tuple[Any, ...]:
        """The values of a list; a single value counts as a list of one."""
        nodes = node.value if isinstance(node, SequenceNode) else [node]
        if isinstance(node, MappingNode) or is_nothing(node):
            raise self.refuse(node, path, "wrong-type", f"expected {expected}, got {_shown(node)}")
        values = [self.value(form, item, (*path, str(i))) for i, item in enumerate(nodes)]
        if any(value is _REFUSED for value in values):
            self.refused.add(path)
        return tuple(value for value in values if value is not _REFUSED)


_REFUSED = object()


def _meant(name: str, known: Mapping[str, Key]) -> str:
    """A hint at the key that was probably meant, or at the section the key belongs to."""
    hint = nearest(name, known)
    elsewhere = [section for section, keys in GRAMMAR.items() if name in {key.name for key in keys}]
    if "did you mean" in hint or not elsewhere:
        return hint
    return f"; it belongs to {' or '.join(section or 'the top level' for section in elsewhere)}"


def line_of(node: Node) -> int | None:
    """The node's line, from 1; None where it does not come from a file."""
    return None if node.start_mark is None else int(node.start_mark.line) + 1


def is_nothing(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _shown(node: Node) -> str:
    """A node as a message shows it."""
    if is_nothing(node):
        return "nothing"
    if isinstance(node, MappingNode):
        return "a mapping (key: value)"
    if isinstance(node, SequenceNode):
        return "a list"
    text = str(node.value)
    return repr(text if len(text) <= 60 else text[:57] + "...")


_SINGULAR = {
    "sources": "source", "operators": "operator", "sinks": "sink", "units": "unit", "sites": "site",
    "channels": "channel", "latency_bounds": "latency bound", "flavours": "flavour",
}  # fmt: skip


def _place_in_words(path: Path) -> str:
    """A path as a message says it: `operator "parse", slo`."""
    words: list[str] = []
    rest = list(path)
    while rest:
        part = rest.pop(0)
        if part in _SINGULAR and rest and not (words and part in ("operators", "sites")):
            name = rest.pop(0)
            shown = f"{int(name) + 1}" if part == "latency_bounds" else f'"{name}"'
            words.append(f"{_SINGULAR[part]} {shown}")
        elif not part.isdecimal():
            words.append(part)
    return ", ".join(words)


# Forms: how single values are written.


def _scalar(reader: Reader, node: Node, path: Path, expected: str) -> str:
    if not isinstance(node, ScalarNode) or is_nothing(node):
        raise reader.refuse(node, path, "wrong-type", f"expected {expected}, got {_shown(node)}")
    return str(node.value)


def _quantity(words: str, parse: Callable[[object], Any], expected: str) -> Form:
    """A form read by penstock.quantities."""

    def read(reader: Reader, node: Node, path: Path) -> Any:
        text = _scalar(reader, node, path, expected)
        try:
            found = parse(text)
        except QuantityError as error:
            raise reader.refuse(node, path, "wrong-quantity", str(error)) from None
        except OverflowError:
            raise reader.refuse(
                node, path, "wrong-quantity", f"{text!r} is too big; expected {expected}"
            ) from None
        amount = found.amount if isinstance(found, quantities.Price) else found
        if not math.isfinite(amount):
            raise reader.refuse(node, path, "wrong-quantity", f"{text!r} is not finite; expected {expected}")
        return found

    return Form(words, read)


def _plain_number(text: object) -> float:
    try:
        return float(str(text))
    except ValueError:
        raise QuantityError(f"expected a number such as 2 or 0.5, got {text!r}") from None


def _amount(text: object) -> Decimal:
    found = quantities.price(text)
    if found.per_s is not None:
        raise QuantityError(f'expected an amount of money such as "0.0001" or "0.0001 USD", got {text!r}')
    return found.amount


def _read_whole(reader: Reader, node: Node, path: Path) -> int:
    text = _scalar(reader, node, path, "a whole number")
    if not re.fullmatch(r"[-+]?\d{1,15}", text):
        raise reader.refuse(node, path, "wrong-type", f"expected a whole number, got {text!r}")
    return int(text)


def _read_whole_or_none(reader: Reader, node: Node, path: Path) -> int | None:
    return None if is_nothing(node) or node.value == "none" else _read_whole(reader, node, path)


def _read_flag(reader: Reader, node: Node, path: Path) -> bool:
    text = _scalar(reader, node, path, "true or false")
    if node.tag != "tag:yaml.org,2002:bool":
        raise reader.refuse(node, path, "wrong-type", f"expected true or false, got {text!r}")
    return text.lower() in ("true", "yes", "on")


def _read_text(reader: Reader, node: Node, path: Path) -> str:
    text = _scalar(reader, node, path, "text")
    if not text.strip():
        raise reader.refuse(node, path, "wrong-type", "expected text, got none")
    return text


def _read_names(reader: Reader, node: Node, path: Path) -> tuple[str, ...]:
    return reader.items(node, path, TEXT, "a name or a list of names")


def _plain(reader: Reader, node: Node, path: Path) -> Any:
    """Any value as plain Python: numbers, truth values, text, tuples, dicts."""
    if isinstance(node, MappingNode):
        found = {}
        for key, _, value_node in reader.mapping(node, path, "a mapping"):
            value = reader.value(ANYTHING, value_node, (*path, key))
            if value is not _REFUSED:
                found[key] = value
        return found
    if isinstance(node, SequenceNode):
        return reader.items(node, path, ANYTHING, "a list")
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    if kind not in ("null", "bool", "int", "float"):
        return str(node.value)
    try:
        return _CONSTRUCTOR.construct_object(node)
    except (ValueError, OverflowError, yaml.YAMLError):
        return str(node.value)


_CONSTRUCTOR = yaml.constructor.SafeConstructor()


def _read_parameter(reader: Reader, node: Node, path: Path) -> Any:
    """A parameter; where it is text and its name ends in a unit, a quantity such as "5 min" is meant."""
    value = _plain(reader, node, path)
    parse = _parser_by_name(path[-1])
    try:
        if isinstance(value, tuple) and parse is not None:
            return tuple(parse(item) if isinstance(item, str) else item for item in value)
        return parse(value) if parse is not None and isinstance(value, str) else value
    except QuantityError as error:
        raise reader.refuse(node, path, "wrong-quantity", str(error)) from None


def _parser_by_name(name: str) -> Callable[[object], float] | None:
    """How a quantity of this name is read: the end of the name says its unit."""
    if name.endswith("_per_s"):
        return quantities.rate_per_s
    if name.endswith("_s"):
        return quantities.duration_s
    if name.endswith("_mib"):
        return quantities.memory_mib
    return quantities.ratio if name.endswith("_ratio") else None


def _named(node: Node, reader: Reader, path: Path, key: str) -> tuple[str, dict[str, Any]]:
    """A name with parameters: `threshold`, or `{name: threshold, up_queue: 50}`."""
    if isinstance(node, ScalarNode):
        return _read_text(reader, node, path), {}
    expected = f"a name, or a mapping with {key} and parameters"
    name: str | None = None
    parameters: dict[str, Any] = {}
    for parameter, _, value_node in reader.mapping(node, path, expected):
        if parameter == key:
            found = reader.value(TEXT, value_node, (*path, key))
            if found is _REFUSED:
                raise RefusedError
            name = found
        else:
            value = reader.value(PARAMETER, value_node, (*path, parameter))
            if value is not _REFUSED:
                parameters[parameter] = value
    if name is None:
        raise reader.refuse(node, path, "missing", f"expected {expected}, got no {key}")
    return name, parameters


def _read_choice(reader: Reader, node: Node, path: Path) -> Choice:
    name, parameters = _named(node, reader, path, "name")
    return Choice(name, parameters)


def _read_workload(reader: Reader, node: Node, path: Path) -> Choice:
    """A workload; the path of a trace is relative to the topology file."""
    name, parameters = _named(node, reader, path, "name")
    trace = parameters.get("path")
    if isinstance(trace, str) and reader.folder is not None:
        parameters["path"] = str(reader.folder / trace)
    return Choice(name, parameters)


def _read_service(reader: Reader, node: Node, path: Path) -> Service:
    if not isinstance(node, MappingNode):
        return Service(DURATION.read(reader, node, path))
    found = reader.keys(node, path, SERVICE_KEYS, "a duration, or a mapping with mean, cv and shape")
    if "mean_s" not in found:
        if (*path, "mean") not in reader.refused:
            reader.refuse(node, path, "missing", "expected the key mean, the mean service time")
        raise RefusedError
    return Service(**found)


def _read_flavours(reader: Reader, node: Node, path: Path) -> tuple[dict[str, Any], ...]:
    """Flavours with their prices as written; the site turns these into prices per billing time unit."""
    return tuple(
        {"name": name, **found}
        for name, _, found in _section(reader, node, path, FLAVOUR_KEYS, "flavours by name")
    )


def _read_distances(reader: Reader, node: Node, path: Path) -> dict[str, float]:
    found = {}
    for name, _, value_node in reader.mapping(node, path, "durations by site, such as {edge: 20 ms}"):
        value = reader.value(DURATION, value_node, (*path, name))
        if value is not _REFUSED:
            found[name] = value
    return found


_HOURS = re.compile(r"^\s*(\d{1,2})(?::([0-5]\d))?\s*-\s*(\d{1,2})(?::([0-5]\d))?\s*$")


def _read_hours(reader: Reader, node: Node, path: Path) -> tuple[float, float]:
    expected = 'hours of the day such as "22:00-06:00"'
    text = _scalar(reader, node, path, expected)
    match = _HOURS.match(text)
    if match is None:
        raise reader.refuse(node, path, "wrong-quantity", f"expected {expected}, got {text!r}")
    start, start_minutes, end, end_minutes = (int(part or 0) for part in match.groups())
    return start + start_minutes / 60, end + end_minutes / 60


def _read_blackout(reader: Reader, node: Node, path: Path) -> tuple[tuple[float, float], ...]:
    return reader.items(node, path, Form("hours", _read_hours), 'hours of the day such as "22:00-06:00"')


DURATION = _quantity(
    'a duration: "250 ms", "5 s", "10 min", "1 h"', quantities.duration_s, 'a duration such as "5 s"'
)
MEMORY = _quantity('memory: "512 MiB", "2 GiB"', quantities.memory_mib, 'an amount of memory such as "2 GiB"')
RATIO = _quantity('a ratio: 0.5, "50 %"', quantities.ratio, 'a ratio such as 0.5 or "50 %"')
NUMBER = _quantity("a number: 2, 0.5", _plain_number, "a number such as 2 or 0.5")
PRICE = _quantity(
    'a price: "0.10 USD/h", or 6 for each billing time unit', quantities.price, 'a price such as "0.10 USD/h"'
)
AMOUNT = _quantity('an amount: 0.0001, "0.0001 USD"', _amount, "an amount of money such as 0.0001")
WHOLE = Form("a whole number", _read_whole)
WHOLE_OR_NONE = Form("a whole number, or none", _read_whole_or_none)
FLAG = Form("true or false", _read_flag)
TEXT = Form("text", _read_text)
NAMES = Form("a name or a list of names", _read_names)
ANYTHING = Form("anything", _plain)
PARAMETER = Form("a parameter", _read_parameter)
CHOICE = Form("a name, or {name: …, parameter: …}", _read_choice)
WORKLOAD = Form("a name, or {name: …, parameter: …}", _read_workload)
SERVICE = Form("a duration (the mean), or {mean: …, cv: …, shape: …}", _read_service)
FLAVOURS = Form("flavours by name (see below)", _read_flavours)
DISTANCES = Form("durations by site: {edge: 20 ms}", _read_distances)
BLACKOUT = Form('a list of hours: ["22:00-06:00"]', _read_blackout)


# The grammar: every key of every section.

SOURCE_KEYS = (
    Key(
        "function",
        "function",
        TEXT,
        "`module:function` taking a SparkSession and giving a streaming DataFrame",
    ),
    Key("workload", "workload", WORKLOAD, "the arrival pattern of a simulated run (`penstock workloads`)"),
    Key("schema", "schema", TEXT, "the records' columns as a Spark DDL string"),
    Key("share", "share", NUMBER, "records emitted for every record of the workload"),
)
OPERATOR_KEYS = (
    Key("inputs", "inputs", NAMES, "the sources and operators whose records it takes; required"),
    Key("function", "function", TEXT, "`module:function` taking a DataFrame for each input and giving one"),
    Key("slo", "slo_s", DURATION, "the longest acceptable processing duration of one record"),
    Key("cores", "cores", NUMBER, "cores it needs for one record at a time"),
    Key("memory", "memory_mib", MEMORY, "memory it needs in each instance"),
    Key("stateful", "stateful", FLAG, "whether it keeps state"),
    Key("ratio", "ratio", RATIO, "records emitted towards each successor for every record consumed"),
    Key("service", "service", SERVICE, "service time for the simulator; by default its mean is the SLO"),
    Key("schema", "schema", TEXT, "columns of the outgoing records; needed where an edge crosses units"),
    Key(
        "on_error",
        "on_error",
        TEXT,
        "what happens to a record the function fails on: `stop`, `skip` or `retry`",
    ),
)
SERVICE_KEYS = (
    Key("mean", "mean_s", DURATION, "mean time for one record; required"),
    Key("cv", "cv", NUMBER, "coefficient of variation"),
    Key("shape", "shape", TEXT, "`lognormal`, `exponential` or `deterministic`"),
)
SINK_KEYS = (
    Key("inputs", "inputs", NAMES, "the sources and operators whose records it takes; required"),
    Key(
        "function",
        "function",
        TEXT,
        "`module:function` taking a batch; without one, records are counted only",
    ),
)
UNIT_KEYS = (
    Key("operators", "operators", NAMES, "the operators deployed and scaled together; required"),
    Key("sites", "sites", NAMES, "sites it may run at, the preferred first; none means every site"),
    Key("policy", "policy", CHOICE, "how it is scaled (`penstock policies`)"),
    Key("filter", "filter", CHOICE, "how its measurements are smoothed"),
    Key("min_instances", "min_instances", WHOLE, "never fewer instances than this"),
    Key("max_instances", "max_instances", WHOLE, "never more instances than this"),
    Key(
        "initial_instances",
        "initial_instances",
        WHOLE,
        "instances at the start; by default min_instances, at least 1",
    ),
    Key("slots", "slots", WHOLE, "parallel places inside one instance"),
    Key("channel", "channel", TEXT, "the channel its outgoing edges cross; by default the first"),
)
SITE_KEYS = (
    Key("provider", "provider", CHOICE, "who gives the hosts"),
    Key("btu", "btu_s", DURATION, "the billing time unit; every started one is paid whole"),
    Key("flavours", "flavours", FLAVOURS, "the kinds of host it leases out"),
    Key("max_hosts", "max_hosts", WHOLE, "most hosts at a time"),
    Key("currency", "currency", TEXT, "the currency of its prices; by default the one they are written in"),
    Key("distance", "distance_s", DISTANCES, "one-way delay to other sites"),
    Key("master", "master", TEXT, "the Spark master's URL, where the site is an existing cluster"),
)
FLAVOUR_KEYS = (
    Key("cores", "cores", NUMBER, "cores of one host; required"),
    Key("memory", "memory_mib", MEMORY, "memory of one host; required"),
    Key("price", "price", PRICE, "what one host costs; required"),
    Key("max_hosts", "max_hosts", WHOLE_OR_NONE, "most hosts of this flavour at a time"),
)
LATENCY_BOUND_KEYS = (
    Key("bound", "bound_s", DURATION, "the longest acceptable end-to-end latency; required"),
    Key("source", "source", TEXT, "where the paths begin; by default at every source"),
    Key("sink", "sink", TEXT, "where the paths end; by default at every sink"),
)
LOOP_KEYS = (
    Key("monitoring", "monitoring_s", DURATION, "time between two observations"),
    Key("provisioning", "provisioning_s", DURATION, "time between two decisions"),
    Key("cooldown", "cooldown_s", DURATION, "least time between two scalings of one unit"),
    Key(
        "largest_step",
        "largest_step",
        WHOLE_OR_NONE,
        "most instances started or stopped for a unit in one tick",
    ),
    Key("blackout", "blackout", BLACKOUT, "hours of the day in which nothing is scaled"),
    Key(
        "hold_backlog",
        "hold_backlog",
        WHOLE_OR_NONE,
        "no unit shrinks while more records than this wait for it",
    ),
    Key("advisory", "advisory", FLAG, "decide and record, but do nothing"),
    Key("penalty", "penalty", AMOUNT, "cost of one record that misses its SLO"),
)
CHANNEL_MEANING = "`files` (the default) or `kafka`; every other key is an option of that kind"


Found: TypeAlias = tuple[str, Path, dict[str, Any]]


def _section(reader: Reader, node: Node, path: Path, keys: Sequence[Key], expected: str) -> list[Found]:
    """Named things: for each its name, its path and the attributes given."""
    found: list[Found] = []
    for name, _, value_node in reader.mapping(node, path, f"{expected}, as in a mapping (name: fields)"):
        at = (*path, name)
        try:
            found.append((name, at, reader.keys(value_node, at, keys, "a mapping (key: value)")))
        except RefusedError:
            found.append((name, at, {}))
    return found


def _read_sources(reader: Reader, node: Node, path: Path) -> tuple[Source, ...]:
    return tuple(
        Source(name, **found)
        for name, _, found in _section(reader, node, path, SOURCE_KEYS, "sources by name")
    )


def _read_operators(reader: Reader, node: Node, path: Path) -> tuple[Operator, ...]:
    return tuple(
        Operator(name, **{"inputs": (), **found})
        for name, _, found in _section(reader, node, path, OPERATOR_KEYS, "operators by name")
    )


def _read_sinks(reader: Reader, node: Node, path: Path) -> tuple[Sink, ...]:
    return tuple(
        Sink(name, **{"inputs": (), **found})
        for name, _, found in _section(reader, node, path, SINK_KEYS, "sinks by name")
    )


def _read_units(reader: Reader, node: Node, path: Path) -> tuple[dict[str, Any], ...]:
    """Units as written; the file's own policy and filter are added afterwards."""
    return tuple(
        {"name": name, "operators": (), **found}
        for name, _, found in _section(reader, node, path, UNIT_KEYS, "units by name")
    )


def _read_sites(reader: Reader, node: Node, path: Path) -> tuple[Site, ...]:
    sites = []
    for name, at, found in _section(reader, node, path, SITE_KEYS, "sites by name"):
        written = found.pop("flavours", None)
        if written is not None:
            btu_s = found.get("btu_s", Site("").btu_s)
            flavours, currencies = _flavours(reader, written, (*at, "flavours"), btu_s)
            if flavours or not written:
                found["flavours"] = flavours
            if "currency" not in found and currencies:
                found["currency"] = currencies[0]
            for currency in currencies:
                if currency != found["currency"]:
                    reader.mistakes.append(
                        Mistake(
                            f'site "{name}": prices in {currency} and {found["currency"]}; expected one',
                            reader.file,
                            reader.lines.get((*at, "flavours")),
                            "mixed-currencies",
                        )
                    )
        sites.append(Site(name, **found))
    return tuple(sites)


def _flavours(
    reader: Reader, written: Sequence[Mapping[str, Any]], path: Path, btu_s: float
) -> tuple[tuple[HostFlavour, ...], list[str]]:
    """Flavours with their prices for one billing time unit, and the currencies used."""
    flavours: list[HostFlavour] = []
    currencies: list[str] = []
    for found in written:
        at = (*path, found["name"])
        missing = [
            key.name
            for key in FLAVOUR_KEYS
            if key.meaning.endswith("required") and key.attribute not in found
        ]
        for name in missing:
            if (*at, name) not in reader.refused and at not in reader.refused:
                reader.mistakes.append(
                    Mistake(
                        f'{_place_in_words(at)}: expected the key "{name}"',
                        reader.file,
                        reader.lines.get(at),
                        "missing",
                    )
                )
        if missing:
            continue
        price: quantities.Price = found["price"]
        if price.currency and price.currency not in currencies:
            currencies.append(price.currency)
        flavours.append(
            HostFlavour(
                found["name"],
                found["cores"],
                found["memory_mib"],
                price.for_span(btu_s),
                found.get("max_hosts"),
            )
        )
    return tuple(flavours), currencies


def _read_channels(reader: Reader, node: Node, path: Path) -> tuple[Channel, ...]:
    channels = []
    for name, _, value_node in reader.mapping(node, path, "channels by name, as in a mapping (name: fields)"):
        at = (*path, name)
        options: dict[str, Any] = {}
        kind = Channel(name).kind
        try:
            for key, _, option_node in reader.mapping(value_node, at, "a mapping (key: value)"):
                value = reader.value(TEXT if key == "kind" else PARAMETER, option_node, (*at, key))
                if value is _REFUSED:
                    continue
                if key == "kind":
                    kind = value
                else:
                    options[key] = value
        except RefusedError:
            pass
        channels.append(Channel(name, kind, options))
    return tuple(channels)


def _read_latency_bounds(reader: Reader, node: Node, path: Path) -> tuple[LatencyBound, ...]:
    if not isinstance(node, SequenceNode):
        raise reader.refuse(
            node, path, "wrong-type", f"expected a list such as [{{bound: 2 s}}], got {_shown(node)}"
        )
    bounds = []
    for i, item in enumerate(node.value):
        at = (*path, str(i))
        line = line_of(item)
        if line is not None:
            reader.lines[at] = line
        try:
            found = reader.keys(item, at, LATENCY_BOUND_KEYS, "a mapping with bound, source and sink")
        except RefusedError:
            continue
        if "bound_s" in found:
            bounds.append(LatencyBound(**found))
        elif (*at, "bound") not in reader.refused:
            reader.refuse(item, at, "missing", 'expected the key "bound"')
    return tuple(bounds)


def _read_loop(reader: Reader, node: Node, path: Path) -> LoopSettings:
    return LoopSettings(**reader.keys(node, path, LOOP_KEYS, "a mapping (key: value)"))


TOPOLOGY_KEYS = (
    Key("name", "name", TEXT, "the topology's name; by default the file's"),
    Key("sources", "sources", Form("sources by name", _read_sources), "where records enter; required"),
    Key("operators", "operators", Form("operators by name", _read_operators), "the steps; required"),
    Key("sinks", "sinks", Form("sinks by name", _read_sinks), "where results leave"),
    Key(
        "units",
        "units",
        Form("units by name", _read_units),
        "what is deployed together; by default each operator alone",
    ),
    Key("policy", "policy", CHOICE, "the policy of every unit that names none"),
    Key("filter", "filter", CHOICE, "the filter of every unit that names none"),
    Key(
        "sites",
        "sites",
        Form("sites by name", _read_sites),
        "where units may run; by default one site `local`",
    ),
    Key(
        "channels",
        "channels",
        Form("channels by name", _read_channels),
        "streams between units; by default `files`",
    ),
    Key(
        "latency_bounds",
        "latency_bounds",
        Form("a list of bounds", _read_latency_bounds),
        "end-to-end latency bounds of paths",
    ),
    Key("loop", "loop", Form("settings", _read_loop), "the control loop's intervals and guards"),
)

GRAMMAR: Mapping[str, tuple[Key, ...]] = {
    "": TOPOLOGY_KEYS,
    "sources": SOURCE_KEYS,
    "operators": OPERATOR_KEYS,
    "operators, service": SERVICE_KEYS,
    "sinks": SINK_KEYS,
    "units": UNIT_KEYS,
    "sites": SITE_KEYS,
    "sites, flavours": FLAVOUR_KEYS,
    "latency_bounds": LATENCY_BOUND_KEYS,
    "loop": LOOP_KEYS,
}
"""Every key the file may hold, by section; the top level is ""."""
