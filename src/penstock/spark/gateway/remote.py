"""Files of a distributed file system, reached through the driver's own Hadoop: small ones, by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.gateway.session import java, java_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RemoteFiles:
    """A file system behind a URL such as `hdfs://names/folder`, with the session's settings and rights."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def names(self, folder: str) -> list[str]:
        """Names in a folder; none where it does not exist."""
        path, files = self._at(folder)
        if not files.exists(path):
            return []
        return [str(entry.getPath().getName()) for entry in files.listStatus(path)]

    def text(self, file: str) -> str:
        """The content of a file."""
        path, files = self._at(file)
        stream = files.open(path)
        try:
            return str(java(self._spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _at(self, location: str) -> tuple[Any, Any]:
        path = java(self._spark).org.apache.hadoop.fs.Path(location)
        return path, path.getFileSystem(java_context(self._spark).hadoopConfiguration())
