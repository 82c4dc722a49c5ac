"""The documentation: generated pages say what the code does, the site builds, every code block is right."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from penstock.cli.main import app
from penstock.cli.metrics import samples_now
from penstock.cli.references import PAGES
from penstock.controller.journal import Journal
from penstock.machine.processes import wait_until
from penstock.runs.known import known_names
from penstock.topology.file import dump_topology, load_topology
from penstock.topology.model import Choice
from tests.builders import AT_ONCE, a_site, a_topology
from tests.cli.test_commands import penstock
from tests.page.runs import PacedSimulation

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


@pytest.mark.parametrize("page", ["api.md", "recorded.md", "metrics.md"])
def test_every_field_of_a_reference_is_told_of(page: str) -> None:
    silent = [line for line in (DOCS / page).read_text().splitlines() if re.search(r"\|\s*\|$", line)]
    assert silent == []


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


@pytest.mark.parametrize("name", ["index.md", "topologies.md", "policies.md", "page.md"])
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
    assert done >= (1 if name == "page.md" else 3)


@pytest.mark.parametrize(
    ("name", "run", "unit"), [("sites.md", "clicks", "all"), ("changing.md", "shop", "pricing")]
)
def test_what_a_page_tells_a_run_that_goes_on_is_obeyed(
    tmp_path: Path, name: str, run: str, unit: str
) -> None:
    """Every `tell` and `apply` of a page, one after the other, to a run that goes on."""
    topology = a_topology(units=(unit,), policy=Choice("fixed"), sites=[a_site("cloud", times=AT_ONCE)])
    changed = replace(topology, units=(replace(topology.units[0], max_instances=9),))
    (tmp_path / f"{run}.yaml").write_text(dump_topology(changed))
    told = []
    with PacedSimulation(tmp_path / "runs" / run, topology, ticks=100_000, pace_s=0.02) as simulation:
        assert wait_until(lambda: (known := simulation.folder.status()) is not None and bool(known.hosts), 30)
        for words in [words for words in commands(DOCS / name) if words[1] in ("tell", "apply")]:
            said = penstock(*words[1:], folder=tmp_path)
            assert ("told" if words[1] == "tell" else "revision") in said
            told += [words[3]] if words[1] == "tell" else ["apply"] if "--plan" not in words else []
            assert wait_until(lambda: not list(simulation.folder.commands.glob("*.json")), 30.0)
    with Journal(simulation.folder.journal, topology.name) as journal:
        notices = [row["text"] for row in journal.rows("notice")]
    heard = [
        text.split(": ", 1)[1].split()[0].rstrip(",") for text in notices if text.startswith("told from")
    ]
    assert heard == told
    assert [text for text in notices if text.startswith("refused")] == []


def test_alerts_ask_for_metrics_that_a_run_has(tmp_path: Path) -> None:
    """Names and labels: a rule that compares two metrics needs the same labels on both."""
    rules = [yaml.safe_load(text) for language, text in blocks(DOCS / "operate.md") if language == "yaml"]
    asked = [rule["expr"] for one in rules for group in one["groups"] for rule in group["rules"]]
    assert len(asked) >= 4
    with PacedSimulation(
        tmp_path / "run", a_topology(units=("work",)), ticks=100_000, pace_s=0.02
    ) as simulation:
        assert wait_until(lambda: simulation.done > 20, 30.0)
        labels: dict[str, set[str]] = {}
        for sample in samples_now(simulation.folder.root):
            labels.setdefault(sample.name, set()).add(str(sorted(sample.labels.items())))
    for expression in asked:
        for part in expression.split(" or "):
            names = re.findall(r"penstock_\w+", part)
            assert names, part
            assert len({str(labels[name]) for name in names}) == 1, part


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
