"""A spot host learns from its cloud's metadata that it will be taken away, and tells its worker."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.providers.notices import CLOUDS, LAST_S, watch

EVENT = '{"DocumentIncarnation": 2, "Events": [{"EventId": "x", "EventType": "%s"}]}'
QUIET = {"aws": None, "azure": EVENT % "Reboot", "gcp": "FALSE"}


def in_ec2s_words(taken_s: float) -> str:
    at = datetime.fromtimestamp(taken_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f'{{"action": "terminate", "time": "{at}"}}'


NOTICE = {
    "aws": in_ec2s_words(1_700_000_000),
    "azure": EVENT % "Preempt",
    "gcp": "TRUE\n",
}
PAGES = {
    "aws": ("/latest/meta-data/spot/instance-action", "X-aws-ec2-metadata-token", "a-token"),
    "azure": ("/metadata/scheduledevents?api-version=2020-07-01", "Metadata", "true"),
    "gcp": ("/computeMetadata/v1/instance/preempted", "Metadata-Flavor", "Google"),
}


class Metadata:
    """What a cloud tells one machine; None where there is no such page."""

    def __init__(self, cloud: str) -> None:
        self.says: str | None = QUIET[cloud]
        self.cloud = cloud
        self.asked = 0
        self.url = ""


@contextmanager
def serving(cloud: str) -> Iterator[Metadata]:
    told = Metadata(cloud)
    page, header, value = PAGES[cloud]

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            assert self.path == "/latest/api/token"
            self._answer("a-token")

        def do_GET(self) -> None:
            told.asked += 1
            good = self.path == page and self.headers.get(header) == value
            self._answer(told.says if good else None)

        def _answer(self, text: str | None) -> None:
            self.send_response(404 if text is None else 200)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    told.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_host_is_taken_away_when_its_cloud_says_so_and_not_before(cloud: str) -> None:
    with serving(cloud) as metadata:
        assert CLOUDS[cloud](metadata.url) is None
        metadata.says = NOTICE[cloud]
        assert CLOUDS[cloud](metadata.url) is not None


def test_a_worker_with_long_notice_goes_on_until_shortly_before_its_end() -> None:
    """EC2 tells whoever leases the host too: what is on it is moved while it still serves."""
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with serving("aws") as metadata:
            metadata.says = in_ec2s_words(time.time() + LAST_S + 60.0)
            watching = threading.Thread(target=watch, args=("aws", worker.pid, metadata.url, 0.05))
            watching.start()
            deadline_s = time.monotonic() + 10
            while metadata.asked < 5 and time.monotonic() < deadline_s:
                time.sleep(0.02)
            assert metadata.asked >= 5
            assert worker.poll() is None
            metadata.says = in_ec2s_words(time.time() + LAST_S - 1.0)
            assert worker.wait(10) == -signal.SIGPWR
            watching.join(10)
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_worker_is_told_to_leave(cloud: str) -> None:
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with serving(cloud) as metadata:
            found: list[bool] = []
            watching = threading.Thread(
                target=lambda: found.append(watch(cloud, worker.pid, metadata.url, 0.05))
            )
            watching.start()
            deadline_s = time.monotonic() + 10
            while metadata.asked < 3 and time.monotonic() < deadline_s:
                time.sleep(0.02)
            assert worker.poll() is None
            metadata.says = NOTICE[cloud]
            watching.join(10)
            assert found == [True]
            assert worker.wait(10) == -signal.SIGPWR
            assert not watch(cloud, worker.pid, metadata.url, 0.05), "it ends with the worker"
    finally:
        worker.kill()
        worker.wait()


def test_metadata_that_are_away_are_asked_again(capfd: pytest.CaptureFixture[str]) -> None:
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1)"])
    threading.Thread(target=worker.wait).start()
    assert not watch("gcp", worker.pid, "http://127.0.0.1:9", 0.1)
    assert "cannot be read" in capfd.readouterr().err
