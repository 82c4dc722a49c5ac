"""Services of several sites that agree on the version of a topology, without anyone who has to be there.

Every service asks its peers now and then which version of a run of the same name they have. Where theirs is
newer, it has its own run go on with it. A site that was cut off goes on with the version it has, and comes by
what it missed once it can ask again. Where two sites made different versions of one number, both take the one
whose text is last in the order of its digest: which one that is does not matter, that it is one does.

Which run a unit is at is said by the one it is at alone: once the unit has left it, it says where to, with a
number. So there are no two words on that, whatever becomes of versions, and nobody starts a unit that runs.

A version that cannot be taken here is tried again after pauses that grow: what is in its way may go. That it
cannot be is said once, in the service's log and among the run's news.

Which other sites answered, and how many hosts they have, is left in the run's folder: its controller lets a
unit go by itself to none but those.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.api.client import Service
from penstock.api.runs import Runs
from penstock.errors import PenstockError
from penstock.plain import from_json
from penstock.runs import commands
from penstock.runs.applying import ANSWER_S, applied
from penstock.runs.folder import RunFolder
from penstock.runs.plan import Handed, RunPlan
from penstock.topology.file import parse_topology
from penstock.trying import Pauses, Then, Tries

LOG = logging.getLogger(__name__)

ASKED_EVERY_S = 3.0
PAUSES = Pauses(shortest_s=ASKED_EVERY_S, longest_s=60.0, most=sys.maxsize)
"""Between tries to take a version: nobody has to say that what was in its way is gone."""
_TAKES_UNITS = ("starting", "running")
"""The phases of a run to which units can go."""


class Peers:
    """Asks the services of other sites, in a thread of its own, until it is closed."""

    def __init__(
        self,
        runs: Runs,
        peers: Sequence[Service],
        answer_s: float = ANSWER_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`answer_s` is how long a controller may take to go on with what a peer has."""
        self._runs = runs
        self._answer_s = answer_s
        self._peers = tuple(peers)
        self._silent: set[str] = set()
        self._now_s = now_s
        self._untaken: dict[tuple[str, str], tuple[str, Tries]] = {}
        """By peer and run, the mark of what could not be taken, and the tries to do so."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peers", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        if self._peers:
            self._thread.start()

    def close(self) -> None:
        """End; a question that is under way is not waited for."""
        self._ended.set()

    def ask(self) -> list[str]:
        """Ask every peer once; what came of it, in words."""
        news: list[str] = []
        heard: dict[str, dict[str, int]] = {}
        for peer in self._peers:
            said = len(news)
            try:
                known = {str(run["name"]): run for run in peer.get("/runs")}
                for name, place in self._runs:
                    if name in known and (told := self._agree(name, place, peer)) is not None:
                        news.append(told)
                for name, run in known.items():
                    if run.get("site") is not None and run.get("phase") in _TAKES_UNITS:
                        heard.setdefault(name, {})[str(run["site"])] = int(run["hosts"])
                if peer.url in self._silent:
                    self._silent.discard(peer.url)
                    news.insert(said, f"the service at {peer.url} answers again")
            except (PenstockError, OSError, LookupError, TypeError, ValueError, AttributeError) as error:
                if peer.url not in self._silent:
                    self._silent.add(peer.url)
                    odd = f"the service at {peer.url} cannot be understood: {error!r}"
                    news.append(str(error) if isinstance(error, PenstockError) else odd)
        for name, place in self._runs:
            with contextlib.suppress(PenstockError, OSError):  # it is asked again
                if place.plan().site is not None and place.result() is None:
                    place.write_neighbours(heard.get(name, {}))
        return news

    def _agree(self, name: str, place: RunFolder, peer: Service) -> str | None:
        """Take the version a peer has, where it is newer; what there is to say."""
        own = place.plan()
        if own.site is None or own.pending is not None or place.result() is not None:
            return None
        theirs = peer.get(f"/runs/{name}/topology")
        if theirs["site"] in (None, own.site):
            return None
        here, there = (own.revision, own.topology), (int(theirs["revision"]), str(theirs["text"]))
        newer = there[1] != here[1] and _rank(*there) > _rank(*here)
        handed = _newer(own, theirs.get("handed", {}))
        known = own.read_topology()
        gone = {u: n for u, n in handed.items() if u in known.unit_by_name and own.places.get(u) != n.site}
        of = f"revision {there[0]} of site {theirs['site']}"
        by = f"the service of site {theirs['site']}"
        how: dict[str, Any] = {"reason": of, "by": by, "answer_s": self._answer_s}
        tries = self._tries(name, peer, _digest(repr((here, there, gone))))
        if not gone and not newer:
            del self._untaken[peer.url, name]
            return None
        if tries.down(self._now_s()) is not Then.TRY:
            return None
        try:
            if gone:
                # Before anything else, and in the version there is: another one is taken after it.
                number = own.revision if newer else max(own.revision, there[0])
                places = {unit: note.site for unit, note in gone.items()}
                applied(place, known, as_revision=number, places=places, handed=gone, **how)
                return f"{name}: {_words(places)}, says {of}"
            places = {str(unit): str(site) for unit, site in theirs["places"].items()}
            places |= {unit: note.site for unit, note in {**own.handed, **handed}.items()}
            how |= {"as_revision": there[0], "handed": handed, "give_up_state": True}
            applied(place, parse_topology(there[1]), places=places, **how)
            return f"{name} goes on with {of}"
        except PenstockError as error:
            if tries.count > 1:
                return None
            told = f"{of} cannot be taken for {name}: {error}; it is tried again, after growing pauses"
            with contextlib.suppress(OSError):
                commands.put(place.commands, commands.Command(commands.NOTE, told, by=by))
            return told

    def _tries(self, name: str, peer: Service, mark: str) -> Tries:
        """The tries to take what a peer has of a run: none yet where that, or the run, is another now."""
        known = self._untaken.get((peer.url, name))
        if known is None or known[0] != mark:
            known = self._untaken[peer.url, name] = mark, Tries(PAUSES)
        return known[1]

    def _run(self) -> None:
        while not self._ended.wait(ASKED_EVERY_S):
            try:
                for told in self.ask():
                    LOG.warning("%s", told)
            except Exception:  # who asks must not end: versions would never agree again
                LOG.exception("the other sites could not be asked; it is tried again")


def _newer(own: RunPlan, told: Mapping[str, Any]) -> dict[str, Handed]:
    """The notes of units that have left a run of which this one has not heard yet."""
    notes = {str(unit): from_json(Handed, json.dumps(note)) for unit, note in told.items()}
    return {u: note for u, note in notes.items() if u not in own.handed or own.handed[u].number < note.number}


def _words(places: Mapping[str, str]) -> str:
    return ", ".join(f"unit {unit} is at site {site}" for unit, site in places.items())


def _rank(revision: int, text: str) -> tuple[int, str]:
    return revision, _digest(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
