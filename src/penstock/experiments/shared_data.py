"""Where the real series for experiments are, if they are here at all.

They are not part of the project; they lie beside it, in `../shared/data` seen from the repository's root.
"""

from __future__ import annotations

from pathlib import Path

ROOTS = (Path(__file__).resolve().parents[3].parent, Path.cwd().parent)
"""Folders that may hold `shared/data`: beside the source tree, or beside where the command runs."""


def shared_file(name: str) -> Path | None:
    """A file of `shared/data`; None where it is absent."""
    for root in ROOTS:
        path = root / "shared" / "data" / name
        if path.is_file():
            return path
    return None
