"""S3 without a cloud: S3Proxy over a folder of this machine, from Maven, pinned by SHA-256."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.machine.folders import cache_folder
from penstock.machine.maven import fetch, pinned
from penstock.spark.installation import maven_repository
from penstock.spark.launching import spark_java

from .ports import free_port, listens
from .started import Started

JARS = pinned("""
org.gaul
  s3proxy:4.1.0:jar-with-dependencies a4d025969aaf796616ed4b1e2491d87d455ce84bb28cb9db086b2e6aaa68b48d
""")
BUCKET = "penstock"
IDENTITY, CREDENTIAL = "penstock", "for-tests-alone"


class ObjectStore(Started):
    """S3Proxy; as a context manager it is stopped on leaving. A bucket is a folder, a key a file in it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._port = free_port()
        self.buckets = folder / "buckets"

    @property
    def url(self) -> str:
        """A bucket that is there."""
        return f"s3a://{BUCKET}"

    @property
    def settings(self) -> dict[str, str]:
        """Spark settings of a client of it: what a person would write about a store of their own."""
        prefix = "spark.hadoop.fs.s3a"
        return {
            f"{prefix}.endpoint": f"http://127.0.0.1:{self._port}",
            f"{prefix}.endpoint.region": "us-east-1",
            f"{prefix}.connection.ssl.enabled": "false",
            f"{prefix}.access.key": IDENTITY,
            f"{prefix}.secret.key": CREDENTIAL,
            # Its answers lack the versions of objects that a client could compare.
            f"{prefix}.change.detection.mode": "none",
        }

    def start(self) -> None:
        """Make the bucket, start it and wait until it takes connections."""
        (self.buckets / BUCKET).mkdir(parents=True, exist_ok=True)
        [jar] = fetch(cache_folder("jars"), JARS, maven_repository())
        properties = {
            "s3proxy.endpoint": f"http://127.0.0.1:{self._port}",
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": IDENTITY,
            "s3proxy.credential": CREDENTIAL,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self.buckets),
        }
        conf = self.folder / "s3proxy.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        java = spark_java()
        command = [str(java.executable), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._children.start(
            "s3proxy",
            [*command, "-jar", str(jar), "--properties", str(conf)],
            log=self._log("s3proxy"),
            environment={**os.environ, **java.environment()},
        )
        self._wait_for("s3proxy", lambda: listens(self._port))
