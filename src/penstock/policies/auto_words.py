"""What a decision of `auto` is told with: what it costs or saves, and what the alternatives would have.

All of it is told against changing nothing, so that what is chosen and what is not can be compared.
"""

from __future__ import annotations

from penstock.policies.auto_choice import Choice, Tried
from penstock.quantities import figure

INSTEAD = "; instead: "
"""What stands in a reason before what the alternatives would have cost."""
BETWEEN = ", "
"""What stands between two alternatives, and in none of them."""


def weighed(choice: Choice, other: Choice | None = None) -> str:
    """What the change costs or saves, and what the alternatives would have; `other` has more of them."""
    made = ""
    if choice.late != choice.late_if_unchanged or choice.costs:
        made = f"; it {_told(choice.costs, choice.late, choice)}"
        made += f", {choice.besides}" if choice.besides else ""
    found = {}
    for source in (choice, other) if other is not None else (choice,):
        for tried in source.tried:
            if tried.count != choice.count:
                found[tried.count] = f"with {tried.count} it {_alternative(tried, source)}"
    alternatives = BETWEEN.join(found[count] for count in sorted(found))
    return made + (INSTEAD + alternatives if alternatives else "")


def _alternative(tried: Tried, among: Choice) -> str:
    told = _told(tried.costs, tried.late, among)
    return f"{told} {tried.but}" if tried.but else told


def _told(costs: float, late: float | None, among: Choice) -> str:
    """In words, what a number of instances costs, and what the late records that it makes or prevents do."""
    moved = _moved(costs)
    if late is None:
        return f"{moved} even if no more were late"
    worth = among.worth * (late - among.late_if_unchanged)
    if figure(abs(worth)) == "0":
        return f"{moved} and as many are late" if costs else "changes nothing"
    return f"{moved} and {_moved(worth)} in late records"


def _moved(costs: float) -> str:
    return f"saves {figure(-costs)}" if costs < 0 else f"costs {figure(costs)}"
