"""`penstock serve --systemd`: a unit that brings the service back with the machine."""

from __future__ import annotations

import shlex
import threading
from pathlib import Path
from typing import Any, cast

from penstock.cli.serve import _taking_up
from tests.cli.test_commands import penstock


def _command(unit: str) -> list[str]:
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    return shlex.split(line.removeprefix("ExecStart="))


def test_the_unit_starts_the_service_as_it_was_asked_for(tmp_path: Path) -> None:
    runs, peer = tmp_path / "all runs", tmp_path / "peer"
    given = ("serve", str(runs), "--host", "10.0.0.5", "--port", "99", "--peer", str(peer))
    unit = penstock(*given, "--systemd", folder=tmp_path)
    assert _command(unit)[-len(given) :] == list(given)
    assert "Restart=always" in unit
    assert f"EnvironmentFile=-{runs}/environment" in unit, "where Java is, and the like"
    assert "journal.env" not in unit
    # At boot a database or an address may come up later: it is tried again and again.
    for line in ("Wants=network-online.target", "StartLimitIntervalSec=0", "RestartSec=5"):
        assert line in unit.splitlines()


def test_the_journal_of_a_pair_is_in_a_file_for_its_owner_and_not_in_the_unit(tmp_path: Path) -> None:
    url = "postgresql://penstock:se cret@db/penstock"
    unit = penstock("serve", "runs", "--journal", url, "--systemd", folder=tmp_path)
    assert "secret" not in unit.replace(" ", "")
    file = tmp_path / "runs" / "journal.env"
    assert f"EnvironmentFile={file}" in unit
    assert file.read_text() == f'PENSTOCK_JOURNAL="{url}"\n'
    assert file.stat().st_mode & 0o077 == 0


class Looked:
    """The runs of a service, which are looked at; the first look fails."""

    def __init__(self, ended: threading.Event) -> None:
        self.ended, self.looks = ended, list[dict[str, Any]]()

    def take_up(self, **given: Any) -> list[str]:
        self.looks.append(given)
        if len(self.looks) == 1:
            raise RuntimeError("nobody thought of this")
        self.ended.set()
        return ["shop"]


def test_a_service_goes_on_looking_and_ends_no_controller_for_being_quiet() -> None:
    ended, said = threading.Event(), list[str]()
    runs = Looked(ended)
    _taking_up(cast(Any, runs), ended, said.extend, every_s=0.01)
    assert runs.looks == [{}, {}], "with no limit of silence: controllers tick as seldom as they are told to"
    assert said == ["shop"]
