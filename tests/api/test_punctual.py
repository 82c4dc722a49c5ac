"""Requests that do not come to their end, against the service's own server."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from penstock.api.punctual import PunctualProtocol
from penstock.machine.processes import wait_until

LONGEST_S = 0.8


class Hasty(PunctualProtocol):
    longest_s = LONGEST_S


def an_app() -> FastAPI:
    app = FastAPI()

    @app.post("/body")
    async def body(request: Request) -> int:
        return len(await request.body())

    @app.get("/slow")
    async def slow() -> StreamingResponse:
        async def words() -> AsyncIterator[str]:
            import asyncio

            for _ in range(4):
                await asyncio.sleep(LONGEST_S)
                yield "word"

        return StreamingResponse(words())

    return app


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(an_app(), http=Hasty, log_level="error", timeout_keep_alive=5))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    assert wait_until(lambda: server.started, 30)
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join(20)


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HT",
        b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf",
        b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nokPOST /body HT",
    ],
)
@pytest.mark.parametrize("trickles", [False, True])
def test_who_does_not_end_a_request_is_cut_off(port: int, begun: bytes, trickles: bool) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(begun)
        began_s = time.monotonic()
        ended = False
        connection.settimeout(0.1)
        while not ended and time.monotonic() < began_s + 20:
            with contextlib.suppress(TimeoutError):
                try:
                    if trickles:
                        connection.sendall(b"x")
                    ended = connection.recv(65_536) == b""
                except ConnectionError:
                    ended = True
        assert ended


def test_an_answer_may_take_longer_and_a_connection_is_used_again(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for _ in range(2):
        connection.request("GET", "/slow")
        assert connection.getresponse().read() == b"word" * 4
        connection.request("POST", "/body", b"x" * 1000)
        assert connection.getresponse().read() == b"1000"
    connection.close()
