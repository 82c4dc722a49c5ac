"""Every policy by name. A new policy is one file and one line here.

The command line's help, the documentation and the validation of topology files all read this table.
"""

from __future__ import annotations

from penstock.choosing import Registry
from penstock.policies.auto import Auto
from penstock.policies.btu import Btu
from penstock.policies.fixed import Fixed
from penstock.policies.levels import Levels
from penstock.policies.pesp import Pesp
from penstock.policies.queueing import Queueing
from penstock.policies.rate import Rate
from penstock.policies.threshold import Threshold
from penstock.policies.utilisation import Utilisation
from penstock.policies.view import Policy
from penstock.topology.model import Choice, Unit

POLICIES = Registry("policy", Fixed, Threshold, Utilisation, Btu, Pesp, Rate, Queueing, Levels, Auto)


def make_policy(choice: Choice) -> Policy:
    """The policy a choice names, with its parameters; ConfigurationError where either is unknown."""
    policy: Policy = POLICIES.make(choice.name, choice.parameters)
    return policy


def looks_back(choice: Choice) -> bool:
    """Whether a policy looks at loads, lead times and lessons of the past, which are kept for it alone."""
    return bool(getattr(POLICIES.get(choice.name), "looks_back", False))


def decides_on(choice: Choice) -> tuple[str, ...]:
    """The signals a policy decides on: what its unit's filter smooths."""
    found: tuple[str, ...] = getattr(POLICIES.get(choice.name), "decides_on", ("utilisation",))
    return found


def why_filter_is_idle(unit: Unit) -> str | None:
    """Why a unit's filter changes no decision of its policy, in a sentence; None where it may."""
    if unit.filter.name == "none" or decides_on(unit.policy):
        return None
    return (
        f"unit {unit.name}: filter {unit.filter.name} has no effect, policy {unit.policy.name} decides on "
        "nothing measured"
    )


def known_policies() -> dict[str, frozenset[str]]:
    """The names of every policy and of its parameters."""
    return {name: frozenset(POLICIES.parameters(name)) for name in POLICIES}
