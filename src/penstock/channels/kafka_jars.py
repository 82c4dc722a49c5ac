"""The jars of Kafka: Spark's connector, and the broker for tests and demos. Pinned, fetched once.

Both are short, fixed lists. To fetch them into the user's cache is quicker than to let Spark resolve them
(12 s at every driver's start), and they are the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ClusterError
from penstock.machine.maven import Jar, fetch, pinned
from penstock.spark.installation import maven_repository, scala_version

KAFKA_VERSION = "4.1.2"
"""The version of the broker."""


# What connectors are made of.
_PINNED = {
    f"{jar.artifact}:{jar.version}": jar
    for jar in pinned("""
org.apache.spark
  spark-sql-kafka-0-10_2.13:4.2.0 64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705
  spark-sql-kafka-0-10_2.13:4.1.3 cb31ffd9c8f5527dba061db8af671d295562092e4f3f5ff42fc249fab8a8fde6
  spark-sql-kafka-0-10_2.13:4.0.4 b2f7b3a4fbf292b5bf10bd4dd6af301eded9c9985b16239b407401d66dbc8a25
  spark-sql-kafka-0-10_2.13:3.5.7 b4e39c6ee54f9b3b068d852f9da471df28a1866faf7738c3bf12275f3825a2a8
  spark-sql-kafka-0-10_2.12:3.5.7 184f8bd4a3cd22299c49090d88b894f81fd7546b4ee64879519a0d76a685dbb8
  spark-token-provider-kafka-0-10_2.13:4.0.0 f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767
  spark-token-provider-kafka-0-10_2.13:3.5.4 c61e91490003eb689820a80e0883e0c5687476229ff9ea93861a8f65c3c1ffb0
  spark-token-provider-kafka-0-10_2.12:3.5.7 9701914db5c6d09628b58d2d2c1ccd2c9ea28f32f83dd6cb21f98b8237531ff4
org.apache.kafka
  kafka-clients:3.9.1 7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9
  kafka-clients:3.4.1 9d0a9058c8ede79db6e54ae378ed16fe8d1bead2894635a4aa6aa0b7981668c6
org.apache.commons
  commons-pool2:2.12.1 5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef
  commons-pool2:2.11.1 ea0505ee7515e58b1ac0e686e4d1a5d9f7d808e251a61bc371aa0595b9963f83
""")
}


@dataclass(frozen=True, slots=True)
class Connector:
    """Spark's Kafka connector for one minor version of Spark and one of Scala, with all it needs."""

    spark: tuple[int, int]
    scala: str
    jars: tuple[Jar, ...]

    @staticmethod
    def of(spark: tuple[int, int], scala: str, connector: str, tokens: str, *companions: str) -> Connector:
        """A connector by the versions of its two own jars and the names of its companions."""
        own = (
            f"spark-sql-kafka-0-10_{scala}:{connector}",
            f"spark-token-provider-kafka-0-10_{scala}:{tokens}",
        )
        return Connector(spark, scala, tuple(_PINNED[name] for name in (*own, *companions)))


CONNECTORS = (
    Connector.of((4, 2), "2.13", "4.2.0", "4.0.0", "kafka-clients:3.9.1", "commons-pool2:2.12.1"),
    Connector.of((4, 1), "2.13", "4.1.3", "4.0.0", "kafka-clients:3.9.1", "commons-pool2:2.12.1"),
    Connector.of((4, 0), "2.13", "4.0.4", "4.0.0", "kafka-clients:3.9.1", "commons-pool2:2.12.1"),
    Connector.of((3, 5), "2.13", "3.5.7", "3.5.4", "kafka-clients:3.4.1", "commons-pool2:2.11.1"),
    Connector.of((3, 5), "2.12", "3.5.7", "3.5.7", "kafka-clients:3.4.1", "commons-pool2:2.11.1"),
)
"""Newest first. The connector is published with a Spark, not with every one (4.3 has none): an older one of
the same major version works too, since it uses Spark's public data source interface."""


