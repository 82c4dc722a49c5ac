"""The report on OEE values as a PDF: a table of machines and a plot over their time.

The plot is drawn with the PDF's own lines, so it needs no plotting library on an executor. The same
values give the same bytes: a batch that runs again after a crash makes the same report again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

COLOURS = (
    (31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40),
    (148, 103, 189), (140, 86, 75), (227, 119, 194), (127, 127, 127),
)  # fmt: skip

_LEFT_MM, _TOP_MM, _WIDTH_MM, _HEIGHT_MM = 22.0, 42.0, 172.0, 78.0


@dataclass(frozen=True, slots=True)
class Value:
    """One OEE value with its components; all four are None where the picture could not be read."""

    machine: str
    time_s: int
    availability: float | None
    performance: float | None
    quality: float | None
    oee: float | None


def make_pdf(number: int, values: Sequence[Value]) -> bytes:
    """The report as PDF bytes."""
    from fpdf import FPDF

    pdf = FPDF()
    # Fixed, so that equal values make equal bytes.
    pdf.set_creation_date(datetime(2000, 1, 1, tzinfo=UTC))
    pdf.set_title(f"Report {number}")
    pdf.add_page()
    machines = sorted({value.machine for value in values})
    unread = sum(value.oee is None for value in values)
    pdf.set_font("helvetica", style="B", size=18)
    pdf.cell(text=f"Overall equipment effectiveness, report {number}", new_x="LMARGIN", new_y="NEXT")
    pdf.set_font("helvetica", size=11)
    summary = f"{len(values)} values of {len(machines)} machines"
    summary += f"; {unread} without a value, for their picture could not be read" if unread else ""
    pdf.cell(text=summary, new_x="LMARGIN", new_y="NEXT")
    _plot(pdf, machines, [value for value in values if value.oee is not None])
    pdf.set_y(_TOP_MM + _HEIGHT_MM + 22)
    _table(pdf, machines, values)
    return bytes(pdf.output())


def _plot(pdf: Any, machines: Sequence[str], values: Sequence[Value]) -> None:
    """OEE over the machines' own time, one line a machine."""
    first_s = min((value.time_s for value in values), default=0)
    last_s = max((value.time_s for value in values), default=1)
    span_s = max(last_s - first_s, 1)

    def at(value_s: float, ratio: float) -> tuple[float, float]:
        return (
            _LEFT_MM + _WIDTH_MM * (value_s - first_s) / span_s,
            _TOP_MM + _HEIGHT_MM * (1 - min(max(ratio, 0.0), 1.0)),
        )

    pdf.set_font("helvetica", size=8)
    for tenth in range(0, 11, 2):
        y = at(first_s, tenth / 10)[1]
        pdf.set_draw_color(215)
        pdf.line(_LEFT_MM, y, _LEFT_MM + _WIDTH_MM, y)
        pdf.text(_LEFT_MM - 11, y + 1, f"{tenth * 10} %")
    pdf.text(_LEFT_MM, _TOP_MM + _HEIGHT_MM + 5, f"{first_s / 60:.0f} min")
    pdf.text(_LEFT_MM + _WIDTH_MM - 12, _TOP_MM + _HEIGHT_MM + 5, f"{last_s / 60:.0f} min")
    for place, machine in enumerate(machines):
        colour = COLOURS[place % len(COLOURS)]
        pdf.set_draw_color(*colour)
        pdf.set_fill_color(*colour)
        points = [at(v.time_s, v.oee) for v in values if v.machine == machine and v.oee is not None]
        if len(points) > 1:
            pdf.polyline(points)
        for x, y in points:
            pdf.ellipse(x - 0.6, y - 0.6, 1.2, 1.2, style="F")
        legend_mm = _LEFT_MM + (place % 10) * 17, _TOP_MM + _HEIGHT_MM + 11 + 5 * (place // 10)
        pdf.rect(legend_mm[0], legend_mm[1] - 2.5, 3, 3, style="F")
        pdf.text(legend_mm[0] + 4, legend_mm[1], machine)


def _table(pdf: Any, machines: Sequence[str], values: Sequence[Value]) -> None:
    """The last value of each machine with its components, and the mean of its OEE."""
    pdf.set_font("helvetica", size=10)
    with pdf.table(text_align=("LEFT", "RIGHT", "RIGHT", "RIGHT", "RIGHT", "RIGHT", "RIGHT")) as table:
        table.row(("machine", "values", "availability", "performance", "quality", "OEE", "mean OEE"))
        for machine in machines:
            own = [value for value in values if value.machine == machine]
            read = [value.oee for value in own if value.oee is not None]
            last = next((value for value in reversed(own) if value.oee is not None), own[-1])
            shown = [_percent(r) for r in (last.availability, last.performance, last.quality, last.oee)]
            mean = _percent(sum(read) / len(read) if read else None)
            table.row((machine, str(len(own)), *shown, mean))


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio * 100:.1f} %"
