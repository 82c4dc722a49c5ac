"""The report of a campaign: figures by the contract of the benchmarks, and a page with every fault."""

from __future__ import annotations

import html
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from faults import plain
from faults.outcomes import NOTHING_TOLD, Outcome, Round
from penstock.report.figures import Figure


def figures(rounds: Sequence[Round], build: Path, aside: int = 0) -> list[Figure]:
    """What the campaign came to, computed from its rounds; plain Spark's times where they were measured.

    `aside` is the number of rounds that were not clean and were done anew, after a repair.
    """
    outcomes = [outcome for found in rounds for outcome in found.outcomes]
    done = _done(outcomes)
    lost, doubled = sum(r.lost for r in rounds), sum(r.doubled for r in rounds)
    leaked = sum(len(r.leaked) for r in rounds)
    wrong = [o for o in done if o.problem]
    problems = [problem for r in rounds for problem in r.problems]
    found = [
        Figure("faults in the campaign", len(done), ">= 200", holds=len(done) >= 200),
        Figure("faults that were skipped on this machine", len(outcomes) - len(done)),
        Figure("kinds of faults", len({o.kind for o in done})),
        *(
            Figure(f"faults on {channel}", sum(o.channel == channel for o in done))
            for channel in ("files", "kafka")
        ),
        Figure("rounds", len(rounds)),
        Figure("rounds that were not clean and were done anew", aside),
        *(
            Figure(f"faults on commit {code}", sum(len(_done(r.outcomes)) for r in rounds if r.code == code))
            for code in sorted({r.code for r in rounds if r.code})
        ),
        Figure("records in", sum(r.records_in for r in rounds)),
        Figure("records out", sum(r.records_out for r in rounds)),
        Figure("records lost", lost, "0", holds=lost == 0),
        Figure("records doubled", doubled, "0", holds=doubled == 0),
        Figure("leases, hosts, processes and files leaked", leaked, "0", holds=leaked == 0),
        Figure("faults not healed", len(wrong), "0", holds=not wrong),
        Figure("other findings (bill, exit codes)", len(problems), "0", holds=not problems),
        Figure(
            "rounds whose bill agrees with the provider's records, host by host",
            sum(
                r.bill != "" and not any("paid" in text or "bill" in text for text in r.problems)
                for r in rounds
            ),
            f"{len(rounds)}",
        ),
    ]
    beside = plain.known(build)
    for kind in sorted({o.kind for o in done}):
        times_s = [o.processing_after_s for o in done if o.kind == kind and o.processing_after_s is not None]
        if times_s:
            here = f"{statistics.median(times_s):.1f} s (n={len(times_s)})"
            found.append(
                Figure(
                    f"{kind}: median until processing again", here, f"plain Spark: {beside.get(kind, '-')}"
                )
            )
    return found


def _done(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [o for o in outcomes if not o.skipped]


def write_page(rounds: Sequence[Round], found: Sequence[Figure], file: Path) -> None:
    """Write the page: the figures, then every fault with what noticed and what healed it."""
    rows = []
    for one in rounds:
        for o in one.outcomes:
            cells = (
                f"{one.number}.{o.number}",
                *(o.channel, o.kind, o.text, _s(o.held_s)),
                *("" if o.skipped else o.noticed or NOTHING_TOLD, _s(o.noticed_after_s)),
                *(_s(o.processing_after_s), _s(o.whole_after_s), o.healed, o.problem or ""),
            )
            rows.append("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells) + "</tr>")
    summary = "".join(
        f"<tr><td>{html.escape(f.name)}</td><td>{html.escape(str(f.here))}</td>"
        f"<td>{html.escape(f.bar or '')}</td><td>{ {True: 'yes', False: 'no', None: ''}[f.holds] }</td></tr>"
        for f in found
    )
    wrong = "".join(
        f"<li>round {r.number}: {html.escape(text)}</li>" for r in rounds for text in [*r.problems, *r.leaked]
    )
    heads = (
        "fault", "channel", "kind", "what was done", "held, s", "noticed", "after, s", "processing after, s",
        "whole after, s", "healed by", "problem",
    )  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        "<!doctype html><meta charset=utf-8><title>Faults</title><style>body{font:14px sans-serif;margin:2em}"
        "table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #ccc;padding:3px 6px;"
        "text-align:left;vertical-align:top}</style><h1>A campaign of faults</h1>"
        "<table><tr><th>figure<th>here<th>bar<th>holds</tr>" + summary + "</table>"
        "<ul>" + wrong + "</ul><h2>Every fault</h2><table><tr>"
        + "".join(f"<th>{head}" for head in heads) + "</tr>" + "".join(rows) + "</table>"
    )  # fmt: skip


def _s(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


@dataclass(frozen=True, slots=True)
class OfKind:
    """What became of all faults of one kind."""

    kind: str
    count: int
    noticed: str
    """What was told first, most often, and how often anything was where not always."""
    noticed_after_s: float | None
    processing_after_s: float | None
    whole_after_s: float | None
    healed: str
    """What healed it, most often."""


def by_kind(outcomes: Sequence[Outcome]) -> list[OfKind]:
    """The medians of each kind, with the words that came most often."""
    found = []
    for kind in sorted({o.kind for o in outcomes}):
        of_kind = [o for o in outcomes if o.kind == kind and not o.problem]
        if of_kind:
            found.append(
                OfKind(
                    kind,
                    len(of_kind),
                    _noticed([o.noticed for o in of_kind]),
                    _median(o.noticed_after_s for o in of_kind if o.noticed),
                    _median(o.processing_after_s for o in of_kind),
                    _median(o.whole_after_s for o in of_kind),
                    _most_often(o.healed.partition("; ")[0] for o in of_kind),
                )
            )
    return found


def _noticed(words: Sequence[str]) -> str:
    told = sum(map(bool, words))
    if not told:
        return NOTHING_TOLD
    return _most_often(words) + ("" if told == len(words) else f" (told {told} times of {len(words)})")


def _most_often(words: Iterable[str]) -> str:
    counted = Counter(re.sub(r"\d+", "#", text) for text in words if text)
    return counted.most_common(1)[0][0] if counted else ""


def _median(values_s: Iterable[float | None]) -> float | None:
    known = [value_s for value_s in values_s if value_s is not None]
    return statistics.median(known) if known else None


def table(outcomes: Sequence[Outcome], beside: Mapping[str, str]) -> str:
    """The kinds as a table in Markdown, with plain Spark's times where they were measured."""
    lines = [
        "| kind | times | first told | after, s | processing again, s | whole, s | healed by | plain Spark |",
        "| --- | ---: | --- | ---: | ---: | ---: | --- | --- |",
    ]
    for k in by_kind(outcomes):
        cells = (k.kind, k.count, k.noticed, _s(k.noticed_after_s), _s(k.processing_after_s),
                 _s(k.whole_after_s), k.healed, beside.get(k.kind, "–"))  # fmt: skip
        lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
