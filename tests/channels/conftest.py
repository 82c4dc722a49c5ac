"""One Spark session in `local[1]` for this package, with Kafka's connector where it can be fetched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.channels.kafka_jars import connector_jars
from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder
from penstock.spark.settings import end_session, start_session


@pytest.fixture(scope="package")
def kafka_jars() -> list[Path] | str:
    """The connector's jars, or in words why they cannot be had."""
    import pyspark

    try:
        return connector_jars(cache_folder("jars"), pyspark.__version__)
    except ClusterError as error:
        return str(error)


@pytest.fixture(scope="package")
def spark(kafka_jars: list[Path] | str) -> Iterator[object]:
    """A plain local session with Penstock's settings."""
    end_session()
    settings = {}
    if isinstance(kafka_jars, list):
        settings["spark.jars"] = ",".join(str(jar) for jar in kafka_jars)
    session = start_session("channel-tests", "local[2]", settings=settings, log_level="ERROR")
    yield session
    end_session()
