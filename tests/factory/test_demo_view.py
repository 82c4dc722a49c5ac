"""The live view: units, queues, hosts with their lease clocks, the bill and the last decisions."""

from __future__ import annotations

from decimal import Decimal
from io import StringIO
from pathlib import Path

from rich.console import Console

from penstock.cli.demo_view import DemoView, flow_of
from penstock.controller.guards import Verdict
from penstock.controller.loop import Tick
from penstock.infrastructure.deployment import Deployment, Host, HostState, Instance, InstanceState
from penstock.infrastructure.leases import Lease
from penstock.monitoring import Measurement, Signal
from penstock.policies.actions import Hold, LeaseHost
from penstock.topology.file import load_topology

TOPOLOGY = load_topology(Path(__file__).resolve().parents[2] / "examples" / "factory" / "factory.yaml")


def a_view() -> DemoView:
    lease = Lease("h1", "local", "bench", 100.0, 40.0, Decimal(1), units=2)
    return DemoView(
        TOPOLOGY,
        leases=lambda: {"h1": lease},
        bill=lambda: Decimal(2),
        headline=lambda: "factory · 5 s",
        footline=lambda: "inbox: 3 warnings",
        now_s=lambda: 150.0,
    )


def a_tick() -> Tick:
    host = Host("h1", "local", TOPOLOGY.sites[0].flavours[0], HostState.UP)
    instance = Instance("read-1", "read", "h1", InstanceState.RUNNING)
    measured = Measurement("read", 150.0, 3.0, arrived=15, processed=12, waiting=7, duration_s=2.5)
    return Tick(
        150.0,
        (Signal(measured),),
        Deployment.of([host], [instance]),
        (
            Verdict(LeaseHost("h2", "local", "bench", "no host has room", "read"), "btu"),
            Verdict(Hold("analyse", "within its SLO"), "btu"),
        ),
        (),
        ("a driver came back",),
    )


def drawn(view: DemoView) -> str:
    console = Console(width=180, record=True, file=StringIO())
    console.print(view)
    return console.export_text()


def test_before_the_first_tick_it_says_that_the_cluster_starts() -> None:
    assert "starting the cluster" in drawn(a_view())


def test_it_shows_queues_instances_lease_clocks_the_bill_and_reasons() -> None:
    view = a_view()

    told = view.see(a_tick())

    text = drawn(view)
    assert "1/1" in text
    assert "2.5 s" in text
    assert "30 s left" in text, "the lease is paid until 180 s and it is 150 s"
    assert "bill 2" in text
    assert "lease h2: no host has room" in text
    assert "within its SLO" in text
    assert "inbox: 3 warnings" in text
    assert told == ["lease h2: no host has room", "a driver came back"]


def test_the_flow_names_what_each_unit_reads() -> None:
    assert flow_of(TOPOLOGY) == "production → [read]   availability, temperature, read → [analyse]"
