"""The live view of the demo: load, units with their queues, hosts with their lease clocks, bill, decisions.

It is drawn twice a second from the run's last tick, so that clocks move between two ticks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from decimal import Decimal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.controller.loop import Tick, described
from penstock.infrastructure.deployment import INSTANCE_ALIVE, INSTANCE_COUNTED, InstanceState
from penstock.infrastructure.leases import Lease
from penstock.monitoring import Measurement
from penstock.policies.actions import Hold
from penstock.quantities import format_duration
from penstock.topology.model import Topology

DECISIONS_SHOWN = 6


class DemoView:
    """What a person sees while the demo runs; `see` takes in each tick."""

    def __init__(
        self,
        topology: Topology,
        leases: Callable[[], dict[str, Lease]],
        bill: Callable[[], Decimal],
        headline: Callable[[], str],
        footline: Callable[[], str],
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._topology = topology
        self._leases = leases
        self._bill = bill
        self._headline = headline
        self._footline = footline
        self._now_s = now_s
        self._tick: Tick | None = None
        self._measured: dict[str, Measurement] = {}
        self._holds: dict[str, str] = {}
        self.decisions: deque[str] = deque(maxlen=DECISIONS_SHOWN)

    def see(self, tick: Tick) -> list[str]:
        """Take in a tick; gives back what was decided in it, but for holding."""
        self._tick = tick
        self._measured.update({signal.unit: signal.measurement for signal in tick.signals})
        told = []
        for verdict in tick.verdicts:
            if isinstance(verdict.action, Hold):
                self._holds[verdict.action.unit or ""] = verdict.action.reason
            else:
                refused = f" (refused: {verdict.refused})" if verdict.refused else ""
                told.append(described(verdict.action) + refused)
        told += tick.notices
        clock = time.strftime("%H:%M:%S", time.localtime(tick.at_s))
        self.decisions.extend(f"{clock} {text}" for text in told)
        return told

    def __rich__(self) -> RenderableType:
        """The view as it is now."""
        head = Text(self._headline(), style="bold")
        if self._tick is None:
            return Group(head, Text("starting the cluster …", style="dim"))
        parts: list[RenderableType] = [head, Text(flow_of(self._topology), style="dim")]
        parts += [self._units(self._tick), self._hosts(self._tick), Text(self._footline())]
        parts += [Text(f"  {text}", style="dim", overflow="ellipsis") for text in self.decisions]
        return Group(*parts)

    def _units(self, tick: Tick) -> Table:
        table = Table(title="units", title_justify="left", expand=False)
        for name in ("unit", "instances", "in /s", "done /s", "waiting", "duration", "SLO", "CPU", "why"):
            table.add_column(name, justify="left" if name in ("unit", "why") else "right")
        for unit in self._topology.units:
            mine = [i for i in tick.deployment.instances.values() if i.unit == unit.name]
            running = sum(i.state is InstanceState.RUNNING for i in mine)
            wanted = sum(i.state in INSTANCE_COUNTED for i in mine)
            measured = self._measured.get(unit.name)
            slo_s = self._topology.unit_slo_s(unit.name)
            row = [unit.name, f"{running}/{wanted}"]
            if measured is None:
                row += ["–", "–", "–", "–", format_duration(slo_s), "–"]
            else:
                cpu = [r.cpu_ratio for r in measured.readings if r.cpu_ratio is not None]
                late = measured.duration_s is not None and measured.duration_s > slo_s
                duration = "–" if measured.duration_s is None else format_duration(measured.duration_s)
                row += [
                    f"{measured.arrival_rate_per_s:.1f}",
                    f"{measured.processing_rate_per_s:.1f}",
                    str(measured.waiting),
                    f"[red]{duration}[/red]" if late else duration,
                    format_duration(slo_s),
                    f"{sum(cpu) / len(cpu):.0%}" if cpu else "–",
                ]
            table.add_row(*row, self._holds.get(unit.name, ""))
        return table

    def _hosts(self, tick: Tick) -> Table:
        table = Table(title=f"hosts · bill {self._bill()}", title_justify="left", expand=False)
        for name in ("host", "state", "instances", "lease", "paid"):
            table.add_column(name, justify="right" if name == "paid" else "left")
        leases = self._leases()
        for host in tick.deployment.hosts.values():
            on_it = [
                i.unit
                for i in tick.deployment.instances.values()
                if i.host == host.id and i.state in INSTANCE_ALIVE
            ]
            lease = leases.get(host.id)
            clock, paid = "–", "–"
            if lease is not None:
                clock = f"{_bar(lease, self._now_s())} {lease.remaining_s(self._now_s()):.0f} s left"
                paid = f"{lease.units} × {lease.price_per_btu}"
            table.add_row(host.id, str(host.state), ", ".join(sorted(on_it)) or "–", clock, paid)
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


def _bar(lease: Lease, now_s: float, width: int = 10) -> str:
    """How much of the paid unit is used, drawn."""
    used = 1.0 - lease.remaining_s(now_s) % lease.btu_s / lease.btu_s
    filled = min(width, max(0, round(used * width)))
    return "█" * filled + "░" * (width - filled)
