"""Latency budgets over HTTP: what a budget would cost, budgets handed out, and who coordinates them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import Field, StringConstraints

from penstock.api.answers import Answer, By, Mistakes, Reason, Strict, Taken, Text, over_the_api
from penstock.api.places import Place
from penstock.errors import ConfigurationError
from penstock.runs import commands
from penstock.runs.applying import require_running
from penstock.runs.coordinating import (
    EVERY_S,
    Coordination,
    Coordinator,
    Handed,
    Member,
    budgets_of,
    cost_of,
    finite,
    part_here,
)

ROUTER = APIRouter(prefix="/api/v1")
UnitName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Seconds = Annotated[float, Field(gt=0, le=1e9)]


class AskedBudget(Strict):
    """A budget whose cost is asked for."""

    latency_s: Annotated[float, Field(ge=0, le=1e9)]
    """The latency it would have to keep."""


class Answered(Answer):
    """What it costs an hour; null where it cannot be kept."""

    cost: float | None
    """In the currency of its site."""


class Given(Strict):
    """Budgets for units of a run."""

    budgets_s: dict[UnitName, Seconds] = Field(max_length=10_000)
    """The latency each unit has to keep from now on."""
    reason: Reason = ""
    """Why; it goes on record."""
    by: By = ""
    """Who asks; it goes on record."""


class Budgets(Answer):
    """The latency units have to keep."""

    budgets_s: dict[str, float]
    """By unit; it takes the place of the unit's SLO."""


class MemberRun(Strict):
    """Where a unit is."""

    run: Annotated[str, StringConstraints(pattern=r"^https?://", max_length=1000)] = Field(
        description="The address of its run, such as http://host:8765/api/v1/runs/shop."
    )
    token: Annotated[str, StringConstraints(max_length=500, pattern=r"^[!-~]*$")] = Field(
        description="Its service's token."
    )


class Coordinated(Strict):
    """A topology whose bounds this service distributes over the runs of several."""

    topology: Text
    """The whole topology, with its latency bounds."""
    members: dict[UnitName, MemberRun] = Field(max_length=10_000)
    """Where each unit is; where it goes to another of these runs, it is found there."""
    runs: list[MemberRun] = Field(
        default=[], max_length=1000, description="Further runs that units may go to."
    )
    every_s: float = Field(EVERY_S, ge=1, le=1e9, description="How often they are distributed.")


class Distributed(Answer):
    """What the last distribution came to."""

    budgets_s: dict[str, float]
    """What each unit was given."""
    reason: str = ""
    """Why they were distributed."""
    silent: dict[str, str] = Field(default={}, description="Units that kept their last budget, and why.")
    requests: int = 0
    """How many requests it took."""
    problem: str | None = Field(None, description="Why nothing was handed out.")


def _coordinator(request: Request) -> Coordinator:
    found: Coordinator = request.app.state.coordinator
    return found


Coordinating = Annotated[Coordinator, Depends(_coordinator)]


@ROUTER.post("/runs/{name}/budgets/{unit}/cost")
def cost(place: Place, unit: Annotated[str, Path(max_length=200)], asked: AskedBudget) -> Answered:
    """What a unit would cost an hour at a latency budget, by its load now."""
    return Answered(cost=finite(cost_of(place, unit, asked.latency_s)))


@ROUTER.get("/runs/{name}/budgets")
def budgets(place: Place) -> Budgets:
    """The latency every unit of a run has to keep now."""
    return Budgets(budgets_s=budgets_of(place))


@ROUTER.put("/runs/{name}/budgets", status_code=202)
def give(place: Place, given: Given) -> Taken:
    """Give units their budgets; they keep them until they are given others."""
    require_running(place)
    own = part_here(place)
    if own.latency_bounds:
        raise ConfigurationError(f"topology {own.name} distributes latency bounds of its own")
    unknown = sorted(set(given.budgets_s) - set(own.unit_by_name))
    if unknown:
        raise ConfigurationError(f"there is no unit {', '.join(unknown)} here")
    by = over_the_api(given.by)
    command = commands.Command(commands.BUDGET, given.reason, by=by, budgets_s=given.budgets_s)
    return Taken(errors=[], id=commands.put(place.commands, command).id)


@ROUTER.get("/budgets")
def coordinated(coordinator: Coordinating) -> Distributed:
    """The budgets this service handed out last."""
    given = coordinator.coordination
    if given is None:
        raise ConfigurationError("nothing is coordinated")
    return _told(coordinator.handed or Handed(given.budgets_s))


@ROUTER.put("/budgets", status_code=202)
def coordinate(coordinator: Coordinating, wish: Coordinated) -> Mistakes:
    """Distribute a topology's bounds from now on over the runs of several services."""
    members = {unit: _member(run) for unit, run in wish.members.items()}
    others = tuple(_member(run) for run in wish.runs)
    coordinator.set(Coordination(wish.topology, members, wish.every_s, others))
    return Mistakes(errors=[])


@ROUTER.post("/budgets/distribute")
def distribute(coordinator: Coordinating) -> Distributed:
    """Ask every unit, distribute and hand out, now."""
    return _told(coordinator.distribute())


@ROUTER.delete("/budgets")
def coordinate_no_more(coordinator: Coordinating) -> Mistakes:
    """Distribute nothing any more; the budgets that were handed out stay."""
    coordinator.clear()
    return Mistakes(errors=[])


def _member(run: MemberRun) -> Member:
    return Member(run.run.rstrip("/"), run.token)


def _told(handed: Handed) -> Distributed:
    return Distributed(
        budgets_s=dict(handed.budgets_s),
        reason=handed.reason,
        silent=dict(handed.silent),
        requests=handed.requests,
        problem=handed.problem,
    )
