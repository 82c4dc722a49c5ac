"""`penstock up`, `status`, `logs`, `stop`, `down`: the services of sites, and what runs there.

A site is named by the folder of its runs. `penstock serve` is the service itself, in this terminal.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from penstock.api import client
from penstock.cli.console import console as open_console
from penstock.errors import ClusterError, ConfigurationError
from penstock.machine.processes import log_tail, wait_until

Sites = Annotated[
    list[Path] | None, typer.Argument(metavar="SITE…", help="Folders of the sites' runs; by default runs.")
]
Site = Annotated[Path, typer.Argument(metavar="SITE", help="The folder of the site's runs.")]
ENDS_S = 180.0
"""How long runs may take to end in order."""
OVER = ("ended", "interrupted")


def up(
    sites: Sites = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port of a single site; 0 takes a free one.")] = 0,
    peer: Annotated[
        list[Path] | None,
        typer.Option(help="A folder with service.json and token of another site; may be given again."),
    ] = None,
) -> None:
    """Start the services of sites in the background; runs that were not over are taken up again."""
    console, chosen = open_console(), _chosen(sites)
    if port and len(chosen) > 1:
        raise ConfigurationError("several services cannot listen at one port; leave --port away")
    for site in chosen:
        found, started = client.start(site, host, port, peer or ())
        how = "is up" if started else "was up already"
        console.print(f"{site} {how}: {found.url}; its token is in {site / 'token'}", soft_wrap=True)


def status(sites: Sites = None) -> None:
    """Show what runs at sites, as their services tell it."""
    table = Table("site", "run", "topology", "revision", "phase", "bill", title_justify="left")
    silent, asked = [], []
    for site in _chosen(sites):
        try:
            runs = client.service_at(site).get("/runs")
        except (ClusterError, ConfigurationError) as error:
            silent.append(str(error))
            continue
        for run in runs or [{}]:
            cells = [str(run.get(key, "–")) for key in ("name", "topology", "revision", "phase")]
            bill = run.get("bill")
            table.add_row(str(site), *cells, "–" if bill is None else f"{Decimal(bill):.4g}")
            asked += [f"{site}, {run['name']}: a person is asked: {what}" for what in run.get("asks", ())]
    console = open_console()
    if table.row_count:
        console.print(table)
    for problem in [*asked, *silent]:
        console.print(problem, style="yellow", soft_wrap=True)
    if silent:
        raise typer.Exit(1)


def logs(
    site: Site,
    run: Annotated[str | None, typer.Argument(help="A run there; without it, the service itself.")] = None,
    unit: Annotated[str | None, typer.Option(help="A unit's driver instead of the run's controller.")] = None,
    lines: Annotated[int, typer.Option(help="So many lines, the newest.", min=1, max=1000)] = 50,
) -> None:
    """Show the end of a log: of a site's service, of a run's controller, or of a unit's driver."""
    console = open_console()
    if run is None:
        console.print(log_tail(site / client.LOG_FILE, lines) or "nothing was written yet", markup=False)
        return
    query: dict[str, str | int] = {"lines": lines, **({"unit": unit} if unit is not None else {})}
    told = client.service_at(site).get(f"/runs/{run}/log", **query)
    for line in told["lines"] or ["nothing was written yet"]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def stop(
    site: Site,
    run: Annotated[str, typer.Argument(help="The run to end.")],
    reason: Annotated[str, typer.Option(help="Why; goes into the journal.")] = "",
) -> None:
    """End a run of a site in order; it is not taken up again."""
    service = client.service_at(site)
    _end(service, [run], reason)
    open_console().print(f"{run} has ended")


def down(
    sites: Sites = None,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="End the services alone; `penstock up` finds the runs again.")
    ] = False,
) -> None:
    """End the runs of sites in order, then their services."""
    console = open_console()
    for site in _chosen(sites):
        if not keep_runs:
            service = client.service_at(site)
            going = [run["name"] for run in service.get("/runs") if run["phase"] not in OVER]
            _end(service, going, "the site goes down")
        console.print(f"{site} is down" if client.stop(site) else f"{site} was not up")


def _end(service: client.Service, runs: list[str], reason: str) -> None:
    for run in runs:
        service.post(f"/runs/{run}/commands", {"kind": "stop", "reason": reason})

    def going() -> list[str]:
        return [
            run["name"] for run in service.get("/runs") if run["name"] in runs and run["phase"] not in OVER
        ]

    if not wait_until(lambda: not going(), ENDS_S, poll_s=0.5):
        raise ClusterError(f"not over after {ENDS_S:.0f} s: {', '.join(going())}")


def _chosen(sites: list[Path] | None) -> list[Path]:
    return sites or [Path("runs")]
