"""Commands to a running controller, and the run's folder."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ConfigurationError
from penstock.machine.locks import LockHeldError
from penstock.runs import commands
from penstock.runs.commands import Command
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from tests.builders import a_topology


def test_commands_are_taken_once_oldest_first_and_one_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    told: list[str] = []
    commands.put(tmp_path, Command("pause", "look first"))
    (tmp_path / "00000000000000000000-torn.json").write_text("{")
    commands.put(tmp_path, Command("drain", subject="h1", by="ada"))
    first, second = commands.taken(tmp_path, told.append)
    assert (first.kind, first.reason, bool(first.by)) == ("pause", "look first", True)
    assert str(second) == "drain h1, told by ada"
    assert [text.partition(":")[0] for text in told] == ["refused"]
    assert commands.taken(tmp_path, told.append) == []


def test_who_says_more_than_an_older_controller_knows_is_told_so(tmp_path: Path) -> None:
    told: list[str] = []
    said = commands.put(tmp_path, Command("move-unit", subject="a", to="there"))
    (path,) = tmp_path.glob("*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "gently": True}))
    assert commands.taken(tmp_path, told.append) == []
    assert told[0].startswith(commands.refusal(said, "it could not be read: ")), told
    assert "gently" in told[0]


@pytest.mark.parametrize("wrong", [{"kind": "explode"}, {"kind": "drain"}, {"kind": "move"}])
def test_a_command_that_makes_no_sense_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        Command(**wrong)


def test_a_run_s_folder_is_its_owner_s_alone_and_keeps_what_it_is_given(tmp_path: Path) -> None:
    place = RunFolder.at(tmp_path / "run")
    topology = a_topology(units=("a", "b"), chained=True)
    plan = RunPlan.of(topology, "r", duration_s=5.0, settings={"spark.secret": "x"})
    place.write_plan(plan)
    assert place.plan() == plan
    assert plan.read_topology() == topology
    assert stat.S_IMODE(place.root.stat().st_mode) == 0o700
    assert stat.S_IMODE((place.root / "plan.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": 3}', '{"name": "r", "topology": "", "x": 1}'])
def test_a_torn_plan_is_a_clear_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(ConfigurationError, match="the plan of the run"):
        RunFolder(tmp_path).plan()


def test_a_folder_without_a_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no run"):
        RunFolder(tmp_path).plan()
    assert RunFolder(tmp_path).status() is None
    assert RunFolder(tmp_path).result() is None


def test_a_second_controller_of_a_folder_is_refused(tmp_path: Path) -> None:
    place = RunFolder.at(tmp_path / "run")
    with place.lock(), pytest.raises(LockHeldError, match="the run in"), RunFolder(place.root).lock():
        pass
    with place.lock():
        pass


def test_a_folder_is_not_taken_up_with_another_topology(tmp_path: Path) -> None:
    earlier = RunPlan.of(a_topology(units=("a",)), "r")
    with pytest.raises(ConfigurationError, match="another version of the topology"):
        RunPlan.of(a_topology(units=("a", "b")), "r").going_on(earlier)


def test_a_folder_is_taken_up_whatever_number_a_warm_start_finds_now() -> None:
    topology = a_topology(units=("a",))
    warmer = replace(topology, units=tuple(replace(unit, initial_instances=2) for unit in topology.units))
    earlier = RunPlan.of(warmer, "r")
    assert RunPlan.of(topology, "r").going_on(earlier).topology == earlier.topology
