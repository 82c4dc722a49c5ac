"""The control loop: observe, reconcile, filter, decide, guard, record, enact, confirm.

`loop` is the loop itself, `guards` what every policy's wishes must pass, `journal` the durable record,
`state` what the controller knows between two ticks, `enacting` how orders are said to the ground below.
"""

from penstock.controller.journal import Journal
from penstock.controller.loop import Controller, Outcome, Tick
from penstock.controller.result import RunResult

__all__ = ["Controller", "Journal", "Outcome", "RunResult", "Tick"]
