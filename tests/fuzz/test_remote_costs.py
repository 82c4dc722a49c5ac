"""Whatever a remote cost function answers, the loop gets budgets that add up, or keeps those it has."""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from penstock.budgets.remote import RemoteCost
from penstock.controller.budgeting import LatencyBudgeting
from tests.budgets.test_in_the_loop import BOUND_S, a_loop_view
from tests.fuzz.limits import within


def http(body: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> bytes:
    """A whole answer."""
    length = b"Content-Length: %d\r\n" % len(body)
    return b"HTTP/1.1 " + status + b"\r\n" + length + headers + b"\r\n" + body


ANSWERS: dict[str, bytes] = {
    "a cost": http(b'{"cost": 5}'),
    "null": http(b'{"cost": null}'),
    "zero": http(b'{"cost": 0}'),
    "text": http(b'{"cost": "5"}'),
    "true": http(b'{"cost": true}'),
    "a list": http(b'{"cost": [5]}'),
    "a mapping": http(b'{"cost": {"cost": 5}}'),
    "NaN": http(b'{"cost": NaN}'),
    "infinity": http(b'{"cost": Infinity}'),
    "less than infinity": http(b'{"cost": -Infinity}'),
    "negative": http(b'{"cost": -5}'),
    "huge": http(b'{"cost": 1e308}'),
    "hundreds of digits": http(b'{"cost": ' + b"9" * 400 + b"}"),
    "thousands of digits": http(b'{"cost": ' + b"9" * 6000 + b"}"),
    "tiny": http(b'{"cost": 5e-324}'),
    "no cost": http(b'{"price": 5}'),
    "only a number": http(b"5"),
    "nothing": http(b""),
    "no JSON": http(b"<html>5</html>"),
    "not text": http(bytes(range(256))),
    "nested without end": http(b"[" * 60_000),
    "much": http(b'{"cost": 5, "x": "' + b"x" * 2_000_000 + b'"}'),
    "cut off": b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"cost": 5',
    "a wrong length": b'HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{"cost": 5}',
    "a length that is none": b'HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{"cost": 5}',
    "chunks that are none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "no HTTP": b"hello\r\n\r\n",
    "an endless header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
    "headers without end": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
    "a status that is none": b'HTTP/1.1 abc\r\n\r\n{"cost": 5}',
    "elsewhere": http(b"", b"302 Found", b"Location: http://127.0.0.1:9/cost\r\n"),
    "elsewhere, a file": http(b"", b"302 Found", b"Location: file:///etc/passwd\r\n"),
    "to itself": http(b"", b"307 Temporary Redirect", b"Location: /cost\r\n"),
    "forbidden": http(b"no", b"403 Forbidden"),
    "broken": http(b"no", b"500 Internal Server Error"),
    "not modified": http(b"", b"304 Not Modified"),
    "switching": http(b"", b"101 Switching Protocols"),
    "closed": b"",
}


@pytest.fixture
def serve() -> Iterator[Callable[[bytes, float], str]]:
    """Serve the same bytes to everybody, in small parts with pauses where asked; ended with the test."""
    ended = threading.Event()
    sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def answer(connection: socket.socket, content: bytes, pause_s: float) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(2.0)
            connection.recv(65536)
            if not pause_s:
                connection.sendall(content)
                return
            for i in range(len(content)):
                if ended.wait(pause_s):
                    return
                connection.sendall(content[i : i + 1])

    def accept(listening: socket.socket, content: bytes, pause_s: float) -> None:
        with contextlib.suppress(OSError):
            while not ended.is_set():
                connection, _ = listening.accept()
                thread = threading.Thread(target=answer, args=(connection, content, pause_s), daemon=True)
                thread.start()
                threads.append(thread)

    def start(content: bytes, pause_s: float = 0.0) -> str:
        listening = socket.create_server(("127.0.0.1", 0))
        sockets.append(listening)
        thread = threading.Thread(target=accept, args=(listening, content, pause_s), daemon=True)
        thread.start()
        threads.append(thread)
        return f"http://127.0.0.1:{listening.getsockname()[1]}/cost"

    yield start
    ended.set()
    for listening in sockets:
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
    for thread in threads:
        thread.join(5.0)


@pytest.mark.parametrize("name", ANSWERS)
def test_no_answer_ends_the_tick(name: str, serve: Callable[..., str]) -> None:
    remote = RemoteCost(serve(ANSWERS[name]), timeout_s=1.0, retries=0)
    before = {"parse": 1.0, "score": 3.0, "store": 2.0}
    for view in (a_loop_view({}), a_loop_view(before)):
        budgeting = LatencyBudgeting(source_rates_per_s={"s": 20.0}, costs={"score": remote})
        with within(20.0):
            found = budgeting(view)
        if found is not None:
            assert all(math.isfinite(budget_s) and budget_s >= 0 for budget_s in found.budgets.values())
            assert sum(found.budgets.values()) <= BOUND_S + 1e-6
            assert len(found.reason) < 2_000


def test_an_answer_that_drips_is_given_up_in_time(serve: Callable[..., str]) -> None:
    slow = http(b'{"cost": 5, "x": "' + b"x" * 10_000 + b'"}')
    remote = RemoteCost(serve(slow, 0.02), timeout_s=0.5, retries=0)
    begun_s = time.monotonic()
    with within(15.0):
        found = LatencyBudgeting(source_rates_per_s={"s": 20.0}, costs={"score": remote})(a_loop_view({}))
    assert found is not None
    assert "keeps its last budget" in found.reason
    assert time.monotonic() - begun_s < 10.0
