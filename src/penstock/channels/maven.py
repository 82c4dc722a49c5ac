"""Jars from Maven Central: Spark's Kafka connector, and the broker for tests and demos.

Both are short, fixed lists: fetched once with their checksums into the user's cache and used from there.
That is quicker than letting Spark resolve them (12 s at every driver's start) and the same everywhere.
`PENSTOCK_MAVEN` names another repository with the same layout. No network: a clear ClusterError.
"""

from __future__ import annotations

import concurrent.futures
import functools
import hashlib
import os
import re
import urllib.error
import urllib.request
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from penstock.errors import ClusterError

SCALA = "2.13"


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar by its Maven coordinates."""

    group: str
    artifact: str
    version: str

    @property
    def name(self) -> str:
        """Its file name."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Its path in a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.name}"

    @staticmethod
    def of(coordinates: str) -> Jar:
        """A jar of `group:artifact:version`."""
        return Jar(*coordinates.split(":"))


# Newest first. The connector is published with each Spark; where the running Spark's own is not to be had,
# an older one of the same major version works (it uses Spark's public data source interface).
CONNECTOR_FALLBACKS = ("4.2.0", "4.1.1", "4.0.0")
TOKEN_PROVIDER_FALLBACKS = ("4.0.0",)
CONNECTOR_COMPANIONS = (
    Jar.of("org.apache.kafka:kafka-clients:3.9.1"),
    Jar.of("org.apache.commons:commons-pool2:2.12.1"),
)

KAFKA_VERSION = "4.1.2"
# The closure of org.apache.kafka:kafka_2.13, as Maven resolves it, and a logger.
BROKER_JARS = tuple(
    Jar.of(coordinates)
    for coordinates in f"""
    org.apache.kafka:kafka_2.13:{KAFKA_VERSION}
    org.apache.kafka:kafka-clients:{KAFKA_VERSION}
    org.apache.kafka:kafka-server-common:{KAFKA_VERSION}
    org.apache.kafka:kafka-group-coordinator-api:{KAFKA_VERSION}
    org.apache.kafka:kafka-group-coordinator:{KAFKA_VERSION}
    org.apache.kafka:kafka-transaction-coordinator:{KAFKA_VERSION}
    org.apache.kafka:kafka-metadata:{KAFKA_VERSION}
    org.apache.kafka:kafka-storage-api:{KAFKA_VERSION}
    org.apache.kafka:kafka-tools-api:{KAFKA_VERSION}
    org.apache.kafka:kafka-raft:{KAFKA_VERSION}
    org.apache.kafka:kafka-storage:{KAFKA_VERSION}
    org.apache.kafka:kafka-server:{KAFKA_VERSION}
    org.apache.kafka:kafka-coordinator-common:{KAFKA_VERSION}
    org.apache.kafka:kafka-share-coordinator:{KAFKA_VERSION}
    com.github.luben:zstd-jni:1.5.6-10
    at.yawk.lz4:lz4-java:1.10.1
    org.xerial.snappy:snappy-java:1.1.10.7
    org.scala-lang:scala-library:2.13.16
    org.scala-lang:scala-reflect:2.13.16
    org.pcollections:pcollections:4.0.2
    org.hdrhistogram:HdrHistogram:2.2.2
    com.dynatrace.hash4j:hash4j:0.22.0
    com.github.ben-manes.caffeine:caffeine:3.2.0
    org.jspecify:jspecify:1.0.0
    org.apache.logging.log4j:log4j-api:2.25.3
    org.apache.logging.log4j:log4j-core:2.25.3
    org.apache.logging.log4j:log4j-slf4j-impl:2.25.3
    net.sourceforge.argparse4j:argparse4j:0.7.0
    commons-validator:commons-validator:1.10.1
    commons-beanutils:commons-beanutils:1.11.0
    commons-digester:commons-digester:2.1
    commons-logging:commons-logging:1.3.5
    commons-collections:commons-collections:3.2.2
    com.fasterxml.jackson.core:jackson-databind:2.19.4
    com.fasterxml.jackson.core:jackson-annotations:2.19.4
    com.fasterxml.jackson.core:jackson-core:2.19.4
    com.fasterxml.jackson.dataformat:jackson-dataformat-csv:2.19.4
    com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.19.4
    com.fasterxml.jackson.dataformat:jackson-dataformat-yaml:2.19.4
    org.yaml:snakeyaml:2.4
    net.sf.jopt-simple:jopt-simple:5.0.4
    org.bitbucket.b_c:jose4j:0.9.6
    com.yammer.metrics:metrics-core:2.2.0
    com.typesafe.scala-logging:scala-logging_2.13:3.9.5
    org.slf4j:slf4j-api:1.7.36
    com.google.re2j:re2j:1.8
    """.split()
)


