"""Pages are self-contained and really draw, checked in a browser where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import plotly.graph_objects as go
import pytest

from penstock.report.figures import Figure, write_figures
from penstock.report.page import Page

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)


def a_page() -> Page:
    page = Page("A <title>", "and & what it is about")
    page.cards({"cost": "3 USD"})
    lines = [go.Scatter(x=[1, 2], y=[3, 4], name=name) for name in ("first", "second")]
    page.plot("Numbers", go.Figure(lines))
    page.table("Table", ["name", "value"], [["<b>", 1.5], ["yes or no", True], ["nothing", None]])
    return page


def test_a_page_loads_nothing_from_anywhere(tmp_path: Path) -> None:
    text = a_page().write(tmp_path / "page.html").read_text()
    before_script, _, after = text.partition("<script>")
    after_script = after.rpartition("</script>")[0].rpartition("<script>")[2]
    for part in (before_script, after_script):
        assert "src=" not in part
        assert "http" not in part


def test_text_is_escaped(tmp_path: Path) -> None:
    text = a_page().write(tmp_path / "page.html").read_text()
    assert "<title>A &lt;title&gt;</title>" in text
    assert '<td class="left">&lt;b&gt;</td>' in text


def test_figures_are_written_as_a_list(tmp_path: Path) -> None:
    write_figures([Figure("speed", 2.0, bar=">= 1", holds=True)], tmp_path / "new" / "bench.json")
    assert '"holds": true' in (tmp_path / "new" / "bench.json").read_text()


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_a_browser_draws_the_plot(tmp_path: Path) -> None:
    page = a_page().write(tmp_path / "page.html")
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=8000", "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    # Plotly puts its drawing into the page only when the script ran and understood the figure.
    assert 'class="main-svg"' in done.stdout
    assert ">second<" in done.stdout
