"""`make` as a new user meets it: it says what it does while it installs, and fails where that fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKE = shutil.which("make")
PIP = """#!/bin/sh
echo "Collecting something"
echo "  Downloading something.whl"
until test -e {seen}; do sleep 0.05; done
echo "Installing collected packages: something"
exit {code}
"""


@pytest.mark.skipif(MAKE is None, reason="there is no make")
@pytest.mark.parametrize(("target", "code"), [(".installed-to-run", 0), (".installed", 0), (".installed", 1)])
def test_an_installation_gives_signs_of_life_and_its_failure_is_one(
    tmp_path: Path, target: str, code: int
) -> None:
    venv, seen = tmp_path / "venv", tmp_path / "seen"
    (venv / "bin").mkdir(parents=True)
    python = venv / "bin" / "python"
    python.write_text(PIP.format(seen=seen, code=code))
    python.chmod(0o755)
    command = ["make", "--no-print-directory", f"VENV={venv}", str(venv / target)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as made:
        assert made.stdout is not None
        said = []
        while not said or "Collecting" not in said[-1]:
            line = made.stdout.readline()
            assert line, said  # it must come while the installation still goes on
            said.append(line)
        seen.touch()
        rest = made.stdout.read()
    assert "minutes" in said[0]
    assert "  Installing collected" in rest
    assert (made.returncode == 0, (venv / target).exists()) == (code == 0, code == 0)


@pytest.mark.skipif(MAKE is None, reason="there is no make")
@pytest.mark.parametrize(
    ("ci", "user", "browser", "code", "asked"),
    [
        ("true", 0, False, 0, True),
        ("true", 0, False, 1, True),
        ("true", 0, True, 0, False),
        ("true", 1000, False, 0, False),
        ("", 0, False, 0, False),
    ],
)
def test_a_browser_is_installed_on_a_machine_for_tests_alone_and_may_fail(
    tmp_path: Path, ci: str, user: int, browser: bool, code: int, asked: bool
) -> None:
    """A path of programs of which none does anything but tell that it was called."""
    called = tmp_path / "called"
    programs = {
        "apt-get": f"echo $* >> {called}; exit {code}",
        "id": f"echo {user}",
        "timeout": 'shift; "$@"',
    }
    programs |= {"chromium": "exit 0"} if browser else {}
    for name, does in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": str(tmp_path), "CI": ci}
    done = subprocess.run(
        [str(MAKE), "--no-print-directory", "chromium"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert called.exists() == asked
    if asked and not code:
        assert "chromium-headless-shell" in called.read_text()
    assert ("no browser could be installed: tests of the page are skipped" in done.stdout) == bool(code)
