"""A room imports only rooms above it; Spark stays in its rooms; the package imports without it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "penstock"

LEVELS: tuple[tuple[str, ...], ...] = (
    ("errors", "clock"),
    ("quantities", "choosing", "plain"),
    ("trying",),
    ("machine",),
    ("topology",),
    ("monitoring",),
    ("filters", "forecasts"),
    ("infrastructure", "levels"),
    ("budgets",),
    ("fleet",),
    ("policies",),
    ("controller",),
    ("workload",),
    ("simulator",),
    ("spark.installation",),
    ("spark.gateway",),
    ("spark.checkpoints",),
    ("channels",),
    ("providers",),
    ("spark",),
    ("runs",),
    ("report",),
    ("studies",),
    ("rig",),
    ("experiments",),
    ("page",),
    ("api",),
    ("cli",),
)
"""Every room, the upper first: a room imports from its own level and from those above.

All that is private of Spark is behind `spark.gateway`, which channels use too: it stands above them.
"""
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
SPARK_ROOMS = {"channels", "spark"}


def imports_of(path: Path) -> Iterator[tuple[str, bool]]:
    """Every module a file imports, and whether that happens as soon as the file is imported."""
    package = ("penstock", *path.relative_to(SOURCE).parts[:-1])
    tree = ast.parse(path.read_text())
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in inside
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *(node.module or "").split("."))).strip(".")
            yield module, id(node) not in inside
            for alias in node.names:
                if module == "penstock":
                    yield f"penstock.{alias.name}", id(node) not in inside


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "penstock" and len(parts) > 1 else None


def place_of(module: str) -> str | None:
    """The room in the order, or the part of one that has a place of its own."""
    within = ".".join(module.split(".")[1:3])
    return within if within in LEVEL_OF else room_of(module)


def files() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem != "__init__")


def own_room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_room_has_its_place_in_the_order() -> None:
    assert {own_room(path) for path in files()} <= set(LEVEL_OF)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_rooms_above_it(path: Path) -> None:
    own = place_of(".".join(("penstock", *path.relative_to(SOURCE).with_suffix("").parts)))
    assert own is not None
    below = {
        module
        for module, _ in imports_of(path)
        if (room := place_of(module)) in LEVEL_OF and LEVEL_OF[room] > LEVEL_OF[own]
    }
    assert not below


@pytest.mark.parametrize(("own", "other"), [("simulator", "spark"), ("spark", "simulator")])
def test_the_two_clusters_do_not_know_each_other(own: str, other: str) -> None:
    for path in (SOURCE / own).rglob("*.py"):
        assert other not in {room_of(module) for module, _ in imports_of(path)}, path


def test_only_the_spark_rooms_import_pyspark() -> None:
    users = {
        own_room(path)
        for path in files()
        if any(module.split(".")[0] in ("pyspark", "py4j") for module, _ in imports_of(path))
    }
    assert users <= SPARK_ROOMS


def test_only_clocks_and_adapters_read_the_time() -> None:
    """The pure rooms: everything that decides is handed its clock."""
    pure = ("topology", "monitoring", "filters", "infrastructure", "policies", "controller")
    for room in (*pure, "workload", "simulator"):
        for path in (SOURCE / room).rglob("*.py"):
            assert "time" not in {module for module, _ in imports_of(path)}, path


NEWER_THAN_3_10 = {
    "enum": {"StrEnum": "penstock.plain.Word"},
    "datetime": {"UTC": "datetime.timezone.utc"},
    "typing": dict.fromkeys(("Self", "assert_never", "override", "Never", "NotRequired"), "another way"),
}
"""Names that came after Python 3.10, with what stands for them here."""


def test_no_module_needs_a_python_newer_than_the_oldest_one_promised() -> None:
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 10))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                newer = NEWER_THAN_3_10.get(node.module or "", {})
                found = {alias.name: newer[alias.name] for alias in node.names if alias.name in newer}
                assert not found, f"{path} must run on Python 3.10: use {found}"
            elif isinstance(node, ast.Import):
                assert not any(alias.name in ("tomllib",) for alias in node.names), path


@pytest.mark.parametrize(
    "modules",
    ["penstock", "penstock.simulator, penstock.controller, penstock.topology, penstock.report"],
)
def test_the_package_imports_without_spark(modules: str) -> None:
    check = f"import {modules}, sys; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True, cwd=ROOT, timeout=120)
