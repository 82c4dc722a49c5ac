"""What a machine elsewhere runs to join, run on a host of the rig up to where the worker would start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.machine.processes import ChildProcesses
from penstock.rig.availability import unavailable
from penstock.rig.rig import Rig
from penstock.rig.testing import rig
from penstock.spark.managers.join_script import JoinScriptOf, pins
from penstock.spark.managers.standalone import SETTINGS_FILE, Standalone

__all__ = ["rig"]

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


def python_that_tells(path: Path) -> str:
    """This Python, but for modules: what it was asked to run is printed instead."""
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nif [ "$1" = -m ]; then echo "$@"; else exec {sys.executable} "$@"; fi\n')
    path.chmod(0o755)
    return str(path)


def test_a_host_finds_its_address_checks_versions_and_runs_the_worker(rig: Rig, tmp_path: Path) -> None:
    host = rig.host("joins")
    assert host is not None
    manager = Standalone(tmp_path, ChildProcesses("join-script"), port=7077, address="10.77.2.10")
    script = JoinScriptOf(manager, python_that_tells(tmp_path / "bin" / "python"))("h1", 2, 1024)
    done = host.run("bash", "-c", script)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert words[:4] == ["-m", "penstock.spark.managers.worker", "/var/lib/penstock/h1", "--host"]
    assert words[4] == host.address
    assert words[-1] == "spark://10.77.2.10:7077"
    assert words[words.index("--cores") + 1] == "2"
    settings = host.file(words[words.index("--properties-file") + 1])
    assert settings.name == SETTINGS_FILE
    assert settings.stat().st_mode & 0o077 == 0
    secret = manager.settings()["spark.authenticate.secret"]
    assert secret in settings.read_text()
    assert secret not in done.stdout


def test_a_host_with_another_version_makes_an_environment_of_the_right_ones(rig: Rig, tmp_path: Path) -> None:
    host = rig.host("older")
    assert host is not None
    manager = Standalone(tmp_path, ChildProcesses("join-script"), port=7077, address="10.77.2.10")
    script = JoinScriptOf(manager, python_that_tells(tmp_path / "bin" / "python"))("h1", 1, 512)
    (right,) = [pin for pin in pins() if pin.startswith("numpy==")]
    done = host.run("bash", "-c", script.replace(right, "numpy==0.0.1"))
    assert "needs numpy==0.0.1" in done.stdout
    install = next(line for line in done.stdout.splitlines() if line.startswith("-m pip install"))
    assert [word for word in install.split() if "==" in word] == [
        "numpy==0.0.1" if pin == right else pin for pin in pins()
    ]
