"""The page as a person uses it, in a real browser."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.page import film as film_module
from penstock.page.server import PageServer
from penstock.page.shown import Shown
from penstock.topology.file import parse_topology
from penstock.topology.model import Choice, LoopSettings
from tests.builders import AT_ONCE, a_site, a_topology, an_operator
from tests.page.runs import TWO_SOURCES, PacedSimulation, a_finished_run

Open = Callable[..., Any]
Keep = Callable[[Any, str], None]
VIEWS = ("now", "why", "money", "replay")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("web")
    first, other = (
        a_finished_run(folder / policy, policy=policy, minutes=180) for policy in ("auto", "threshold")
    )
    return first, other


@pytest.fixture(scope="module")
def server(runs: tuple[Path, Path]) -> Iterator[PageServer]:
    with PageServer([Shown(runs[0])]) as server:
        yield server


def figure(page: Any, name: str) -> str:
    return str(page.locator(f"[data-figure={name}] b").inner_text())


def to(page: Any, view: str) -> None:
    page.click(f"#tab-{view}")
    page.wait_for_selector(f"#tab-{view}[aria-selected=true]")


def serious_faults(page: Any) -> list[tuple[str, str, list[Any]]]:
    """What axe finds that keeps people from using what is shown."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed: make browser"
    )
    found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        (fault["id"], fault["help"], [node["target"] for node in fault["nodes"]][:3])
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ]


def test_now_shows_units_hosts_and_a_verdict(server: PageServer, open_page: Open, keep: Keep) -> None:
    page = open_page(server.address, bypass_csp=False)
    assert page.locator("[data-unit]").count() == 3
    told = page.locator("[data-unit=recognise]").get_attribute("aria-label")
    for part in ("within its SLO", "/s in", "waiting", r"\d+ of \d+ instances", "health "):
        assert re.search(part, told), told
    rates = page.locator(".graph .rate").all_text_contents()
    assert len(rates) == 4
    assert all(re.fullmatch(r"[\d.,<]+/s", rate) for rate in rates), rates  # one input each: no ≈
    assert "were kept within their SLOs" in page.locator("#headline").inner_text()
    assert page.locator(".host").count() > 0
    assert "USD" in figure(page, "bill")
    # Its picture is the documentation's: a reader would conclude from one that misses that nothing works.
    assert float(figure(page, "kept").removesuffix(" %")) >= 95.0
    assert page.locator("#headline.kept").count() == 1
    assert "token" not in page.url
    keep(page, "now")


def test_without_the_token_nothing_is_shown(server: PageServer, chromium: Any) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.port}/")
    page.wait_for_selector("#headline.late")
    assert "token" in page.locator("#headline").inner_text()
    assert page.locator("[role=tab]").count() == 0
    context.close()


def test_a_page_whose_server_does_not_answer_any_more_keeps_what_it_shows_and_says_so(
    server: PageServer, chromium: Any
) -> None:
    context, faults = chromium.new_context(bypass_csp=True), []
    page = context.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(server.address)
    page.wait_for_selector("body[data-whole=yes]")
    page.route("**/data/**", lambda route: route.abort())
    to(page, "money")
    page.wait_for_function("document.getElementById('clock').textContent.includes('penstock page RUN')")
    to(page, "now")
    assert page.locator("[data-unit]").count() == 3
    context.close()
    assert faults == []


