"""Looks after the server a channel needs: says when it is away and back, and starts ours again.

A server that Penstock started and that died is started again on the same folder and port, so units find
their records where they were; after growing pauses, and up to a limit at which a person is asked. Somebody
else's is waited for. Meanwhile records wait in whatever stands before it; nothing is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.channels.model import ChannelService
from penstock.clock import StepsBack
from penstock.errors import ClusterError
from penstock.quantities import format_duration
from penstock.trying import ASKED, Then, Tries

LOG = logging.getLogger(__name__)

HUNG_AFTER_S = 15.0
"""A server that takes connections and answers nothing for so long hangs; collecting a heap takes far less."""
HELD_UP_S = 30.0
"""Kafka writes what it knows of topics once a time of day has come. Where the clock was set back by more than
this, a server of ours is started anew rather than waited for."""


class ServiceWatch:
    """Whether a server takes connections and answers, told when that changes."""

    def __init__(
        self,
        service: ChannelService,
        address: str,
        revive: Callable[[], None] | None = None,
        end: Callable[[], None] | None = None,
        steps: StepsBack | None = None,
    ) -> None:
        """`revive` starts it again where it is ours to start, `end` ends one of ours that hangs.

        `steps` tells where the machine's clock was set back.
        """
        self.address = address
        self._service = service
        self._revive = revive
        self._end = end
        self._steps = steps or StepsBack()
        self._away_since_s: float | None = None
        self._dumb_since_s: float | None = None
        self.tries = Tries()
        """How often it was started again, where it is ours."""

    @property
    def asks(self) -> tuple[str, ...]:
        """What a person is asked to look at."""
        return (f"the {self._service.name} at {self.address} does not come up",) if self.tries.asks else ()

    def tick(self, now_s: float) -> list[str]:
        """Look once, and do what is to be done; what there is to say."""
        notices = []
        whose = f"the {self._service.name} at {self.address}"
        if self._hangs(now_s):
            notices.append(f"{whose} takes connections and does not answer for {HUNG_AFTER_S:g} s: it hangs")
            if self._end is not None:
                self._end()
        back_s = self._steps.since_last_s()
        if back_s > HELD_UP_S and self._end is not None:
            notices.append(f"the clock was set back by {format_duration(back_s)}, {whose} would wait for it")
            self._end()
        if self._service.answers(self.address):
            if self._away_since_s is not None:
                away = format_duration(now_s - self._away_since_s)
                notices.append(f"{whose} is back after {away}; units go on")
            self._away_since_s = None
            self.tries.well(now_s)
            return notices
        if self._away_since_s is None:
            self._away_since_s = now_s
            meant = "it is started again" if self._revive is not None else "units wait until it is back"
            notices.append(f"{whose} takes no connections: {meant}; records wait where they are")
        then = Then.WAIT if self._revive is None else self.tries.down(now_s)
        if then is Then.ASK:
            notices.append(f"{whose} was started {self.tries.count} times and did not stay up; {ASKED}")
        elif then is Then.TRY:
            assert self._revive is not None
            try:
                self._revive()
            except (ClusterError, OSError) as error:
                LOG.warning("%s could not be started again: %s", whose, error)
        return notices

    def _hangs(self, now_s: float) -> bool:
        """Whether it has taken connections and said nothing for too long; true once, then anew."""
        if not self._service.silent(self.address):
            self._dumb_since_s = None
            return False
        if self._dumb_since_s is None:
            self._dumb_since_s = now_s
        if now_s - self._dumb_since_s <= HUNG_AFTER_S:
            return False
        self._dumb_since_s = None
        return True
