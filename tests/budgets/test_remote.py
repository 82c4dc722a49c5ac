"""Remote cost functions: a real HTTP server on the loopback answers, fails, or says nothing."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.budgets import BudgetProblem, BudgetUnit, Linear, PathBound, RemoteCost, UnansweredError, solve
from penstock.errors import ConfigurationError

Answer = Callable[[float, int], tuple[int, bytes]]


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Start servers that answer by a function of (latency, number of the request); stop them in the end."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        counter = iter(range(1_000_000))

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, body = answer(asked["latency_s"], next(counter))
                with contextlib.suppress(OSError):  # the asker may have given up
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}/cost"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def cost(value: float | None) -> tuple[int, bytes]:
    return 200, json.dumps({"cost": value}).encode()


def a_problem(remote: RemoteCost) -> BudgetProblem:
    units = (BudgetUnit("bought", remote), BudgetUnit("own", Linear(60.0, 5.0)))
    return BudgetProblem(units, (("bought", "own"),), (PathBound(12.0),))


def test_a_remote_function_is_asked_counted_and_charged_for(serve: Callable[[Answer], str]) -> None:
    remote = RemoteCost(
        serve(lambda latency_s, _: cost(max(0.0, 30.0 - 10.0 * latency_s))), fee_per_call=0.01
    )
    for solver in ("greedy", "hull", "exact"):
        remote.refresh()
        before = remote.requests
        solution = solve(a_problem(remote), solver)
        assert dict(solution.budgets_s) == {"bought": 3.0, "own": 9.0}
        sent = remote.requests - before
        assert 0 < sent <= 13
        assert solution.fee == pytest.approx(0.01 * sent)
        assert solution.cost == pytest.approx(15.0)  # the fee is reported beside the cost


def test_answers_are_remembered_until_refreshed(serve: Callable[[Answer], str]) -> None:
    remote = RemoteCost(serve(lambda latency_s, _: cost(10.0)))
    solve(a_problem(remote))
    sent = remote.requests
    again = solve(a_problem(remote))
    assert remote.requests == sent
    assert again.fee == 0.0
    remote.refresh()
    solve(a_problem(remote))
    assert remote.requests > sent


def test_null_means_that_the_budget_cannot_be_kept(serve: Callable[[Answer], str]) -> None:
    remote = RemoteCost(serve(lambda latency_s, _: cost(None if latency_s < 4 else 1.0)))
    assert solve(a_problem(remote)).budgets_s["bought"] == 4.0


def test_a_request_that_fails_is_tried_again(serve: Callable[[Answer], str]) -> None:
    def flaky(latency_s: float, number: int) -> tuple[int, bytes]:
        return (503, b"busy") if number % 2 == 0 else cost(5.0)

    remote = RemoteCost(serve(flaky), retries=1, wait_s=0.0)
    assert remote.cost(1.0) == 5.0
    assert remote.requests == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((500, b"broken"), "HTTP Error 500"),
        ((200, b"no json"), "JSONDecodeError"),
        ((200, b'{"price": 3}'), "expected"),
        ((200, b'{"cost": "three"}'), "expected a number or null"),
    ],
)
def test_a_function_that_does_not_answer_says_why(
    serve: Callable[[Answer], str], answer: tuple[int, bytes], words: str
) -> None:
    remote = RemoteCost(serve(lambda *_: answer), retries=1, wait_s=0.0)
    with pytest.raises(UnansweredError, match=words) as caught:
        solve(a_problem(remote))
    assert caught.value.unit == "bought"


def test_a_silent_server_times_out(serve: Callable[[Answer], str]) -> None:
    release = threading.Event()

    def silent(latency_s: float, number: int) -> tuple[int, bytes]:
        release.wait(10.0)
        return cost(1.0)

    remote = RemoteCost(serve(silent), timeout_s=0.05, retries=0)
    try:
        with pytest.raises(UnansweredError, match="timed out"):
            remote.cost(1.0)
    finally:
        release.set()


def test_a_unit_that_does_not_answer_keeps_its_last_budget() -> None:
    # Port 9 of the loopback is closed: the connection is refused at once.
    remote = RemoteCost("http://127.0.0.1:9/cost", retries=0)
    solution = solve(a_problem(remote), last_budgets_s={"bought": 2.5}, last_costs={"bought": 7.0})
    assert dict(solution.budgets_s) == {"bought": 2.5, "own": 9.0}
    assert solution.costs["bought"] == 7.0
    assert "refused" in solution.kept["bought"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: RemoteCost("ftp://example.org"),
        lambda: RemoteCost("http://example.org", timeout_s=0.0),
        lambda: RemoteCost("http://example.org", retries=-1),
        lambda: RemoteCost("http://example.org", fee_per_call=-1.0),
    ],
)
def test_wrong_settings_are_refused(make: Callable[[], RemoteCost]) -> None:
    with pytest.raises(ConfigurationError):
        make()
