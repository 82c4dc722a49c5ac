"""Other people's jobs: every example of pyspark's own, with the two lines and, unedited, with the wrapper."""

from __future__ import annotations

from pathlib import Path

import pytest
from compatibility.foreign import examples, lines_on_a_socket, run, topic_of_lines, with_two_lines
from typer.testing import CliRunner

from penstock.channels.kafka_jars import broker_jars, connector_jars
from penstock.cli.main import app
from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder
from penstock.spark.installation import spark_version
from penstock.spark.session import wrapping

ON_A_SOCKET = {
    "structured_network_wordcount": ((), "quick"),
    # It tells of a session once ten seconds are without a word: never here.
    "structured_network_wordcount_session_window": ((), "sessionId"),
    "structured_network_wordcount_windowed": (("10", "5"), "quick"),
}
"""Examples that read lines from a socket, with what else they are told and a word that they say."""
OTHERS = {
    "structured_blockchain_admission_control",
    "structured_kafka_wordcount",
    "structured_sessionization",
}


def test_two_lines_go_behind_the_start_of_every_example_and_nothing_else_is_changed() -> None:
    assert set(examples()) == {*ON_A_SOCKET, *OTHERS}
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
@pytest.mark.parametrize("name", sorted(ON_A_SOCKET))
def test_an_example_of_pyspark_runs_with_two_lines_more(name: str, tmp_path: Path) -> None:
    more, word = ON_A_SOCKET[name]
    with lines_on_a_socket() as port:
        ran = run(examples()[name], ["127.0.0.1", str(port), *more], tmp_path)
    assert ran.processed > 0, ran.errors
    assert word in ran.output


@pytest.mark.spark
def test_an_example_that_this_spark_refuses_tells_its_own_error(tmp_path: Path) -> None:
    with lines_on_a_socket() as port:
        ran = run(examples()["structured_sessionization"], ["127.0.0.1", str(port)], tmp_path)
    assert ran.processed == 0
    assert "AnalysisException: [STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION]" in ran.errors


@pytest.mark.spark
def test_an_example_with_a_source_in_python_runs_with_two_lines_more(tmp_path: Path) -> None:
    ran = run(examples()["structured_blockchain_admission_control"], [], tmp_path)
    assert ran.processed > 0, ran.errors
    assert "Batch: 0" in ran.output


@pytest.mark.spark
@pytest.mark.kafka
def test_an_example_on_kafka_runs_with_two_lines_more(tmp_path: Path) -> None:
    try:
        jars = connector_jars(cache_folder("jars"), spark_version())
        broker_jars(cache_folder("jars"))
    except ClusterError as error:
        pytest.skip(f"Kafka's jars cannot be fetched: {error}")
    with topic_of_lines(tmp_path / "broker") as address:
        ran = run(
            examples()["structured_kafka_wordcount"], [address, "subscribe", "lines"], tmp_path,
            settings={"spark.jars": ",".join(map(str, jars))},
        )  # fmt: skip
    assert ran.processed > 0, ran.errors
    assert "quick" in ran.output


@pytest.mark.spark
@pytest.mark.parametrize("way", ["penstock attach", "spark-submit"])
def test_a_job_nobody_may_edit_is_attached_to_from_outside(way: str, tmp_path: Path) -> None:
    journal = tmp_path / "outside.db"
    front = ["-m", "penstock.cli.main", "attach", "--interval", "1 s", "--journal", str(journal)]
    if way == "penstock attach":
        chosen, settings = {"wrapper": front}, {"spark.penstock.slo": "7s"}
    else:
        chosen = {"submitted": [wrapping.__file__]}
        settings = {
            "spark.penstock.slo": "7s",
            "spark.penstock.interval": "1s",
            "spark.penstock.journal": str(journal),
        }
    with lines_on_a_socket() as port:
        ran = run(
            examples()["structured_network_wordcount"], ["127.0.0.1", str(port)], tmp_path, attached=False,
            settings=settings, journal=journal, **chosen,
        )  # fmt: skip
    assert ran.processed > 0, ran.errors
    assert "quick" in ran.output
    told = CliRunner().invoke(app, ["metrics", str(journal)])
    assert 'penstock_processed_records_total{run="StructuredNetworkWordCount"' in told.output
