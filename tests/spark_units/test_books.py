"""The books between the loop and Spark, heartbeats, and what is made of measurements: all without Spark."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from penstock.channels.files import ArrivedFile
from penstock.controller.cluster import Cluster
from penstock.infrastructure import HostState, InstanceState
from penstock.monitoring import InstanceReading, Measurement
from penstock.policies.actions import (
    LeaseHost,
    MigrateInstance,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.spark.agent import parse_progress
from penstock.spark.cluster import SparkCluster, merged
from penstock.spark.heartbeat import HeartbeatClient, HeartbeatServer, ReportedExecutor, UnitReport, Wanted
from penstock.spark.local_cluster import LocalHost
from penstock.spark.unit_driver import RunSpecification, read_wanted, wanted_file, write_wanted
from penstock.spark.unit_meter import ages_of
from penstock.spark.unit_plan import RunFolders
from penstock.spark.unit_totals import UnitTotals
from penstock.topology.model import Choice, HostFlavour, Site

from .conftest import one_operator

TOPOLOGY = replace(
    one_operator(),
    sites=(Site("here", Choice("local"), flavours=(HostFlavour("small", 2.0, 2048, Decimal(1)),)),),
)


class Hosts:
    """Hosts that come and go at once, on addresses 127.0.0.11 and up."""

    def __init__(self):
        self.leased = {}

    def add_host(self, name, cores, memory_mib):
        address = f"127.0.0.{11 + len(self.leased)}"
        self.leased.setdefault(name, LocalHost(name, address, cores, memory_mib, HostState.UP))

    def remove_host(self, name, wait):
        self.leased.pop(name, None)

    def hosts(self):
        return dict(self.leased)

    def host_at(self, address):
        return next((host.id for host in self.leased.values() if host.address == address), None)


class Drivers:
    """Drivers that never die."""

    useless = frozenset()

    def tick(self, now_s):
        return []

    def reported(self, unit, running):
        pass


@pytest.fixture
def cluster(tmp_path):
    cluster = SparkCluster(TOPOLOGY, Hosts(), Drivers(), RunFolders(tmp_path))
    cluster.enact([LeaseHost("h1", "here", "small", "r"), StartInstance("i1", "unit", "h1", "r")], 1.0)
    return cluster


def a_report(*executors, application="app-1", **more):
    found = tuple(
        e if isinstance(e, ReportedExecutor) else ReportedExecutor(e, "127.0.0.11") for e in executors
    )
    return UnitReport("unit", 7, application, "running", found, **more)


def states(cluster):
    return {i.id: (i.state, i.external_id, i.host) for i in cluster.deployment().instances.values()}


def test_the_adapter_has_the_shape_the_loop_expects(cluster):
    port: Cluster = cluster
    assert port.observe(2.0).measurements == ()


def test_an_instance_is_bound_to_the_executor_that_registers(cluster):
    assert cluster.heard(a_report()) == Wanted(1)
    assert states(cluster) == {"i1": (InstanceState.REQUESTED, None, "h1")}

    assert cluster.heard(a_report("0")) == Wanted(1)
    assert states(cluster) == {"i1": (InstanceState.RUNNING, "0", "h1")}


def test_an_instance_prefers_an_executor_on_its_own_host(cluster):
    cluster.enact([LeaseHost("h2", "here", "small", "r"), StartInstance("i2", "unit", "h2", "r")], 2.0)

    cluster.heard(a_report(ReportedExecutor("0", "127.0.0.12"), ReportedExecutor("1", "127.0.0.11")))

    assert {name: bound for name, (_, bound, _) in states(cluster).items()} == {"i1": "1", "i2": "0"}


def test_stopping_retires_the_very_executor_and_lowers_the_number(cluster):
    cluster.enact([StartInstance("i2", "unit", "h1", "r")], 2.0)
    cluster.heard(a_report("0", "1"))

    cluster.enact([StopInstance("i1", "unit", "r")], 3.0)
    assert cluster.heard(a_report("0", "1")) == Wanted(1, ("0",))

    cluster.heard(a_report("1"))
    assert list(states(cluster)) == ["i2"]


def test_saying_an_action_again_changes_nothing(cluster):
    cluster.enact([LeaseHost("h1", "here", "small", "r"), StartInstance("i1", "unit", "h1", "r")], 2.0)
    cluster.enact([StopInstance("nobody", "unit", "r"), ReleaseHost("nowhere", "r")], 2.0)

    assert cluster.heard(a_report("0")) == Wanted(1)
    assert list(cluster.deployment().hosts) == ["h1"]


def test_a_lost_executor_is_told_and_asked_for_again(cluster):
    cluster.heard(a_report("0"))

    assert cluster.heard(a_report()) == Wanted(1)
    assert cluster.observe(3.0).notices == ("executor 0 of unit unit was lost; another is asked for",)
    cluster.heard(a_report("1"))
    assert states(cluster)["i1"][:2] == (InstanceState.RUNNING, "1")


def test_an_executor_nobody_asked_for_is_retired(cluster):
    assert cluster.heard(a_report("0", "1")) == Wanted(1, ("1",))


def test_a_driver_that_started_again_gets_its_instances_bound_anew(cluster):
    cluster.heard(a_report("0"))

    cluster.heard(a_report("0", application="app-2"))

    assert states(cluster)["i1"][:2] == (InstanceState.RUNNING, "0")
    assert "new application" in cluster.observe(3.0).notices[0]


def test_a_migrated_instance_goes_when_its_replacement_runs(cluster):
    cluster.heard(a_report("0"))
    cluster.enact([MigrateInstance("i1", "i2", "unit", "h1", "r")], 2.0)
    assert cluster.wanted("unit") == Wanted(2)

    assert cluster.heard(a_report("0", "1")) == Wanted(1, ("0",))


def test_a_controller_that_comes_back_has_the_same_books(cluster, tmp_path):
    cluster.heard(a_report("0"))

    again = SparkCluster(TOPOLOGY, cluster._hosts._cluster, Drivers(), RunFolders(tmp_path))

    assert states(again) == states(cluster)
    assert again.heard(a_report("0")) == Wanted(1)
    assert again.observe(3.0).notices == ()


def test_measurements_between_two_ticks_become_one_by_the_loops_names(cluster):
    cluster.heard(a_report("0"))
    for at_s, processed, duration_s in ((1.0, 10, 1.0), (2.0, 30, 2.0)):
        measurement = Measurement(
            "unit", at_s, 1.0, 20, processed, waiting=5, duration_s=duration_s,
            readings=(InstanceReading("0", 0.5), InstanceReading("gone", 0.9)),
        )  # fmt: skip
        cluster.heard(a_report("0", measurement=measurement))

    (merged_one,) = cluster.observe(9.0).measurements

    assert (merged_one.at_s, merged_one.interval_s, merged_one.arrived, merged_one.processed) == (
        9.0,
        2.0,
        40,
        40,
    )
    assert merged_one.duration_s == pytest.approx(1.75)
    assert [(r.instance, r.cpu_ratio) for r in merged_one.readings] == [("i1", 0.5)]
    assert cluster.observe(10.0).measurements == ()


def test_a_single_measurement_is_kept_as_it_is():
    one = Measurement("unit", 3.0, 1.0, 5, 5)
    assert merged([one], 4.0) == replace(one, at_s=4.0)


def test_a_report_goes_over_and_the_wanted_state_comes_back(tmp_path):
    heard = []
    server = HeartbeatServer(tmp_path, lambda report: heard.append(report) or Wanted(3, ("1",)))
    client = HeartbeatClient(tmp_path)
    sent = a_report("0", measurement=Measurement("unit", 1.0, 1.0, readings=(InstanceReading("0", 0.5),)))
    assert client.send(sent) is None, "the controller is not there yet"

    server.start()
    assert client.send(sent) == Wanted(3, ("1",))
    assert heard == [sent]

    server.stop()
    assert client.send(sent) is None
    back = HeartbeatServer(tmp_path, lambda report: Wanted(1, stop=True))
    back.start()
    assert client.send(sent) == Wanted(1, stop=True), "it came back at another address"
    back.stop()


def test_a_wanted_state_written_down_forgets_executors_of_the_past(tmp_path):
    file = wanted_file(RunFolders(tmp_path), "unit")
    assert read_wanted(file) is None

    write_wanted(file, Wanted(4, ("2",), stop=True))

    assert read_wanted(file) == Wanted(4)


def test_a_specification_reads_as_it_was_written(tmp_path):
    specification = RunSpecification("run", TOPOLOGY, "spark://x", "code", None, {"spark.a": "b"})
    specification.write(tmp_path)

    assert RunSpecification.read(tmp_path) == specification


def an_event(**more):
    event = {
        "timestamp": "1970-01-01T00:01:40.000Z",
        "batchId": 4,
        "numInputRows": 100,
        "durationMs": {"triggerExecution": 2000},
        "observedMetrics": {
            "penstock-input-x": {"source_mean_ms": 100_000.0, "source_first_ms": 99_000},
            "other": {"source_mean_ms": 0.0, "source_first_ms": 0},
        },
    }
    return parse_progress({"id": "query", **event, **more})


def test_ages_are_from_the_records_instants_to_the_end_of_their_batch():
    ages = ages_of([an_event()], "source", {})

    assert ages.mean_s == pytest.approx(2.0)
    assert 2.8 < ages.p95_s < ages.p99_s <= 3.0


def test_ages_since_arrival_come_from_the_files_where_they_are_known():
    arrived = {4: [ArrivedFile(101.0, 90), ArrivedFile(98.0, 10)]}

    ages = ages_of([an_event()], "arrived", arrived)

    assert (ages.mean_s, ages.p95_s) == (pytest.approx(1.3), pytest.approx(4.0))


def test_ages_since_the_source_are_spread_over_what_a_files_name_tells():
    arrived = {4: [ArrivedFile(101.0, 50, (96.0, 98.0)), ArrivedFile(101.0, 50, (98.0, 100.0))]}

    ages = ages_of([an_event(observedMetrics={})], "source", arrived)

    assert ages.mean_s == pytest.approx(4.0)
    assert 5.5 < ages.p95_s <= ages.p99_s <= 6.0


@pytest.mark.parametrize("event", [an_event(numInputRows=0), an_event(observedMetrics={})])
def test_nothing_is_said_of_ages_nobody_measured(event):
    assert ages_of([event], "source", {}).mean_s is None


def test_totals_count_compliance_and_percentiles_of_a_run():
    totals = UnitTotals(slo_s=1.0)
    for duration_s in (0.5, 3.0):
        totals.add(
            Measurement("unit", 1.0, 1.0, 100, 100, 100, duration_s=duration_s, duration_p95_s=duration_s,
                        duration_p99_s=duration_s, latency_s=2 * duration_s)
        )  # fmt: skip

    count = totals.count()
    assert (count.arrived, count.processed, totals.emitted) == (200, 200, 200)
    assert (count.compliance.records, count.compliance.real_time, count.compliance.relaxed) == (200, 100, 200)
    assert (count.durations.p50_s, count.durations.p99_s) == (0.5, 3.0)
    assert totals.latencies().mean_s == pytest.approx(3.5)
