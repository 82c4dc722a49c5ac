"""A real Chromium for tests of the page, where the machine has one; a clear skip where it has not.

Every page is watched: an error on its console, a fault in its scripts or a request to any other host than
this machine fails the test. Screenshots are kept in `build/screenshots`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser; `make browser` says how to get one."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: make test installs it"
    )
    program = os.environ.get("PENSTOCK_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed: make browser")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages; what goes wrong in one fails the test at its end."""
    wrong: list[str] = []
    contexts = []

    def opened(address: str, allowed: tuple[int, ...] = (), **settings: Any) -> Any:
        """`allowed` are answers that the browser tells of on its console and a test may want."""
        # The page's own policy forbids what Playwright waits with; one test opens the page under it.
        settings.setdefault("bypass_csp", True)
        context = chromium.new_context(viewport={"width": 1400, "height": 900}, **settings)
        contexts.append(context)

        def only_here(route: Any) -> None:
            if urlsplit(route.request.url).hostname in ("127.0.0.1", "localhost"):
                route.continue_()
            else:
                wrong.append(f"a request left for {route.request.url}")
                route.abort()

        context.route("**/*", only_here)
        page = context.new_page()

        def heard(said: Any) -> None:
            expected = any(f"the server responded with a status of {code} " in said.text for code in allowed)
            if said.type in ("error", "warning") and not expected:
                wrong.append(said.text)

        page.on("console", heard)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(address)
        page.wait_for_selector("body[data-ready=yes]", timeout=20_000)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="session")
def keep() -> Callable[[Any, str], None]:
    """Keeps a screenshot under a name."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)

    def kept(page: Any, name: str) -> None:
        page.screenshot(path=SCREENSHOTS / f"{name}.png")

    return kept
