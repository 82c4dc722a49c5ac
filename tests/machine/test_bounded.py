"""A server that bounds how many it works for at once."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from http.client import RemoteDisconnected
from http.server import BaseHTTPRequestHandler

import pytest

from penstock.machine.bounded import BoundedServer


class Few(BoundedServer):
    most_at_once = 3


class Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"so")


def test_places_come_back_where_no_thread_could_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    with Few(("127.0.0.1", 0), Answering) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        start = threading.Thread.start

        def none_left(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        try:
            monkeypatch.setattr(threading.Thread, "start", none_left)
            for _ in range(2 * Few.most_at_once):
                with pytest.raises((ConnectionError, RemoteDisconnected, urllib.error.URLError)):
                    urllib.request.urlopen(url, timeout=5.0)
            monkeypatch.setattr(threading.Thread, "start", start)
            with urllib.request.urlopen(url, timeout=5.0) as answer:
                assert answer.read() == b"so"
        finally:
            monkeypatch.setattr(threading.Thread, "start", start)
            server.shutdown()
            serving.join()
