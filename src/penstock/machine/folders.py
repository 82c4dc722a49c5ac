"""Where Penstock keeps what it may throw away: class archives, a wrapped Java, process records.

One folder a user, in the place the platform has for such things; `PENSTOCK_CACHE` moves it. What lies
there is run later (jars, a Java), so nobody else may write or read in what is made here.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path

PRIVATE_FOLDER = 0o700
"""The mode of a folder that only its owner may enter."""
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""A name somebody gives that becomes a folder's: it cannot leave the folder above."""


def cache_folder(*parts: str) -> Path:
    """A private folder inside the user's cache for Penstock, made where it does not exist yet."""
    chosen = os.environ.get("PENSTOCK_CACHE")
    if chosen:
        base = Path(chosen).expanduser()
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches" / "penstock"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "penstock"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    folder = base
    if not base.exists():
        private_folder(base)
    for part in parts:
        folder = private_folder(folder / part)
    return folder


def private_folder(folder: Path) -> Path:
    """A folder only its owner may enter, made where it does not exist, closed where it was open."""
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    if sys.platform != "win32":
        status = folder.stat()
        if stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.getuid():
            folder.chmod(PRIVATE_FOLDER)
    return folder
