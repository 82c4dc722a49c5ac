"""The documentation: generated pages say what the code does, the site builds, every code block is right."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from penstock.cli.main import app
from penstock.cli.references import PAGES
from penstock.runs.known import known_names
from penstock.topology.file import load_topology
from tests.cli.test_commands import penstock

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
QUICK = ("check", "show", "simulate", "new", "policies", "filters", "compare", "workloads")
"""Commands that are really run; the others start Spark, serve a page or need a run that goes on."""
PLACES = re.compile(r"\b(RUN|FILE|FOLDER|NAME|HOST|JOURNAL|COMMAND|OTHER)\b|…")
"""Words that stand for something of the reader's own."""


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(path for path in DOCS.rglob("*.md") if path.parent.name != "designs")]


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """The code blocks of a page, each with its language."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        yield match[1], match[2]


def commands(page: Path) -> Iterator[list[str]]:
    """Every command a page has in a code block, in order."""
    for language, text in blocks(page):
        for line in text.splitlines() if language in ("", "sh") else ():
            if line.startswith(("penstock ", "cd ")):
                yield shlex.split(line, comments=True)


def named(paths: list[Path]) -> Any:
    return pytest.mark.parametrize("page", paths, ids=[str(path.relative_to(ROOT)) for path in paths])


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_says_what_the_code_does(page: str) -> None:
    written = (DOCS / page).read_text()
    assert written == PAGES[page](), "run: python -m penstock.cli.references docs"


@named(pages())
def test_every_command_of_a_page_is_one_with_these_options(page: Path) -> None:
    root: Any = typer.main.get_command(app)
    for words in commands(page):
        if words[0] != "penstock" or words[1].startswith("-"):
            continue
        command = root.get_command(None, words[1])
        assert command is not None, words
        rest = words[2:]
        while rest and hasattr(command, "commands") and rest[0] in command.commands:
            command, rest = command.commands[rest[0]], rest[1:]
        known = {
            option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for word in rest:
            assert not word.startswith("-") or word == "--help" or word in known, (words, word)


@named([page for page in pages() if any(language == "yaml" for language, _ in blocks(page))])
def test_every_topology_of_a_page_can_be_read(page: Path) -> None:
    for language, text in blocks(page):
        if language == "yaml":
            found = yaml.safe_load(
                text.replace("policy: threshold\n", "", 1) if text.count("policy:") > 1 else text
            )
            assert isinstance(found, dict)


@named([page for page in pages() if any(language == "python" for language, _ in blocks(page))])
def test_every_program_of_a_page_runs_or_is_one(page: Path) -> None:
    for language, text in blocks(page):
        if language != "python":
            continue
        code = compile(text, str(page), "exec")
        if "pyspark" not in text and "spark" not in text:
            exec(code, {})


@pytest.mark.parametrize("name", ["index.md", "topologies.md", "policies.md"])
def test_what_a_new_user_types_works(tmp_path: Path, name: str) -> None:
    """The quick commands of a page, one after the other, beside the topology that the page shows."""
    folder = tmp_path
    shown = [text for language, text in blocks(DOCS / "topologies.md") if language == "yaml"]
    (folder / "clicks.yaml").write_text(shown[0])
    load_topology(folder / "clicks.yaml", known_names())
    done = 0
    for words in commands(DOCS / name):
        if words[0] == "cd":
            folder = folder / words[1]
        elif words[1] in QUICK and not PLACES.search(" ".join(words)):
            penstock(*words[1:], folder=folder)
            done += 1
    assert done >= 3


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: make docs")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--quiet",
            "--site-dir",
            str(tmp_path / "site"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip(), done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loaded = re.findall(r"<(?:script|img|iframe)[^>]+src=\"(https?:[^\"]+)", page.read_text())
        loaded += re.findall(r"<link[^>]+href=\"(https?:[^\"]+)", page.read_text())
        assert loaded == [], page
    shutil.rmtree(tmp_path / "site")


@named([ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
def test_links_of_the_pages_beside_the_site_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("http") or (ROOT / target).exists(), target
