"""The one registry mechanism: kinds of a thing by name, each a frozen dataclass of its parameters.

Policies, filters, providers, workloads, channels, sinks and cost functions are all chosen by a name and
some parameters. A `Registry` holds the classes, reads the values (by type, and by the unit a name ends in),
tells every mistake with what would have been right, and makes the chosen thing. The command line's help,
the documentation and the validation of topology files read the same registry.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from penstock.errors import ConfigurationError, PenstockError, QuantityError
from penstock.quantities import number, reader_of, shown

MOST_COMPARED = 200
LONGEST_COMPARED = 100


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as `; did you mean "threshold"?`, or the list of known names where none is near."""
    names = list(known)
    if len(names) > MOST_COMPARED or len(name) > LONGEST_COMPARED:
        return ""  # comparing every wrong name with every right one would take minutes
    names.sort()
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f'; did you mean "{close[0]}"?'
    return f" (known: {', '.join(names)})" if names else " (there are none)"


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers a parameter may be, written as `Annotated[int, Range(least=0)]`; both ends are optional."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    """More than this, where the end itself is wrong."""

    @property
    def words(self) -> str:
        """The range as a message says it: `0 or more`, `more than 0`, `from 0 to 1`."""
        if self.above is not None:
            return f"more than {self.above:g}" + ("" if self.most is None else f", at most {self.most:g}")
        if self.most is None:
            return f"{self.least:g} or more" if self.least is not None else "any"
        return f"{self.most:g} or less" if self.least is None else f"from {self.least:g} to {self.most:g}"

    def holds(self, value: float) -> bool:
        """Whether a number is within the range."""
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
        )


class _Required:
    """Stands where a parameter has no default."""

    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()

NEVER_NEGATIVE = ("_s", "_per_s", "_mib")
"""A duration, a rate or an amount of memory that is chosen is 0 or more, unless its range says otherwise."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a registered class: its name, type, default and range; `meaning` is for people."""

    name: str
    kind: type[Any]
    """The class it belongs to."""
    types: tuple[Any, ...]
    """The types a value may have; several where the field is a union."""
    default: Any
    range: Range | None = None
    doc: str = ""

    @property
    def meaning(self) -> str:
        """What it means: the field's own words, or the docstring below the field."""
        return self.doc or _meanings(self.kind).get(self.name, "")

    @property
    def default_text(self) -> str:
        """The default as it would be written."""
        if isinstance(self.default, float):
            return f"{self.default:g}"
        if isinstance(self.default, tuple):
            return ", ".join(f"{part:g}" if isinstance(part, float) else str(part) for part in self.default)
        return "none" if self.default is None else str(self.default)

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        parts = [_words(kind) for kind in self.types if kind is not type(None)]
        words = " or ".join(dict.fromkeys(parts))
        return f"{words}, {self.range.words}" if self.range is not None else words

    def read(self, value: object) -> Any:
        """The value in the parameter's type; QuantityError says what was expected instead.

        Text is read as a quantity where the parameter is a number: "5 min" for a name that ends in `_s`.
        """
        found = self._typed(value)
        numbers = [part for part in _flat(found) if isinstance(part, int | float)]
        if self.range is not None and not all(self.range.holds(part) for part in numbers):
            raise QuantityError(f"expected {self.expected}, got {shown(value)}")
        return found

    def _typed(self, value: object) -> Any:
        if value is None and type(None) in self.types:
            return None
        reason: QuantityError | None = None
        for kind in self.types:
            if kind is type(None):
                continue
            try:
                return self._as(kind, value)
            except QuantityError as error:
                reason = reason or error
        raise reason or QuantityError(f"expected {self.expected}, got {shown(value)}")

    def _as(self, kind: Any, value: object) -> Any:
        wrong = QuantityError(f"expected {_words(kind)}, got {shown(value)}")
        if get_origin(kind) is Literal:
            if value in get_args(kind):
                return value
            raise wrong
        if get_origin(kind) is tuple or kind is tuple:
            return self._list(kind, value)
        if kind is float:
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise wrong
            return float((reader_of(self.name) or number)(value))
        if kind is int:
            read = reader_of(self.name)
            if isinstance(value, str) and read is not None:
                return int(read(value))
            if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 2**63 - 1:
                raise wrong
            return value
        if kind in (bool, str) and not isinstance(value, kind):
            raise wrong
        return value

    def _list(self, kind: Any, value: object) -> tuple[Any, ...]:
        inner = get_args(kind)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = (value,)  # one number is a list of one
        if not isinstance(value, list | tuple):
            raise QuantityError(f"expected {_words(kind)}, got {shown(value)}")
        if not inner:
            return tuple(value)
        if inner[-1] is Ellipsis:
            return tuple(self._as(inner[0], item) for item in value)
        if len(value) != len(inner):
            raise QuantityError(f"expected {len(inner)} values, got {shown(value)}")
        return tuple(self._as(part, item) for part, item in zip(inner, value, strict=True))


_WORDS: Mapping[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(str(option) for option in get_args(kind))}"
    if get_origin(kind) is tuple or kind is tuple:
        inner = [part for part in get_args(kind) if part is not Ellipsis]
        return "a list of numbers" if inner and inner[0] in (int, float) else "a list"
    return _WORDS.get(kind, getattr(kind, "__name__", str(kind)))


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, tuple):
        for part in value:
            yield from _flat(part)
    elif not isinstance(value, bool):
        yield value


