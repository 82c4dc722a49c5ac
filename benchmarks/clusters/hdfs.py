"""A real HDFS: a NameNode and a DataNode, for checkpoints that machines share without sharing a disk."""

from __future__ import annotations

from pathlib import Path

from .hadoop import start_daemon, write_conf
from .ports import LOOPBACK, free_port, listens
from .started import Started

SERVER = "org.apache.hadoop.hdfs.server"
NAMES, DATA = f"{SERVER}.namenode.NameNode", f"{SERVER}.datanode.DataNode"
CLIENT = {
    # Without it a client waits 400 ms for the last block of every file it closes.
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "5",
    "dfs.replication": "1",
}


class Hdfs(Started):
    """A NameNode and a DataNode; as a context manager everything is stopped on leaving."""

    def __init__(self, folder: Path, address: str = LOOPBACK) -> None:
        super().__init__(folder)
        self._address = address
        self._port = free_port(address)
        self._data_port = free_port(address)

    @property
    def url(self) -> str:
        """The file system's address."""
        return f"hdfs://{self._address}:{self._port}"

    @property
    def settings(self) -> dict[str, str]:
        """Spark settings for a client of it."""
        return {f"spark.hadoop.{name}": value for name, value in CLIENT.items()}

    def start(self) -> None:
        """Format and start both, and wait until they take connections."""
        conf = self.folder / "conf"
        core = {"fs.defaultFS": self.url, "hadoop.tmp.dir": str(self.folder / "hadoop")}
        hdfs = {
            **CLIENT,
            "dfs.namenode.http-address": f"{self._address}:{free_port(self._address)}",
            "dfs.datanode.address": f"{self._address}:{self._data_port}",
            "dfs.datanode.http.address": f"{self._address}:{free_port(self._address)}",
            "dfs.datanode.ipc.address": f"{self._address}:{free_port(self._address)}",
            # Hosts have addresses and no names that others could look up.
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.name.dir": f"file://{self.folder}/names",
            "dfs.datanode.data.dir": f"file://{self.folder}/data",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.safemode.extension": "0",
        }
        write_conf(conf, {"core-site.xml": core, "hdfs-site.xml": hdfs})
        start_daemon(
            self._children, "format", NAMES, "-format", "-nonInteractive", conf=conf, folder=self.folder
        )
        self._wait_for("format", lambda: not self._children.alive("format"))
        start_daemon(self._children, "names", NAMES, conf=conf, folder=self.folder)
        self._wait_for("names", lambda: listens(self._port, self._address))
        start_daemon(self._children, "data", DATA, conf=conf, folder=self.folder)
        self._wait_for("data", lambda: listens(self._data_port, self._address))
