"""Checkpoints in an object store (`storage: s3a://bucket/folder`): the jars and settings a session needs.

Spark ships no client for S3. The one of Hadoop is a short, fixed list of jars for each version of Hadoop: the
parts of Amazon's library that it uses, 18 MB, in place of the bundle of 686 MB that Maven would resolve. A
store has no rename, so files of a checkpoint appear by completing an upload.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder
from penstock.machine.maven import Jar, fetch, pinned
from penstock.spark.installation import maven_repository, spark_jars

SCHEME = "s3a://"
CLIENT = "hadoop-aws"
CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
MANAGER = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
ENDPOINT = "spark.hadoop.fs.s3a.endpoint"

JARS: dict[str, tuple[Jar, ...]] = {
    "3.5.0": pinned("""
org.apache.hadoop
  hadoop-aws:3.5.0 66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa
org.apache.spark
  spark-hadoop-cloud_2.13:4.1.1 e5b41b43d481510afd0cdc372b593770ddee5a0a348d0744cef6c6cd77a27943
org.reactivestreams
  reactive-streams:1.0.4 f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28
software.amazon.awssdk
  annotations:2.35.4 6f36bd87155d1dd85d6efbdd29e532e3759a022211feb71affebee1aa34f04b8
  apache-client:2.35.4 6eade21b482724ed0a4613eaa95d20e47e7a81304bd28538ac427fece94a7740
  arns:2.35.4 c63cc29f76a8527e9e10b621703163df541dc5cb315508dc2898518602c75380
  auth:2.35.4 6b601323004833fb4a857ffc95db4795e0e6320eb93e64b1246c655c9ff04994
  aws-core:2.35.4 fdb5fc8f1a48d97fa7d04d3460fb42f6973c7b1bbe1b9d317871ef0162bcb623
  aws-query-protocol:2.35.4 9b4cf9b78977cc9f5b4ceae9c435dedbde6a055a0f8d9e053eaca945715e2a9f
  aws-xml-protocol:2.35.4 4f59176da2522c357b1993e4a890fde529f12f365795ef86269bde4a3984cd0d
  checksums-spi:2.35.4 88b5af85ac2d3c862be8856be4e683ab31932e4a5a3c1c45af864d2671ac7cec
  checksums:2.35.4 94464af4374d08ecf33ca06ed4d03e1615529e547726e26b56abacefbeee7948
  crt-core:2.35.4 2c6aaa17bf9ccbb9d962dded4351e73decb197e3c5519970e0dae17e05d3df62
  endpoints-spi:2.35.4 ef02441bda916959b8341290b49c68cc35538e1ad6f8629b75d8334dc6653e00
  http-auth-aws-eventstream:2.35.4 709107552f302be3fa9e05969a3779f5c0f07fb809e6fa1fa571a6f0c61326dd
  http-auth-aws:2.35.4 c4acb92fdec90bfd9b67bfab8e41b69cd152c03cacc10281a8ab464791856e01
  http-auth-spi:2.35.4 4495463406bb98eb136f2c3f3604ed5f08ec9974ebc3f34f2121b20679f61d5c
  http-auth:2.35.4 3ec933a06e751a05e195eb3589209e23c44e1897263b6fcae34ef4cc63cd4491
  http-client-spi:2.35.4 728be89b2a07b595edb0adee3a2cbbbdd4cb1f4caddde0d08c3979fe2620dedb
  identity-spi:2.35.4 188d73db7d4e2361654bc3c5a1b3eaeb445d0500fb012cc46c5d67975adf97bf
  json-utils:2.35.4 80d67a6bb3e7eb49c7d4b6e4ba4c1463ed7da0192b795158328602dc131c5ecc
  metrics-spi:2.35.4 c2a4ee90a21081317e2e6eba0c414d05d3d518aed2f86b1c1710a7367b450487
  netty-nio-client:2.35.4 b82f8b33e5c85273a47da45ede884d7ccb31c9c2f69e6910a76c5c48fa1275dc
  profiles:2.35.4 0f4ef7ca72ccd80dd49ebeaf7f3ce60a7d7a00da59a91aeeae6e91052bbacbd8
  protocol-core:2.35.4 f2532eca6ba2142fe4821d5decb03c83a3e15dc8bfae2240e7f2efa75f9868b5
  regions:2.35.4 77eae87b34ce96ecdf916a9bc06684dbeafcb6d38ef0513285fa5d5d6d41f5ca
  retries-spi:2.35.4 668638751d059c527ddd41ffa4dcebe36a7c14860ed56776df09b861c14dc7dd
  retries:2.35.4 f99fb2f8c66d7e859955b3542d3af8f9de8f23a21d5e3250f0f2c5f18487e469
  s3-transfer-manager:2.35.4 0eec78870b3d0abc509a847072cf963cb2ae6e360dc6161a9449b3398c470476
  s3:2.35.4 f23532c5223be9b0bfec0d72837ed09ed34dbdf8022818ba145b20076a78b4bc
  sdk-core:2.35.4 fa559a4ce598852f3519c8f3b36250f583b0858a7611eedc4a81997778c617f4
  sts:2.35.4 8d0f7816d3f96e3f00249f5d054d926e939a104bcf9ef57676ee0b16c59684d2
  third-party-jackson-core:2.35.4 32f4252c6c2df8f3a4aff885e6dc77024ad6b4cb48455d07b461ec30c41643ea
  utils-lite:2.35.4 e004806def5e22ec98edc48a133ff3317166255e1ba29d93d129e9fdfa64a7be
  utils:2.35.4 642aeef536a071668f0b772f05f9d21573abf6955e7b6fb5fdb893760cca10e8
