"""An answer over HTTP that is cut off is an answer that did not come: nobody falls over it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.api.client import Service
from penstock.errors import ClusterError
from penstock.fleet.ports import UnitReport
from penstock.fleet.units import UnitState
from penstock.machine.maven import _download
from penstock.spark.access import Access
from penstock.spark.managers.standalone import _read_json
from penstock.spark.unit.heartbeat import ADDRESS_FILE, HeartbeatClient

CUT = (
    b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"workers": [',
    b"no HTTP at all\r\n\r\n",
    b"",
)


@pytest.fixture(params=CUT, ids=("amid the answer", "not HTTP", "at once"))
def cut(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of somebody whose answers are cut off."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)

        def answer() -> None:
            while not ended.is_set():
                try:
                    connection, _ = listening.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.recv(65536)
                    connection.sendall(request.param)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        ended.set()
        thread.join()


def test_a_cluster_whose_answer_is_cut_off_did_not_answer(cut: str) -> None:
    with pytest.raises(ClusterError, match="did not answer"):
        _read_json(f"{cut}/json/", 5.0, Access("secret", "key"))


def test_a_jar_that_is_cut_off_is_out_of_reach(cut: str) -> None:
    with pytest.raises(ClusterError, match="out of reach"):
        _download(f"{cut}/a.jar")


def test_a_service_whose_answer_is_cut_off_does_not_answer(cut: str) -> None:
    with pytest.raises(ClusterError, match="does not answer"):
        Service(cut, "token").get("/runs")


def test_a_controller_whose_answer_is_cut_off_is_away(cut: str, tmp_path: Path) -> None:
    (tmp_path / ADDRESS_FILE).write_text(f'{{"url": "{cut}", "token": "token"}}')
    client = HeartbeatClient(tmp_path, "unit", 1)
    assert client.send(UnitReport("unit", 1.0, UnitState.RUNNING, None, (), None)) is None
