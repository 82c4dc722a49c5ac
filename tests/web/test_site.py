"""The documentation as a site, opened from its folder in a real browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.web.test_page import serious_faults

ROOT = Path(__file__).parents[2]
LOOKED_AT = ("index.html", "attach.html", "api.html", "papers/001-filtered-signals.html")
"""Pages with all that pages are made of; axe takes a second for each."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: make docs")
    folder = tmp_path_factory.mktemp("docs") / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, timeout=120)
    return folder


def test_every_page_fits_a_phone_and_has_no_fault_of_its_scripts(site: Path, chromium: Any) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 844})
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append((page.url, str(error))))
    page.on("request", lambda asked: asked.url.startswith("file:") or wrong.append((page.url, asked.url)))
    files = [file for file in sorted(site.rglob("*.html")) if file.name != "404.html"]
    assert len(files) > 30
    for file in files:
        page.goto(file.as_uri())
        if page.evaluate("document.documentElement.scrollWidth") > 390:
            wrong.append((page.url, "it is wider than a phone"))
    context.close()
    assert wrong == []


def test_the_site_turns_dark_and_is_readable_for_everybody(site: Path, chromium: Any) -> None:
    context = chromium.new_context(viewport={"width": 1200, "height": 900})
    page, faults = context.new_page(), []
    page.goto((site / "index.html").as_uri())
    page.click("#theme-menu")
    page.click("[data-bs-theme-value=dark]")
    assert page.evaluate("document.documentElement.dataset.bsTheme") == "dark"
    for scheme in ("dark", "light"):
        page.evaluate(f"localStorage.setItem('mkdocs-colormode', '{scheme}')")
        for name in LOOKED_AT:
            page.goto((site / name).as_uri())
            faults += [(scheme, name, *fault) for fault in serious_faults(page)]
    context.close()
    assert faults == []
