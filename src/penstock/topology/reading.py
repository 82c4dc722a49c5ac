"""Reads YAML nodes, notes every mistake with its line, and goes on.

It works on nodes, not on dicts, because only nodes know their line and show a doubled name. A value that
cannot be read is noted and left out, so that its default takes its place and the rest is still checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, TypeAlias

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from penstock.choosing import nearest
from penstock.errors import Mistake, TopologyError
from penstock.topology.findings import Path


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


Grammar: TypeAlias = Mapping[str, Sequence[Key]]
"""Every key, by the section it belongs to."""


MOST_VALUES = 100_000
"""Values a file may hold, each counted as often as an alias repeats it."""
MOST_HINTS = 200
DEEPEST = 50
"""Levels of nesting: a topology needs six."""


def refuse_bombs(node: Node, file: str | None) -> None:
    """TopologyError for what would be read without end: aliases that repeat each other, or themselves.

    A file of a few lines can stand for billions of values (each alias ten of the one before). Nodes are
    shared, so the values are counted without visiting them.
    """
    sizes: dict[int, tuple[int, int]] = {}

    def wrong(at: Node, message: str) -> TopologyError:
        return TopologyError([Mistake(message, file, line_of(at), "bad-yaml")])

    def size(at: Node, around: tuple[int, ...]) -> tuple[int, int]:
        """Values in a node, and levels of nesting."""
        if isinstance(at, ScalarNode):
            return 1, 0
        if id(at) in around:
            raise wrong(at, "an alias (*name) refers to what it stands in; expected a value without it")
        if id(at) not in sizes:
            parts = [part for pair in at.value for part in pair] if isinstance(at, MappingNode) else at.value
            inner = [size(part, (*around, id(at))) for part in parts]
            values = 1 + sum(count for count, _ in inner)
            depth = 1 + max((levels for _, levels in inner), default=0)
            if values > MOST_VALUES:
                raise wrong(at, f"more than {MOST_VALUES:,} values, counted with what aliases repeat")
            if depth > DEEPEST:
                raise wrong(at, f"nested deeper than {DEEPEST} levels, counted with what aliases repeat")
            sizes[id(at)] = values, depth
        return sizes[id(at)]

    size(node, ())


_TAG = "tag:yaml.org,2002:"
_KINDS = {
    "null": "nothing", "bool": "true or false", "int": "a whole number", "float": "a number",
    "timestamp": "a date",
}  # fmt: skip
_RESOLVER: Any = yaml.resolver.Resolver()
LONGEST_NUMBER = 1_000
"""Characters of a number: to read one of many costs the square of them."""


def wrong_tag(node: Node) -> str | None:
    """What is wrong with the tag of a node; None where the value is of the kind its tag says.

    Whoever writes no tag has none that is wrong: the tag is then found from the value.
    """
    if not isinstance(node, ScalarNode):
        kinds = ("map", "seq")
        return None if node.tag in [_TAG + kind for kind in kinds] else _no_tags(node)
    kind = node.tag.removeprefix(_TAG)
    if kind in ("str", "merge", "value"):
        return None
    if kind not in _KINDS:
        return _no_tags(node)
    if kind in ("int", "float") and len(node.value) > LONGEST_NUMBER:
        return f"expected {_KINDS[kind]}, got one of {len(node.value):,} characters"
    found = str(_RESOLVER.resolve(ScalarNode, node.value, (True, False))).removeprefix(_TAG)
    if found == kind or (kind, found) == ("float", "int"):
        return None
    return f"expected {_KINDS[kind]} after !!{kind}, got {shown_node(node)}"


def _no_tags(node: Node) -> str:
    tag = node.tag.replace(_TAG, "!!")
    return f"expected a value without the tag {tag if len(tag) <= 60 else tag[:57] + '...'}"


def refuse_tags(node: Node, file: str | None) -> None:
    """TopologyError where a value, or anything in it, is not of the kind its tag says."""
    found, left = {id(node)}, [node]
    while left:
        at = left.pop()
        wrong = wrong_tag(at)
        if wrong is not None:
            raise TopologyError([Mistake(wrong, file, line_of(at), "wrong-type")])
        if isinstance(at, ScalarNode):
            continue
        parts = [part for pair in at.value for part in pair] if isinstance(at, MappingNode) else at.value
        left += [part for part in parts if id(part) not in found]
        found.update(map(id, parts))


class Reader:
    """One reading of one file: its mistakes so far, and the line of everything in it."""

    def __init__(self, grammar: Grammar, file: str | None, folder: FilePath | None) -> None:
        self.grammar = grammar
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
        what = place_in_words(path)
        self.mistakes.append(
            Mistake(f"{what}: {message}" if what else message, self.file, line_of(node), code)
        )

    def mapping(self, node: Node, path: Path, expected: str) -> list[tuple[str, Node, Node]]:
        """The (key, key node, value node) of a mapping, doubled keys noted and dropped; empty for nothing."""
        if is_nothing(node):
            return []
        if not isinstance(node, MappingNode):
            raise self.refuse(node, path, "wrong-type", f"expected {expected}, got {shown_node(node)}")
        found: dict[str, tuple[str, Node, Node]] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self.note(key_node, path, "wrong-type", f"expected a name, got {shown_node(key_node)}")
                continue
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged += value_node.value if isinstance(value_node, SequenceNode) else [value_node]
                continue
            wrong = wrong_tag(key_node)
            if wrong is not None:
                self.note(key_node, path, "wrong-type", wrong)
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
                # A file with hundreds of mistakes is no topology: hints would only take their time.
                hint = _meant(name, known, self.grammar) if len(self.mistakes) < MOST_HINTS else ""
                self.note(key_node, path, "unknown-key", f'unknown key "{name}"{hint}')
                continue
            value = self.value(key.form, value_node, (*path, name))
            if value is not REFUSED:
                found[key.attribute] = value
        return found

    def value(self, form: Form, node: Node, path: Path) -> Any:
        """A value in its form, or REFUSED with its mistake noted."""
        line = line_of(node)
        if line is not None:
            self.lines.setdefault(path, line)
        wrong = wrong_tag(node)
        if wrong is not None:
            self.refuse(node, path, "wrong-type", wrong)
            return REFUSED
        try:
            return form.read(self, node, path)
        except RefusedError:
            return REFUSED

    def items(self, node: Node, path: Path, form: Form, expected: str) -> tuple[Any, ...]:
        """The values of a list; a single value counts as a list of one."""
        nodes = node.value if isinstance(node, SequenceNode) else [node]
        if isinstance(node, MappingNode) or is_nothing(node):
            raise self.refuse(node, path, "wrong-type", f"expected {expected}, got {shown_node(node)}")
        values = [self.value(form, item, (*path, str(i))) for i, item in enumerate(nodes)]
        if any(value is REFUSED for value in values):
            self.refused.add(path)
        return tuple(value for value in values if value is not REFUSED)


REFUSED = object()


def _meant(name: str, known: Mapping[str, Key], grammar: Grammar) -> str:
    """A hint at the key that was probably meant, or at the section the key belongs to."""
    hint = nearest(name, known)
    elsewhere = [section for section, keys in grammar.items() if name in {key.name for key in keys}]
    if "did you mean" in hint or not elsewhere:
        return hint
    return f"; it belongs to {' or '.join(section or 'the top level' for section in elsewhere)}"


def line_of(node: Node) -> int | None:
    """The node's line, from 1; None where it does not come from a file."""
    return None if node.start_mark is None else int(node.start_mark.line) + 1


def is_nothing(node: Node) -> bool:
    """Whether nothing was written, as after `clicks:`."""
    return isinstance(node, ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def shown_node(node: Node) -> str:
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


def place_in_words(path: Path) -> str:
    """A path as a message says it: `operator "parse", slo`."""
    words: list[str] = []
    rest = list(path)
    while rest:
        part = rest.pop(0)
        # Only the first part is a section; deeper down the same word may be anybody's key or name.
        if rest and part in _SINGULAR and (not words or part == "flavours"):
            name = rest.pop(0)
            which = f"{int(name) + 1}" if part == "latency_bounds" else f'"{name}"'
            words.append(f"{_SINGULAR[part]} {which}")
        elif not part.isdecimal():
            words.append(part)
    return ", ".join(words)


def scalar_text(reader: Reader, node: Node, path: Path, expected: str) -> str:
    """The text of a single value; refused where it is a list, a mapping or nothing."""
    if not isinstance(node, ScalarNode) or is_nothing(node):
        raise reader.refuse(node, path, "wrong-type", f"expected {expected}, got {shown_node(node)}")
    return str(node.value)
