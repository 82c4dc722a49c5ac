"""Other people's jobs: an example of pyspark's own, with the two lines and, unedited, with the wrapper."""

from __future__ import annotations

from pathlib import Path

import pytest
from compatibility.foreign import examples, lines_on_a_socket, run, with_two_lines
from typer.testing import CliRunner

from penstock.cli.main import app


def test_two_lines_go_behind_the_start_of_every_example_and_nothing_else_is_changed() -> None:
    assert len(examples()) >= 5
    for path in examples().values():
        before, after = (
            path.read_text().splitlines(),
            with_two_lines(path.read_text(), Path("j")).splitlines(),
        )
        assert len(after) == len(before) + 2
        ours = [line for line in after if "penstock" in line]
        assert len(ours) == 2
        assert [line for line in after if line not in ours] == before


@pytest.mark.spark
def test_an_example_of_pyspark_runs_with_two_lines_more(tmp_path: Path) -> None:
    with lines_on_a_socket() as port:
        ran = run(
            examples()["structured_network_wordcount_windowed"], ["127.0.0.1", str(port), "10", "5"], tmp_path
        )
    assert ran.processed > 0, ran.errors
    assert "quick" in ran.output


@pytest.mark.spark
def test_a_job_nobody_may_edit_is_attached_to_from_outside(tmp_path: Path) -> None:
    journal = tmp_path / "outside.db"
    with lines_on_a_socket() as port:
        ran = run(
            examples()["structured_network_wordcount"], ["127.0.0.1", str(port)], tmp_path, attached=False,
            wrapper=["-m", "penstock.cli.main", "attach", "--interval", "1 s", "--journal", str(journal)],
            settings={"spark.penstock.slo": "7s"}, journal=journal,
        )  # fmt: skip
    assert ran.processed > 0, ran.errors
    assert "quick" in ran.output
    told = CliRunner().invoke(app, ["metrics", str(journal)])
    assert 'penstock_processed_records_total{run="StructuredNetworkWordCount"' in told.output
