"""Penstock: elastic, cost-aware stream processing on Apache Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.channels.lookups import Lookup
    from penstock.controller.listening import Listener
    from penstock.spark.session.attach import attach
    from penstock.spark.session.leased import Hosts

__all__ = ["Hosts", "Listener", "Lookup", "attach"]


def __getattr__(name: str) -> Any:
    """What is here, loaded when it is first used: importing the package starts and loads nothing."""
    if name == "Hosts":
        from penstock.spark.session.leased import Hosts

        return Hosts
    if name == "Listener":
        from penstock.controller.listening import Listener

        return Listener
    if name == "Lookup":
        from penstock.channels.lookups import Lookup

        return Lookup
    if name == "attach":
        from penstock.spark.session.attach import attach

        return attach
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
