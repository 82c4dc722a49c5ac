"""How much a controller does: it acts, it only advises, or it stands still."""

from __future__ import annotations

from penstock.plain import Word
from penstock.topology.model import Topology


class Mode(Word):
    """What becomes of decisions. What a person asks for is done in every mode."""

    ACT = "act"
    """It decides, and does what it decided."""
    ADVISE = "advise"
    """It decides and puts on record what it would do, and does not do it."""
    PAUSE = "pause"
    """It decides nothing: what runs goes on as it is, and is measured and paid."""

    @classmethod
    def of(cls, topology: Topology) -> Mode:
        """How a run of a topology begins."""
        return cls.ADVISE if topology.loop.advisory else cls.ACT
