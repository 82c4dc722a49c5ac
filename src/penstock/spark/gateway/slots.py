"""More or fewer task slots in an executor that runs: the cheapest level of all, and it takes no start.

Spark's driver keeps for each executor how many cores are free, and an executor runs whatever it is given: it
has as many threads as tasks. A core comes free when a task ends. So the driver is told, in its own way and by
its own thread, that a task nobody knows has ended that held so many cores: from then on the executor has so
many slots more. With a negative number it has fewer, as soon as tasks that run now have ended. Nothing
starts, nothing moves, no task is lost. The cluster manager knows nothing of it: whoever adds slots keeps the
account of the host's cores, as the fleet does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import ClusterError
from penstock.spark.gateway.session import has, java, java_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATUS_UPDATE = "org.apache.spark.scheduler.cluster.CoarseGrainedClusterMessages$StatusUpdate$"
NO_TASK = -1
"""The number of a task that never was: Spark numbers them from 0."""


class ExecutorSlots:
    """Slots that executors of one session have beyond those they began with. Not thread-safe.

    A new executor, and one started in the place of a lost one, has none beyond: say what is wanted again.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.given: dict[str, int] = {}
        """Slots beyond their own that executors have now, by id."""
        self.cores: dict[str, int] = {}
        """The cores that go with them. Always the same dictionary: an `ExecutorControl` may hold on to it."""
        self._message: Any = None

    def bring_to(self, beyond: Mapping[str, int], present: frozenset[str], cores_a_slot: int = 1) -> None:
        """Give these executors, by id, so many slots beyond their own; the others of those present none."""
        self.given = {name: number for name, number in self.given.items() if name in present}
        for gone in self.cores.keys() - present:
            del self.cores[gone]
        for name in present:
            missing = beyond.get(name, 0) - self.given.get(name, 0)
            if missing:
                self._say(name, missing * cores_a_slot)
                self.given[name] = beyond.get(name, 0)
                self.cores[name] = self.given[name] * cores_a_slot

    def _say(self, executor: str, cores: int) -> None:
        backend = java_context(self._spark).schedulerBackend()
        if not has(backend, "driverEndpoint"):
            raise ClusterError("this cluster manager's driver takes no further slots for its executors")
        if self._message is None:
            self._message = _message(self._spark)
        jvm = java(self._spark)
        values = jvm.java.util.ArrayList()
        nothing = jvm.java.nio.ByteBuffer.allocate(0)
        for value in (executor, NO_TASK, jvm.org.apache.spark.TaskState.FINISHED(), nothing, cores):
            values.add(value)
        values.add(jvm.PythonUtils.toScalaMap({}))
        backend.driverEndpoint().send(self._message.invokeWithArguments(values))


def _message(spark: SparkSession) -> Any:
    """Makes the message that a task has ended: a handle of Java's that takes its parts.

    How many cores a task had is a whole number in older versions of Spark and one of Scala's decimals in
    newer ones, which Python cannot hold: it is made on the way.
    """
    jvm, lookup = java(spark), java(spark).java.lang.invoke.MethodHandles.publicLookup()
    made = _method(jvm, STATUS_UPDATE, "apply", "java.nio.ByteBuffer")
    if made is None:
        raise ClusterError("this Spark has no message by which an executor could be given further slots")
    handle = lookup.unreflect(made).bindTo(getattr(_named(jvm, STATUS_UPDATE), "MODULE$"))
    if made.getParameterTypes()[4].getName() == "int":
        return handle
    decimal = _method(jvm, "scala.math.BigDecimal$", "apply", "int")
    assert decimal is not None
    filters = spark.sparkContext._gateway.new_array(jvm.java.lang.invoke.MethodHandle, 1)
    filters[0] = lookup.unreflect(decimal).bindTo(getattr(_named(jvm, "scala.math.BigDecimal$"), "MODULE$"))
    return jvm.java.lang.invoke.MethodHandles.filterArguments(handle, 4, filters)


def _method(jvm: Any, name: str, method: str, parameter: str) -> Any | None:
    """The method of this name that takes a parameter of a type; the one with the fewest of them."""
    found = [
        m
        for m in jvm.java.lang.Class.forName(name).getMethods()
        if m.getName() == method and parameter in [p.getName() for p in m.getParameterTypes()]
    ]
    return min(found, key=lambda m: len(m.getParameterTypes()), default=None)


def _named(jvm: Any, name: str) -> Any:
    found = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found
