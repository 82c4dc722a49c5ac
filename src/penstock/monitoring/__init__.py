"""What was observed of units: measurements, the signals filters make of them, and SLA accounting."""

from penstock.monitoring.measurements import InstanceReading, Measurement, Signal
from penstock.monitoring.sla import Compliance, DurationStatistics

__all__ = ["Compliance", "DurationStatistics", "InstanceReading", "Measurement", "Signal"]
