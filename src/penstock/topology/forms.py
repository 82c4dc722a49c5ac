"""How single values are written in a topology file: durations, memory, names, choices and so on.

Each form is a way to write a value in words, for the reference, and in code, for the reader. Numbers are
read from their text, as `penstock.quantities` does it, not from what YAML would make of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from penstock import quantities
from penstock.errors import QuantityError
from penstock.topology.findings import Path
from penstock.topology.model import Choice
from penstock.topology.reading import REFUSED, Form, Reader, RefusedError, is_nothing, scalar_text, shown_node

LISTED_PRICE = "list"
"""Stands for a price by the provider's own list; what it was when last read may follow."""


def _quantity(words: str, parse: Callable[[object], Any], expected: str) -> Form:
    """A form read by penstock.quantities."""

    def read(reader: Reader, node: Node, path: Path) -> Any:
        text = scalar_text(reader, node, path, expected)
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
    text = scalar_text(reader, node, path, "a whole number")
    if not re.fullmatch(r"[-+]?\d{1,15}", text):
        raise reader.refuse(node, path, "wrong-type", f"expected a whole number, got {text!r}")
    return int(text)


def _read_whole_or_none(reader: Reader, node: Node, path: Path) -> int | None:
    return None if is_nothing(node) or node.value == "none" else _read_whole(reader, node, path)


def _read_flag(reader: Reader, node: Node, path: Path) -> bool:
    text = scalar_text(reader, node, path, "true or false")
    if node.tag != "tag:yaml.org,2002:bool":
        raise reader.refuse(node, path, "wrong-type", f"expected true or false, got {text!r}")
    return text.lower() in ("true", "yes", "on")


def _read_text(reader: Reader, node: Node, path: Path) -> str:
    text = scalar_text(reader, node, path, "text")
    if not text.strip():
        raise reader.refuse(node, path, "wrong-type", "expected text, got none")
    return text


def _read_names(reader: Reader, node: Node, path: Path) -> tuple[str, ...]:
    return reader.items(node, path, TEXT, "a name or a list of names")


def plain_value(reader: Reader, node: Node, path: Path) -> Any:
    """Any value as plain Python: numbers, truth values, text, tuples, dicts."""
    if isinstance(node, MappingNode):
        found = {}
        for key, _, value_node in reader.mapping(node, path, "a mapping"):
            value = reader.value(ANYTHING, value_node, (*path, key))
            if value is not REFUSED:
                found[key] = value
        return found
    if isinstance(node, SequenceNode):
        return reader.items(node, path, ANYTHING, "a list")
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    if kind not in ("null", "bool", "int", "float"):
        return str(node.value)
    try:
        return _CONSTRUCTOR.construct_object(node)
    except (ValueError, LookupError, ArithmeticError, yaml.YAMLError):
        message = f"cannot read {shown_node(node)} as a number; put it into quotes where text is meant"
        raise reader.refuse(node, path, "wrong-type", message) from None


_CONSTRUCTOR = yaml.constructor.SafeConstructor()


def _read_parameter(reader: Reader, node: Node, path: Path) -> Any:
    """A parameter; where it is text and its name ends in a unit, a quantity such as "5 min" is meant."""
    value = plain_value(reader, node, path)
    parse = quantities.reader_of(path[-1])
    try:
        if isinstance(value, tuple) and parse is not None:
            return tuple(parse(item) if isinstance(item, str) else item for item in value)
        return parse(value) if parse is not None and isinstance(value, str) else value
    except QuantityError as error:
        raise reader.refuse(node, path, "wrong-quantity", str(error)) from None


def named(node: Node, reader: Reader, path: Path, key: str) -> tuple[str, dict[str, Any]]:
    """A name with parameters: `threshold`, or `{name: threshold, up_queue: 50}`."""
    if isinstance(node, ScalarNode):
        return _read_text(reader, node, path), {}
    expected = f"a name, or a mapping with {key} and parameters"
    name: str | None = None
    parameters: dict[str, Any] = {}
    for parameter, _, value_node in reader.mapping(node, path, expected):
        if parameter == key:
            found = reader.value(TEXT, value_node, (*path, key))
            if found is REFUSED:
                raise RefusedError
            name = found
        else:
            value = reader.value(PARAMETER, value_node, (*path, parameter))
            if value is not REFUSED:
                parameters[parameter] = value
    if name is None:
        raise reader.refuse(node, path, "missing", f"expected {expected}, got no {key}")
    return name, parameters


def _read_choice(reader: Reader, node: Node, path: Path) -> Choice:
    name, parameters = named(node, reader, path, "name")
    return Choice(name, parameters)


def _read_workload(reader: Reader, node: Node, path: Path) -> Choice:
    """A workload; the path of a trace is relative to the topology file."""
    name, parameters = named(node, reader, path, "name")
    trace = parameters.get("path")
    if isinstance(trace, str) and reader.folder is not None:
        parameters["path"] = str(reader.folder / trace)
    return Choice(name, parameters)


