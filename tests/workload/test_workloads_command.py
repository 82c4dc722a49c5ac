"""`penstock workloads` lists every workload, draws one, and writes a page that needs no network."""

from __future__ import annotations

import re

import numpy as np
import pytest
from typer import Typer
from typer.testing import CliRunner

from penstock.cli.workloads import sparkline, workloads
from penstock.errors import ConfigurationError
from penstock.workload import WORKLOADS

APP = Typer()
APP.command()(workloads)


def run(*arguments: str):
    return CliRunner().invoke(APP, list(arguments), env={"COLUMNS": "120"})


def test_every_workload_is_listed_with_its_shape():
    result = run()
    assert result.exit_code == 0, result.output
    for name in WORKLOADS:
        assert re.search(rf"^{name}\s", result.output, re.M)
    assert "▃▅█▅▃▅█▅" in result.output


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name != "trace"])
def test_one_workload_is_shown_with_all_its_parameters(name):
    result = run(name)
    assert result.exit_code == 0, result.output
    for parameter in WORKLOADS.parameters(name):
        assert parameter in result.output


def test_parameters_can_be_set():
    result = run("square", "--set", "high_per_s=500/s", "--set", "hold_s=2 min", "--span", "10 min")
    assert result.exit_code == 0, result.output
    assert "500/s" in result.output
    assert "10 min" in result.output


def test_a_list_can_be_set():
    assert run("stepwise", "--set", "levels_per_s=[1, 5, 3]").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sqare",), 'did you mean "square"'),
        (("square", "--set", "high"), "parameter=value"),
        (("square", "--set", "high_per_s=[1"), "cannot read"),
        (("--set", "a=1"), "needs the name of a workload"),
    ],
)
def test_a_wrong_call_says_what_would_be_right(arguments, message):
    result = run(*arguments)
    assert isinstance(result.exception, ConfigurationError)
    assert message in str(result.exception)


def test_the_page_holds_its_own_script(tmp_path):
    file = tmp_path / "pages" / "workloads.html"
    result = run("pyramid", "--html", str(file))
    assert result.exit_code == 0, result.output
    html = file.read_text(encoding="utf-8")
    assert not re.search(r"<script[^>]+src=", html)
    assert "pyramid" in html


@pytest.mark.parametrize(("values", "bars"), [([0, 4, 8], "▁▄█"), ([0, 0], "▁▁"), ([5], "█"), ([], "")])
def test_a_sparkline_is_as_high_as_its_values(values, bars):
    assert sparkline(np.array(values, dtype=float)) == bars


def test_every_parameter_of_every_workload_has_a_meaning():
    for name in WORKLOADS:
        assert all(parameter.meaning for parameter in WORKLOADS.parameters(name).values())
