"""Started on a host that joins from elsewhere: replaces itself by a Spark worker of this installation.

`python -m penstock.spark.managers.worker FOLDER ARGUMENT…` with the arguments of Spark's worker. Java, Spark
and the class archive are this host's own, wherever they are.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from penstock.errors import PenstockError
from penstock.machine.files import written
from penstock.spark.launching import spark_archive, spark_class, spark_java
from penstock.spark.managers.standalone import DAEMON_SETTINGS, LOGGING, WORKER_CLASS


def main() -> None:
    """Become the worker; says in words why it cannot."""
    folder, arguments = Path(sys.argv[1]), sys.argv[2:]
    try:
        java = spark_java()
    except PenstockError as error:
        sys.exit(f"error: {error}")
    folder.mkdir(parents=True, exist_ok=True)
    logging = folder / "log4j2.properties"
    written(logging, LOGGING)
    flags = (
        *DAEMON_SETTINGS,
        f"-Dlog4j2.configurationFile={logging.absolute().as_uri()}",
        *spark_archive(java).use(),
    )
    command, environment = spark_class(java, WORKER_CLASS, *arguments, flags=flags)
    os.execve(command[0], command, {**environment, "SPARK_LOCAL_IP": os.environ["SPARK_LOCAL_IP"]})


if __name__ == "__main__":
    main()
