"""One fault and what became of it; one round and what it came to."""

from __future__ import annotations

from dataclasses import dataclass, field

NOTHING_TOLD = "nothing was told"
"""Of a fault that nobody had to hear of: it was over, or healed, before anything was amiss for long."""


@dataclass
class Outcome:
    """One fault and what became of it."""

    number: int
    kind: str
    channel: str
    text: str
    held_s: float
    """How long the fault itself lasted."""
    processing_after_s: float | None = None
    """Until a record that was written after the fault came out."""
    whole_after_s: float | None = None
    """Until everything was as before: processes, units, leases, journal."""
    noticed: str = ""
    """What was told first of whom it was done to; empty where nothing was."""
    noticed_after_s: float | None = None
    healed: str = ""
    problem: str | None = None

    @property
    def skipped(self) -> bool:
        """Whether it was not done at all: the machine does not allow it, or its target was not there."""
        return (self.problem or "").startswith("skipped")


@dataclass
class Round:
    """One run and its faults."""

    number: int
    channel: str
    outcomes: list[Outcome] = field(default_factory=list)
    records_in: int = 0
    records_out: int = 0
    lost: int = 0
    doubled: int = 0
    leaked: list[str] = field(default_factory=list)
    """Leases without a host, hosts without a lease, processes left, files left."""
    bill: str = ""
    bill_by_provider: str = ""
    """From the times its hosts were there, which are seen to a few seconds: from the least to the most."""
    problems: list[str] = field(default_factory=list)
    took_s: float = 0.0
    code: str = ""
    """The commit it was done on."""

    @property
    def clean(self) -> bool:
        """Whether all that must hold held."""
        return not (self.lost or self.doubled or self.leaked or self.problems or self.unhealed)

    @property
    def summary(self) -> str:
        """What it came to, in one line."""
        told = (
            "clean" if self.clean else f"NOT CLEAN: {self.unhealed} not healed, {self.problems} {self.leaked}"
        )
        return (
            f"round {self.number}: {len(self.outcomes)} faults, {self.records_in} in, "
            f"{self.records_out} out, {self.lost} lost, {self.doubled} doubled, {len(self.leaked)} leaked, "
            f"bill {self.bill}, {self.took_s:.0f} s, {told}"
        )

    @property
    def unhealed(self) -> int:
        """Faults that the run did not get over."""
        return sum(outcome.problem is not None and not outcome.skipped for outcome in self.outcomes)
