"""Penstock beside a driver that knows nothing of it: started by the Spark plugin, ends with the driver.

    spark-submit --jars "$(penstock attach --plugin)" --conf spark.plugins=penstock.AttachPlugin …

What is wanted stands in Spark's settings (`spark.penstock.slo` and so on, see `wrapping`). The driver closes
this process's input when its session ends, and the system does where the driver dies.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time

from penstock.spark.gateway.plugin import driver_session
from penstock.spark.session.wrapping import attach_by_settings


def main() -> int:
    """Attach to the driver's session, and stay until it ends."""
    logging.basicConfig(format="%(name)s: %(message)s", level=logging.WARNING)
    ended = threading.Event()

    def listen() -> None:
        while os.read(0, 1):
            pass
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    try:
        spark = driver_session(ended.is_set)
        # Ctrl-C is for the job; PySpark would cancel the job's work at it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if spark is None:
            return 0
        handle = attach_by_settings(spark, {})
        while handle.running and not ended.is_set():
            time.sleep(0.2)
        handle.stop(2.0)
    except Exception as error:
        if not ended.is_set():
            print(f"penstock: could not attach; the job goes on without: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