def _read_distances(reader: Reader, node: Node, path: Path) -> dict[str, float]:
    found = {}
    for name, _, value_node in reader.mapping(node, path, "durations by site, such as {edge: 20 ms}"):
        value = reader.value(DURATION, value_node, (*path, name))
        if value is not REFUSED:
            found[name] = value
    return found


def _read_cluster(reader: Reader, node: Node, path: Path) -> dict[str, Any]:
    """Parameters of a cluster manager; the paths of files and folders are relative to the topology file."""
    found = {}
    for name, _, value_node in reader.mapping(node, path, "parameters by name, such as {queue: streams}"):
        value = reader.value(PARAMETER, value_node, (*path, name))
        if value is REFUSED:
            continue
        if isinstance(value, str) and name.endswith(("_file", "_folder")) and reader.folder is not None:
            value = str(reader.folder / value)
        found[name] = value
    return found


def _read_settings(reader: Reader, node: Node, path: Path) -> dict[str, str]:
    found = {}
    for name, _, value_node in reader.mapping(node, path, "values by setting, such as {spark.ui.port: 0}"):
        at = (*path, name)
        if not name.startswith("spark."):
            reader.refuse(value_node, at, "wrong-setting", f'expected a setting "spark.…", got {name!r}')
            continue
        value = reader.value(TEXT, value_node, at)
        if value is not REFUSED:
            found[name] = value
    return found


_HOURS = re.compile(r"^\s*(\d{1,2})(?::([0-5]\d))?\s*-\s*(\d{1,2})(?::([0-5]\d))?\s*$")


def _read_hours(reader: Reader, node: Node, path: Path) -> tuple[float, float]:
    expected = 'hours of the day such as "22:00-06:00"'
    text = scalar_text(reader, node, path, expected)
    match = _HOURS.match(text)
    if match is None:
        raise reader.refuse(node, path, "wrong-quantity", f"expected {expected}, got {text!r}")
    start, start_minutes, end, end_minutes = (int(part or 0) for part in match.groups())
    return start + start_minutes / 60, end + end_minutes / 60


def _read_blackout(reader: Reader, node: Node, path: Path) -> tuple[tuple[float, float], ...]:
    return reader.items(node, path, Form("hours", _read_hours), 'hours of the day such as "22:00-06:00"')


def _read_price(reader: Reader, node: Node, path: Path) -> tuple[quantities.Price | None, bool]:
    """A price, None where it is yet to be read; and whether it is by the provider's list."""
    text = node.value if isinstance(node, ScalarNode) else ""
    if text == LISTED_PRICE:
        return None, True
    listed = text.startswith(f"{LISTED_PRICE} ")
    if listed:
        known = text.removeprefix(LISTED_PRICE).strip()
        node = ScalarNode(node.tag, known, node.start_mark, node.end_mark)
    return WRITTEN_PRICE.read(reader, node, path), listed


DURATION = _quantity(
    'a duration: "250 ms", "5 s", "10 min", "1 h"', quantities.duration_s, 'a duration such as "5 s"'
)
MEMORY = _quantity('memory: "512 MiB", "2 GiB"', quantities.memory_mib, 'an amount of memory such as "2 GiB"')
RATIO = _quantity('a ratio: 0.5, "50 %"', quantities.ratio, 'a ratio such as 0.5 or "50 %"')
NUMBER = _quantity("a number: 2, 0.5", _plain_number, "a number such as 2 or 0.5")
WRITTEN_PRICE = _quantity("a price", quantities.price, 'a price such as "0.10 USD/h"')
PRICE = Form(
    'a price: "0.10 USD/h", 6 for each billing time unit, or `list`: the provider\'s own', _read_price
)
AMOUNT = _quantity('an amount: 0.0001, "0.0001 USD"', _amount, "an amount of money such as 0.0001")
WHOLE = Form("a whole number", _read_whole)
WHOLE_OR_NONE = Form("a whole number, or none", _read_whole_or_none)
FLAG = Form("true or false", _read_flag)
TEXT = Form("text", _read_text)
NAMES = Form("a name or a list of names", _read_names)
ANYTHING = Form("anything", plain_value)
PARAMETER = Form("a parameter", _read_parameter)
CHOICE = Form("a name, or {name: …, parameter: …}", _read_choice)
WORKLOAD = Form("a name, or {name: …, parameter: …}", _read_workload)
DISTANCES = Form("durations by site: {edge: 20 ms}", _read_distances)
BLACKOUT = Form('a list of hours: ["22:00-06:00"]', _read_blackout)
CLUSTER = Form("parameters by name: {queue: streams}", _read_cluster)
SETTINGS = Form("values by setting: {spark.locality.wait: 0s}", _read_settings)
