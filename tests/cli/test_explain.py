"""`explain`: what was decided is told once, however many actions came of it."""

from __future__ import annotations

from penstock.cli.explain import _decided


def an_action(kind: str, subject: str, reason: str, unit: str | None = "o") -> dict[str, str | None]:
    return {"kind": kind, "unit": unit, "subject": subject, "reason": reason, "refused": None}


def test_a_lease_and_the_starts_it_is_for_tell_their_reason_once() -> None:
    rows = [
        an_action("LeaseHost", "c-h1", "up from 2 to 4"),
        an_action("StartInstance", "o-3", "up from 2 to 4"),
        an_action("StartInstance", "o-4", "up from 2 to 4"),
        an_action("Hold", "p", "all is right", "p"),
    ]
    lease, start, hold = _decided(rows)
    assert lease.endswith(": up from 2 to 4")
    assert start == "start 2 × o: for the same reason"
    assert hold.endswith(": all is right")
