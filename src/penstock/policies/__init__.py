"""Policies: a view in, actions out, each with a reason.

A policy is a frozen dataclass whose fields are its parameters, with one method `decide`. It is a pure
function of the view: no clock, no input or output, no memory of its own. One file each, one line in
`registry`. `planning` holds what they share: a what-if deployment on which starts, stops and leases
are tried before they become actions.
"""

from penstock.policies.view import Policy, ScalingEvent, View

__all__ = ["Policy", "ScalingEvent", "View"]
