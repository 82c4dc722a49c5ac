"""The console commands print to: as wide as the terminal, or wide enough for tables where there is none."""

from __future__ import annotations

import sys

from rich.console import Console

WIDTH_WITHOUT_TERMINAL = 150


def console() -> Console:
    """A console whose tables are not squeezed when the output goes to a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL)
