"""Machines and money: hosts, leases, instances, placement, providers.

There is one model of a host, a lease and an instance; the simulated and the Spark cluster both
report in it, and the books of the controller are kept in it.
"""

from penstock.infrastructure.deployment import Deployment, Host, HostState, Instance, InstanceState
from penstock.infrastructure.leases import Charge, Lease, Ledger

__all__ = [
    "Charge",
    "Deployment",
    "Host",
    "HostState",
    "Instance",
    "InstanceState",
    "Lease",
    "Ledger",
]
