"""`penstock apply`: change a topology while it runs; what would happen is shown before."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.api import client
from penstock.cli.console import console as open_console
from penstock.runs.applying import ANSWER_S, applied, previewed
from penstock.runs.assembly import load
from penstock.runs.changes import Preview, require_possible
from penstock.runs.folder import RunFolder
from penstock.runs.known import known_names
from penstock.topology.file import dump_topology, load_topology

_TOLD = (
    "changes", "restarts", "starts", "stops", "untouched", "refused", "renewals", "given_up", "drains",
    "costs", "because",
)  # fmt: skip
"""What a service tells of a change."""


def apply(
    folder: Annotated[Path, typer.Argument(help="The folder of the run.")],
    file: Annotated[Path, typer.Argument(help="The topology file to go on with.")],
    plan: Annotated[bool, typer.Option("--plan", help="Show what would happen, and change nothing.")] = False,
    reason: Annotated[str, typer.Option(help="Why; goes into the journal.")] = "",
    revision: Annotated[
        int | None, typer.Option(help="The version this was written for; the present one by default.")
    ] = None,
    give_up_state: Annotated[
        bool, typer.Option("--give-up-state", help="Do it although state is lost that cannot be kept.")
    ] = False,
    rehearse: Annotated[
        bool,
        typer.Option("--rehearse", help="Give it up where it cannot be tried on records that are there."),
    ] = False,
) -> None:
    """Go on with another version of a topology while it runs, nothing lost.

    `penstock tell RUN undo` takes the last change back. A run of a site elsewhere is named by the folder that
    stands for its site, and its name below it.
    """
    there = client.elsewhere(folder)
    # Prices by providers' lists are read where the run is.
    topology = load(file) if there is None else load_topology(file, known_names())
    wish: dict[str, Any] = {"reason": reason, "give_up_state": give_up_state, "rehearse": rehearse}
    sent = {**wish, "topology": dump_topology(topology), "by": getpass.getuser()}
    if there is None:
        present, found = RunFolder(folder).plan().revision, previewed(RunFolder(folder), topology)
    else:
        present, found = _asked(*there, "preview", sent)
    console = open_console()
    console.print(f"revision {present} of {topology.name} runs; this would change:")
    for line in found.lines():
        console.print(f"  {line}", markup=False)
    require_possible(found, give_up_state=give_up_state or plan)
    if plan or not found.changes:
        return
    # What was shown is done to the version it was shown of, whatever somebody else does meanwhile.
    written_for = present if revision is None else revision
    if there is None:
        now, _ = applied(RunFolder(folder), topology, revision=written_for, **wish)
    else:
        now, _ = _asked(*there, "apply", {**sent, "revision": written_for})
    console.print(f"done: revision {now} runs. `penstock tell {folder} undo` takes it back", markup=False)


def _asked(service: client.Service, run: str, what: str, wish: dict[str, Any]) -> tuple[int, Preview]:
    """What a site's service says to a change: the version that runs then, and what it does."""
    return shown_by(service.post(f"/runs/{run}/{what}", wish, answer_s=ANSWER_S + client.ANSWER_S))


def shown_by(told: Mapping[str, Any]) -> tuple[int, Preview]:
    """The version that runs, and what a change does, out of a service's answer."""
    shown: dict[str, Any] = {name: tuple(told.get(name, ())) for name in _TOLD}
    return int(told["revision"]), Preview(**shown)
