"""Changing a run that goes on from the page: each order asks once and shows what came of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.controller.mode import Mode
from penstock.machine.processes import wait_until
from penstock.page.server import PageServer
from penstock.page.shown import Shown
from penstock.runs.folder import RunFolder
from penstock.topology.model import Choice, LoopSettings, Topology, Unit
from tests.builders import AT_ONCE, a_flavour, a_site, a_topology
from tests.page.runs import PacedSimulation
from tests.web.test_page import serious_faults, to

Open = Callable[..., Any]
Keep = Callable[[Any, str], None]


def a_changeable() -> Topology:
    """One unit of two instances, on hosts that hold two each; there is room for more hosts."""
    return a_topology(
        units=("work",),
        policy=Choice("fixed"),
        initial_instances=2,
        max_instances=4,
        sites=[a_site(times=AT_ONCE, flavours=[a_flavour(cores=2.0)], max_hosts=3)],
        loop=LoopSettings(monitoring_s=5.0, provisioning_s=10.0),
    )


@pytest.fixture
def run(tmp_path: Path, chromium: Any) -> Iterator[PacedSimulation]:
    with PacedSimulation(tmp_path / "run", a_changeable(), ticks=100_000, pace_s=0.1) as simulation:
        yield simulation


@contextmanager
def change_view(run: PacedSimulation, open_page: Open, **settings: Any) -> Iterator[Any]:
    with PageServer([Shown(run.folder.root)]) as server:
        page = open_page(server.address, **settings)
        to(page, "change")
        page.wait_for_function("document.getElementById('change-text').value.includes('units:')")
        yield page
        page.context.close()


def order(page: Any, kind: str) -> None:
    """Click, and say yes to the one question."""
    page.click(f"[data-order={kind}]:not([disabled])")
    page.click(f"dialog[open] [data-yes={kind}]")


def came(page: Any, kind: str, text: str) -> str:
    """What is shown of the newest order of this kind, once it says this."""
    place = f"#change-done li[data-kind={kind}]:has-text('{text}')"
    return str(page.wait_for_selector(place, timeout=60_000).inner_text())


def edit(page: Any, old: str, new: str) -> None:
    page.evaluate(
        "([old, now]) => { const text = document.getElementById('change-text');"
        "if (!text.value.includes(old)) throw new Error(text.value);"
        "text.value = text.value.replace(old, now); text.dispatchEvent(new Event('input')); }",
        [old, new],
    )


def test_a_topology_is_previewed_applied_and_taken_back(
    run: PacedSimulation, open_page: Open, keep: Keep
) -> None:
    with change_view(run, open_page) as page:
        assert page.locator("[data-order=undo]").is_disabled()
        assert page.locator("[data-change=apply]").is_disabled()
        edit(page, "max_instances: 4", "max_instances: 7")
        page.click("[data-change=preview]")
        shown = page.wait_for_selector("[data-part=changes]").inner_text()
        assert "7" in shown
        assert "work" in page.locator("[data-part=untouched]").inner_text()
        page.fill("#change-reason", "a fair is on")
        page.click("[data-change=apply]:not([disabled])")
        page.click("dialog[open] [data-yes=apply]")
        came(page, "apply", "revision 2 runs")
        assert run.folder.plan().read_topology().unit_by_name["work"].max_instances == 7
        page.wait_for_function("window.penstock.film.units.work.most === 7")
        keep(page, "change")

        order(page, "undo")
        came(page, "undo", "revision 3 runs")
        page.wait_for_function("window.penstock.film.units.work.most === 4")
        assert run.folder.plan().read_topology().unit_by_name["work"].max_instances == 4
        assert page.locator("li:has-text('a fair is on')").count() >= 1


def test_mistakes_and_what_cannot_be_done_are_told_and_change_nothing(
    run: PacedSimulation, open_page: Open
) -> None:
    with change_view(run, open_page, allowed=(400,)) as page:
        edit(page, "fixed", "fixd")
        with page.expect_response("**/data/preview") as answer:
            page.click("[data-change=preview]")
        assert answer.value.status == 400
        assert "fixd" in page.wait_for_selector("#change-preview .refused").inner_text()
        assert page.locator("[data-change=apply]").is_disabled()
    assert run.folder.plan().revision == 1


def test_a_run_is_paused_made_to_advise_and_resumed(
    run: PacedSimulation, open_page: Open, keep: Keep
) -> None:
    with change_view(run, open_page) as page:
        order(page, "pause")
        came(page, "pause", "nothing is decided")
        page.wait_for_selector("#headline:has-text('Paused: nothing is decided')")
        assert run.running_controller().mode is Mode.PAUSE
        assert page.locator("[data-order=pause]").is_hidden()
        order(page, "advise")
        came(page, "advise", "only advises")
        page.wait_for_selector("#headline:has-text('Only advising')")
        assert run.running_controller().mode is Mode.ADVISE
        keep(page, "advising")
        order(page, "resume")
        came(page, "resume", "acts again")
        assert run.running_controller().mode is Mode.ACT


def test_an_instance_is_moved_and_a_host_is_drained(
    run: PacedSimulation, open_page: Open, keep: Keep
) -> None:
    with change_view(run, open_page) as page:
        page.wait_for_selector("#change-instance option", state="attached")
        moved = page.input_value("#change-instance")
        host = run.running_controller().fleet.deployment().instances[moved].host
        order(page, "move")
        told = came(page, "move", "serves on")
        assert moved in told
        assert str(host) not in told.split("serves on")[1]

        page.select_option("#change-host", str(host))
        order(page, "drain")
        came(page, "drain", "was given back")
        assert str(host) not in run.running_controller().fleet.deployment().hosts
        keep(page, "orders")


def a_topology_of_two_sites() -> Topology:
    """A unit that may be at either of two sites, the second of which costs more; another that may not."""
    free, bound = (
        Unit(name, (name,), policy=Choice("fixed"), sites=sites)
        for name, sites in (("free", ("near", "far")), ("bound", ("near",)))
    )
    return a_topology(
        units=(free, bound),
        sites=[
            a_site(name, times=AT_ONCE, flavours=[a_flavour(cores=2.0, price=price)], max_hosts=2)
            for name, price in (("near", "0.10"), ("far", "0.20"))
        ],
        loop=LoopSettings(monitoring_s=5.0, provisioning_s=10.0),
    )


def test_a_unit_is_moved_to_another_site_it_may_be_at(
    tmp_path: Path, chromium: Any, open_page: Open, keep: Keep
) -> None:
    with PacedSimulation(
        tmp_path / "run", a_topology_of_two_sites(), ticks=100_000, pace_s=0.1
    ) as run, change_view(run, open_page) as page:  # fmt: skip
        page.wait_for_selector("#change-site option[value=far]", state="attached")
        assert page.locator("#change-goes option").all_text_contents() == ["free"]
        assert page.locator("#change-site option").all_text_contents() == ["far"]
        order(page, "move-unit")
        came(page, "move-unit", "done: free is at far")
        assert run.plan.places == {"free": "far", "bound": "near"}

        def at() -> set[str]:
            fleet = run.running_controller().fleet.deployment()
            hosts = (fleet.hosts.get(one.host or "") for one in fleet.of_unit("free"))
            return {host.site for host in hosts if host is not None}

        assert wait_until(lambda: at() == {"far"}, 30.0), at()
        page.wait_for_selector("#change-site option[value=near]", state="attached")
        assert page.locator("#change-site option").all_text_contents() == ["near"]
        keep(page, "moved")
        order(page, "undo")
        came(page, "undo", "revision 3 runs")
        assert wait_until(lambda: at() == {"near"}, 30.0), at()


def test_a_run_at_one_site_offers_no_other(run: PacedSimulation, open_page: Open) -> None:
    with change_view(run, open_page) as page:
        assert page.locator("[data-order=move-unit]").is_hidden()


def test_saying_no_does_nothing(run: PacedSimulation, open_page: Open) -> None:
    with change_view(run, open_page) as page:
        page.click("[data-order=stop]")
        page.click("dialog[open] button:has-text('No')")
        assert page.locator("dialog[open]").count() == 0
        assert page.locator("#change-done li").count() == 0
    assert run.folder.result() is None


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, str]]:
    """The service over a folder of runs: its address, and its token."""
    import uvicorn

    from penstock.api.app import create_app
    from penstock.api.runs import Runs
    from penstock.cli.serve import _listening

    runs = Runs(folder)
    listening = _listening("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(create_app(runs), log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/", runs.token
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(20)


def test_the_service_lists_its_runs_and_shows_and_changes_each(
    run: PacedSimulation, open_page: Open, keep: Keep
) -> None:
    with served(run.folder.root.parent) as (address, token):
        page = open_page(f"{address}#token={token}")
        keep(page, "runs")
        page.click("a:has-text('run')")
        page.wait_for_selector("#tab-change")
        before = page.evaluate("window.penstock.film.ticks.at.length")
        page.wait_for_function(f"window.penstock.film.ticks.at.length > {before + 3}")
        to(page, "change")
        order(page, "pause")
        came(page, "pause", "nothing is decided")
        page.context.close()
    assert RunFolder(run.folder.root).plan().revision == 1


def test_who_has_no_token_is_asked_for_it(run: PacedSimulation, open_page: Open) -> None:
    with served(run.folder.root.parent) as (address, token):
        page = open_page(address, allowed=(401,))
        page.fill("#token", token)
        page.click("button:has-text('Look')")
        page.wait_for_selector("a:has-text('run')")
        page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_change_has_no_serious_fault_for_anybody_and_fits_a_phone(
    run: PacedSimulation, open_page: Open, keep: Keep, scheme: str
) -> None:
    with change_view(run, open_page, color_scheme=scheme) as page:
        edit(page, "max_instances: 4", "max_instances: 7")
        page.click("[data-change=preview]")
        page.wait_for_selector("[data-part=changes]")
        assert serious_faults(page) == []
        page.click("[data-order=stop]")
        page.wait_for_selector("dialog[open]")
        assert serious_faults(page) == []
        page.click("dialog[open] button:has-text('No')")
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        keep(page, f"change-phone-{scheme}")