class NotPublishedError(ClusterError):
    """The repository answers, but does not have the jar."""


def connector_jars(folder: Path, spark_version: str) -> list[Path]:
    """Spark's Kafka connector and what it needs, fetched where not there yet.

    The running Spark's version first; where the repository lacks it, the newest older one it has.
    """
    connector = _first(folder, f"spark-sql-kafka-0-10_{SCALA}", (spark_version, *CONNECTOR_FALLBACKS))
    token = _first(
        folder, f"spark-token-provider-kafka-0-10_{SCALA}", (spark_version, *TOKEN_PROVIDER_FALLBACKS)
    )
    return [connector, token, *fetch(folder, CONNECTOR_COMPANIONS)]


def broker_jars(folder: Path) -> list[Path]:
    """Everything a Kafka broker needs, fetched where not there yet."""
    return fetch(folder, BROKER_JARS)


def fetch(folder: Path, jars: Sequence[Jar]) -> list[Path]:
    """The jars' files, fetched with their checksums where not there yet; ClusterError where out of reach."""
    folder.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(lambda jar: _fetched(folder, jar), jars))


def _first(folder: Path, artifact: str, versions: Sequence[str]) -> Path:
    candidates = [Jar("org.apache.spark", artifact, version) for version in dict.fromkeys(versions)]
    # What was missing once is not asked for again: a driver's start should not wait on it.
    missing = folder / f"{artifact}.missing"
    known_missing = set(missing.read_text().split()) if missing.exists() else set()
    for jar in candidates:
        if (folder / jar.name).exists():
            return folder / jar.name
        if jar.version in known_missing:
            continue
        try:
            return fetch(folder, [jar])[0]
        except NotPublishedError:
            known_missing.add(jar.version)
            missing.write_text("\n".join(sorted(known_missing)) + "\n")
    raise NotPublishedError(
        f"{artifact}: none of the versions {', '.join(jar.version for jar in candidates)} is published at "
        f"{_repository()}"
    )


def _repository() -> str:
    return (os.environ.get("PENSTOCK_MAVEN") or _default_repository()).rstrip("/")


@functools.cache
def _default_repository() -> str:
    """The repository Spark itself resolves packages from: the address its Ivy was built with."""
    jars = Path(pyspark.__file__).parent / "jars"
    for jar in sorted(jars.glob("ivy-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            code = archive.read("org/apache/ivy/plugins/resolver/IBiblioResolver.class")
        found = re.search(rb"https://[!-~]+/maven2/", code)
        if found is not None:
            return found[0].decode()
    raise ClusterError(
        f"no Maven repository is known: Spark's Ivy is not in {jars}; set PENSTOCK_MAVEN to one"
    )


def _fetched(folder: Path, jar: Jar) -> Path:
    target = folder / jar.name
    if target.exists():
        return target
    content = _download(f"{_repository()}/{jar.path}")
    expected = _download(f"{_repository()}/{jar.path}.sha1").decode().split()[0]
    found = hashlib.sha1(content).hexdigest()
    if found != expected:
        raise ClusterError(
            f"{jar.name}: expected the checksum {expected}, got {found}; the download is damaged"
        )
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(target)
    return target


def _download(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise NotPublishedError(f"{address}: not published") from None
        raise ClusterError(f"{address}: expected a jar, the repository answered {error.code}") from None
    except (urllib.error.URLError, OSError, TimeoutError) as error:
        raise ClusterError(
            f"{address}: Maven Central is out of reach ({error}); the kafka channel needs its jars once"
        ) from None
