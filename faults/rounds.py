"""The rounds of a campaign as they are kept in files, and what is still to do of it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from faults.outcomes import Outcome, Round


def still_to_do(drawn: Callable[[int], Sequence[str]], count: int, rounds: Sequence[Round]) -> list[str]:
    """What was drawn and not tried yet, in its order; `drawn` gives the first so many kinds of the seed.

    For each one that was skipped one more is drawn, and twice the count in all at the most.
    """
    outcomes = [outcome for found in rounds for outcome in found.outcomes]
    skipped = sum(outcome.skipped for outcome in outcomes)
    tried = Counter(outcome.kind for outcome in outcomes)
    left = []
    for kind in drawn(count + min(skipped, count)):
        if tried[kind]:
            tried[kind] -= 1
        else:
            left.append(kind)
    return left


def set_aside(rounds: Sequence[Round], file: Path) -> list[Round]:
    """Those that were clean; the others are kept beside them, and their faults are done anew."""
    clean = [found for found in rounds if found.clean]
    if len(clean) < len(rounds):
        wrong = [found for found in rounds if not found.clean]
        save([*load(aside_of(file)), *wrong], aside_of(file))
        save(clean, file)
    return clean


def aside_of(file: Path) -> Path:
    """Where the rounds are that were set aside."""
    return file.with_name(f"{file.stem}-aside.json")


def save(rounds: Sequence[Round], file: Path) -> None:
    """Keep what was found so far."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([asdict(found) for found in rounds], indent=1))


def load(file: Path) -> list[Round]:
    """What was kept; nothing where nothing was."""
    with contextlib.suppress(OSError):
        return [
            Round(**{**r, "outcomes": [Outcome(**o) for o in r["outcomes"]]})
            for r in json.loads(file.read_text())
        ]
    return []


def state_of_the_code() -> str:
    """The commit that is tried, marked where files were changed since; nothing outside a repository."""
    if shutil.which("git") is None:
        return ""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=9", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent).stdout.strip()
