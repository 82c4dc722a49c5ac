"""Whose connection it is: on one machine the kernel knows which user has the other end of a socket."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

_TABLE = Path("/proc/net/tcp")
_USER = 6
"""The place of the user's number behind the local address."""


def user_of(peer: tuple[str, int], here: tuple[str, int]) -> int | None:
    """The user who connected from `peer` to `here`; None where the kernel does not tell (another machine)."""
    try:
        table = _TABLE.read_text()
    except OSError:
        return None
    # One search in the whole text: there may be thousands of lines, and this is asked for each connection.
    at = table.find(f" {_written(peer)} {_written(here)} ")
    return None if at < 0 else int(table[at:].split(maxsplit=_USER + 1)[_USER])


def is_stranger(peer: tuple[str, int], here: tuple[str, int]) -> bool:
    """Whether a connection is known to be another user's; root is nobody's stranger."""
    user = user_of(peer, here)
    return user not in (None, 0, os.getuid())


def _written(address: tuple[str, int]) -> str:
    """An address as the kernel's table has it: the bytes as a number of this machine, in hexadecimal."""
    number = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return f"{number:08X}:{address[1]:04X}"
