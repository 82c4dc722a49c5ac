"""Kafka's own administration client in a session's Java process: topics, committed offsets, old records."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.errors import ClusterError
from penstock.spark.gateway.session import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def static_method(java_class: Any, name: str) -> Any:
    """A static method of a Java class that has a method of an object by the same name too.

    Asked by its name alone, py4j looks at the first of the two that Java lists, in whatever order that is in
    this process, and where it is the object's says that there is none.
    """
    from py4j.java_gateway import JavaMember
    from py4j.protocol import STATIC_PREFIX

    return JavaMember(name, None, f"{STATIC_PREFIX}{java_class._fqn}", java_class._gateway_client)


class KafkaAdmin:
    """One connection to a broker. Use it in a `with` block. ClusterError where the broker does not answer."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        client: Mapping[str, str] | None = None,
        patience_s: float = 20.0,
    ) -> None:
        """`client` are further settings, as to be let in; an answer is waited for `patience_s`."""
        self._java = java(spark)
        self._bootstrap = bootstrap
        settings = self._java.java.util.Properties()
        for name, value in (client or {}).items():
            settings.put(name, value)
        settings.put("bootstrap.servers", bootstrap)
        settings.put("default.api.timeout.ms", str(int(patience_s * 1000)))
        settings.put("request.timeout.ms", str(int(patience_s * 500)))
        self._admin = self._java.org.apache.kafka.clients.admin.Admin.create(settings)

    def __enter__(self) -> KafkaAdmin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admin.close(self._java.java.time.Duration.ofMillis(500))

    def create_topic(self, name: str, partitions: int, configuration: Mapping[str, str]) -> None:
        """Make a topic where there is none of this name."""
        failed = f"topic {name} could not be created"
        # A broker that can make none just now still knows those there are.
        if self._answer(lambda: self._admin.listTopics().names().get(), failed).contains(name):
            return
        # Alone: one that exists must not keep others from being made.
        replication = self._java.java.lang.Short.parseShort("1")
        topic = self._java.org.apache.kafka.clients.admin.NewTopic(name, partitions, replication)
        wanted = self._java.java.util.ArrayList()
        wanted.add(topic.configs(self._map(configuration)))
        self._answer(lambda: self._admin.createTopics(wanted).all().get(), failed, "TopicExistsException")

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Write down how far a reader is, where any tool for Kafka sees it too."""
        at = self._java.org.apache.kafka.clients.consumer.OffsetAndMetadata
        places = self._map({self._place(topic, n): at(offset) for n, offset in offsets.items()})
        self._answer(
            lambda: self._admin.alterConsumerGroupOffsets(group, places).all().get(),
            f"offsets of {group} could not be written",
        )

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """How far a reader is in each partition of a topic; empty where it has not told."""
        listed = self._answer(
            lambda: self._admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(),
            f"offsets of {group} could not be read",
        )
        found = {}
        for entry in listed.entrySet() if listed is not None else ():
            if entry.getKey().topic() == topic and entry.getValue() is not None:
                found[int(entry.getKey().partition())] = int(entry.getValue().offset())
        return found

    def ends(self, topic: str) -> dict[str, int]:
        """The offset behind the last record of each partition of a topic; empty where there is no topic."""
        names, missing = self._java.java.util.ArrayList(), "UnknownTopicOrPartitionException"
        names.add(topic)
        failed = f"the end of {topic} could not be read"
        told = self._answer(lambda: self._admin.describeTopics(names).allTopicNames().get(), failed, missing)
        if told is None:
            return {}
        latest = static_method(self._java.org.apache.kafka.clients.admin.OffsetSpec, "latest")
        numbers = range(told.get(topic).partitions().size())
        places = self._map({self._place(topic, number): latest() for number in numbers})
        found = self._answer(lambda: self._admin.listOffsets(places).all().get(), failed)
        return {str(n): int(found.get(self._place(topic, n)).offset()) for n in numbers}

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records of a topic before an offset in each partition."""
        before = static_method(self._java.org.apache.kafka.clients.admin.RecordsToDelete, "beforeOffset")
        places = self._map({self._place(topic, n): before(offset) for n, offset in offsets.items()})
        self._answer(
            lambda: self._admin.deleteRecords(places).all().get(),
            f"old records of {topic} could not be deleted",
        )

    def _answer(self, call: Any, failed: str, harmless: str | None = None) -> Any:
        from py4j.protocol import Py4JJavaError

        try:
            return call()
        except Py4JJavaError as error:
            cause = str(error.java_exception)
            if harmless is not None and harmless in cause:
                return None
            raise ClusterError(
                f"channel kafka: {failed} at {self._bootstrap}: {cause}; is the broker up (`penstock broker "
                "status`)?"
            ) from None

    def _place(self, topic: str, partition: int) -> Any:
        return self._java.org.apache.kafka.common.TopicPartition(topic, partition)

    def _map(self, entries: Mapping[Any, Any]) -> Any:
        found = self._java.java.util.HashMap()
        for key, value in entries.items():
            found.put(key, value)
        return found
