"""The page of a run: pictures with the cells found, latencies, instances, filtered against raw CPU."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import Any

from cells import seeing
from cells.checking import PROMISES_S
from cells.laboratory import Outcome
from cells.shard import IMAGE, QUERY
from cells.timing import AFTER_S, BEFORE_S
from penstock.quantities import format_duration
from penstock.report.lines import Line
from penstock.report.page import Page

SHOWN = 4
"""Pictures on the page."""
WIDTH_PX = 460
LEAST_S = 0.001
"""Shorter parts of a micro-batch are not named."""


def outlined(tiff: bytes) -> tuple[Any, seeing.Seen]:
    """A picture with a line around every cell that was found, and what was found."""
    import cv2

    pixels = seeing.decoded(tiff)
    found = seeing.outlines(seeing.edges(seeing.channels(seeing.blurred(pixels))[1]))
    drawn = cv2.drawContours(pixels.copy(), found, -1, (255, 255, 255), 1, cv2.LINE_AA)
    return drawn, seeing.look(tiff)


def as_png(pixels: Any, width: int | None = None) -> bytes:
    """Pixels as a PNG, made as wide as asked for."""
    import cv2

    if width is not None and width < pixels.shape[1]:
        height = round(pixels.shape[0] * width / pixels.shape[1])
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    return bytes(cv2.imencode(".png", pixels)[1])


def write_page(outcome: Outcome) -> Path:
    """Write the page of a run into its folder."""
    checked, result = outcome.check, outcome.result
    unit = outcome.topology.units[0]
    page = Page(
        "The cell laboratory",
        f"{format_duration(outcome.load.duration_s)} of {outcome.load.workload}, "
        f"{outcome.load.megapixels:g} megapixels a picture, filter {unit.filter.name}, "
        f"policy {unit.policy.name}",
    )
    page.cards(
        {
            "images": f"{checked.durations[IMAGE].count:,}",
            "images within 5 s": checked.compliance[IMAGE].shown("real_time"),
            "queries": f"{checked.durations[QUERY].count:,}",
            "queries within 1 s": checked.compliance[QUERY].shown("real_time"),
            "scaling events": str(outcome.events),
            "host-minutes": f"{result.host_s / 60:.1f}",
            "count accuracy": f"{checked.accuracy:.1%}",
        }
    )
    page.table(
        "Against the truth",
        ["what", "expected", "found", ""],
        [[what, want, got, "✓" if want == got else "✗"] for what, want, got in checked.rows],
    )
    page.html("Cells found", _pictures(outcome), "Outlined: what counted as cells that carry the marker.")
    _latencies(page, outcome)
    page.table(
        "Micro-batches",
        ["unit", "number", "records", "whole", "of it", "on state", "state"],
        parts_table(outcome),
        "Of those with records; medians. What is spent on state is summed over tasks.",
    )
    page.table(
        "Queries while instances came and went",
        ["at", "unit", "instances", "queries around it", "longest"],
        waits_table(outcome),
        f"Queries due from {BEFORE_S:g} s before until {AFTER_S:g} s after.",
    )
    for name in sorted({moment.unit for moment in outcome.moments}):
        own = [moment for moment in outcome.moments if moment.unit == name]
        minutes = [moment.at_s / 60 for moment in own]
        page.lines(
            f"CPU of unit {name}",
            [
                Line("as read", minutes, [moment.raw_cpu for moment in own]),
                Line("filtered", minutes, [moment.filtered_cpu for moment in own]),
                Line("memory, filtered", minutes, [moment.memory for moment in own]),
            ],
            "utilisation",
            "Mean over the executors. Decisions are made on the filtered line.",
            reference=0.8,
        )
        page.lines(
            f"Instances of unit {name}",
            [Line("executors", minutes, [float(moment.instances) for moment in own], stepped=True)],
            "executors",
        )
        page.lines(
            "Load",
            [
                Line("arrived a second", minutes, [moment.arrived_per_s for moment in own]),
                Line("waiting", minutes, [float(moment.waiting) for moment in own]),
            ],
            "records",
        )
    return page.write(outcome.folder / "cells.html")


def parts_table(outcome: Outcome) -> list[list[str]]:
    """A row a unit: what its micro-batches took, and its state."""
    return [
        [
            parts.unit,
            str(parts.batches),
            f"{parts.rows:g}",
            _ms(parts.whole_s),
            ", ".join(f"{name} {_ms(s)}" for name, s in parts.parts_s.items() if s >= LEAST_S),
            ", ".join(f"{name} {_ms(s)}" for name, s in parts.state_s.items()) or "–",
            f"{parts.state_rows:,} rows, {parts.state_mib:.1f} MiB" if parts.state_rows else "–",
        ]
        for parts in outcome.parts
    ]


def waits_table(outcome: Outcome) -> list[list[str]]:
    """A row a change of a unit's instances: how long queries took around it."""
    return [
        [
            format_duration(wait.at_s),
            wait.unit,
            f"{wait.before} → {wait.after}",
            str(wait.queries),
            "–" if wait.longest_s is None else format_duration(wait.longest_s),
        ]
        for wait in outcome.waits
    ]


def _ms(duration_s: float) -> str:
    return f"{duration_s * 1000:.0f} ms"


def _latencies(page: Page, outcome: Outcome) -> None:
    for kind, title in ((QUERY, "Queries"), (IMAGE, "Images")):
        found = sorted((r for r in outcome.results if r.row["kind"] == kind), key=lambda r: r.source_s)
        page.lines(
            f"{title}: from due to answered",
            [
                Line(
                    title.lower(),
                    [(each.source_s - outcome.started_s) / 60 for each in found],
                    [each.latency_s for each in found],
                )
            ],
            "seconds",
            f"The dashed line is the promise of {PROMISES_S[kind]:g} s.",
            reference=PROMISES_S[kind],
        )


def _pictures(outcome: Outcome) -> str:
    parts = []
    for number in range(min(SHOWN, len(outcome.album))):
        drawn, seen = outlined(outcome.album.file(number).read_bytes())
        content = base64.b64encode(as_png(drawn, WIDTH_PX)).decode()
        text = escape(f"{seen.cells} found, {outcome.album.pictures[number].marked} drawn")
        parts.append(
            f'<figure style="display:inline-block;margin:4px"><img alt="{text}" '
            f'src="data:image/png;base64,{content}"><figcaption>{text}</figcaption></figure>'
        )
    return "".join(parts)
