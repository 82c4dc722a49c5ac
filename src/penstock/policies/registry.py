"""Every policy by name. A new policy is one file and one line here.

The command line's help, the documentation and the validation of topology files all read this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.choosing import made, parameters_of
from penstock.policies.btu import Btu
from penstock.policies.fixed import Fixed
from penstock.policies.pesp import Pesp
from penstock.policies.queueing import Queueing
from penstock.policies.rate import Rate
from penstock.policies.threshold import Threshold
from penstock.policies.utilisation import Utilisation
from penstock.policies.view import Policy
from penstock.topology.model import Choice

POLICIES: Mapping[str, type[Any]] = {
    policy.name: policy
    for policy in (
        Fixed,
        Threshold,
        Utilisation,
        Btu,
        Pesp,
        Rate,
        Queueing,
    )
}


def make_policy(choice: Choice) -> Policy:
    """The policy a choice names, with its parameters; ConfigurationError where either is unknown."""
    policy: Policy = made("policy", POLICIES, choice.name, choice.parameters)
    return policy


def known_policies() -> dict[str, frozenset[str]]:
    """The names of every policy and of its parameters."""
    return {name: frozenset(parameters_of(policy)) for name, policy in POLICIES.items()}
