"""`penstock new`: a small project that runs at once, to change into one's own."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.console import console as open_console
from penstock.errors import ConfigurationError

_FILES = {
    "topology.yaml": "{name}.yaml",
    "job.py.txt": "job.py",
    "test_job.py.txt": "test_job.py",
    "README.md": "README.md",
}


def new(
    name: Annotated[str, typer.Argument(help="The project's name; its folder is made here.")],
) -> None:
    """Write a small working project: a topology, its functions, their tests."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", name):
        raise ConfigurationError(
            f"expected a name of letters, digits, _ and -, beginning with a letter, got {name!r}"
        )
    folder = Path(name)
    if folder.exists():
        raise ConfigurationError(f"{folder} is there already; choose another name")
    folder.mkdir()
    for source, target in _FILES.items():
        text = (files("penstock.cli") / "new_project" / source).read_text()
        (folder / target.format(name=name)).write_text(text.replace("NAME", name))
    open_console().print(
        f"{folder}/ is a project that runs. Try:\n"
        f"  cd {folder}\n"
        f'  penstock simulate {name}.yaml --duration "1 h"\n'
        f'  penstock run {name}.yaml --duration "2 min" --page\n'
        f"  pytest",
        highlight=False,
    )