def test_a_decision_opens_to_what_was_seen_wanted_and_paid(
    server: PageServer, open_page: Open, keep: Keep
) -> None:
    page = open_page(server.address)
    page.keyboard.press("2")
    page.wait_for_selector(".decisions button")
    assert page.locator(".chart").count() >= 7
    page.locator(".decisions button", has_text="start").first.click()
    page.wait_for_selector("#decision h3:has-text('Done')")
    told = page.locator("#decision").inner_text()
    assert "Seen" in told
    assert "Forecast for" in page.wait_for_selector("#decision .note:has-text('Forecast')").inner_text()
    page.keyboard.press("k")
    page.wait_for_function(f"document.getElementById('decision').innerText !== {told!r}")
    page.evaluate("scrollTo(0, 0)")
    page.keyboard.press("j")
    page.wait_for_selector("#decision .note:has-text('Forecast')")
    assert page.evaluate("scrollY") == 0  # the list moves, the page does not
    keep(page, "why")
    page.select_option("#why-unit", "recognise")
    page.wait_for_selector(".chart h3:has-text('Age of records')")


def test_a_forecast_that_comes_late_is_not_shown_with_another_decision(
    server: PageServer, open_page: Open
) -> None:
    page = open_page(server.address)
    page.keyboard.press("2")
    page.wait_for_selector(".decisions button")
    first, second = (page.locator(".decisions button").nth(n) for n in (2, 3))
    held: dict[str, Any] = {}

    def hold(name: str, what: str, at: str) -> None:
        wanted = re.compile(rf"/data/{what}\?.*at={re.escape(at)}$")
        page.route(wanted, lambda route: held.__setitem__(name, route))

    hold("forecast of the first", "forecast", first.get_attribute("data-at"))
    hold("second", "moment", second.get_attribute("data-at"))
    hold("forecast of the second", "forecast", second.get_attribute("data-at"))

    def until(name: str) -> Any:
        for _ in range(200):
            if name in held:
                return held[name]
            page.wait_for_timeout(50)
        raise AssertionError(f"nobody asked for the {name}")

    first.click()
    late = until("forecast of the first")
    second.click()
    moment = until("second")
    late.continue_()
    page.wait_for_timeout(300)
    before = page.locator("#decision h2").inner_text()
    moment.continue_()
    page.wait_for_function(f"document.querySelector('#decision h2').innerText !== {before!r}")
    assert page.locator("#decision .note:has-text('Forecast')").count() == 0
    until("forecast of the second").continue_()
    page.wait_for_selector("#decision .note:has-text('Forecast')")


def test_a_duration_is_rounded_before_it_is_taken_apart(server: PageServer, open_page: Open) -> None:
    page = open_page(server.address)
    given = [0.4, 9.94, 59.7, 119.6, 601.0, 3599.0, 10_785.0, 3660.0, 172_800.0]
    told = page.evaluate("async (given) => given.map((await import('/text.js')).duration)", given)
    assert told == ["400 ms", "9.9 s", "1 min", "2 min", "10 min", "1 h", "3 h", "1 h 1 min", "2 d 0 h"]


def test_the_money_adds_up_and_stands_beside_the_clairvoyant_plan(
    server: PageServer, open_page: Open, keep: Keep
) -> None:
    page = open_page(server.address)
    to(page, "money")
    page.wait_for_selector("[data-figure=best] span:has-text('this run cost')")
    assert "%" in figure(page, "idle")
    assert page.locator("th[scope=row]:has-text('idle')").count() == 1
    keep(page, "money")


def test_a_replay_goes_through_the_run(server: PageServer, open_page: Open, keep: Keep) -> None:
    page = open_page(server.address)
    to(page, "replay")
    slider = page.locator("#replay-slider")
    slider.evaluate("node => { node.value = 0; node.dispatchEvent(new Event('input')); }")
    early = figure(page, "bill")
    slider.evaluate("node => { node.value = node.max; node.dispatchEvent(new Event('input')); }")
    late = figure(page, "bill")
    assert float(late.split()[0]) > float(early.split()[0])
    slider.evaluate("node => { node.value = 0; node.dispatchEvent(new Event('input')); }")
    page.locator("main h2").first.click()
    page.keyboard.press("Space")
    page.wait_for_function("document.querySelector('#replay-slider').value > 100")
    keep(page, "replay")