software.amazon.eventstream
  eventstream:1.0.1 0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822
software.amazon.s3.analyticsaccelerator
  analyticsaccelerator-s3:1.3.1 4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e
"""),
}
"""The client for each version of Hadoop, less what Spark has already."""


def store_settings(storage: str | None, user: Mapping[str, str]) -> dict[str, str]:
    """What a session needs besides the user's settings to keep checkpoints at a URL; nothing but for a store.

    Fetches the client's jars where the user names none and Spark has none; ClusterError where it cannot.
    """
    if storage is None or not storage.startswith(SCHEME):
        return {}
    settings = {
        CHECKPOINTS: MANAGER,
        # Files of a checkpoint are small: they wait for their upload in memory.
        "spark.hadoop.fs.s3a.fast.upload.buffer": "array",
    }
    if ENDPOINT in user:
        # A store of one's own seldom has a name for each bucket.
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
    named = ",".join(user.get(f"spark.jars{part}", "") for part in ("", ".packages"))
    if CLIENT not in named and not _spark_has(CLIENT):
        own = [str(jar) for jar in client_jars()]
        settings["spark.jars"] = ",".join([*filter(None, [user.get("spark.jars")]), *own])
    return {name: value for name, value in settings.items() if name not in user or name == "spark.jars"}


def client_jars() -> list[Path]:
    """The client's jars for this Spark's Hadoop, fetched where not there yet."""
    version = _hadoop_version()
    if version not in JARS:
        known = ", ".join(JARS)
        raise ClusterError(
            f"storage {SCHEME}…: no client is known for Hadoop {version}, expected {known}; name one in the "
            f"site's settings, such as spark.jars.packages: org.apache.hadoop:{CLIENT}:{version}"
        )
    return fetch(cache_folder("jars"), JARS[version], maven_repository())


def _spark_has(artifact: str) -> bool:
    return any(jar.name.startswith(f"{artifact}-") for jar in spark_jars())


def _hadoop_version() -> str:
    for jar in spark_jars():
        found = re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name)
        if found is not None:
            return found[1]
    raise ClusterError(f"storage {SCHEME}…: this Spark has no Hadoop among its jars")
