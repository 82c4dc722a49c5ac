"""The session builder's settings: ours by default, the user's where given."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigurationError
from penstock.spark.gateway.session import is_local
from penstock.spark.settings import ExecutorShape, spark_settings

MASTER = "spark://127.0.0.1:7077"


def test_the_measured_settings_are_on_by_default() -> None:
    settings = spark_settings(MASTER, executor=ExecutorShape(2, 1024), initial_executors=3)
    assert settings["spark.sql.streaming.checkpointFileManagerClass"].endswith(
        "FileSystemBasedCheckpointFileManager"
    )
    assert settings["spark.sql.streaming.pollingDelay"] == "100ms"
    assert settings["spark.executor.cores"] == "2"
    assert settings["spark.executor.memory"] == "1024m"
    assert settings["spark.dynamicAllocation.initialExecutors"] == "3"
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    # A driver gives memory back more often than every half hour.
    assert settings["spark.cleaner.periodicGC.interval"] == "10min"


def test_nothing_is_kept_for_a_page_that_nobody_can_open() -> None:
    assert spark_settings(MASTER)["spark.sql.ui.retainedExecutions"] == "50"
    assert "spark.sql.ui.retainedExecutions" not in spark_settings(MASTER, ui=True)


def test_every_setting_can_be_overridden() -> None:
    defaults = spark_settings(MASTER)
    user = {name: f"mine-{name}" for name in defaults}
    assert spark_settings(MASTER, user=user) == user


def test_java_options_are_joined_instead_of_replaced() -> None:
    settings = spark_settings(
        MASTER, java_flags=["-XX:Ours"], user={"spark.executor.extraJavaOptions": "-Dtheirs=1"}
    )
    assert settings["spark.executor.extraJavaOptions"] == "-XX:Ours -Dtheirs=1"
    assert settings["spark.driver.extraJavaOptions"] == "-XX:Ours"


def test_a_local_session_asks_for_no_executors() -> None:
    settings = spark_settings("local[2]", java_flags=["-XX:Ours"])
    assert not [name for name in settings if name.startswith(("spark.dynamicAllocation", "spark.executor."))]


def test_a_remote_master_is_not_bound_to_loopback() -> None:
    assert "spark.driver.bindAddress" not in spark_settings("spark://master.example:7077")


def test_checkpoints_on_object_stores_keep_sparks_file_manager() -> None:
    settings = spark_settings(MASTER, checkpoints_on_local_disk=False)
    assert "spark.sql.streaming.checkpointFileManagerClass" not in settings


def test_state_in_rocksdb_keeps_the_file_system_its_snapshots_are_copied_with() -> None:
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    user = {"spark.sql.streaming.stateStore.providerClass": provider}

    assert "spark.hadoop.fs.file.impl" in spark_settings("spark://127.0.0.1:7077")
    assert "spark.hadoop.fs.file.impl" not in spark_settings("spark://127.0.0.1:7077", user=user)


def test_a_setting_that_is_not_sparks_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"begins with `spark\.`"):
        spark_settings(MASTER, user={"executor.cores": "2"})


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2]", True),
        ("local-cluster[1,1,1024]", False),
        ("yarn", False),
    ],
)
def test_local_masters_are_told_from_clusters(master: str, local: bool) -> None:
    assert is_local(master) is local


@pytest.mark.spark
def test_a_session_remembers_no_files_of_micro_batches_that_were(spark) -> None:
    """Spark would keep what it knows of up to 250 MB of them, in a driver that runs for months."""
    caches = spark._jvm.org.apache.spark.sql.execution.datasources.FileStatusCache
    assert "NoopCache" in caches.getOrCreate(spark._jsparkSession).getClass().getName()
