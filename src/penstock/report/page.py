"""One self-contained HTML page: sections of text, tables and plots, readable offline.

The plotting script is embedded once a page; nothing is loaded from anywhere. Everything that writes a page
(runs, comparisons, experiments, budgets) writes it through here, so that all pages look alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from penstock.report import lines as small

PALETTE = (
    "#0b6e99", "#d9730d", "#0f7b6c", "#ad1a72", "#6940a5", "#dfab01", "#e03e3e", "#64473a", "#5a7d2a",
    "#3f6fd1",
)  # fmt: skip

_STYLE = """
:root { --ink:#1d2733; --soft:#5c6b7a; --line:#dde3e9; --paper:#ffffff; --ground:#f4f6f8; --accent:#0b6e99; }
* { box-sizing:border-box; }
body { margin:0; background:var(--ground); color:var(--ink);
       font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif; }
header { background:var(--ink); color:#fff; padding:22px 32px; }
header h1 { margin:0; font-size:24px; font-weight:600; } header p { margin:4px 0 0; color:#c6d2dd; }
main { max-width:1240px; margin:0 auto; padding:20px 24px 60px; }
section, .card { background:var(--paper); border:1px solid var(--line); border-radius:8px; }
section { padding:16px 20px; margin:16px 0; }
h2 { font-size:17px; margin:0 0 6px; } p.note { color:var(--soft); margin:2px 0 8px; }
.cards { display:flex; flex-wrap:wrap; gap:12px; margin:16px 0 0; }
.card { flex:1 1 150px; padding:12px 16px; }
.card b { display:block; font-size:20px; font-weight:600; white-space:nowrap; }
.card span { color:var(--soft); font-size:13px; }
table { border-collapse:collapse; width:100%; font-size:13.5px; font-variant-numeric:tabular-nums; }
th,td { text-align:right; padding:4px 10px; border-bottom:1px solid var(--line); vertical-align:top; }
th { color:var(--soft); font-weight:600; } th.left,td.left { text-align:left; }
.scroll { overflow:auto; max-height:460px; } .yes { color:#0f7b6c; } .no { color:#c0392b; }
.verdict { font-size:19px; font-weight:600; margin:0 0 4px; } .verdict.yes::before { content:"✓ "; }
.verdict.no::before { content:"✕ "; } ul.moments { margin:6px 0 0; padding-left:20px; }
.legend { display:flex; flex-wrap:wrap; gap:2px 14px; font-size:13px; color:var(--soft); }
.legend i { display:inline-block; width:12px; height:3px; margin-right:5px; vertical-align:middle; }
.bar { height:11px; background:var(--accent); border-radius:2px; }
.plot { width:100%; } footer { color:var(--soft); text-align:center; padding:12px; font-size:13px; }
"""


@dataclass
class Page:
    """A page in the making: add sections, then write it."""

    title: str
    subtitle: str = ""
    _parts: list[str] = field(default_factory=list)
    _plots: list[str] = field(default_factory=list)
    _charts: list[str] = field(default_factory=list)

    def cards(self, values: Mapping[str, str]) -> None:
        """The few figures people look for first, in large type."""
        cards = "".join(
            f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
            for name, value in values.items()
        )
        self._parts.append(f'<div class="cards">{cards}</div>')

    def verdict(self, kept: bool, sentence: str, more: Sequence[str], moments: Mapping[str, str]) -> None:
        """What a reader wants to know first: kept or not, at what cost, and where to look."""
        items = "".join(f"<li><b>{escape(when)}</b>: {escape(what)}</li>" for when, what in moments.items())
        listed = f'<h2>Worth looking at</h2><ul class="moments">{items}</ul>' if items else ""
        self._parts.append(
            f'<section><p class="verdict {"yes" if kept else "no"}">{escape(sentence)}</p>'
            + "".join(f"<p>{escape(text)}</p>" for text in more)
            + listed
            + "</section>"
        )

    def lines(
        self,
        title: str,
        lines: Sequence[small.Line],
        axis: str,
        note: str = "",
        *,
        log: bool = False,
        reference: float | None = None,
    ) -> None:
        """A small chart of lines over minutes; `reference` is a dashed line across it."""
        number = len(self._charts)
        chart = small.chart_json(lines, axis, PALETTE, log=log, reference=reference)
        self._charts.append(f'drawChart("chart{number}", {chart});')
        self._section(title, note, f'<div class="plot" id="chart{number}"></div>')

    def plot(self, title: str, figure: go.Figure, note: str = "", height: int = 320) -> None:
        """A plot with its title and a line that says how to read it."""
        number = len(self._plots)
        figure.update_xaxes(automargin=True).update_yaxes(automargin=True)
        figure.update_layout(
            height=height,
            margin={"l": 60, "r": 60, "t": 10, "b": 40},
            template="plotly_white",
            colorway=list(PALETTE),
            font={"family": "system-ui, sans-serif", "size": 13},
            legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
            hovermode="x unified",
        )
        self._plots.append(
            f'Plotly.newPlot("plot{number}", Object.assign({figure.to_json()}, '
            "{config: {responsive: true, displaylogo: false, displayModeBar: false}}));"
        )
        self._section(title, note, f'<div class="plot" id="plot{number}"></div>')

    def table(
        self,
        title: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        note: str = "",
        left: int = 1,
    ) -> None:
        """A table; its first `left` columns are text."""
        head = "".join(
            f'<th class="{"left" if i < left else ""}">{escape(c)}</th>' for i, c in enumerate(columns)
        )
        body = "".join(
            "<tr>"
            + "".join(f'<td class="{"left" if i < left else ""}">{_cell(v)}</td>' for i, v in enumerate(row))
            + "</tr>"
            for row in rows
        )
        table = (
            f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        )
        self._section(title, note, table)

    def text(self, title: str, paragraphs: Sequence[str]) -> None:
        """A section of plain text."""
        self._section(title, "", "".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs))

    def html(self, title: str, content: str, note: str = "") -> None:
        """A section of ready HTML, such as an SVG drawing; the caller has escaped it."""
        self._section(title, note, content)

    def write(self, path: Path) -> Path:
        """Write the page; the folder is made where it is missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        script = f"<script>{get_plotlyjs()}</script>" if self._plots else ""
        script += f"<script>{small.script()}</script>" if self._charts else ""
        style = _STYLE + (small.style() if self._charts else "")
        path.write_text(
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{style}</style>{script}</head><body>"
            f"<header><h1>{escape(self.title)}</h1><p>{escape(self.subtitle)}</p></header>"
            f"<main>{''.join(self._parts)}</main><footer>made by Penstock</footer>"
            f"<script>{''.join([*self._plots, *self._charts])}</script></body></html>\n",
            encoding="utf-8",
        )
        return path

    def _section(self, title: str, note: str, content: str) -> None:
        heading = f"<h2>{escape(title)}</h2>" + (f'<p class="note">{escape(note)}</p>' if note else "")
        self._parts.append(f"<section>{heading}{content}</section>")


def _cell(value: object) -> str:
    if value is True:
        return '<span class="yes">yes</span>'
    if value is False:
        return '<span class="no">no</span>'
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return escape(str(value))
