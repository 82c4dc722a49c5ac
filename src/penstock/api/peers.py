"""Services of several sites that agree on the version of a topology, without anyone who has to be there.

Every service asks its peers now and then which version of a run of the same name they have. Where theirs is
newer, it has its own run go on with it. A site that was cut off goes on with the version it has, and comes by
what it missed once it can ask again. Where two sites made different versions of one number, both take the one
whose text is last in the order of its digest: which one that is does not matter, that it is one does.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Sequence

from penstock.api.client import Service
from penstock.api.runs import Runs
from penstock.errors import PenstockError
from penstock.runs.applying import applied
from penstock.runs.folder import RunFolder
from penstock.topology.file import parse_topology

LOG = logging.getLogger(__name__)

ASKED_EVERY_S = 3.0


class Peers:
    """Asks the services of other sites, in a thread of its own, until it is closed."""

    def __init__(self, runs: Runs, peers: Sequence[Service]) -> None:
        self._runs = runs
        self._peers = tuple(peers)
        self._silent: set[str] = set()
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
        news = []
        for peer in self._peers:
            try:
                known = {str(run["name"]) for run in peer.get("/runs")}
                if peer.url in self._silent:
                    self._silent.discard(peer.url)
                    news.append(f"the service at {peer.url} answers again")
                for name, place in self._runs:
                    if name in known and (told := self._agree(name, place, peer)) is not None:
                        news.append(told)
            except PenstockError as error:
                if peer.url not in self._silent:
                    self._silent.add(peer.url)
                    news.append(str(error))
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
        if there[1] == here[1] or _rank(*there) <= _rank(*here):
            return None
        try:
            applied(
                place,
                parse_topology(there[1]),
                reason=f"revision {there[0]} of site {theirs['site']}",
                by=f"the service of site {theirs['site']}",
                give_up_state=True,
                as_revision=there[0],
                places={str(unit): str(site) for unit, site in theirs["places"].items()},
            )
        except PenstockError as error:
            return f"revision {there[0]} of site {theirs['site']} cannot be taken for {name}: {error}"
        return f"{name} goes on with revision {there[0]} of site {theirs['site']}"

    def _run(self) -> None:
        while not self._ended.wait(ASKED_EVERY_S):
            for told in self.ask():
                LOG.warning("%s", told)


def _rank(revision: int, text: str) -> tuple[int, str]:
    return revision, hashlib.sha256(text.encode()).hexdigest()
