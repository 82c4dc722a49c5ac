"""The walks that docs/architecture.md promises: each step is a file that exists and a function in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
LONGEST_WALK = 12
LONGEST_MODULE = 450


def steps(title: str) -> list[tuple[str, str]]:
    """The file and the function of every step of a walk."""
    section = PAGE.split(f"### {title}\n")[1].split("\n#")[0]
    return re.findall(r"^\d+\. `([^`]+)` `([^`]+)`", section, flags=re.M)


WALKS = {title: steps(title) for title in ("From a measurement to an executor", "A record through a unit")}


def test_a_measurement_reaches_an_executor_through_twelve_files_at_most() -> None:
    files = [file for file, _ in WALKS["From a measurement to an executor"]]
    assert 8 <= len(set(files)) <= LONGEST_WALK
    assert len(files) == len(set(files))


@pytest.mark.parametrize(("file", "function"), [step for walk in WALKS.values() for step in walk])
def test_every_step_is_a_function_of_its_file(file: str, function: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert function in defined


def test_no_module_is_too_long_to_read_at_once() -> None:
    longer = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / "src").rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > LONGEST_MODULE
    }
    assert longer == {}
