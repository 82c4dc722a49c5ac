"""A run in the terminal: its units with their queues, its hosts with their lease clocks, bill and decisions.

Drawn from the one status type, so that a run, the demo, an attached job and `penstock top` look alike. The
lease clocks move between two ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from penstock.controller.status import HostStatus, Status, UnitStatus
from penstock.fleet.units import UnitState
from penstock.monitoring.health import CONGESTED
from penstock.quantities import counted, format_duration
from penstock.topology.model import Topology

DECISIONS_SHOWN = 6
WIDE = 110
"""Columns of a terminal from which on everything has room in one table."""
COLUMNS = ("unit", "state", "inst.", "in /s", "done /s", "waiting", "health", "duration", "SLO", "CPU", "why")
NARROW = ("unit", "inst.", "in /s", "waiting", "duration", "SLO", "CPU")
PHASES = {"starting": "starting", "draining": "sources ended, finishing what is in flight", "ended": "ended"}


class LiveView:
    """What a person sees while a run goes on; `show` takes in each status."""

    def __init__(
        self,
        now_s: Callable[[], float],
        headline: Callable[[], str] | None = None,
        footline: Callable[[], str] | None = None,
    ) -> None:
        """`headline` and `footline` say what only the caller knows, such as how many machines are on."""
        self._now_s = now_s
        self._headline = headline
        self._footline = footline
        self._status: Status | None = None

    def show(self, status: Status) -> None:
        """Show this from now on."""
        self._status = status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The view as it is now, as wide as there is room."""
        yield self._drawn(options.max_width)

    def _drawn(self, width: int) -> RenderableType:
        status, now_s = self._status, self._now_s()
        if status is None:
            waiting = (
                self._headline() if self._headline is not None else "starting the cluster and the units …"
            )
            return Text(waiting, style="bold")
        head = self._headline() if self._headline is not None else headline_of(status, now_s)
        narrow = width < WIDE
        parts: list[RenderableType] = [Text(head, style="bold"), units_table(status.units, narrow=narrow)]
        if narrow:
            told = [(unit, unit.problem or unit.why) for unit in status.units]
            parts += [_one_line(f"  {unit.name}: {why}") for unit, why in told if why]
        parts += [_one_line(f"  {text}") for text in congested(status)]
        parts.append(hosts_table(status, now_s))
        if self._footline is not None:
            parts.append(Text(self._footline()))
        news = [*status.decisions, *status.notices][-DECISIONS_SHOWN:]
        parts += [_one_line(f"  {text}") for text in news]
        return Group(*parts)


def headline_of(status: Status, now_s: float) -> str:
    """One line: which run, how far it is, and whether it only advises."""
    line = f"{status.run} · {PHASES.get(status.phase, status.phase)}"
    if status.phase == "running" and status.since_s is not None:
        line = f"{status.run} · {format_duration(max(0.0, now_s - status.since_s))}"
        if status.duration_s is not None:
            line += f" of {format_duration(status.duration_s)}"
    return f"{line} · {status.standing}" if status.standing else line


def line_of(status: Status) -> str:
    """The status in one line, for a log without a terminal."""
    units = ", ".join(
        f"{unit.name} {unit.running}/{unit.instances}"
        + ("" if unit.measurement is None else f" ({unit.measurement.waiting} waiting)")
        for unit in status.units
    )
    line = (
        f"{status.run} {status.phase}: {units}; {counted(len(status.hosts), 'host')}; bill {_money(status)}"
    )
    return f"{line} ({status.standing})" if status.standing else line


