"""A proxy between drivers and controller that loses, doubles, delays or cuts their heartbeats."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlparse

from penstock.machine.files import PRIVATE, written
from penstock.spark.unit.heartbeat import ADDRESS_FILE

DELAY_S = 2.0
"""Below the time a driver waits for an answer."""


def between(
    folder: Path, how: str, rng: random.Random, came: Callable[[], None] = lambda: None
) -> Callable[[], None]:
    """Put a proxy into the controller's address file; what ends it and puts the address back.

    `came` is called for each request that comes this way.
    """
    file = folder / ADDRESS_FILE
    before = json.loads(file.read_text())
    address = urlparse(before["url"])
    target = (str(address.hostname), int(address.port or 0))
    server = socket.create_server(("127.0.0.1", 0))
    seed = rng.random()
    mine = {**before, "url": f"http://127.0.0.1:{server.getsockname()[1]}"}
    stop = threading.Event()

    def serve() -> None:
        draw = random.Random(seed)
        server.settimeout(0.2)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError, OSError):
                connection, _ = server.accept()
                came()
                lose = how == "cut" or (how == "lost" and draw.random() < 0.6)
                threading.Thread(target=_one, args=(connection, target, how, lose), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    written(file, json.dumps(mine), mode=PRIVATE)

    def end() -> None:
        stop.set()
        thread.join()
        server.close()
        # Unless a new controller has written its own meanwhile.
        with contextlib.suppress(OSError, ValueError):
            if json.loads(file.read_text()) == mine:
                written(file, json.dumps(before), mode=PRIVATE)

    return end


def _one(connection: socket.socket, target: tuple[str, int], how: str, lose: bool) -> None:
    with connection, contextlib.suppress(OSError):
        connection.settimeout(5.0)
        request = _whole(connection)
        if lose:
            return
        if how == "delayed":
            time.sleep(DELAY_S)
        connection.sendall(_asked(target, request))
        if how == "doubled":
            _asked(target, request)


def _asked(target: tuple[str, int], request: bytes) -> bytes:
    with socket.create_connection(target, 5.0) as onward:
        onward.sendall(request)
        onward.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: onward.recv(65_536), b""))


def _whole(connection: socket.socket) -> bytes:
    """One HTTP request with its body."""
    found = b""
    while b"\r\n\r\n" not in found:
        more = connection.recv(65_536)
        if not more:
            return found
        found += more
    head, _, body = found.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        more = connection.recv(65_536)
        if not more:
            break
        body += more
    return head + b"\r\n\r\n" + body
