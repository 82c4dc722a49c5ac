"""The parameters of a registered dataclass for people to read: name, default, meaning.

The meaning is the docstring below each field, which Python forgets at run time; it is read from the
source, so that there is one place to write it and the help cannot fall behind.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its name, its default as it would be written, and what it means."""

    name: str
    default: str
    meaning: str


def parameters(kind: type[Any]) -> tuple[Parameter, ...]:
    """The parameters of a dataclass, those of its bases last."""
    meanings: dict[str, str] = {}
    own: list[str] = []
    for base in kind.__mro__:
        if dataclasses.is_dataclass(base):
            found = _field_docstrings(base)
            own += [name for name in found if name not in own]
            meanings = {**found, **meanings}
    fields = [field for field in dataclasses.fields(kind) if field.init]
    fields.sort(key=lambda field: own.index(field.name) if field.name in own else len(own))
    return tuple(
        Parameter(
            field.name,
            _default(field),
            field.metadata.get("doc") or meanings.get(field.name, ""),
        )
        for field in fields
    )


def first_sentence(kind: type[Any]) -> str:
    """What a registered class is, in the first line of its docstring."""
    return (inspect.getdoc(kind) or "").strip().splitlines()[0]


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        return "required" if field.default_factory is dataclasses.MISSING else str(field.default_factory())
    if isinstance(field.default, float):
        return f"{field.default:g}"
    if isinstance(field.default, tuple):
        return ", ".join(f"{item:g}" if isinstance(item, float) else str(item) for item in field.default)
    return "none" if field.default is None else str(field.default)


def _field_docstrings(kind: type[Any]) -> dict[str, str]:
    """Annotated names of a class body with the docstring below each."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found: dict[str, str] = {}
    for i, statement in enumerate(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            after = body[i + 1] if i + 1 < len(body) else None
            text = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = " ".join(str(after.value.value).split())
            found[statement.target.id] = text
    return found
