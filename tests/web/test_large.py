"""The page over long and large runs, measured by the browser itself; `make page` prints the figures."""

from __future__ import annotations

import json
import os
import re
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pytest

from penstock.page.server import PageServer
from penstock.page.shown import Shown
from penstock.runs.assembly import load
from tests.page.runs import EXAMPLES, PacedSimulation, a_finished_run, many_units

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("PENSTOCK_LARGE_PAGE" not in os.environ, reason="takes minutes: make page"),
]
Open = Callable[..., Any]


def test_a_day_of_nine_units_opens_in_two_seconds(tmp_path: Path, open_page: Open) -> None:
    run = a_finished_run(tmp_path / "day", minutes=24 * 60, topology=load(EXAMPLES / "factory_model.yaml"))
    with PageServer([Shown(run)]) as server:
        before, worked = time.monotonic(), time.process_time()
        page = open_page(server.address)
        took_s, own_s = time.monotonic() - before, time.process_time() - worked
        page.wait_for_selector("body[data-whole=yes]")
        whole_s = time.monotonic() - before
        points = page.evaluate(
            "Object.values(window.penstock.film.seen).reduce((n, s) => n + s.at.length, 0)"
        )
        page.context.close()
    print(
        f"\na journal of 24 h with nine units, {points} observations: open after {took_s:.2f} s (bar: 2 s), "
        f"all of it there after {whole_s:.2f} s; {own_s:.2f} s of CPU here to open it"
    )
    assert points > 50_000
    assert took_s < 2.0


def test_a_thousand_units_are_updated_every_second_with_little_work(
    tmp_path: Path, open_page: Open, keep: Callable[[Any, str], None]
) -> None:
    with (
        PacedSimulation(tmp_path / "run", many_units(1000), ticks=100_000, pace_s=0.3) as simulation,
        PageServer([Shown(simulation.folder.root)]) as server,
    ):
        page = open_page(server.address)
        page.evaluate(
            "window.updates = 0; window.drawn = -1; const app = window.penstock, own = app.refresh.bind(app);"
            "app.refresh = () => { own(); if (app.film.newest > window.drawn) window.updates += 1;"
            " window.drawn = app.film.newest; }"
        )
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")

        def busy_s() -> tuple[float, float]:
            found = {one["name"]: one["value"] for one in devtools.send("Performance.getMetrics")["metrics"]}
            return found["Timestamp"], found["TaskDuration"]

        page.wait_for_timeout(3000)
        (start_s, before_s), first, ticks = busy_s(), page.evaluate("window.updates"), simulation.done
        page.wait_for_timeout(20_000)
        (end_s, after_s), last, done = busy_s(), page.evaluate("window.updates"), simulation.done
        keep(page, "thousand")
        page.context.close()
    rate, share = (last - first) / (end_s - start_s), (after_s - before_s) / (end_s - start_s)
    print(
        f"\n1,000 units: {rate:.2f} updates a second of {(done - ticks) / (end_s - start_s):.2f} ticks, "
        f"main thread {share:.1%} (bars: 1 a second, 30 %)"
    )
    assert share < 0.30
    assert rate >= 1.0


@contextmanager
def program(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A command of Penstock that serves: its process, its port, and what it said of itself."""
    command = [sys.executable, "-u", "-m", "penstock.cli.main", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", said)
            assert found, said
            yield process, int(found[1]), said
        finally:
            process.terminate()
            process.wait(20)


@pytest.mark.parametrize("how", ["page", "serve"])
def test_the_page_is_up_within_two_seconds_of_the_service(tmp_path: Path, open_page: Open, how: str) -> None:
    run = tmp_path / "run"
    topology = load(EXAMPLES / "factory_model.yaml")
    with PacedSimulation(run, topology, ticks=100_000, pace_s=0.5):
        began_s = time.monotonic()
        arguments = ("page", str(run)) if how == "page" else ("serve", str(tmp_path), "--port", "0")
        with program(*arguments) as (_, port, said):
            up_s = time.monotonic() - began_s
            token = said.split("#token=")[1].strip() if how == "page" else (tmp_path / "token").read_text()
            path = "" if how == "page" else "page/run/"
            page = open_page(f"http://127.0.0.1:{port}/{path}#token={token}")
            page.wait_for_selector("[data-unit]")
            took_s = time.monotonic() - began_s - up_s
            page.context.close()
    print(f"\n`penstock {how}` is up after {up_s:.2f} s, its page {took_s:.2f} s later (bar: 2 s)")
    assert took_s < 2.0


@pytest.mark.parametrize("how", ["page", "serve"])
def test_a_hundred_watching_pages_cost_less_than_a_twentieth_of_a_core(tmp_path: Path, how: str) -> None:
    run = tmp_path / "run"
    with (
        PacedSimulation(run, many_units(9), ticks=100_000, pace_s=1.0),
        program(*(("page", str(run)) if how == "page" else ("serve", str(tmp_path), "--port", "0"))) as found,
        ExitStack() as stack,
    ):
        process, port, said = found
        token = said.split("#token=")[1].strip() if how == "page" else (tmp_path / "token").read_text()
        path = "/data" if how == "page" else "/page/run/data"
        films = Request(f"http://127.0.0.1:{port}{path}/films", headers={"Authorization": f"Bearer {token}"})
        with urlopen(films) as answer:
            tick = json.load(answer)[0]["delta"]["tick"]
        request = (
            f"GET {path}/live?after={tick} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {token}\r\n\r\n"
        )
        chosen = stack.enter_context(selectors.DefaultSelector())
        watchers = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(100)]
        for one in watchers:
            one.sendall(request.encode())
            chosen.register(one, selectors.EVENT_READ)
        heard: dict[socket.socket, int] = dict.fromkeys(watchers, 0)

        def listen(seconds: float) -> None:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                for key, _ in chosen.select(0.2):
                    one: Any = key.fileobj
                    heard[one] += one.recv(1 << 20).count(b"event: news")

        listen(4.0)
        server = psutil.Process(process.pid)
        before, start_s, first = sum(server.cpu_times()[:2]), time.monotonic(), dict(heard)
        listen(20.0)
        busy = (sum(server.cpu_times()[:2]) - before) / (time.monotonic() - start_s)
        fresh = [heard[one] - first[one] for one in watchers]
    print(f"\n100 pages watch `penstock {how}`: {busy:.1%} of a core, {min(fresh)} or more events each")
    assert min(fresh) >= 10
    assert busy < 0.05