def test_two_runs_stand_side_by_side_with_their_differences(
    runs: tuple[Path, Path], open_page: Open, keep: Keep
) -> None:
    with PageServer([Shown(run) for run in runs]) as server:
        page = open_page(server.address)
        assert page.locator("#tab-replay[aria-selected=true]").count() == 1
        assert page.locator(".graph").count() == 2
        rows = page.locator("section:has-text('Differences') tbody tr")
        assert rows.count() >= 6
        assert page.locator("td.better, td.worse, td.more").count() > 0
        assert page.locator(".node.differs").count() > 0
        keep(page, "comparison")
        page.set_viewport_size({"width": 390, "height": 844})
        page.reload()
        page.wait_for_selector("body[data-ready=yes]")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        keep(page, "comparison-phone")
        page.context.close()


def edge_rates(page: Any) -> dict[str, tuple[float, bool]]:
    """Rates along edges and whether each is known, as the graph shows them."""
    return dict(
        page.evaluate(
            "(async () => { const { edgeRates } = await import('/film.js'), film = window.penstock.film;"
            "const found = edgeRates(film, film.at(film.end));"
            "return found.map((one, i) => [film.graph.edges[i].join(' '), one]); })()"
        )
    )


@pytest.mark.parametrize("counted", [True, False])
def test_rates_along_edges_are_counted_where_they_can_be_and_shared_out_else(
    tmp_path: Path, open_page: Open, counted: bool
) -> None:
    run = a_finished_run(tmp_path / "two", minutes=20, topology=parse_topology(TWO_SOURCES))
    if not counted:
        with sqlite3.connect(run / "journal.db") as journal:
            journal.execute("update observation set arrived_from = null, emitted_by = null")
        journal.close()
    with PageServer([Shown(run)]) as server:
        page = open_page(server.address)
        rates = edge_rates(page)
        (much, known_much), (little, known_little) = rates["source:much both"], rates["source:little both"]
        assert (known_much, known_little) == (counted, counted)
        assert much == pytest.approx(3 * little, rel=0.1)
        assert much + little == pytest.approx(24.0, rel=0.1)
        assert rates["both after"][1] is True
        shown = [rate[0] for rate in page.locator(".graph .rate").all_text_contents()]
        assert shown.count("≈") == (0 if counted else 2)
        assert page.locator(".graph .note").is_hidden() == counted
        page.context.close()


