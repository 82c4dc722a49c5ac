"""`penstock serve --systemd`: a unit that brings the service back with the machine."""

from __future__ import annotations

import shlex
from pathlib import Path

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
