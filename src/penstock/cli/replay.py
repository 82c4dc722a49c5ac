"""`penstock replay`: the load of a run that was, under other policies, prices and SLOs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated

import plotly.graph_objects as go
import typer
from rich.table import Table

from penstock.cli.choices import new_folder, read_choice, read_list
from penstock.cli.console import console as open_console
from penstock.errors import ConfigurationError
from penstock.experiments.twin import Outcome, Recorded, bound_of, opened, recorded, replayed, topology_of_run
from penstock.policies.registry import make_policy
from penstock.quantities import duration_s
from penstock.report.page import Page
from penstock.runs.assembly import with_choices
from penstock.topology.model import Site, Topology

COLUMNS = ("", "cost", "/ clairvoyant", "kept", "rescales", "host-min")


def replay(
    journal: Annotated[Path, typer.Argument(help="A run's folder, or its journal.")],
    policies: Annotated[str, typer.Option(help="Policies to try, separated by commas.")] = "auto,rate,btu",
    topology: Annotated[
        Path | None, typer.Option(help="The run's topology, where its folder has none.")
    ] = None,
    btu: Annotated[str | None, typer.Option(help="Another billing time unit, for all of them.")] = None,
    minimum: Annotated[
        str | None, typer.Option(help="The least time a lease is paid for, such as 60s.")
    ] = None,
    increment: Annotated[
        str | None, typer.Option(help="The steps in which time after the minimum is paid, such as 1s.")
    ] = None,
    prices: Annotated[
        str | None, typer.Option(help="Other prices an hour, by flavour, such as small=0.10,large=0.38.")
    ] = None,
    slo: Annotated[str | None, typer.Option(help="Another SLO for every operator.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes; 0 means one for each core.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the page.")] = None,
) -> None:
    """Simulate the load of a run that was: first as it was, then under other policies."""
    choices = [read_choice(text) for text in read_list(policies)]
    for choice in choices:
        make_policy(choice)
    with opened(journal) as book:
        run = recorded(book, topology_of_run(journal, topology))
    variants = [("the twin of it", run.topology)]
    changed = _repriced(_changed(run.topology, btu, slo), prices, minimum, increment)
    variants += [
        (text, with_choices(changed, policy=choice))
        for text, choice in zip(read_list(policies), choices, strict=True)
    ]
    outcomes = [run.happened, *_all(run, variants, jobs)]
    bound = bound_of(replace(run, topology=changed))
    console = open_console()
    console.print(_table(run, outcomes, bound))
    console.print(f"report: {_write(new_folder(out, f'replay-{run.topology.name}'), run, outcomes, bound)}")


def _changed(topology: Topology, btu: str | None, slo: str | None) -> Topology:
    changed = with_choices(topology, btu_s=duration_s(btu) if btu else None)
    if slo is not None:
        slo_s = duration_s(slo)
        changed = replace(changed, operators=tuple(replace(o, slo_s=slo_s) for o in changed.operators))
    return changed


def _repriced(topology: Topology, prices: str | None, minimum: str | None, increment: str | None) -> Topology:
    """The topology with other prices an hour, by flavour, and another minimum and increment of its leases."""
    asked: dict[str, Decimal] = {}
    for text in read_list(prices) if prices else ():
        name, _, value = text.partition("=")
        try:
            asked[name.strip()] = Decimal(value.strip())
        except InvalidOperation:
            raise ConfigurationError(f"expected a price such as small=0.10, got {text!r}") from None
    known = {flavour.name for site in topology.sites for flavour in site.flavours}
    if unknown := sorted(set(asked) - known):
        names = ", ".join(sorted(known))
        raise ConfigurationError(f"expected prices of the flavours {names}, got {', '.join(unknown)}")

    def repriced(site: Site) -> Site:
        hours = Decimal(str(site.btu_s)) / 3600
        flavours = tuple(
            replace(f, price_per_btu=asked[f.name] * hours) if f.name in asked else f for f in site.flavours
        )
        return replace(
            site,
            flavours=flavours,
            minimum_s=duration_s(minimum) if minimum else site.minimum_s,
            increment_s=duration_s(increment) if increment else site.increment_s,
        )

    return replace(topology, sites=tuple(repriced(site) for site in topology.sites))


def _all(run: Recorded, variants: Sequence[tuple[str, Topology]], jobs: int) -> list[Outcome]:
    with ProcessPoolExecutor(jobs or os.cpu_count()) as pool:
        pending = [pool.submit(replayed, run, topology, name) for name, topology in variants]
        return [task.result() for task in pending]


def _written(outcome: Outcome, bound: float) -> list[str]:
    return [
        outcome.name, f"{outcome.cost:.5g}", f"{outcome.cost / bound:.2f}" if bound else "–",
        f"{outcome.kept:.2%}", str(outcome.rescales), f"{outcome.host_minutes:.0f}",
    ]  # fmt: skip


def _trust(outcomes: Sequence[Outcome]) -> str:
    """How far the twin is from what happened, in one sentence."""
    real, twin = outcomes[0], outcomes[1]

    def off(was: float, came: float) -> str:
        return f"{came / was - 1:+.0%}" if was else "–"

    return (
        f"the twin is off by {off(real.cost, twin.cost)} in cost, "
        f"{off(real.host_minutes, twin.host_minutes)} in host-minutes, "
        f"{off(real.rescales, twin.rescales)} in rescales and "
        f"{100 * (twin.kept - real.kept):+.1f} points in what was kept"
    )


def _table(run: Recorded, outcomes: Sequence[Outcome], bound: float) -> Table:
    table = Table(title=f"{run.topology.name}: {_trust(outcomes)}", title_justify="left")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number < 1 else "right")
    for outcome in outcomes:
        table.add_row(*_written(outcome, bound))
    table.add_row("clairvoyant plan", f"{bound:.5g}", "1.00", "", "", "")
    return table


def _write(folder: Path, run: Recorded, outcomes: Sequence[Outcome], bound: float) -> Path:
    page = Page(f"{run.topology.name}: replayed", _trust(outcomes))
    page.table(
        "What it was and what it would have been", COLUMNS, [_written(o, bound) for o in outcomes], left=1
    )
    figure = go.Figure()
    for outcome in outcomes:
        hours = [time_s / 3600 for time_s in outcome.times_s]
        figure.add_scatter(x=hours, y=list(outcome.instances), name=outcome.name, line_shape="hv")
    figure.update_xaxes(title="hours").update_yaxes(title="instances")
    page.plot("Instances", figure, "All units together.", height=420)
    return page.write(folder / "report.html")
