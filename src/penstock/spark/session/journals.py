"""Where an attached session keeps its journal, and opening one that cannot be had yet."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path

from penstock.controller import Controller, Journal
from penstock.errors import JournalUnavailableError
from penstock.machine.folders import private_folder

LOG = logging.getLogger("penstock.attach")


def default_journal(unit: str, application: str) -> Path:
    """A file below `runs/`, or below a new folder for what is temporary where that cannot be."""
    folder = Path("runs") / f"{unit}-{application}"
    try:
        private_folder(folder)
    except OSError as error:
        place = Path(tempfile.mkdtemp(prefix="penstock-"))
        LOG.warning("cannot write the journal below %s: %s; it is below %s", folder, error, place)
        return place / "journal.db"
    return folder / "journal.db"


def opened(
    place: Path | str, run: str, begin: Callable[[Journal], Controller], waits: Callable[[str], bool]
) -> tuple[Journal, Controller]:
    """A journal and the controller that begins on it, tried until both can be had.

    `waits` is told why not yet, and waits a moment; where it says False, that is the error after all.
    """
    while True:
        try:
            with contextlib.ExitStack() as stack:
                journal = Journal(place, run=run)
                stack.callback(journal.abandon)
                controller = begin(journal)
                stack.pop_all()
                return journal, controller
        except JournalUnavailableError as error:
            if not waits(str(error)):
                raise
