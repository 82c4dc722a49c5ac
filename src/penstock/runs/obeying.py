"""What a run does when it is told something from outside, or when a change turns out to be a mistake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.controller.mode import Mode
from penstock.errors import ConfigurationError, PenstockError
from penstock.fleet.actions import MigrateInstance, ReleaseHost
from penstock.fleet.deployment import INSTANCE_COUNTED
from penstock.runs import commands
from penstock.runs.applying import StaleError
from penstock.runs.commands import Command
from penstock.runs.plan import Pending
from penstock.runs.telling import before_of, destination, require_fresh
from penstock.topology.boundary import rewired
from penstock.topology.file import parse_topology
from penstock.topology.model import Topology

if TYPE_CHECKING:
    from penstock.runs.run import Run

MODES = {"pause": Mode.PAUSE, "advise": Mode.ADVISE, "resume": Mode.ACT}
PROVEN_S = 600.0
"""A unit that fails within this time after a change that concerned it fails by that change."""


def obey(run: Run) -> None:
    """Take the commands that were put into the run's folder."""
    controller = run.running_controller()
    for command in commands.taken(run.folder.commands, run.plane.note):
        run.plane.note(f"told from outside: {command}")
        reason = command.reason or "told from outside"
        try:
            require_fresh(command, run.plan.revision)
        except StaleError as error:
            run.plane.note(commands.refusal(command, error))
            continue
        if command.kind == "stop":
            run.told_to_stop = True
        elif command.kind == commands.LOOKUP:
            continue
        elif command.kind == commands.BUDGET:
            controller.give_budgets(command.budgets_s, reason)
            if gone := sorted(set(command.budgets_s) - set(run.here.unit_by_name)):
                run.plane.note(commands.refusal(command, f"there is no unit {', '.join(gone)} here"))
        elif command.kind == "finish":
            run.feed.finish()
        elif command.kind in MODES:
            controller.mode = MODES[command.kind]
            if command.kind == "resume":
                _try_again(run)
        elif command.kind == "drain":
            controller.ask(ReleaseHost(str(command.subject), reason, asked=True))
        else:
            try:
                _change(run, command, reason)
            except PenstockError as error:
                run.plane.note(commands.refusal(command, error))


def asks(run: Run) -> tuple[str, ...]:
    """What besides units was tried too often, and is left until a person has looked."""
    watch = run.service_watch
    return (*run.feed.asks, *(() if watch is None else watch.asks), *run.clusters.asks)


def _try_again(run: Run) -> None:
    """Whatever a person was asked to look at is tried again, from the first try on."""
    tries = [*run.feed.tries.values(), *run.clusters.tries.values()]
    for one in [*tries, *([] if run.service_watch is None else [run.service_watch.tries])]:
        if one.asks:
            one.again()
    run.running_controller().fleet.try_again(run.clock.now_s())


def rolled_back(run: Run, failed: Sequence[str], problem: str) -> bool:
    """Whether units failed by a change made a moment ago, which is therefore taken back."""
    units = run.running_controller().fleet.units
    if run.plan.before is None or not all(on_trial_s(run, units[name].revision) for name in failed):
        return False
    before = parse_topology(run.plan.before)
    if any(_has_what_others_had(run, before, name) for name in failed):
        return False
    try:
        places = run.plan.places_before
        run.changing.begin(before, Pending(f"rolled back: {problem}", back=True, places=places))
    except PenstockError as error:
        run.plane.note(f"the change could not be rolled back: {error}")
        return False
    run.plan = replace(run.plan, changed_s=None)  # once
    return True


def on_trial_s(run: Run, revision: int) -> float:
    """How long a unit of a version has yet to prove itself; 0 where it is not by the last change."""
    changed_s = run.plan.changed_s
    if changed_s is None or revision != run.plan.revision:
        return 0.0
    return max(0.0, changed_s + PROVEN_S - run.clock.now_s())


def _has_what_others_had(run: Run, before: Topology, failed: str) -> bool:
    """Whether records wait for a failed unit that the version before would give to nobody, or give twice.

    The latter are in streams that would have to be read to their end, because somebody was rewired.
    """
    moved = [name for name in run.topology.unit_by_name[failed].operators if name in before.operator_by_name]
    if failed not in before.unit_by_name and moved:
        return True
    return any(failed == reader for way in rewired(run.topology, before) for _, reader in way.emptied)


def _change(run: Run, command: Command, reason: str) -> None:
    if command.kind == "move":
        _move(run, command, reason)
    elif command.kind == "move-unit":
        _move_unit(run, command, reason)
    elif command.kind == "restart":
        unit = str(command.subject)
        if unit not in run.topology.unit_by_name:
            raise ConfigurationError(f"there is no unit {unit}")
        run.running_controller().fleet.restart(unit, run.plan.revision, run.clock.now_s())
    elif command.kind == "undo":
        _begin(run, command, before_of(run.plan), f"taken back: {reason}", run.plan.places_before)
    else:
        _begin(run, command, str(command.topology), reason)


def _begin(
    run: Run, command: Command, text: str, reason: str, places: Mapping[str, str] | None = None
) -> None:
    pending = Pending(
        reason,
        refusal=commands.refusal(command, ""),
        give_up_state=command.give_up_state,
        rehearse=command.rehearse,
        places=places or command.places,
        revision=command.as_revision,
        handed=command.handed,
    )
    run.changing.begin(parse_topology(text), pending)


def _move(run: Run, command: Command, reason: str) -> None:
    controller = run.running_controller()
    deployment = controller.fleet.deployment()
    instance = deployment.instances.get(str(command.subject))
    if instance is None or instance.state not in INSTANCE_COUNTED:
        raise ConfigurationError(f"there is no instance {command.subject}")
    if command.to is not None and command.to not in deployment.hosts:
        raise ConfigurationError(f"there is no host {command.to}")
    controller.ask(MigrateInstance(instance.id, "", instance.unit, command.to, reason))


def _move_unit(run: Run, command: Command, reason: str) -> None:
    unit = str(command.subject)
    target = destination(run.topology, run.plan.places, unit, command.to)
    _begin(run, command, run.plan.topology, reason, {unit: target})
