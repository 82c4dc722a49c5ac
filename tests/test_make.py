"""`make` as a new user meets it: it says what it does while it installs, and fails where that fails."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PIP = """#!/bin/sh
echo "Collecting something"
echo "  Downloading something.whl"
until test -e {seen}; do sleep 0.05; done
echo "Installing collected packages: something"
exit {code}
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
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
