"""What a run is told: refused at once where it cannot be, and later by the number its teller was given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.controller.status import HostStatus, Status, UnitStatus
from penstock.errors import ConfigurationError
from penstock.fleet.deployment import HostState
from penstock.fleet.units import UnitState
from penstock.machine.files import written
from penstock.runs import commands
from penstock.runs.applying import StaleError
from penstock.runs.commands import Command
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.runs.telling import taken_back, told
from penstock.spark.unit.specification import topology_text
from penstock.topology.model import Topology
from tests.runs.test_changes import a_pair, at_two_sites, with_unit
from tests.runs.test_killed_amid_changes import Bomb, Stage, bomb  # noqa: F401


def a_status() -> Status:
    """One instance `a-1` of the first unit, on a host `h1`; another host `h2`."""
    unit = UnitStatus("first", UnitState.RUNNING, "rate", 1, 1, 1, 8, 2.0, members={"a-1": "h1"})
    hosts = tuple(HostStatus(name, "c", "m", HostState.UP) for name in ("h1", "h2"))
    return Status("pair", 1.0, (unit,), hosts, "3")


def a_place(root: Path, topology: Topology | None = None, **changes: object) -> RunFolder:
    """The folder of a run that goes on."""
    place = RunFolder.at(root)
    plan = RunPlan.of(topology or at_two_sites(), "pair", places={"first": "x", "second": "x"}, **changes)
    place.write_plan(plan)
    place.write_status(a_status())
    return place


THERE = [
    Command("drain", subject="h1"),
    Command("move", subject="a-1"),
    Command("move", subject="a-1", to="h2"),
    Command("restart", subject="second"),
    Command("move-unit", subject="second"),
    Command("move-unit", subject="second", to="y"),
    Command("pause", revision=1),
]
NOT_THERE = [
    (Command("drain", subject="h9"), "no host h9"),
    (Command("move", subject="a-9"), "no instance a-9"),
    (Command("move", subject="a-1", to="h9"), "no host h9"),
    (Command("restart", subject="ninth"), "no unit ninth"),
    (Command("move-unit", subject="ninth"), "no unit ninth"),
    (Command("move-unit", subject="second", to="nowhere"), "may be at x, y, not at nowhere"),
    (Command("move-unit", subject="second", to="x"), "is at x already"),
    (Command("undo"), "nothing was changed yet"),
    (Command("pause", revision=2), "revision 1 runs"),
]


@pytest.mark.parametrize("command", THERE, ids=str)
def test_what_can_be_done_is_put_where_the_controller_takes_it(tmp_path: Path, command: Command) -> None:
    place = a_place(tmp_path)
    said = told(place, command)
    assert commands.taken(place.commands, pytest.fail) == [said]
    assert said.revision == (1 if command.kind in ("move-unit", "pause") else None)


@pytest.mark.parametrize(("command", "why"), NOT_THERE, ids=str)
def test_what_cannot_be_done_is_refused_at_once(tmp_path: Path, command: Command, why: str) -> None:
    place = a_place(tmp_path)
    with pytest.raises(ConfigurationError, match=why):
        told(place, command)
    assert commands.taken(place.commands, pytest.fail) == []


def test_a_host_of_a_run_of_which_nothing_is_known_yet_is_none(tmp_path: Path) -> None:
    place = a_place(tmp_path)
    written(place.root / "status.json", "")
    with pytest.raises(ConfigurationError, match="nothing is known"):
        told(place, Command("drain", subject="h1"))


def test_what_taking_the_last_change_back_would_do_is_shown_and_nothing_is_changed(tmp_path: Path) -> None:
    topology = at_two_sites()
    place = a_place(tmp_path, before=topology_text(topology), revision=2, places_before={"second": "y"})
    revision, found = taken_back(place)
    assert (revision, [str(change) for change in found.changes]) == (
        2,
        ["unit second goes from site x to y"],
    )
    assert commands.taken(place.commands, pytest.fail) == []


def test_of_two_who_take_a_change_back_at_once_one_does_and_the_other_is_told_by_its_number(
    tmp_path: Path,
    bomb: Bomb,  # noqa: F811
) -> None:
    stage = Stage(tmp_path / "run", a_pair(), bomb)
    changed = with_unit(a_pair(), "first", max_instances=7)
    text = topology_text(changed)
    commands.put(stage.place.commands, Command(commands.APPLY, topology=text, revision=1))
    stage.turn()
    assert stage.place.plan().revision == 2
    both = [told(stage.place, Command("undo", by=who)) for who in ("ada", "bob")]
    for _ in range(3):
        stage.turn()
    plan = stage.place.plan()
    assert (plan.revision, plan.read_topology().unit_by_name["first"].max_instances) == (
        3,
        a_pair().unit_by_name["first"].max_instances,
    )
    status = stage.place.status()
    assert status is not None
    refused = [notice for notice in status.notices if notice.startswith("refused: undo")]
    assert [commands.refusal(both[1], "") in notice for notice in refused] == [True]
    with pytest.raises(StaleError, match="revision 3 runs"):
        told(stage.place, replace(both[1], id=""))


def test_a_run_s_status_names_its_instances_by_which_they_are_moved(
    tmp_path: Path,
    bomb: Bomb,  # noqa: F811
) -> None:
    stage = Stage(tmp_path / "run", a_pair(), bomb)
    status = stage.place.status()
    assert status is not None
    known = stage.run.running_controller().fleet.deployment().instances
    shown = {id: host for unit in status.units for id, host in unit.members.items()}
    assert shown == {id: instance.host for id, instance in known.items()} != {}
    told(stage.place, Command("move", subject=next(iter(shown))))
