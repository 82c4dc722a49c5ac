"""The control loop: observe, filter, decide, guard, enact, record.

`loop` is the loop itself, `cluster` the port it drives, `guards` what every policy's wishes must pass,
`journal` the durable record, `state` what the controller knows between two ticks.
"""

from penstock.controller.cluster import Cluster, Observation, Outcome
from penstock.controller.journal import Journal
from penstock.controller.loop import Controller, Tick
from penstock.controller.result import RunResult

__all__ = ["Cluster", "Controller", "Journal", "Observation", "Outcome", "RunResult", "Tick"]
