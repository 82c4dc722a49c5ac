"""What goes over the wire, apart from a run's status."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

RunName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
"""Names of runs are names of folders: nothing in them leads elsewhere."""
Reason = Annotated[str, StringConstraints(max_length=500)]
Text = Annotated[str, StringConstraints(max_length=500_000)]
"""A topology file's text."""


class Strict(BaseModel):
    """A request in which nothing may stand that nobody reads."""

    model_config = ConfigDict(extra="forbid")


class RunSummary(BaseModel):
    """One run in a list."""

    name: str
    topology: str
    revision: int
    phase: str
    """`starting`, `running`, `draining`, `ended`, or `interrupted` where nobody runs it at present."""
    bill: str | None = None


class Version(BaseModel):
    """The topology a run has now."""

    revision: int
    text: str
    before: str | None = Field(None, description="The version before this one, which undo goes back to.")
    places: dict[str, str] = Field(default={}, description="The site every unit is at.")
    site: str | None = Field(None, description="The site whose units run here; none means all of them.")


class Wish(Strict):
    """A topology to go on with."""

    topology: Text
    reason: Reason = ""
    revision: int | None = Field(None, ge=1, le=2**31, description="The version it was written for.")
    give_up_state: bool = Field(False, description="Do it although state is lost that cannot be kept.")
    rehearse: bool = Field(
        False, description="Give it up where it cannot be tried on records that are there."
    )


class Told(Strict):
    """A command to a run's controller."""

    kind: Literal[
        "stop", "finish", "pause", "advise", "resume", "drain", "move", "move-unit", "restart", "undo"
    ]  # fmt: skip
    subject: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="The host to drain, the instance to move, the unit to move-unit or to restart."
    )
    to: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="The host an instance moves to, the site a unit moves to; else the best there is."
    )
    reason: Reason = ""
    give_up_state: bool = Field(False, description="Take a change back although state is lost by it.")


class NewRun(Strict):
    """A run to be started."""

    name: RunName
    topology: Text
    code: Annotated[str, StringConstraints(max_length=1000)] | None = Field(
        None, description="The folder of its functions, on the service's machine."
    )
    duration_s: float | None = Field(None, gt=0, le=10**9, description="How long sources run.")
    site: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="Run the units at this site alone; the other sites' services have the others."
    )


class Change(BaseModel):
    """What a change would do, or did."""

    revision: int
    changes: list[str]
    restarts: list[str]
    starts: list[str]
    stops: list[str]
    untouched: list[str]
    refused: list[str]
    renewals: list[str] = Field(default=[], description="Units that start again without the state they had.")
    given_up: list[str] = Field(default=[], description="State that is lost by it.")
    drains: list[str] = Field(default=[], description="Units that first finish what there is to read.")


class Mistakes(BaseModel):
    """Why a request was not done: every mistake in it; none where it was taken."""

    errors: list[str]


class Rows(BaseModel):
    """Rows of a run's journal, oldest first."""

    rows: list[dict[str, Any]]


class Log(BaseModel):
    """The end of a log."""

    lines: list[str]


class Bill(BaseModel):
    """What a run has cost so far."""

    total: str
    currency: str
    leases: list[dict[str, Any]]
