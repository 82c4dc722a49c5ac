"""What a running controller can be told from outside: a command is a small file in the run's folder.

It is put there whole, taken at the start of a tick, put on record with who said it and why, and obeyed once.
"""

from __future__ import annotations

import getpass
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.errors import ConfigurationError, PenstockError
from penstock.machine.files import PRIVATE, written
from penstock.machine.folders import private_folder
from penstock.plain import from_json, to_json
from penstock.runs.plan import Handed

KINDS = ("stop", "finish", "pause", "advise", "resume", "drain", "move", "move-unit", "restart", "undo")
"""End the run in order; let its sources end, and the run once all under way is done; stand still (decide
nothing); advise (decide and record, but do nothing); act again, and try again what a person was asked to
look at; empty a host and give it back; move an instance to another host; move a unit to another site; start a
unit again, with the code that is there now; go back to the version of the topology before this one."""
APPLY = "apply"
"""Go on with another version of the topology: what `penstock apply` says."""
LOOKUP = "lookup"
"""A look-up has a further version: for the record, for whoever looks it up sees it by itself."""
BUDGET = "budget"
"""Units have to keep these latencies from now on."""
NOTE = "note"
"""Nothing is to be done: its reason goes among the run's news, for only the controller writes those."""
_ABOUT = {"drain": "host", "move": "instance", "move-unit": "unit", "restart": "unit", LOOKUP: "look-up"}


@dataclass(frozen=True, slots=True)
class Command:
    """One order to a running controller."""

    kind: str
    reason: str = ""
    subject: str | None = None
    """The host, instance or unit it is about, where it is about one."""
    by: str = ""
    topology: str | None = None
    """The text of the version to go on with."""
    revision: int | None = None
    """The version it was written for: refused where another one runs by now."""
    to: str | None = None
    """The host an instance moves to, or the site a unit moves to; None means the best there is."""
    give_up_state: bool = False
    """Whether a change may lose state that cannot be kept."""
    rehearse: bool = False
    """Whether a change is given up where it cannot be tried on records that are there."""
    budgets_s: Mapping[str, float] = field(default_factory=dict)
    """Latency budgets, by unit."""
    as_revision: int | None = None
    """The number another site has given the version to go on with."""
    places: Mapping[str, str] = field(default_factory=dict)
    """The sites of units in that version, as the other site has them."""
    handed: Mapping[str, Handed] = field(default_factory=dict)
    """Units that have left the runs of other sites by that version."""
    id: str = ""
    """Tells it apart from others, for whoever waits for the answer."""

    def __post_init__(self) -> None:
        if self.kind not in (*KINDS, APPLY, LOOKUP, BUDGET, NOTE):
            raise ConfigurationError(f"expected a command out of {', '.join(KINDS)}, got {self.kind!r}")
        if self.kind in _ABOUT and not self.subject:
            raise ConfigurationError(f"{self.kind} needs the name of its {_ABOUT[self.kind]}")
        if self.kind == APPLY and (self.topology is None or self.revision is None):
            raise ConfigurationError("apply needs a topology and the version it was written for")

    def __str__(self) -> str:
        about = (f" {self.subject}" if self.subject else "") + (f" to {self.to}" if self.to else "")
        return f"{self.kind}{about}, told by {self.by or 'somebody'}" + (
            f": {self.reason}" if self.reason else ""
        )


def put(folder: Path, command: Command) -> Command:
    """Tell the controller whose commands lie in this folder; the command with its id and who said it."""
    private_folder(folder)
    said = replace(command, by=command.by or getpass.getuser(), id=uuid.uuid4().hex[:8])
    # What it is stands in its name, too: who cannot read the rest can still say to whom that is.
    written(folder / f"{time.time_ns():020d}-{said.kind}-{said.id}.json", to_json(said), mode=PRIVATE)
    return said


def refusal(command: Command, reason: object) -> str:
    """What is told of a command that was not obeyed."""
    return _refused(command.kind, command.id, reason)


def _refused(kind: str, id: str, reason: object) -> str:
    return f"refused: {kind} ({id}): {reason}"


def taken(folder: Path, tell: Callable[[str], None]) -> list[Command]:
    """The commands that were put since the last call, oldest first.

    One that cannot be read (torn, or of a newer version with more to say) is refused by `tell`; a note is
    told by it, and no more is to be done about that.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            command = from_json(Command, path.read_text())
            if command.kind == NOTE:
                tell(command.reason)
            else:
                found.append(command)
        except (OSError, PenstockError) as error:
            kind, _, id = path.stem.partition("-")[2].rpartition("-")
            tell(_refused(kind or "a command", id, f"it could not be read: {error}"))
        path.unlink(missing_ok=True)
    return found
