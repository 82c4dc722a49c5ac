"""Managers of existing clusters: what a site may say, what is refused, and what a session gets."""

from __future__ import annotations

import socket
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ClusterError, ConfigurationError, TopologyError
from penstock.providers.managed import managed_site
from penstock.runs.clusters import not_runnable
from penstock.runs.known import known_names
from penstock.spark.managers.registry import MANAGERS, make_manager
from penstock.spark.settings import spark_settings
from penstock.topology.file import dump_topology, parse_topology
from penstock.topology.model import HostFlavour, Site, Topology

FILE = """
sources: {{clicks: {{workload: sine}}}}
operators: {{count: {{inputs: clicks}}}}
sites:
  there: {site}
"""
YARN_SITE = """<configuration>
<property><name>yarn.resourcemanager.hostname</name><value>{host}</value></property>
<property><name>yarn.resourcemanager.address</name><value>{host}:{port}</value></property>
</configuration>"""


def topology(site: str) -> Topology:
    return parse_topology(FILE.format(site=site))


def mistakes(site: str) -> str:
    try:
        parse_topology(FILE.format(site=site), known=known_names())
    except TopologyError as error:
        return "\n".join(mistake.message for mistake in error.mistakes)
    return ""


@pytest.fixture
def hadoop(tmp_path: Path) -> Path:
    (tmp_path / "yarn-site.xml").write_text(YARN_SITE.format(host="127.0.0.1", port=free_port()))
    return tmp_path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("site", "message"),
    [
        ("{master: mesos://there}", "expected a master such as spark://host:7077, yarn or k8s"),
        ("{master: yarns}", "expected a master such as"),
        ("{master: 'spark://there:port'}", "expected a master such as spark://host:7077"),
        ("{master: 'k8s://https://', cluster: {image: a}}", "such as k8s://https://host:6443"),
        ("{master: 'k8s://https://there:6443'}", 'needs the parameter "image"'),
        ("{master: yarn, cluster: {que: a}}", 'has no parameter "que"; did you mean "queue"?'),
        ("{cluster: {queue: a}}", "cluster is about an existing cluster; write its master: too"),
        (
            "{storage: /mnt}",
            "storage is about machines elsewhere; write the master: or the provider: of those",
        ),
        ("{master: 'local-cluster[2]'}", "such as local-cluster[2,1,1024]"),
        ("{master: yarn, core_hour: -1}", "core_hour"),
    ],
)
def test_what_is_wrong_with_a_site_is_told(site: str, message: str) -> None:
    assert message in mistakes(site)


def test_a_setting_that_is_none_of_sparks_is_refused_with_its_line() -> None:
    assert 'expected a setting "spark.…"' in mistakes("{master: yarn, settings: {ui.port: 0}}")


def test_a_unit_may_be_at_one_of_several_clusters() -> None:
    text = "{master: 'spark://there:7077'}\n  here: {provider: local}"
    assert not mistakes(text)


@pytest.mark.parametrize(
    ("site", "message"),
    [
        ("{master: 'spark://there:7077'}", "name what all of them share"),
        (
            "{master: 'spark://there:7077', storage: 'hdfs://names/penstock'}",
            "share hdfs://names/penstock, and not this machine's disk, where source clicks is generated",
        ),
        ("{master: 'spark://there:7077', storage: shared}", "expected an absolute path"),
        ("{master: 'spark://there:7077', storage: /mnt/shared}", "such as --out /mnt/shared/"),
    ],
)
def test_a_run_says_what_the_machines_must_share(site: str, message: str, tmp_path: Path) -> None:
    assert mistakes(site) == "", "a file may say it; a run cannot do it"
    assert message in "\n".join(not_runnable(topology(site), tmp_path))


AWS = "provider: {name: aws, region: eu-west-1, image: ami-1}"


@pytest.mark.parametrize(
    ("site", "message"),
    [
        (f"{{{AWS}}}", "share nothing, and not this machine's disk, where source clicks is generated"),
        (f"{{{AWS}, storage: 'hdfs://names/penstock'}}", "where source clicks is generated"),
        (f"{{{AWS}, storage: /mnt/shared}}", "such as --out /mnt/shared/"),
    ],
)
def test_a_run_says_what_leased_hosts_must_share(site: str, message: str, tmp_path: Path) -> None:
    assert message in "\n".join(not_runnable(topology(site), tmp_path))