class LinePerTick:
    """Tells a status in one line a tick, where there is no terminal to draw on."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._at_s: float | None = None

    def __call__(self, status: Status) -> None:
        """Say it, unless this tick was said already."""
        if status.at_s != self._at_s:
            self._at_s = status.at_s
            self._console.print(line_of(status), markup=False, soft_wrap=True, highlight=False)


def units_table(units: Sequence[UnitStatus], *, narrow: bool = False) -> Table:
    """The units: instances, load, queue, duration beside the SLO, and why nothing is changed.

    A narrow one leaves out what can be done without, so that nothing is broken over two lines.
    """
    table = Table(title="units", title_justify="left", expand=False)
    columns = NARROW if narrow else COLUMNS
    for name in columns:
        table.add_column(
            name, justify="left" if name in ("unit", "state", "why") else "right", no_wrap=narrow
        )
    for unit in units:
        row = _row(unit)
        if narrow and unit.state is not UnitState.RUNNING:
            row["unit"] += f" ({unit.state})"
        table.add_row(*(row[name] for name in columns))
    return table


def _row(unit: UnitStatus) -> dict[str, str]:
    """What is told of a unit, by column."""
    row = dict.fromkeys(COLUMNS, "–")
    row |= {
        "unit": unit.name,
        "state": str(unit.state),
        "inst.": f"{unit.running}/{unit.instances}",
        "SLO": format_duration(unit.slo_s),
        "why": unit.problem or unit.why,
    }
    measured = unit.measurement
    if measured is not None:
        late = measured.duration_s is not None and measured.duration_s > unit.slo_s
        health = unit.health_told.replace("not known yet", "not yet")  # there is little room
        congested = unit.health is not None and unit.health < CONGESTED
        duration = "–" if measured.duration_s is None else format_duration(measured.duration_s)
        row |= {
            "in /s": f"{measured.arrival_rate_per_s:.1f}",
            "done /s": f"{measured.processing_rate_per_s:.1f}",
            "waiting": str(measured.waiting),
            "health": f"[red]{health}[/red]" if congested else health,
            "duration": f"[red]{duration}[/red]" if late else duration,
            "CPU": "–" if unit.cpu_ratio is None else f"{unit.cpu_ratio:.0%}",
        }
    return row


def congested(status: Status) -> list[str]:
    """Which operator is congested in units of several, and which sources emit less than is due."""
    told = [
        f"{unit.name}: congested before {name} ({health:.2f})"
        for unit in status.units
        if len(unit.operator_health) > 1
        for name, health in unit.operator_health.items()
        if health is not None and health < CONGESTED
    ]
    slow = [s for s in status.sources if s.health is not None and s.health < CONGESTED]
    return [*told, *(f"source {s.name} emits {s.health:.0%} of what is due" for s in slow)]


def _one_line(text: str) -> Text:
    return Text(text, style="dim", overflow="ellipsis", no_wrap=True)


def hosts_table(status: Status, now_s: float) -> Table | Text:
    """The hosts with their lease clocks, and the bill."""
    if not status.hosts:
        return Text(f"no hosts · bill {_money(status)}", style="italic")
    month = f" · {status.month} a month at this rate" if status.month else ""
    title = f"hosts · bill {_money(status)}{month}"
    # A title is not broken into two lines because the table below it is narrow.
    table = Table(title=title, title_justify="left", expand=False, min_width=len(title))
    for name in ("host", "state", "instances", "lease", "paid"):
        table.add_column(name, justify="right" if name == "paid" else "left")
    for host in status.hosts:
        table.add_row(
            host.name, str(host.state), ", ".join(host.units) or "–", _clock(host, now_s), host.paid or "–"
        )
    return table


def flow_of(topology: Topology) -> str:
    """The units in a line, each with what it reads."""
    parts = []
    for unit in topology.units_in_order:
        inputs = [
            name
            for operator in unit.operators
            for name in topology.operator_by_name[operator].inputs
            if name in topology.source_by_name
        ]
        units = topology.unit_inputs[unit.name]
        given = ", ".join(dict.fromkeys([*inputs, *units]))
        parts.append(f"{given} → [{unit.name}]")
    return "   ".join(parts)


def _money(status: Status) -> str:
    amount = Decimal(status.bill)
    shown = f"{amount:.4f}".rstrip("0").rstrip(".") if amount % 1 else str(amount.quantize(Decimal(1)))
    return f"{shown} {status.currency}".rstrip()


def _clock(host: HostStatus, now_s: float, width: int = 10) -> str:
    """How much of the paid time is used, drawn, and how much is left."""
    if host.paid_until_s is None or not host.btu_s:
        return "–"
    left_s = max(0.0, host.paid_until_s - now_s)
    used = 1.0 - min(1.0, left_s / host.btu_s)
    filled = min(width, max(0, round(used * width)))
    return f"{'█' * filled}{'░' * (width - filled)} {left_s:.0f} s left"


class ProgressLines:
    """One line each time a run has gone on for so long; call it with each status."""

    def __init__(self, console: Console, duration_s: float, every_s: float = 15.0) -> None:
        """`duration_s` is how long the sources send."""
        self._console = console
        self._duration_s = duration_s
        self._every_s = every_s
        self._told = -1

    def __call__(self, status: Status) -> None:
        """Print how far the run is, where that was not told yet; draining is told once."""
        since_s = 0.0 if status.since_s is None else status.at_s - status.since_s
        step = int(since_s // self._every_s)
        if step <= self._told or self._every_s * (step - 1) >= self._duration_s:
            return
        self._told = step
        at_s = self._every_s * step
        shown = "draining" if at_s > self._duration_s else format_duration(at_s)
        self._console.print(f"stream: {shown if step else 'starting'}", highlight=False)


def side_by_side(rows: Iterable[tuple[str, float, float, float | None]]) -> Table:
    """A run and its simulated twin: (figure, real, simulated, deviation), as `deviations` gives them."""
    table = Table(title="real and simulated, side by side", title_justify="left")
    for name in ("figure", "real", "simulated", "deviation"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for name, real, simulated, deviation in rows:
        shown = "–" if deviation is None else f"{deviation:+.1%}"
        table.add_row(name, f"{real:.3g}", f"{simulated:.3g}", shown)
    return table
