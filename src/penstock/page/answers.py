"""What the page asks for and what it may change, whoever serves it: the run itself, or the service.

Everything is read from the run's folder. A change goes the way of `penstock apply` and `penstock tell`: into
the folder, to be obeyed by the run's controller at its next tick and put on record.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.errors import ConfigurationError, PenstockError
from penstock.page.files import as_json
from penstock.page.live import LiveFeed
from penstock.page.shown import Shown
from penstock.runs import commands, telling
from penstock.runs.applying import applied, previewed
from penstock.runs.assembly import parse
from penstock.runs.changes import Preview
from penstock.topology.model import Topology

BY = "the page"
ANSWER_S = 300.0
"""How long a change may take to be answered before the page says that it still waits."""


class Answers:
    """The answers of one page: of one run, or of two side by side."""

    def __init__(self, runs: Sequence[Shown]) -> None:
        self.runs = tuple(runs)
        self.feed = LiveFeed(self.runs[0]) if self.runs[0].live else None
        self._made: dict[str, bytes] = {}
        """What is asked of runs that are over is made once."""
        self._making = {what: threading.Lock() for what in ("films", "observed")}
        self._ahead = threading.Thread(target=self._make_ahead, name="page-film", daemon=True)

    def start(self) -> None:
        """Begin to follow a run that goes on; make the film of one that is over before it is asked for."""
        if self.feed is not None:
            self.feed.start()
        else:
            self._ahead.start()

    def stop(self) -> None:
        """Follow no more, and let the journals go."""
        if self.feed is not None:
            self.feed.stop()
        if self._ahead.is_alive():
            self._ahead.join()
        for run in self.runs:
            run.close()

    def get(self, what: str, query: Mapping[str, Sequence[str]]) -> bytes:
        """What is asked for, as JSON; KeyError where there is no such thing."""
        run = self.runs[int(query.get("run", ["0"])[0])]
        answers: dict[str, Callable[[], Any]] = {
            "moment": lambda: run.moment(float(query["at"][0])),
            "forecast": lambda: run.forecast(query["unit"][0], float(query["at"][0])),
            "money": run.money,
            "clairvoyant": run.clairvoyant,
            "topology": self._version,
        }
        if what in ("films", "observed"):
            return self.films() if what == "films" else self.observed()
        return as_json(answers[what]())

    def films(self) -> bytes:
        """The films of all runs, of long ones without their older observations."""
        return self._kept("films", lambda: [run.film(whole=False)[0] for run in self.runs])

    def observed(self) -> bytes:
        """Every observation of all runs."""
        return self._kept("observed", lambda: [run.observed() for run in self.runs])

    def post(self, what: str, said: Mapping[str, Any]) -> bytes:
        """Do what is asked for; ConfigurationError with the reason where it cannot be done."""
        orders: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "tell": self._tell,
            "preview": self._preview,
            "apply": self._apply,
        }
        return as_json(orders[what](said))

    # -- inside ----------------------------------------------------------------------------------

    def _kept(self, what: str, make: Callable[[], Any]) -> bytes:
        with self._making[what]:
            if what in self._made:
                return self._made[what]
            over = not any(run.live for run in self.runs)
            made = as_json(make())
            if over:
                self._made[what] = made
            return made

    def _make_ahead(self) -> None:
        with contextlib.suppress(PenstockError):  # whoever asks for it is told
            self.films()

    def _changeable(self) -> Shown:
        run = self.runs[0]
        if not run.live:
            raise ConfigurationError("the run is over: there is nothing to change")
        return run

    def _version(self) -> dict[str, Any]:
        plan = self._changeable().folder.plan()
        return {"revision": plan.revision, "text": plan.topology, "before": plan.before}

    def _tell(self, said: Mapping[str, Any]) -> dict[str, Any]:
        command = commands.Command(
            str(said.get("kind", "")),
            str(said.get("reason", "")),
            said.get("subject") or None,
            BY,
            to=said.get("to") or None,
        )
        told = telling.told(self._changeable().folder, command)
        return {"told": str(told), "id": told.id}

    def _preview(self, said: Mapping[str, Any]) -> dict[str, Any]:
        place = self._changeable().folder
        revision = place.plan().revision
        return _change(revision, previewed(place, _wanted(said)))

    def _apply(self, said: Mapping[str, Any]) -> dict[str, Any]:
        place, revision = self._changeable().folder, int(said["revision"])
        reason = str(said.get("reason", ""))
        # Whoever applies on the page has read what is given up, above the button.
        now, found = applied(
            place,
            _wanted(said),
            reason=reason,
            revision=revision,
            by=BY,
            give_up_state=True,
            answer_s=ANSWER_S,
        )
        return _change(now, found)


def _wanted(said: Mapping[str, Any]) -> Topology:
    """The topology of a text; every mistake in it is told."""
    return parse(str(said.get("topology", "")))


def _change(revision: int, found: Preview) -> dict[str, Any]:
    return {
        "revision": revision,
        "changes": [str(change) for change in found.changes],
        "restarts": found.restarts,
        "starts": found.starts,
        "stops": found.stops,
        "untouched": found.untouched,
        "refused": found.refused,
        "renewals": found.renewals,
        "given_up": found.given_up,
        "costs": found.costs,
        "because": found.because,
    }