def test_a_long_run_is_shown_by_its_last_moments_and_filled_with_the_others(
    runs: tuple[Path, Path], open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Shown(runs[0]).film()[0]["delta"]["observed"]
    monkeypatch.setattr(film_module, "FEW_ROWS", 100)
    with PageServer([Shown(runs[0])]) as server:
        page = open_page(server.address)
        page.wait_for_selector("body[data-whole=yes]")
        assert page.evaluate("window.penstock.film.partial") is False
        for unit, columns in whole.items():
            for name in ("at", "in", "waiting", "running"):
                assert page.evaluate(f"window.penstock.film.seen[{unit!r}][{name!r}]") == columns[name]
        done = page.evaluate("window.penstock.film.seen.reduce.done.at(-1)")
        first = whole["reduce"]
        records = sum(rate * step for rate, step in zip(first["out"], first["step"], strict=True))
        assert done == pytest.approx(records)
        to(page, "replay")
        assert "%" in figure(page, "kept")
        page.context.close()


def test_a_live_run_is_seen_from_start_to_end_with_a_scale_up(
    tmp_path: Path, open_page: Open, keep: Keep
) -> None:
    topology = a_topology(
        units=("work",),
        policy=Choice("rate"),
        workload=Choice("stepwise", {"levels_per_s": (2.0, 40.0, 2.0), "hold_s": 300.0}),
        sites=[a_site(times=AT_ONCE)],
        loop=LoopSettings(monitoring_s=5.0, provisioning_s=15.0),
    )
    with (
        PacedSimulation(tmp_path / "run", topology, ticks=180, pace_s=0.03, hold_at=30) as simulation,
        PageServer([Shown(simulation.folder.root)]) as server,
    ):
        page = open_page(server.address)
        assert page.locator("#tab-change").count() == 1
        count = "window.penstock.film.seen.work.running"
        page.wait_for_function("window.penstock.film.ticks.at.length >= 30")
        first = page.evaluate(f"{count}.at(-1)")
        simulation.go_on()  # the load rises at the sixtieth tick
        page.wait_for_function(f"Math.max(...{count}) > {first + 2}", timeout=60_000)
        keep(page, "live")
        page.wait_for_function("!window.penstock.film.live", timeout=60_000)
        page.wait_for_function("document.getElementById('headline').innerText.includes('were kept')")
        assert "over" in page.locator("#clock").inner_text()
        assert "draining" not in page.locator("body").inner_text()
        assert page.locator("#tab-change").count() == 0, "nothing can be changed any more"
        seen = page.evaluate("window.penstock.film.ticks.at")
        assert seen == sorted(seen)
        assert len(set(seen)) >= 180
        page.context.close()


def test_until_a_unit_has_finished_something_its_health_is_not_known_and_not_zero(
    tmp_path: Path, open_page: Open, keep: Keep
) -> None:
    topology = a_topology(
        operators=[an_operator("slow", service_s=100.0)],
        units=("slow",),
        policy=Choice("fixed"),
        sites=[a_site(times=AT_ONCE)],
        loop=LoopSettings(monitoring_s=5.0, provisioning_s=15.0),
    )
    with (
        PacedSimulation(tmp_path / "run", topology, ticks=200, pace_s=0.01, hold_at=10) as simulation,
        PageServer([Shown(simulation.folder.root)]) as server,
    ):
        page = open_page(server.address)
        page.wait_for_function("window.penstock.film.ticks.at.length >= 10")
        box = page.locator("[data-unit=slow]")
        assert "time, health: not known yet" in box.text_content()
        assert "health: not known yet" in box.get_attribute("aria-label")
        assert figure(page, "kept") == "not known yet"
        keep(page, "not-known-yet")
        simulation.go_on()
        page.wait_for_function("window.penstock.film.seen.slow.done.at(-1) > 0")
        page.wait_for_function("document.querySelector('[data-unit=slow]').ariaLabel.match(/health [01]\\./)")
        page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_fault_for_people_who_see_or_move_differently(
    server: PageServer, runs: tuple[Path, Path], open_page: Open, keep: Keep, scheme: str
) -> None:
    page = open_page(server.address, color_scheme=scheme)
    faults = []
    for view in VIEWS:
        to(page, view)
        page.wait_for_timeout(300)
        faults += [(view, *fault) for fault in serious_faults(page)]
        if scheme == "dark":
            keep(page, f"dark-{view}")
    assert faults == []


def test_a_phone_shows_everything_without_scrolling_sideways(
    server: PageServer, open_page: Open, keep: Keep
) -> None:
    page = open_page(server.address)
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    page.wait_for_selector("body[data-ready=yes]")
    for view in VIEWS:
        to(page, view)
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
        keep(page, f"phone-{view}")


def test_the_keyboard_reaches_every_view_and_every_unit(server: PageServer, open_page: Open) -> None:
    page = open_page(server.address)
    for number, view in enumerate(VIEWS, 1):
        page.keyboard.press(str(number))
        page.wait_for_selector(f"#tab-{view}[aria-selected=true]")
    page.keyboard.press("1")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#tab-why[aria-selected=true]")
    page.keyboard.press("1")
    page.locator("[data-unit]").first.focus()
    page.keyboard.press("ArrowRight")
    name = page.evaluate("document.activeElement.dataset.unit")
    page.keyboard.press("Enter")
    page.wait_for_selector("#tab-why[aria-selected=true]")
    assert page.locator("#why-unit").input_value() == name