def connector_for(spark_version: str, scala: str) -> Connector:
    """The newest connector that is not newer than a Spark, of its major version and its Scala."""
    major, minor = (int(part) for part in spark_version.split(".")[:2])
    for connector in CONNECTORS:
        if connector.scala == scala and (major, 0) <= connector.spark <= (major, minor):
            return connector
    known = ", ".join("{}.{} (Scala {})".format(*found.spark, found.scala) for found in CONNECTORS)
    raise ClusterError(
        f"channel kafka: no connector is known for Spark {spark_version} with Scala {scala}; expected "
        f"one of {known}, or a newer one of the same major version"
    )


def connector_jars(folder: Path, spark_version: str) -> list[Path]:
    """Spark's Kafka connector and what it needs, fetched where not there yet."""
    return fetch(folder, connector_for(spark_version, scala_version()).jars, maven_repository())


def broker_jars(folder: Path) -> list[Path]:
    """Everything a Kafka broker needs, fetched where not there yet."""
    return fetch(folder, BROKER_JARS, maven_repository())


# The closure of org.apache.kafka:kafka_2.13, as Maven resolves it, and a logger.
BROKER_JARS = pinned("""
org.apache.kafka
  kafka_2.13:4.1.2 965af2d9c19be0c169110eb18468a0bee24e24d14071a57c7f8a57bc4d3f990e
  kafka-clients:4.1.2 afe861c05067f4018a3148d73c1ed1e5fc90808757c15b043527d7e535a5d431
  kafka-server-common:4.1.2 0f1d8fb9478ca0e3eea23b81064749738b9bff705704067e2fe8d62047e5fc07
  kafka-group-coordinator-api:4.1.2 781f932fb3e3824420e7554ef745b57e1827dd801cfc71bf8fd31eef56e60638
  kafka-group-coordinator:4.1.2 1925a002ef7c527b72a0877ed0d9f3a5f88a08d130d1ed2bdfcc40457ded354b
  kafka-transaction-coordinator:4.1.2 20939d46e1e65a34d6a59b447f0a5e63721678abbfdc948a5f9422930d71612c
  kafka-metadata:4.1.2 ccc29f5423cf5fbe63b47871dbce00a16e05a38bd0d531b3bf21e5c71ba54fac
  kafka-storage-api:4.1.2 79910cc7d0e3d3a9d9ce6f30f6f000cd355321f604a0f6c73c948389d1b41457
  kafka-tools-api:4.1.2 6d4d6a33b0dcd2180e7489c58c0089f8fb502e7a095cdd46f57755df462f00ae
  kafka-raft:4.1.2 01f6717d07472b577a1cfe1cdf4d098b14a1dae4e35574164712801bd2a55cce
  kafka-storage:4.1.2 902a08f775a9957e1546ecec8e22fbda73b84be9dfbdf04cce7a023dd60bf8b9
  kafka-server:4.1.2 2b849f1c9d3d9a08a5ea4c2f0479c552592cd770d72263d8d1610701a9b3e8d4
  kafka-coordinator-common:4.1.2 0e6697b6827fa635b4686ec9754b1c5583f4997e9bc0f33a8518f1dee518a454
  kafka-share-coordinator:4.1.2 fffacfaa46e7f25696f673035f86669422ae81889dfd28d8fec29500ee888310
com.github.luben
  zstd-jni:1.5.6-10 b6c3237e24b8252a5a9c3a0e1ae30ef8f323412e74bd358548b7a9e527d676df
at.yawk.lz4
  lz4-java:1.10.1 a58a84c4271e50df4c96ed916ccb7e48a869f8ed9cdcda1ad5d3d4c33b0214a3
org.xerial.snappy
  snappy-java:1.1.10.7 4c766cb3f855415ee734b2392949a0b6f12a60879334a74518deaf6270d32e36
org.scala-lang
  scala-library:2.13.16 1ebb2b6f9e4eb4022497c19b1e1e825019c08514f962aaac197145f88ed730f1
  scala-reflect:2.13.16 fb49ccd9cac7464486ab993cda20a3c1569d8ef26f052e897577ad2a4970fb1d
org.pcollections
  pcollections:4.0.2 2bbeef5797a241300c4f7513cd546239629ed7deda4fc0c31df90bb95f5f13ef
org.hdrhistogram
  HdrHistogram:2.2.2 22d1d4316c4ec13a68b559e98c8256d69071593731da96136640f864fa14fad8
com.dynatrace.hash4j
  hash4j:0.22.0 23028a3fd006e530bf495f551083208187cafd8f80624d048eba56442f16a50e
com.github.ben-manes.caffeine
  caffeine:3.2.0 ec411dfdf0c03f25218648ce89861630b71680e5858a9a7278ebac8e55cab3d7
org.jspecify
  jspecify:1.0.0 1fad6e6be7557781e4d33729d49ae1cdc8fdda6fe477bb0cc68ce351eafdfbab
org.apache.logging.log4j
  log4j-api:2.25.3 e886682920fa0fb9d6eb6395dcb4de088443f8646c89c5e5846e168e327f406f
  log4j-core:2.25.3 362b7fcb65b73aa46cc4bc53abf4eb216f444a83b5d1a037cb6fdfff0ae9f0f9
  log4j-slf4j-impl:2.25.3 f835ac2bf1a895d5e687b4ebf238bff05316dd672e572dff235024b6e320bcc9
net.sourceforge.argparse4j
  argparse4j:0.7.0 65ceb669d88f63306c680f8088bbf765bbca72d288a61a03703000076c3d3f56
commons-validator
  commons-validator:1.10.1 ed74711a78d793ca37f6075e4a1e93d107233dfd20d0bb17e32bad88d38e56aa
commons-beanutils
  commons-beanutils:1.11.0 9e44ba68ec9a3f21286fa2a8bbb003b735c0f69101bb43144b79f4f8aaa74709
commons-digester
  commons-digester:2.1 e0b2b980a84fc6533c5ce291f1917b32c507f62bcad64198fff44368c2196a3d
commons-logging
  commons-logging:1.3.5 6d7a744e4027649fbb50895df9497d109f98c766a637062fe8d2eabbb3140ba4
commons-collections
  commons-collections:3.2.2 eeeae917917144a68a741d4c0dff66aa5c5c5fd85593ff217bced3fc8ca783b8
com.fasterxml.jackson.core
  jackson-databind:2.19.4 b781c431be870deb0bf84421e99e774c256a701f4ba678df80248f55cd16ff74
  jackson-annotations:2.19.4 ab26383fa3c10c0df1ffd1bb035d81161c059b1af71927d73c24473c058baa16
  jackson-core:2.19.4 466ae4dc4f7054f51525f4211df411d9a64d65cc169995d32bf49e20e6f586e5
com.fasterxml.jackson.dataformat
  jackson-dataformat-csv:2.19.4 fc06cf56909e43e0cdc84ad5e23069fcc4d503a8833bda348f47e50e8f1ac92c
com.fasterxml.jackson.datatype
  jackson-datatype-jdk8:2.19.4 c0e0dc3039f9a37a099b2602838f833ea8c15c56445a0eb5463d0c7e0c355da2
com.fasterxml.jackson.dataformat
  jackson-dataformat-yaml:2.19.4 998e652806c49ca59e2b6432c4edc37580c4702cb6189d10e6053d0b7982c2e7
org.yaml
  snakeyaml:2.4 ef779af5d29a9dde8cc70ce0341f5c6f7735e23edff9685ceaa9d35359b7bb7f
net.sf.jopt-simple
  jopt-simple:5.0.4 df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28
org.bitbucket.b_c
  jose4j:0.9.6 7314af50cde9c99e8eaf43eee617a23edcc6bb43036221064355094999d837ef
com.yammer.metrics
  metrics-core:2.2.0 6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c
com.typesafe.scala-logging
  scala-logging_2.13:3.9.5 87a3017d3f43e6ace7566fe4c3d615134c6914ff871c8d64bb32ca1d996d0545
org.slf4j
  slf4j-api:1.7.36 d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0
com.google.re2j
  re2j:1.8 7b52c72156dd7f98b3237a5b35c1d34fba381b21048c89208913ad80a45dfbd7
""")
