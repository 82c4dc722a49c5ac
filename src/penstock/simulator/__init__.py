"""The simulator: the same controller and policies on a virtual clock, record by record.

`kernel` follows single records through first-in-first-out queues (compiled), `station` is one unit's
queue and slots, `cluster` the adapter that the control loop drives, `faults` what goes wrong on purpose,
`run` one whole simulated run.
"""

from penstock.simulator.faults import Fault
from penstock.simulator.plane import SimulatedPlane, SimulationSettings
from penstock.simulator.run import simulate

__all__ = ["Fault", "SimulatedPlane", "SimulationSettings", "simulate"]
