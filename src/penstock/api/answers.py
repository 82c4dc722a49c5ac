"""What goes over the wire, apart from a run's status."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

RunName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
"""Names of runs are names of folders: nothing in them leads elsewhere."""
Reason = Annotated[str, StringConstraints(max_length=500)]
By = Annotated[str, StringConstraints(max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""Who asks: one line. The token says that they may, this says who of those that have it."""
Text = Annotated[str, StringConstraints(max_length=500_000)]
"""A topology file's text."""
Where = Annotated[str, StringConstraints(min_length=1, max_length=300)]
Value = bool | int | float | Annotated[str, StringConstraints(max_length=10_000)] | None
"""What a key of a topology file can have that is no mapping."""


def over_the_api(by: str) -> str:
    """Who asked, as it goes on record."""
    return f"{by}, over the API" if by else "the API"


class Answer(BaseModel):
    """An answer; what stands below a field tells of it in the OpenAPI document."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Strict(BaseModel):
    """A request in which nothing may stand that nobody reads."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class RunSummary(Answer):
    """One run in a list."""

    name: str
    """Its folder's name."""
    topology: str
    """The name of its topology."""
    revision: int
    """The version of the topology that runs."""
    phase: str
    """`starting`, `running`, `draining`, `ended`, `interrupted` where nobody runs it at present, or
    `unreadable` where its files are damaged or of a later version: `asks` says how."""
    bill: str | None = None
    """What it has cost so far."""
    asks: list[str] = []
    """What is left until a person has looked; `resume` has it tried again."""
    site: str | None = None
    """The site whose units run here; none means all of them."""
    hosts: int = 0
    """How many hosts it has."""


class Left(Answer):
    """That a unit has left the run of a site for that of another."""

    number: int
    """How many times it has gone so."""
    site: str
    """The site whose run has it from now on."""
    begin: dict[str, dict[str, int]]
    """Where it goes on reading, by operator and partition."""


class Version(Answer):
    """The topology a run has now."""

    revision: int
    """Its number."""
    text: str
    """The topology file."""
    before: str | None = Field(None, description="The version before this one, which undo goes back to.")
    places: dict[str, str] = Field(default={}, description="The site every unit is at.")
    site: str | None = Field(None, description="The site whose units run here; none means all of them.")
    handed: dict[str, Left] = Field(
        default={},
        description="Of units that went between runs of several sites, the last time they did.",
    )


class Wish(Strict):
    """A topology to go on with: another file, single values of it, or both."""

    topology: Text | None = Field(None, description="The topology file; none means the one that runs.")
    set: dict[Where, Value | list[Value]] = Field(
        default={},
        max_length=1000,
        description="Values by their path in the file, such as `units.pricing.policy.up_queue`.",
    )
    reason: Reason = ""
    """Why; it goes on record."""
    by: By = ""
    """Who asks; it goes on record."""
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
    """What it shall do."""
    subject: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="The host to drain, the instance to move, the unit to move-unit or to restart."
    )
    to: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="The host an instance moves to, the site a unit moves to; else the best there is."
    )
    reason: Reason = ""
    """Why; it goes on record."""
    by: By = ""
    """Who asks; it goes on record."""
    revision: int | None = Field(
        None,
        ge=1,
        le=2**31,
        description="The version it was written for: refused where another one runs by then. Without it "
        "`undo` and `move-unit` are for the version that runs when they come in.",
    )
    give_up_state: bool = Field(False, description="Take a change back although state is lost by it.")


class NewRun(Strict):
    """A run to be started."""

    name: RunName
    """The name of its folder."""
    topology: Text
    """The topology file."""
    code: Annotated[str, StringConstraints(max_length=1000)] | None = Field(
        None, description="The folder of its functions, on the service's machine."
    )
    duration_s: float | None = Field(None, gt=0, le=10**9, description="How long sources run.")
    site: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="Run the units at this site alone; the other sites' services have the others."
    )


class Change(Answer):
    """What a change would do, or did."""

    revision: int
    """The version that runs."""
    changes: list[str]
    """What changes, each in words."""
    restarts: list[str]
    """Units that start again and keep their state."""
    starts: list[str]
    """New units."""
    stops: list[str]
    """Units that end, after what waits for them."""
    untouched: list[str]
    """Units that go on."""
    refused: list[str]
    """Why it cannot be done; empty where it can."""
    renewals: list[str] = Field(default=[], description="Units that start again without the state they had.")
    given_up: list[str] = Field(default=[], description="State that is lost by it.")
    drains: list[str] = Field(default=[], description="Units that first finish what there is to read.")
    costs: list[str] = Field(default=[], description="What it costs, where that changes.")
    because: list[str] = Field(
        default=[], description="Why units pause that are as they were, or one after the other."
    )


class Mistakes(Answer):
    """Why a request was not done: every mistake in it; none where it was taken."""

    errors: list[str]
    """Each in words."""


class Taken(Mistakes):
    """That a command waits for the run's controller, which takes it at its next tick."""

    id: str
    """Where the controller refuses it, a notice begins with `refused: KIND (ID): `."""


class Rows(Answer):
    """Rows of a run's journal, oldest first."""

    rows: list[dict[str, Any]]
    """The columns are told in [What is recorded](recorded.md)."""


class Log(Answer):
    """The end of a log."""

    lines: list[str]
    """Oldest first."""


class Bill(Answer):
    """What a run has cost so far."""

    total: str
    """The sum of all charges."""
    currency: str
    """Empty where the topology names none."""
    leases: list[dict[str, Any]]
    """Every host that was paid for."""
    lines: list[dict[str, Any]] = Field(
        default=[],
        description="Where asked for: what each hour of each lease cost, for whom, and who decided.",
    )
    corrections: list[dict[str, Any]] = Field(
        default=[], description="Where lines were asked for: charges by providers' own records."
    )
