"""Tables the commands print."""

from __future__ import annotations

from rich.table import Table

from penstock.controller.result import RunResult
from penstock.monitoring.sla import LEVELS
from penstock.quantities import counted, format_duration


def result_table(result: RunResult) -> Table:
    """A run's units, with the run as a whole in the caption."""
    compliance = result.compliance
    table = Table(
        title=f"{result.name}: {format_duration(result.duration_s)} {result.kind}",
        title_justify="left",
        caption_justify="left",
        caption=(
            f"cost {result.resource_cost:.6g} {result.currency}".rstrip()
            + f", {counted(result.paid_units, 'billing unit')} on {counted(result.leases, 'host')}; "
            + ", ".join(f"{level.replace('_', ' ')} {compliance.shown(level)}" for level in LEVELS)
            + f"; {result.rescales} rescales; end-to-end p95 {format_duration(result.end_to_end.p95_s)}"
        ),
    )
    table.add_column("unit")
    for name in ("SLO", "records", "left", "mean", "p95", "p99", "real-time", "relaxed", "queue max"):
        table.add_column(name, justify="right")
    for unit in result.units.values():
        table.add_row(
            unit.unit,
            format_duration(unit.slo_s),
            f"{unit.processed:,}",
            f"{unit.left:,}",
            format_duration(unit.durations.mean_s),
            format_duration(unit.durations.p95_s),
            format_duration(unit.durations.p99_s),
            unit.compliance.shown("real_time"),
            unit.compliance.shown("relaxed"),
            f"{unit.largest_queue:,}",
        )
    return table
