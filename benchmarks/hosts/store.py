"""Runs on a host of its own: what hosts that share no disk share all the same, a broker and a file system.

`python -m benchmarks.hosts.store ADDRESS FOLDER` starts Kafka, a NameNode and a DataNode at the host's
address, writes where they are into FOLDER/ready.json, and stays until it is told to go.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from penstock.channels.kafka_access import CLIENT_FILE, client_settings
from penstock.channels.kafka_service import installed_broker
from penstock.machine.files import written
from penstock.machine.processes import ChildProcesses

from ..clusters.hdfs import Hdfs

READY = "ready.json"


def main() -> None:
    """Start both and wait."""
    address, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    broker = installed_broker(folder / "kafka", ChildProcesses("store"), address)
    with Hdfs(folder / "hdfs", address) as hdfs:
        try:
            bootstrap = broker.start().bootstrap
            found = {
                "bootstrap": bootstrap,
                "client": client_settings(bootstrap, str(folder / "kafka" / CLIENT_FILE)),
                "hdfs": hdfs.url,
                "settings": hdfs.settings,
            }
            written(folder / READY, json.dumps(found))
            signal.sigwait({signal.SIGTERM, signal.SIGINT})
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
