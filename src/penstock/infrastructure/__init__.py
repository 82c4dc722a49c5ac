"""Machines and money: leases, the ledger, placement and prices.

A lease and a charge exist once: the controller's books, the policies and the bill all use these.
"""

from penstock.infrastructure.leases import Charge, Lease, Ledger

__all__ = ["Charge", "Lease", "Ledger"]
