"""The command line as a person uses it: real files, words instead of tracebacks."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from penstock.cli.main import main

SMALLEST = Path(__file__).parents[2] / "examples" / "topologies" / "smallest.yaml"


def penstock(
    *arguments: str | Path, folder: Path, expect: int | tuple[int, ...] = 0, own_process: bool = False
) -> str:
    """Run the command in a folder; what it printed. `expect` are the exit codes that are right.

    In this process as a rule: to import everything anew takes longer than most commands do.
    """
    words = ["penstock", *map(str, arguments)]
    if own_process:
        command = [sys.executable, "-m", "penstock.cli.main", *words[1:]]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
        code, said = done.returncode, done.stdout + done.stderr
    else:
        printed = io.StringIO()
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            mock.patch.object(sys, "argv", words),
        ):
            code = _left_with(main)
        said = printed.getvalue()
    assert code in (expect if isinstance(expect, tuple) else (expect,)), said
    assert "Traceback" not in said
    return said


def _left_with(command: Callable[[], None]) -> int:
    """The exit code a command leaves with."""
    try:
        command()
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def test_help_lists_every_command_that_the_readme_names(tmp_path: Path) -> None:
    shown = penstock("--help", folder=tmp_path, own_process=True)
    for command in (
        "run",
        "simulate",
        "compare",
        "check",
        "show",
        "budget",
        "policies",
        "experiment",
        "cluster",
    ):
        assert f" {command} " in shown


def test_version_is_the_installed_one(tmp_path: Path) -> None:
    from importlib.metadata import version

    assert (
        penstock("--version", folder=tmp_path, own_process=True).strip() == f"penstock {version('penstock')}"
    )


def test_simulate_leaves_journal_summary_and_report(tmp_path: Path) -> None:
    shown = penstock("simulate", SMALLEST, "--duration", "10 min", "--out", "here", folder=tmp_path)
    assert "here/report.html" in shown
    summary = json.loads((tmp_path / "here" / "summary.json").read_text())
    assert summary["duration_s"] == 600
    assert summary["records_in"] > 0
    for unit in summary["units"].values():
        assert unit["arrived"] == unit["processed"] + unit["left"]
    assert (tmp_path / "here" / "journal.db").stat().st_size > 0


def test_the_same_seed_gives_the_same_summary(tmp_path: Path) -> None:
    for name in ("one", "two"):
        penstock("simulate", SMALLEST, "--duration", "10 min", "--seed", "7", "--out", name, folder=tmp_path)
    assert (tmp_path / "one" / "summary.json").read_text() == (tmp_path / "two" / "summary.json").read_text()


def test_a_run_is_told_another_policy_and_a_wrong_one_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    said = penstock("run", SMALLEST, "--policy", "threshhold", folder=tmp_path, expect=1)
    assert 'unknown policy "threshhold"' in said
    said = penstock("run", SMALLEST, "--policy", "levels:map=gone.yaml", folder=tmp_path, expect=1)
    assert "gone.yaml" in said
    assert list(tmp_path.iterdir()) == []


def test_a_warm_start_begins_with_the_mean_instances_of_the_last_run(tmp_path: Path) -> None:
    from penstock.controller.journal import Journal
    from penstock.controller.warm_start import mean_instances

    fixed = ("simulate", SMALLEST, "--duration", "5 min", "--policy", "fixed:instances=3")
    penstock(*fixed, "--out", "last", folder=tmp_path)
    penstock(
        "simulate", SMALLEST, "--duration", "5 min", "--warm-start", "last", "--out", "warm", folder=tmp_path
    )
    expected = mean_instances(tmp_path / "last")
    assert set(expected.values()) == {3}
    with Journal(tmp_path / "warm" / "journal.db", "smallest") as journal:
        starts = [
            row for row in journal.rows("action") if row["kind"] == "StartInstance" and row["at_s"] == 0
        ]
    assert {unit: sum(row["unit"] == unit for row in starts) for unit in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("btu", "--vm-price", "1 EUR/h"), "are for kalman and cells, not for btu"),
        (("btu", "--minutes", "1"), "are for cells, not for btu"),
        (("kalman", "--vm-price", "1 EUR/h", "--violation-price", "1 USD"), "one currency"),
        (("kalman", "--violation-price", "1 EUR/h"), "price of one violation"),
        (("kalman", "--vm-price", "cheap"), 'such as "0.10 USD/h"'),
    ],
)
def test_wrong_prices_of_an_experiment_are_told(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    assert said in " ".join(penstock("experiment", *arguments, folder=tmp_path, expect=1).split())


def test_compare_puts_policies_and_billing_units_side_by_side(tmp_path: Path) -> None:
    shown = penstock(
        "compare", SMALLEST, "--policies", "threshold:up_queue=20,down_queue=2,rate", "--btus", "10 min,1 h",
        "--seeds", "1", "--duration", "10 min", "--out", "here", folder=tmp_path,
    )  # fmt: skip
    rows = json.loads((tmp_path / "here" / "summary.json").read_text())
    kept = [row for row in rows if row["real_time"] >= 0.99]
    best = min(kept, key=lambda row: row["cost"], default=None)
    assert (f"within the SLO: {best['policy']}" if best else "none keeps") in " ".join(shown.split())
    assert [(row["policy"], row["btu_s"]) for row in rows] == [
        ("threshold:up_queue=20,down_queue=2", 600), ("threshold:up_queue=20,down_queue=2", 3600),
        ("rate", 600), ("rate", 3600),
    ]  # fmt: skip
    assert all(row["cost_over_clairvoyant"] >= 1 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("simulate", "missing.yaml"), "missing.yaml"),
        (("simulate", str(SMALLEST), "--policy", "treshold"), 'did you mean "threshold"'),
        (("simulate", str(SMALLEST), "--policy", "threshold:up=3"), "known: down_queue, up_queue"),
        (("simulate", str(SMALLEST), "--filter", "kalmann"), 'did you mean "kalman"'),
        (("simulate", str(SMALLEST), "--duration", "ten"), "expected a duration"),
        (("simulate", str(SMALLEST), "--out", "/proc/nowhere"), "cannot make the folder"),
        (("compare", str(SMALLEST), "--seeds", "0"), "at least one seed"),
        (("experiment", "btus"), 'did you mean "btu"'),
    ],
)
def test_a_mistake_is_told_in_words(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    assert said in penstock(*arguments, folder=tmp_path, expect=1)


@pytest.mark.parametrize("command", ["policies", "filters"])
def test_lists_show_every_parameter_with_its_meaning(tmp_path: Path, command: str) -> None:
    shown = penstock(command, folder=tmp_path)
    for name in {
        "policies": ("threshold", "up_twice_queue", "btu", "rate"),
        "filters": ("kalman", "gaussian"),
    }[command]:
        assert name in shown
