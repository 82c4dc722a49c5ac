"""What a run saw as a picture (SVG): packets by second and kind, and the alerts of each period below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path

from detector.traffic import ATTACKS, PERIOD_S, Labelled

WIDTH, HEIGHT, LEFT, TOP = 860, 250, 70, 34
SHADES = ("#9fb4c7", "#c0392b", "#8e44ad", "#d68910", "#1f618d", "#117a65")
COLOURS = dict(zip(("", *(attack.kind for attack in ATTACKS)), SHADES, strict=True))
TEXT = 'text-anchor="end" fill="#333"'
NAMES = {"": "as usual"}


def drawn(
    packets: Sequence[Labelled],
    alerts: Collection[tuple[int, str, str]],
    kinds: Mapping[tuple[int, str, str], str],
) -> str:
    """The picture of a capture, the alerts it gave and what they were."""
    seconds = int(packets[-1].packet.time_us // 1_000_000) + 1
    columns = [Counter[str]() for _ in range(seconds)]
    for labelled in packets:
        columns[int(labelled.packet.time_us // 1_000_000)][labelled.kind] += 1
    most = max(column.total() for column in columns)
    x, y = (WIDTH - LEFT - 20) / seconds, (HEIGHT - TOP - 60) / most
    floor = HEIGHT - 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 40}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT + 40}" fill="#fff"/>',
    ]
    for place, kind in enumerate(COLOURS):
        at = LEFT + place * 125
        parts.append(f'<rect x="{at}" y="8" width="12" height="12" fill="{COLOURS[kind]}"/>')
        parts.append(f'<text x="{at + 17}" y="19" fill="#333">{escape(NAMES.get(kind, kind))}</text>')
    for second, column in enumerate(columns):
        top = float(floor)
        for kind, colour in COLOURS.items():
            high = column[kind] * y
            top -= high
            if high:
                parts.append(
                    f'<rect x="{LEFT + second * x:.1f}" y="{top:.1f}" width="{x:.1f}" height="{high:.1f}" '
                    f'fill="{colour}"/>'
                )
    for share in (0, 0.5, 1):
        high = floor - share * most * y
        parts.append(f'<text x="{LEFT - 8}" y="{high + 4:.0f}" {TEXT}>{share * most:,.0f}</text>')
    parts.append(f'<text x="{LEFT - 8}" y="{floor + 18}" {TEXT}>packets/s</text>')
    told: dict[tuple[int, str], int] = Counter((alert[0], kinds.get(alert, "")) for alert in alerts)
    for row, kind in enumerate(COLOURS):
        for period in range(int(seconds // PERIOD_S) + 1):
            number = told.get((period, kind), 0)
            if number:
                at = LEFT + (period + 0.5) * PERIOD_S * x
                size = min(6.0, 2.0 + number**0.25)
                parts.append(
                    f'<circle cx="{at:.1f}" cy="{floor + 14 + row * 12}" r="{size:.1f}" '
                    f'fill="{COLOURS[kind]}"><title>{number} alerts</title></circle>'
                )
    parts.append(f'<text x="{LEFT - 8}" y="{floor + 44}" {TEXT}>alerts</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def draw(
    file: Path,
    packets: Sequence[Labelled],
    alerts: Collection[tuple[int, str, str]],
    kinds: Mapping[tuple[int, str, str], str],
) -> Path:
    """Write the picture to a file."""
    file.write_text(drawn(packets, alerts, kinds))
    return file