def test_leased_hosts_with_a_folder_in_common_share_that(tmp_path: Path) -> None:
    assert not_runnable(topology(f"{{{AWS}, storage: {tmp_path}}}"), tmp_path / "run") == []


def test_a_cluster_on_this_machine_shares_its_disk(tmp_path: Path) -> None:
    for site in (
        "{master: 'spark://127.0.0.1:7077'}",
        "{master: 'k8s://https://127.0.0.1:6443', cluster: {image: a}}",
        "{master: 'local-cluster[1,1,1024]'}",
        f"{{master: 'spark://there:7077', storage: {tmp_path}}}",
    ):
        assert not_runnable(topology(site), tmp_path / "run") == []


def test_yarn_on_this_machine_shares_its_disk_and_yarn_elsewhere_does_not(
    hadoop: Path, tmp_path: Path
) -> None:
    site = f"{{master: yarn, cluster: {{conf_folder: {hadoop}}}}}"
    assert not_runnable(topology(site), tmp_path / "run") == []
    (hadoop / "yarn-site.xml").write_text(YARN_SITE.format(host="10.1.2.3", port=8032))
    assert "name what all of them share" in "\n".join(not_runnable(topology(site), tmp_path / "run"))


CROSSING = """
sources: {{numbers: {{function: "a:numbers"}}}}
operators:
  trim: {{inputs: numbers, function: "a:trim", schema: "value STRING"}}
  count: {{inputs: trim, function: "a:count"}}
sinks: {{kept: {{inputs: count, function: "a:keep"}}}}
channels: {{between: {{{channel}}}}}
units: {{reading: {{operators: [trim]}}, counting: {{operators: [count]}}}}
sites: {{there: {{master: "{master}", storage: "hdfs://names/penstock"}}}}
"""
LEASED = """
name: leased
sources: {{numbers: {{function: "a:numbers"}}}}
operators:
  trim: {{inputs: numbers, function: "a:trim", schema: "value STRING"}}
  count: {{inputs: trim, function: "a:count", stateful: {stateful}}}
sinks: {{kept: {{inputs: count, function: "{sink}"}}}}
channels: {{between: {{kind: kafka, bootstrap: "10.0.0.1:9092"}}}}
units: {{reading: {{operators: [trim]}}, counting: {{operators: [count]}}}}
sites: {{there: {{{aws}{storage}}}}}
"""


@pytest.mark.parametrize(
    ("stateful", "sink", "storage", "told"),
    [
        ("no", "a:keep", "", False),
        ("yes", "a:keep", "", True),
        ("no", "jsonl:kept", "", True),
        ("yes", "jsonl:kept", ", storage: 'hdfs://names/penstock'", False),
    ],
)
def test_state_and_results_of_leased_hosts_need_storage(
    stateful: str, sink: str, storage: str, told: bool
) -> None:
    given = parse_topology(LEASED.format(stateful=stateful, sink=sink, storage=storage, aws=AWS))
    found = not_runnable(given)
    assert any("unit counting keeps state or results" in text for text in found) is told, found
    assert told or found == []


def test_what_no_plan_can_be_made_of_is_among_the_reasons() -> None:
    text = LEASED.format(stateful="no", sink="a:keep", storage="", aws=AWS)
    (found,) = not_runnable(parse_topology(text.replace(', schema: "value STRING"', "")))
    assert "its columns must be declared" in found


@pytest.mark.parametrize(
    ("channel", "master", "message"),
    [
        ("kind: kafka", "spark://there:7077", "its machines cannot reach channel between"),
        (
            'kind: kafka, bootstrap: "127.0.0.1:9092"',
            "spark://there:7077",
            "its machines cannot reach channel between",
        ),
        ("kind: files", "spark://there:7077", "where channel between of kind files is; write kind: kafka"),
        ('kind: kafka, bootstrap: "broker:9092"', "spark://there:7077", ""),
        ("kind: kafka", "spark://127.0.0.1:7077", ""),
    ],
)
def test_channels_must_be_within_reach_of_the_machines(channel: str, master: str, message: str) -> None:
    found = not_runnable(parse_topology(CROSSING.format(channel=channel, master=master)))
    if message:
        assert message in "\n".join(found)
    else:
        assert found == []


