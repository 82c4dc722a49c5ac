"""Other people's jobs: every example of pyspark's own, with the two lines and, unedited, with the wrapper."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from compatibility.foreign import examples, lines_on_a_socket, run, topic_of_lines, with_two_lines
from pyspark.sql.streaming import DataStreamWriter
from typer.testing import CliRunner

from penstock.channels.kafka_jars import broker_jars, connector_jars
from penstock.cli.main import app
from penstock.controller import Journal
from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder
from penstock.spark.installation import spark_version
from penstock.spark.launching import spark_archive, spark_java
from penstock.spark.session import wrapping
from penstock.spark.training import ensure_archive

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


@pytest.fixture(scope="module")
def quick() -> dict[str, str]:
    """Settings of a driver whose classes are loaded from an archive: jobs start in half the time."""
    ensure_archive()
    return {"spark.driver.extraJavaOptions": " ".join(spark_archive(spark_java()).use())}


@pytest.fixture(scope="module")
def on_kafka(
    quick: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a Kafka with a topic of lines, and settings of a session that reads from it."""
    try:
        jars = connector_jars(cache_folder("jars"), spark_version())
        broker_jars(cache_folder("jars"))
    except ClusterError as error:
        pytest.skip(f"Kafka's jars cannot be fetched: {error}")
    with topic_of_lines(tmp_path_factory.mktemp("broker")) as address:
        yield address, {**quick, "spark.jars": ",".join(map(str, jars))}


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
def test_an_example_of_pyspark_runs_with_two_lines_more(
    name: str, quick: dict[str, str], tmp_path: Path
) -> None:
    more, word = ON_A_SOCKET[name]
    with lines_on_a_socket() as port:
        ran = run(examples()[name], ["127.0.0.1", str(port), *more], tmp_path, settings=quick)
    assert ran.processed > 0, ran.errors
    assert word in ran.output


@pytest.mark.spark
def test_an_example_that_this_spark_refuses_tells_its_own_error(
    quick: dict[str, str], tmp_path: Path
) -> None:
    with lines_on_a_socket() as port:
        refused = examples()["structured_sessionization"]
        ran = run(refused, ["127.0.0.1", str(port)], tmp_path, settings=quick)
    assert ran.processed == 0
    assert "AnalysisException: [STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION]" in ran.errors


@pytest.mark.spark
def test_an_example_with_a_source_in_python_runs_with_two_lines_more(
    quick: dict[str, str], tmp_path: Path
) -> None:
    ran = run(examples()["structured_blockchain_admission_control"], [], tmp_path, settings=quick)
    assert ran.processed > 0, ran.errors
    assert "Batch: 0" in ran.output


@pytest.mark.spark
@pytest.mark.kafka
def test_an_example_on_kafka_runs_with_two_lines_more(
    on_kafka: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    address, settings = on_kafka
    example = examples()["structured_kafka_wordcount"]
    ran = run(example, [address, "subscribe", "lines"], tmp_path, settings=settings)
    assert ran.processed > 0, ran.errors
    assert "quick" in ran.output


SLOW = """
import sys, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("slow").getOrCreate()
kafka = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": "lines"}
lines = spark.readStream.format("kafka").options(**kafka).load()

def write(batch, number):
    batch.count()
    time.sleep(5)

writer = lines.writeStream.foreachBatch(write).option("checkpointLocation", sys.argv[2])
writer.start().awaitTermination()
"""


@pytest.mark.spark
@pytest.mark.kafka
def test_what_came_while_a_batch_of_all_there_is_took_too_long_waits(
    on_kafka: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    address, settings = on_kafka
    script, journal = tmp_path / "job" / "slow.py", tmp_path / "journal.db"
    script.parent.mkdir()
    script.write_text(SLOW)
    told = [address, str(tmp_path / "checkpoint")]
    # Ten lines a second come: more than the first two batches have.
    ran = run(script, told, tmp_path, settings=settings, least=80)
    assert ran.processed >= 80, ran.errors
    with Journal(journal, run="slow") as record:
        waiting = [row["waiting"] for row in record.rows("observation")]
    # By offsets nothing would be left: a batch takes all there is as it begins. Of its five seconds, two are
    # the SLO.
    assert max(waiting) >= 10 * 2, waiting


REAL_TIME = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("real-time").getOrCreate()
kafka = {"kafka.bootstrap.servers": sys.argv[1]}
lines = spark.readStream.format("kafka").options(**kafka).option("subscribe", "lines").load()
writer = lines.select("value").writeStream.format("kafka").options(**kafka).option("topic", "out")
writer = writer.outputMode("update").option("checkpointLocation", sys.argv[2])
writer.trigger(realTime="5 seconds").start().awaitTermination()
"""


@pytest.mark.spark
@pytest.mark.kafka
def test_a_job_in_real_time_goes_on_and_its_long_batches_are_not_taken_for_work(
    on_kafka: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    if "realTime" not in inspect.signature(DataStreamWriter.trigger).parameters:
        pytest.skip("this Spark has no real-time mode")
    address, settings = on_kafka
    # With executors: without any there are no tasks whose time could be taken for work.
    apart = {"spark.master": "local-cluster[1,2,1024]", "spark.executor.memory": "512m"}
    script, journal = tmp_path / "job" / "real_time.py", tmp_path / "journal.db"
    script.parent.mkdir()
    script.write_text(REAL_TIME)
    # More than a first batch has, which tells nothing of a record's work in any mode.
    told = [address, str(tmp_path / "checkpoint")]
    ran = run(script, told, tmp_path, settings={**settings, **apart}, least=80)
    assert ran.processed >= 80, ran.errors
    came_out, came_in = (newest(address, topic) for topic in ("out", "lines"))
    assert 0 < ran.processed <= came_out <= came_in
    with Journal(journal, run="real-time") as record:
        seen = [row for row in record.rows("observation") if row["processed"]]
    # A batch of 5 s at ten records a second: half a second of a slot each, were its tasks taken for work.
    assert [(row["service_s"], row["duration_s"]) for row in seen] == [(None, None)] * len(seen)
    assert all(row["waiting"] <= came_in - ran.processed for row in seen)


def newest(address: str, topic: str) -> int:
    """How many records a topic of one partition ever had."""
    kafka = import_module("kafka")
    consumer = kafka.KafkaConsumer(bootstrap_servers=address)
    partition = kafka.TopicPartition(topic, 0)
    try:
        return int(consumer.end_offsets([partition])[partition])
    finally:
        consumer.close()


@pytest.mark.spark
@pytest.mark.parametrize("way", ["penstock attach", "spark-submit"])
def test_a_job_nobody_may_edit_is_attached_to_from_outside(
    way: str, quick: dict[str, str], tmp_path: Path
) -> None:
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
            settings={**quick, **settings}, journal=journal, **chosen,
        )  # fmt: skip
    assert ran.processed > 0, ran.errors
    assert "quick" in ran.output
    told = CliRunner().invoke(app, ["metrics", str(journal)])
    assert 'penstock_processed_records_total{run="StructuredNetworkWordCount"' in told.output
