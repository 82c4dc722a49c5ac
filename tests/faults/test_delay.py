"""Connections that are delayed: what the fault does to whatever goes through a network."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest
from faults.kinds import NARROW, WIDE

INSIDE = ("unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
BYTES = 128 << 10


def sent_s():
    """How long some bytes take from one end of a connection to the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send():
            with socket.create_connection(server.getsockname()) as connection:
                connection.sendall(bytes(BYTES))

        sender = threading.Thread(target=send)
        began_s = time.monotonic()
        sender.start()
        with server.accept()[0] as connection:
            left = BYTES
            while left:
                left -= len(connection.recv(65_536))
        took_s = time.monotonic() - began_s
        sender.join()
    return took_s


def test_what_is_sent_comes_late_until_the_fault_is_undone():
    tools = all(map(shutil.which, ("unshare", "ip", "tc")))
    if not tools or subprocess.run([*INSIDE, *NARROW], capture_output=True).returncode != 0:
        pytest.skip("needs a network of its own and `tc`")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*INSIDE, sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    narrow_s, wide_s = map(float, done.stdout.split())
    assert narrow_s > 1.0 > wide_s


if __name__ == "__main__":
    subprocess.run(NARROW, check=True)
    narrow_s = sent_s()
    subprocess.run(WIDE, check=True)
    print(narrow_s, sent_s())
