"""The books of an attached session, on hand-written stand-ins for Spark."""

from __future__ import annotations

from collections.abc import Collection

from penstock.infrastructure import InstanceState
from penstock.monitoring import InstanceReading, Measurement
from penstock.policies import LeaseHost, MigrateInstance, StartInstance, StopInstance
from penstock.spark.attach import HOST, SessionCluster
from penstock.spark.executors import Executor
from penstock.topology.model import Operator, Source, Topology, Unit

TOPOLOGY = Topology(
    "job", (Source("input"),), (Operator("job", ("input",)),), units=(Unit("job", ("job",), max_instances=8),)
)


class FakeControl:
    """Executors that register when the test says so."""

    def __init__(self, target: int | None = None) -> None:
        self.target = target
        self.retired: list[str] = []
        self.present: list[Executor] = []
        self.said: list[int] = []

    def register(self, *names: str) -> None:
        self.present += [Executor(name, "127.0.0.11", 1, 1.0, 0, 0, 0.0, 100) for name in names]

    def lose(self, name: str) -> None:
        self.present = [executor for executor in self.present if executor.id != name]

    @property
    def retiring(self) -> frozenset[str]:
        return frozenset(self.retired)

    def executors(self) -> tuple[Executor, ...]:
        return tuple(self.present)

    def set_target(self, number: int) -> None:
        self.target = number
        self.said.append(number)

    def retire(self, ids: Collection[str]) -> None:
        self.retired += ids

    def tick(self) -> None:
        pass


class FakeMeter:
    """Measures the same for every executor there is."""

    def __init__(self, control: FakeControl) -> None:
        self._control = control

    def measure(self, now_s: float) -> Measurement:
        readings = tuple(InstanceReading(executor.id, 0.5) for executor in self._control.present)
        return Measurement("job", now_s, 1.0, readings=readings)

    def poll(self) -> None:
        pass


def a_cluster(control: FakeControl, *, act: bool = True) -> SessionCluster:
    return SessionCluster(TOPOLOGY, control, FakeMeter(control), act=act)  # type: ignore[arg-type]


def states(cluster: SessionCluster) -> dict[str, str]:
    return {name: instance.state.value for name, instance in cluster.deployment().instances.items()}


def test_executors_that_are_there_already_become_instances() -> None:
    control = FakeControl()
    control.register("0", "1")
    cluster = a_cluster(control)
    observation = cluster.observe(10.0)
    assert states(cluster) == {"job-executor-0": "running", "job-executor-1": "running"}
    assert control.target == 2
    assert [reading.instance for reading in observation.measurements[0].readings] == [
        "job-executor-0",
        "job-executor-1",
    ]


def test_a_start_is_a_wish_until_an_executor_registers() -> None:
    control = FakeControl()
    control.register("0")
    cluster = a_cluster(control)
    cluster.observe(10.0)
    cluster.enact([StartInstance("job-1", "job", HOST, "up")], 10.0)
    cluster.enact([StartInstance("job-1", "job", HOST, "said again")], 11.0)
    assert control.target == 2
    assert states(cluster)["job-1"] == "requested"
    control.register("7")
    cluster.observe(12.0)
    assert states(cluster)["job-1"] == "running"
    assert cluster.deployment().instances["job-1"].external_id == "7"


def test_a_stop_lowers_the_target_and_retires_that_very_executor() -> None:
    control = FakeControl()
    control.register("0", "1")
    cluster = a_cluster(control)
    cluster.observe(10.0)
    cluster.enact([StopInstance("job-executor-0", "job", "down")], 10.0)
    assert (control.target, control.retired) == (1, ["0"])
    assert states(cluster)["job-executor-0"] == "retiring"
    control.lose("0")
    observation = cluster.observe(11.0)
    assert states(cluster) == {"job-executor-1": "running"}
    assert observation.notices == (), "it went as it was told"


def test_stopping_the_only_working_instance_takes_back_an_open_wish_instead() -> None:
    control = FakeControl()
    control.register("0")
    cluster = a_cluster(control)
    cluster.observe(10.0)
    cluster.enact([StartInstance("job-1", "job", HOST, "up")], 10.0)
    cluster.enact([StopInstance("job-executor-0", "job", "down")], 11.0)
    assert control.retired == []
    assert control.target == 1
    assert states(cluster) == {"job-1": "running"}


def test_a_lost_executor_leaves_a_wish_that_the_next_one_fulfils() -> None:
    control = FakeControl()
    control.register("0")
    cluster = a_cluster(control)
    cluster.observe(10.0)
    control.lose("0")
    observation = cluster.observe(11.0)
    assert "executor 0 (job-executor-0) was lost" in observation.notices[0]
    assert states(cluster) == {"job-executor-0": "requested"}
    assert control.target == 1
    control.register("1")
    cluster.observe(12.0)
    assert states(cluster) == {"job-executor-0": "running"}


def test_a_migration_starts_the_replacement_and_retires_the_old_one() -> None:
    control = FakeControl()
    control.register("0")
    cluster = a_cluster(control)
    cluster.observe(10.0)
    control.register("1")
    cluster.observe(11.0)
    cluster.enact([MigrateInstance("job-executor-0", "job-1", "job", HOST, "move")], 11.0)
    assert control.target == 2
    assert cluster.deployment().of_unit("job")[-1].state is InstanceState.RUNNING


def test_hosts_are_not_ours_to_lease() -> None:
    cluster = a_cluster(FakeControl())
    (outcome,) = cluster.enact([LeaseHost("h", "spark", "any", "more room")], 1.0)
    assert outcome.error is not None
    assert "cluster manager" in outcome.error


def test_an_adviser_changes_nothing() -> None:
    control = FakeControl()
    control.register("0", "1")
    cluster = a_cluster(control, act=False)
    cluster.observe(10.0)
    cluster.tick()
    assert control.said == []


def test_executors_spark_was_asked_for_before_are_waited_for() -> None:
    control = FakeControl(target=2)
    cluster = a_cluster(control)
    cluster.observe(10.0)
    assert list(states(cluster).values()) == ["requested", "requested"]
    assert control.target == 2
