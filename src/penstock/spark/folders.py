"""Where Penstock keeps what it may throw away: class archives, a wrapped Java, process records.

One folder a user, in the place the platform has for such things; `PENSTOCK_CACHE` moves it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder(*parts: str) -> Path:
    """A folder inside the user's cache for Penstock, made where it does not exist yet."""
    chosen = os.environ.get("PENSTOCK_CACHE")
    if chosen:
        base = Path(chosen).expanduser()
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches" / "penstock"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "penstock"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    folder = base.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
