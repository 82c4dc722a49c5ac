"""The whole laboratory on a real local cluster: an executor that is killed changes no count and no answer."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cv2")

from cells.demo import print_timing
from cells.faults import EXECUTOR, Killer
from cells.feed import Load
from cells.laboratory import run_laboratory, topology_of
from cells.page import write_page

from penstock.cli.console import console
from penstock.runs.profile import PROFILE, Profile

LOAD = Load("constant", {"level_per_s": 8}, duration_s=20.0, query_every=4, seed=2, megapixels=0.05, album=4)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_executor_of_the_state_changes_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killer = Killer(LOAD.duration_s, [EXECUTOR])

    outcome = run_laboratory(topology_of(LOAD), LOAD, tmp_path / "run", watch=killer)

    assert killer.killed == [EXECUTOR]
    assert outcome.check.rows[0] == ("images → counts", 160, 160)
    assert outcome.check.rows[3] == ("queries → answers", 40, 40)
    assert outcome.check.right, outcome.check.rows
    assert Profile.read(outcome.folder / PROFILE).feed_s == LOAD.duration_s
    assert 0 < outcome.vm_h <= 4 * LOAD.duration_s / 3600
    see, remember = outcome.parts
    assert (see.state_rows, remember.state_rows > 0, remember.state_mib > 0) == (0, True, True)
    assert remember.state_s["commit"] > 0
    assert 0 < remember.parts_s["addBatch"] <= remember.whole_s
    print_timing(console(), outcome)
    assert "micro-batches with rows" in capsys.readouterr().out
    assert "Queries while instances came and went" in write_page(outcome).read_text()
