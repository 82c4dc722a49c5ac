"""How a load moves: the record of a unit's load, and what it may do within the next minutes.

A forecast here is never one number. It is a set of ways the load may go, taken from how it went before,
so that a policy can ask what each decision would lead to in every one of them.
"""

from penstock.forecasts.outlook import Outlook, outlook_of
from penstock.forecasts.record import Load, LoadRecord

__all__ = ["Load", "LoadRecord", "Outlook", "outlook_of"]
