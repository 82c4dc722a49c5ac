"""Penstock: elastic, cost-aware stream processing on Apache Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.attach import attach

__all__ = ["attach"]


def __getattr__(name: str) -> Any:
    """`penstock.attach`, loaded when it is first used: importing the package starts and loads nothing."""
    if name == "attach":
        from penstock.spark.attach import attach

        return attach
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
