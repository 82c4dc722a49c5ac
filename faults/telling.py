"""What a run tells of a fault: the notices and lost lives about whom it was done to, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_UNIT, _HOST = "unit ", "host "
_WORDS = {
    "executor": r"^\S+ of unit \S+ was lost \(|^instance \S+ is failed",
    "master": r"^the Spark master\b",
    "controller": r"^the controller came back|^the run is taken up again",
    "feeder": r"^the feeder of source ",
    "broker": r"\bbroker\b|\bchannel \S+ is away",
    "journal": r"^the journal ",
    "disk": r"\bdisk\b|No space left|^the journal cannot be written",
    "clock": r"\bthe clock was set\b",
    "heartbeats": r"\bsilent for\b|\bheartbeats\b",
    "units": r"^unit ",
    "hosts": r"\bhost ",
}
"""Who is meant, by the words a notice has of it. One unit and one host are meant by their names."""
EVERYTHING = tuple(_WORDS)
"""Whoever a fault is done to that is done to all at once."""


def unit(name: str) -> str:
    """A unit as one that a fault is done to: its driver, its query, its checkpoint."""
    return _UNIT + name


def host(name: str) -> str:
    """A host as one that a fault is done to."""
    return _HOST + name


def told_of(about: Sequence[str], news: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
    """Those of the news (time, words) that are about one of these."""
    words = re.compile("|".join(map(_words, about)) or r"(?!)")
    # Further lines are of somebody's log: who is named there is not who is meant.
    return [(at_s, text) for at_s, text in news if words.search(text.partition("\n")[0])]


def _words(about: str) -> str:
    if about.startswith(_UNIT):
        return rf"^{re.escape(about)}(?![\w-])"
    if about.startswith(_HOST):
        return rf"\b{re.escape(about)}(?![\w-])"
    return _WORDS[about]
