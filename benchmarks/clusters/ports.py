"""Free ports of an address, and whether something listens at one."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def free_port(address: str = LOOPBACK) -> int:
    """A port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def listens(port: int, address: str = LOOPBACK) -> bool:
    """Whether something takes connections at a port."""
    try:
        with socket.create_connection((address, port), 1.0):
            return True
    except OSError:
        return False
