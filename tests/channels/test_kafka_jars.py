"""Which of Kafka's jars go with which Spark."""

from __future__ import annotations

import re

import pytest

from penstock.channels.kafka_jars import BROKER_JARS, CONNECTORS, KAFKA_VERSION, connector_for
from penstock.errors import ClusterError


@pytest.mark.parametrize(
    ("spark", "scala", "connector"),
    [
        ("4.3.0", "2.13", "spark-sql-kafka-0-10_2.13-4.2.0.jar"),
        ("4.2.1", "2.13", "spark-sql-kafka-0-10_2.13-4.2.0.jar"),
        ("4.1.4", "2.13", "spark-sql-kafka-0-10_2.13-4.1.3.jar"),
        ("4.0.5", "2.13", "spark-sql-kafka-0-10_2.13-4.0.4.jar"),
        ("3.5.9", "2.12", "spark-sql-kafka-0-10_2.12-3.5.7.jar"),
        ("3.5.9", "2.13", "spark-sql-kafka-0-10_2.13-3.5.7.jar"),
        ("4.11.0.dev0", "2.13", "spark-sql-kafka-0-10_2.13-4.2.0.jar"),
    ],
)
def test_a_spark_gets_the_newest_connector_that_is_not_newer(spark: str, scala: str, connector: str) -> None:
    assert connector_for(spark, scala).jars[0].name == connector


@pytest.mark.parametrize(("spark", "scala"), [("4.3.0", "2.12"), ("3.4.1", "2.12"), ("5.0.0", "2.13")])
def test_a_spark_without_a_connector_is_a_clear_error(spark: str, scala: str) -> None:
    with pytest.raises(ClusterError, match=f"no connector is known for Spark {spark} with Scala {scala}"):
        connector_for(spark, scala)


def test_every_jar_is_pinned_and_named_once() -> None:
    for jars in (BROKER_JARS, *(connector.jars for connector in CONNECTORS)):
        assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in jars)
        assert len({jar.name for jar in jars}) == len(jars)
    assert {jar.version for jar in BROKER_JARS if jar.group == "org.apache.kafka"} == {KAFKA_VERSION}
