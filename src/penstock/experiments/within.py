"""What a journal tells of a part of a run: scaling events, and the time of hosts, between two instants.

A run on Spark starts before its sources do and drains after them, its simulated twin for other times than it.
What is compared is compared over the time in which the sources sent.
"""

from __future__ import annotations

from penstock.controller.journal import END_OF_RUN, Journal

SCALES = ("StartInstance", "StopInstance")


def scaling_events(journal: Journal, begin_s: float, end_s: float) -> int:
    """Decisions to scale a unit that were carried out, however many instances each started or stopped.

    What the controller starts by itself is none: the instances a run begins with, and those in place of lost
    ones.
    """
    rows = journal.rows("action", ("at_s", "kind", "policy", "unit", "status"))
    return len(
        {
            (row["at_s"], row["unit"])
            for row in rows
            if row["kind"] in SCALES
            and row["status"] == "enacted"
            and row["policy"] not in ("controller", END_OF_RUN)
            and begin_s <= row["at_s"] <= end_s
        }
    )


def host_time_s(journal: Journal, begin_s: float, end_s: float) -> float:
    """The time hosts were leased, summed over hosts."""
    found = 0.0
    for lease in journal.leases():
        if lease.units:  # the others were refused
            until_s = end_s if lease.ended_s is None else min(lease.ended_s, end_s)
            found += max(0.0, until_s - max(lease.started_s, begin_s))
    return found
