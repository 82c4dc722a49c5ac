"""`penstock apply` as a person uses it, with somebody else who changes the run at the same time."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from unittest import mock

import pytest

from penstock.cli.main import main
from penstock.controller.status import Status
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.topology.file import dump_topology
from tests.api.test_peers import obeying
from tests.runs.test_changes import a_pair, with_unit


class Shown(io.StringIO):
    """What is printed; once the preview is shown, somebody else has the run go on with another version."""

    def __init__(self, place: RunFolder) -> None:
        super().__init__()
        self._place = place

    def write(self, text: str) -> int:
        plan = self._place.plan()
        if "this would change" in text and plan.revision == 1:
            self._place.write_plan(plan.changed(with_unit(a_pair(), "first", max_instances=2), ()))
        return super().write(text)


def test_a_version_that_was_previewed_is_not_applied_to_another_one_that_runs_by_then(
    tmp_path: Path,
) -> None:
    place = RunFolder.at(tmp_path / "shop")
    place.write_plan(RunPlan.of(a_pair(), "shop"))
    place.write_status(Status("shop", 1.0, (), (), "3"))
    file = tmp_path / "next.yaml"
    file.write_text(dump_topology(with_unit(a_pair(), "second", max_instances=3)))
    shown, words = Shown(place), ["penstock", "apply", str(place.root), str(file)]
    with (
        obeying(place),
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(shown),
        mock.patch.object(sys, "argv", words),
        pytest.raises(SystemExit) as left,
    ):
        main()
    assert left.value.code, shown.getvalue()
    assert "it was written for revision 1, and revision 2 runs" in " ".join(shown.getvalue().split())
    assert place.plan().read_topology().unit_by_name["second"].max_instances != 3
