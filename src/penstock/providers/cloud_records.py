"""What a provider over an API knows of each host: what was asked, what came of it, and what that means.

Pure: the threads and the calls are in `cloud.py`. Instants are seconds of one clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import ProviderError
from penstock.fleet.deployment import Host, HostState
from penstock.plain import Word
from penstock.providers.cloud_api import Machine, MachineState
from penstock.providers.cloud_pauses import Pace
from penstock.providers.joining import Joined, Membership
from penstock.topology.model import HostFlavour


class Phase(Word):
    """How far asking for a host has come."""

    ASKED = "asked"
    """To be created, at once or after a pause."""
    CREATING = "creating"
    """The call is under way."""
    DOUBTFUL = "doubtful"
    """The call failed and nobody knows what it did: a later listing tells."""
    ACCEPTED = "accepted"
    """The cloud said yes; not listed yet."""
    LISTED = "listed"
    """Seen in a listing."""


NOTICE_S = 30.0
"""The shortest notice a cloud gives a machine before it takes it away."""
LIVING = (MachineState.STARTING, MachineState.RUNNING)


@dataclass(slots=True)
class Record:
    """One host by its name."""

    host: str
    flavour: HostFlavour
    asked_s: float
    phase: Phase = Phase.ASKED
    tried_s: float = 0.0
    """When the last call for it came back."""
    not_before_s: float = 0.0
    failures: int = 0
    refused: ProviderError | None = None
    given_back: bool = False
    machine: Machine | None = None
    """The one that is ours; others of its name are given back."""
    seen_s: float = 0.0
    """When the last listing that showed it began."""
    up_s: float | None = None
    unlisted_s: float | None = None
    """Since when its cluster does not list it, though it had joined."""
    noticed_s: float | None = None
    """When it will be taken away, as the machine itself was told."""
    problem: str | None = None
    """Why it failed; it stays so."""

    @property
    def failed(self) -> bool:
        """Whether it is of no use any more and has to go."""
        return self.problem is not None

    def due(self, now_s: float) -> bool:
        """Whether the cloud has to be asked for it now."""
        wanted = self.refused is None and not self.given_back
        return wanted and self.phase is Phase.ASKED and now_s >= self.not_before_s

    def unseen(self, begun_s: float, pace: Pace) -> str | None:
        """A listing that began then does not show it: what follows, in words, where it is lost by that."""
        told_s = self.tried_s + pace.settle_s
        if self.phase is Phase.DOUBTFUL and begun_s > told_s:
            self.phase = Phase.ASKED
        elif self.phase is Phase.ACCEPTED and begun_s > told_s:
            return "the cloud said yes and never showed it: it died while it started"
        elif self.phase is Phase.LISTED and begun_s > self.seen_s + pace.settle_s:
            return "the cloud does not show it any more: somebody else deleted it, or it was lost"
        return None

    def looked_at(
        self,
        joined: Mapping[str, Joined] | None,
        asks: bool,
        now_s: float,
        pace: Pace,
        awake_s: float = 0.0,
    ) -> None:
        """Judge what is known of it: whether it has joined, and whether it has failed.

        Since `awake_s` somebody looks: nobody could see it join while this machine was suspended.
        """
        machine = self.machine
        if machine is None or self.given_back or self.failed:
            return
        if machine.state not in LIVING:
            self.problem = machine.problem or "its machine ended by itself"
            return
        if not asks:
            if machine.state is MachineState.RUNNING and self.up_s is None:
                self.up_s = now_s
            return
        seen = joined.get(machine.address) if joined is not None and machine.address else None
        if self.up_s is None:
            if seen is not None and seen.membership is Membership.TAKES:
                self.up_s = now_s
            elif now_s - max(self.asked_s, machine.created_s or 0.0, awake_s) > pace.join_within_s:
                self.problem = f"it did not join its cluster within {pace.join_within_s:g} s"
        elif joined is not None and (seen is None or seen.membership is Membership.LOST):
            since_s = self.unlisted_s = now_s if self.unlisted_s is None else self.unlisted_s
            if seen is not None or now_s - since_s > pace.lost_after_s:
                self.problem = "its cluster has lost it, though its machine runs (it hangs, or its network)"
        else:
            self.unlisted_s = None
            if seen is not None and seen.membership is Membership.LEAVES and self.noticed_s is None:
                # Nobody of ours told it to go: the machine itself was given notice.
                self.noticed_s = now_s + NOTICE_S

    def shown(self, site: str) -> Host:
        """The host as the fleet is shown it."""
        machine = self.machine
        state = HostState.REQUESTED
        if self.failed:
            state = HostState.FAILED
        elif self.given_back:
            state = HostState.DRAINING
        elif self.up_s is not None:
            state = HostState.UP
        elif self.phase in (Phase.ACCEPTED, Phase.LISTED):
            state = HostState.STARTING
        return Host(
            self.host,
            site,
            self.flavour,
            state,
            self.asked_s,
            self.up_s,
            address=machine.address if machine is not None else None,
            problem=self.problem,
            taken_s=(machine.taken_s if machine is not None else None) or self.noticed_s,
        )