def parameters_of(kind: type[Any]) -> Mapping[str, Parameter]:
    """The parameters of a registered dataclass by name, those of its bases last."""
    hints = get_type_hints(kind, include_extras=True)
    own = list(kind.__annotations__)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    fields.sort(key=lambda field: own.index(field.name) if field.name in own else len(own))
    found = {}
    for field in fields:
        hint, limits = hints[field.name], None
        if get_origin(hint) is Annotated:
            limits = next((part for part in hint.__metadata__ if isinstance(part, Range)), None)
            hint = hint.__origin__
        if limits is None and field.name.endswith(NEVER_NEGATIVE):
            limits = Range(least=0)
        types = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        default = field.default
        if default is dataclasses.MISSING:
            made_by = field.default_factory
            default = REQUIRED if made_by is dataclasses.MISSING else made_by()
        doc = str(field.metadata.get("doc", ""))
        found[field.name] = Parameter(field.name, kind, tuple(types), default, limits, doc)
    return found


_READ: dict[type[Any], dict[str, str]] = {}


def _meanings(kind: type[Any]) -> dict[str, str]:
    """Annotated names of a class and its bases with the docstring below each.

    Python forgets these docstrings, so they are read from the source: there is one place to write them, and
    the help cannot fall behind.
    """
    if kind not in _READ:
        found: dict[str, str] = {}
        for base in kind.__mro__:
            if dataclasses.is_dataclass(base):
                found = {**_field_docstrings(base), **found}
        _READ[kind] = found
    return _READ[kind]


def _field_docstrings(kind: type[Any]) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found: dict[str, str] = {}
    for i, statement in enumerate(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            after = body[i + 1] if i + 1 < len(body) else None
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                found[statement.target.id] = " ".join(str(after.value.value).split())
    return found


@dataclass(frozen=True, slots=True)
class Wrong:
    """One mistake in a choice: `parameter` names the one it is about, None where the whole is wrong."""

    message: str
    code: str
    parameter: str | None = None


class Registry(Mapping[str, type[Any]]):
    """Every kind of one thing by name; each kind is a frozen dataclass with a `name`.

    A new kind is one file and one line where the registry is made.
    """

    def __init__(self, what: str, *kinds: type[Any], finish: Callable[[Any], Any] | None = None) -> None:
        """`what` is the thing's word in messages ("policy").

        `finish` makes the thing out of its parameters, where the registered class holds those only.
        """
        self.what = what
        self._kinds = {kind.name: kind for kind in kinds}
        self._finish = finish
        self._parameters: dict[str, Mapping[str, Parameter]] = {}

    @classmethod
    def of(cls, what: str, kinds: Mapping[str, type[Any]]) -> Registry:
        """A registry of classes that have their names elsewhere."""
        registry = cls(what)
        registry._kinds = dict(kinds)
        return registry

    def __getitem__(self, name: str) -> type[Any]:
        return self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def parameters(self, name: str) -> Mapping[str, Parameter]:
        """The parameters of a kind by name."""
        if name not in self._parameters:
            self._parameters[name] = parameters_of(self._kinds[name])
        return self._parameters[name]

    def described(self, name: str) -> str:
        """What a kind is, in the first line of its docstring."""
        return (inspect.getdoc(self._kinds[name]) or "").strip().splitlines()[0]

    def mistakes(self, name: str, given: Mapping[str, Any]) -> tuple[Wrong, ...]:
        """Everything that is wrong with a choice; empty where it can be made."""
        return self._made(name, given)[1]

    def make(self, name: str, given: Mapping[str, Any]) -> Any:
        """The thing of this name with these parameters; ConfigurationError tells everything that is wrong."""
        found, wrong = self._made(name, given)
        if wrong:
            raise ConfigurationError("\n".join(mistake.message for mistake in wrong))
        return found

    def _made(self, name: str, given: Mapping[str, Any]) -> tuple[Any, tuple[Wrong, ...]]:
        if name not in self._kinds:
            hint = nearest(name, self._kinds)
            return None, (Wrong(f'unknown {self.what} "{name}"{hint}', f"unknown-{self.what}"),)
        whose, known = f'{self.what} "{name}"', self.parameters(name)
        values: dict[str, Any] = {}
        wrong: list[Wrong] = []
        for key, value in given.items():
            if key not in known:
                message = f'{whose} has no parameter "{key}"{nearest(key, known)}'
                wrong.append(Wrong(message, "unknown-parameter", key))
                continue
            try:
                values[key] = known[key].read(value)
            except QuantityError as error:
                wrong.append(Wrong(f"{whose}, {key}: {error}", "bad-parameter", key))
        missing = [key for key, one in known.items() if one.default is REQUIRED and key not in given]
        wrong += [Wrong(f'{whose} needs the parameter "{key}"', "bad-parameter") for key in missing]
        if wrong:
            return None, tuple(wrong)
        try:
            found = self._kinds[name](**values)
            return (found if self._finish is None else self._finish(found)), ()
        except (PenstockError, TypeError, ValueError, ArithmeticError) as error:
            # A class may refuse values that are right one by one, or compute with one before it has words.
            about = "" if str(error).startswith((whose, f"{self.what} {name}")) else f"{whose}: "
            return None, (Wrong(f"{about}{error}", "bad-parameter"),)


def made(what: str, kinds: Mapping[str, type[Any]], name: str, parameters: Mapping[str, Any]) -> Any:
    """The thing of this name out of a plain table of classes; see `Registry.make`."""
    return Registry.of(what, kinds).make(name, parameters)
