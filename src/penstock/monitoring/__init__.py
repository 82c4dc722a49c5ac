"""What was observed of units: measurements, the signals filters make of them, and SLA accounting."""

from penstock.monitoring.measurements import Counted, InstanceReading, Measurement, Signal
from penstock.monitoring.sla import Compliance, DurationStatistics

__all__ = ["Compliance", "Counted", "DurationStatistics", "InstanceReading", "Measurement", "Signal"]
