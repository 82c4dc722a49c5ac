"""The moments of a run that are worth looking at: where it was latest, what cost most, what went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.controller.journal import END_OF_RUN
from penstock.fleet.actions import verb_of
from penstock.quantities import counted, format_duration
from penstock.topology.model import Topology

MOST = 3


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment with what happened."""

    at_s: float
    what: str


def moments_of(
    topology: Topology,
    observations: Mapping[str, Sequence[Mapping[str, Any]]],
    actions: Sequence[Mapping[str, Any]],
    charges: Sequence[tuple[float, float]],
    notices: Sequence[Mapping[str, Any]] = (),
    currency: str = "",
) -> list[Moment]:
    """At most three moments, in the order they came in; `charges` are instants and amounts."""
    found = [
        _latest(topology, observations, actions),
        _wrong(actions, notices),
        _largest_change(actions),
        _dearest(charges, currency),
        _busiest(observations),
    ]
    chosen: list[Moment] = []
    for moment in found:
        apart_s = topology.loop.provisioning_s
        if moment is not None and all(abs(moment.at_s - other.at_s) > apart_s for other in chosen):
            chosen.append(moment)
    return sorted(chosen[:MOST], key=lambda moment: moment.at_s)


def _latest(
    topology: Topology,
    observations: Mapping[str, Sequence[Mapping[str, Any]]],
    actions: Sequence[Mapping[str, Any]],
) -> Moment | None:
    """Where a unit was behind its SLO most, by how much and for how long."""
    worst: tuple[float, str, int] | None = None
    for unit, rows in observations.items():
        for place, row in enumerate(rows):
            if row["duration_s"] is not None:
                ratio = row["duration_s"] / topology.unit_slo_s(unit)
                if worst is None or ratio > worst[0]:
                    worst = (ratio, unit, place)
    if worst is None or worst[0] <= 1.0:
        return None
    ratio, unit, place = worst
    rows, slo_s = observations[unit], topology.unit_slo_s(unit)
    peak = rows[place]
    back = next((r for r in rows[place:] if r["duration_s"] is not None and r["duration_s"] <= slo_s), None)
    length = "to the end" if back is None else f"for {format_duration(back['at_s'] - peak['at_s'])} more"
    did = next(
        (a for a in actions if a["unit"] == unit and a["at_s"] >= peak["at_s"] and a["status"] == "enacted"),
        None,
    )
    answer = f"; then: {verb_of(did['kind'])} {did['subject']} ({did['reason']})" if did is not None else ""
    return Moment(
        peak["at_s"],
        f"{unit} was furthest behind: {format_duration(peak['duration_s'])} where {format_duration(slo_s)} "
        f"were promised, {peak['waiting'] or 0} records waited, {length}{answer}",
    )


def _wrong(actions: Sequence[Mapping[str, Any]], notices: Sequence[Mapping[str, Any]]) -> Moment | None:
    """The first thing that failed, or was told."""
    failed = next((a for a in actions if a["status"] == "failed"), None)
    if failed is not None:
        return Moment(
            failed["at_s"], f"{verb_of(failed['kind'])} {failed['subject']} failed: {failed['refused']}"
        )
    return Moment(notices[0]["at_s"], notices[0]["text"]) if notices else None


def _largest_change(actions: Sequence[Mapping[str, Any]]) -> Moment | None:
    """The tick at which most instances were started or stopped."""
    counts: dict[float, list[Mapping[str, Any]]] = {}
    for action in actions:
        scales = action["kind"] in ("StartInstance", "StopInstance")
        if scales and action["status"] == "enacted" and action["policy"] != END_OF_RUN:
            counts.setdefault(action["at_s"], []).append(action)
    later = {at_s: members for at_s, members in counts.items() if at_s > min(counts)}
    if not later:
        return None
    at_s, members = max(later.items(), key=lambda one: len(one[1]))
    started = sum(a["kind"] == "StartInstance" for a in members)
    parts = [f"{counted(started, 'instance')} started"] if started else []
    parts += [f"{counted(len(members) - started, 'instance')} stopped"] if len(members) > started else []
    return Moment(at_s, f"the largest change: {', '.join(parts)}; {members[0]['reason']}")


def _dearest(charges: Sequence[tuple[float, float]], currency: str) -> Moment | None:
    """The tick at which most was paid."""
    sums: dict[float, float] = {}
    for at_s, amount in charges:
        sums[at_s] = sums.get(at_s, 0.0) + amount
    if not sums or max(sums.values()) <= 0:
        return None
    at_s = max(sums, key=lambda instant: sums[instant])
    return Moment(at_s, f"most was paid at once: {sums[at_s]:.4g} {currency}".rstrip())


def _busiest(observations: Mapping[str, Sequence[Mapping[str, Any]]]) -> Moment | None:
    """Where most came in."""
    rows = [
        row for members in observations.values() for row in members if row["arrived"] and row["interval_s"]
    ]
    if not rows:
        return None
    peak = max(rows, key=lambda row: row["arrived"] / row["interval_s"])
    rate = peak["arrived"] / peak["interval_s"]
    return Moment(peak["at_s"], f"the highest load: {rate:.4g} records a second came to {peak['unit']}")