def test_yarn_needs_hadoops_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    site = Site("there", master="yarn")
    with pytest.raises(ConfigurationError, match="conf_folder"):
        make_manager(site)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"yarn-site\.xml"):
        make_manager(site)


def test_yarn_is_told_the_queue_the_folder_and_the_shared_disk(hadoop: Path) -> None:
    cluster = {"conf_folder": str(hadoop), "queue": "streams", "python": "/opt/python"}
    manager = make_manager(Site("there", master="yarn", storage="/mnt", cluster=cluster))
    assert manager.settings()["spark.yarn.queue"] == "streams"
    assert manager.settings()["spark.yarn.stagingDir"].startswith("file:///mnt/")
    assert manager.settings()["spark.authenticate"] == "true", "YARN gives every application its own secret"
    assert manager.environment()["HADOOP_CONF_DIR"] == str(hadoop)
    assert manager.environment()["PYSPARK_PYTHON"] == "/opt/python"
    with pytest.raises(ClusterError, match="ResourceManager does not answer"):
        manager.require()


def test_kubernetes_is_told_namespace_account_image_and_files() -> None:
    cluster = {"image": "spark:4.3", "namespace": "streams", "service_account": "spark", "token_file": "/t"}
    manager = make_manager(Site("there", master="k8s://https://127.0.0.1:6443", cluster=cluster))
    found = manager.settings()
    assert found["spark.kubernetes.container.image"] == "spark:4.3"
    assert found["spark.kubernetes.namespace"] == "streams"
    assert found["spark.kubernetes.authenticate.oauthTokenFile"] == "/t"
    assert found["spark.driver.host"] == "127.0.0.1"


def test_a_master_that_does_not_answer_is_told_before_anything_starts() -> None:
    manager = make_manager(Site("there", master=f"spark://127.0.0.1:{free_port()}"))
    assert not manager.alive()
    with pytest.raises(ClusterError, match="is it started"):
        manager.require()


@pytest.mark.parametrize("master", ["yarn", "k8s://https://127.0.0.1:6443"])
def test_executors_are_counted_without_dynamic_allocation_where_the_manager_counts_them(master: str) -> None:
    found = spark_settings(master, initial_executors=3)
    assert found["spark.executor.instances"] == "3"
    assert found["spark.dynamicAllocation.enabled"] == "false"
    assert spark_settings("spark://127.0.0.1:7077")["spark.dynamicAllocation.enabled"] == "true"


def test_files_of_this_machines_java_are_not_told_to_other_machines() -> None:
    flags = ("-XX:AOTCache=/here",)
    assert "spark.executor.extraJavaOptions" not in spark_settings("yarn", java_flags=flags)
    assert "spark.executor.extraJavaOptions" in spark_settings("spark://127.0.0.1:7077", java_flags=flags)


def test_a_managed_site_leases_nothing_and_its_flavour_is_a_quota() -> None:
    usual = managed_site(Site("there", master="yarn"))
    assert usual.max_hosts == 1
    assert usual.flavours[0].cores > 1000
    quota = HostFlavour("quota", 16, 32768, Decimal(3))
    limited = managed_site(Site("there", master="yarn", flavours=(quota,)))
    assert limited.flavours[0].cores == 16
    assert limited.flavours[0].price_per_btu == 0


def test_a_site_with_everything_is_written_and_read_again() -> None:
    site: dict[str, Any] = {
        "master": "yarn", "cluster": "{queue: streams}", "settings": "{spark.locality.wait: 0s}",
        "storage": "/mnt", "core_hour": "0.04", "gib_hour": "0.005",
    }  # fmt: skip
    found = topology("{" + ", ".join(f"{key}: {value}" for key, value in site.items()) + "}")
    assert found.sites[0].settings == {"spark.locality.wait": "0s"}
    assert parse_topology(dump_topology(found)) == found


def test_every_manager_says_what_it_is() -> None:
    assert set(MANAGERS) == {"standalone", "yarn", "kubernetes", "local-cluster"}
    assert all(MANAGERS.described(name) for name in MANAGERS)
    assert all(one.meaning for name in MANAGERS for one in MANAGERS.parameters(name).values())
