"""`penstock replay`: the load of a run that was, under other policies, prices and SLOs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import plotly.graph_objects as go
import typer
from rich.table import Table

from penstock.cli.choices import new_folder, read_choice, read_list, read_span
from penstock.cli.console import console as open_console
from penstock.cli.extent import refuse_endless
from penstock.errors import ConfigurationError, QuantityError, TopologyError
from penstock.experiments.twin import (
    Hindsight,
    Outcome,
    Recorded,
    bound_of,
    hindsight_of,
    opened,
    recorded,
    replayed,
    topology_of_run,
)
from penstock.policies.registry import make_policy
from penstock.quantities import memory_mib, number, price, shown
from penstock.report.page import Page
from penstock.runs.assembly import with_choices
from penstock.runs.known import known_names
from penstock.simulator.provider import SimulatedParameters
from penstock.topology.model import Choice, HostFlavour, Site, Topology
from penstock.topology.validation import find_mistakes

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
    flavours: Annotated[
        str | None,
        typer.Option(help="Other flavours with cores, memory and price an hour, such as large=8x16GiB@0.38."),
    ] = None,
    spot: Annotated[
        float | None, typer.Option(help="Spot hosts at this share of the price, such as 0.3.")
    ] = None,
    taken: Annotated[str, typer.Option(help="With --spot: mean time until a host is taken away.")] = "8 h",
    free: Annotated[
        str | None, typer.Option(help="Hours of the cheapest flavour that cost nothing, such as 750h.")
    ] = None,
    slo: Annotated[
        str | None, typer.Option(help="Another SLO for every operator, or for some, such as parse=2s,sum=5s.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes; 0 means one for each core.", min=0, max=256)] = 0,
    last: Annotated[str | None, typer.Option(help='The last part of the run alone, such as "7 d".')] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the page.")] = None,
) -> None:
    """Simulate the load of a run that was: first as it was, then under other policies."""
    choices = [read_choice(text) for text in read_list(policies)]
    for choice in choices:
        make_policy(choice)
    with opened(journal) as book:
        span_s = None if last is None else read_span(last, "--last")
        run = recorded(book, topology_of_run(journal, topology), span_s)
    variants = [("the twin of it", run.topology)]
    changed = _repriced(_offering(_changed(run.topology, btu, slo), flavours), prices, minimum, increment)
    if spot is not None:
        changed = _on_spot(changed, spot, read_span(taken, "--taken"))
    _refuse_wrong(changed, run)
    allowed = _allowance(changed, free)
    variants += [
        (text, with_choices(changed, policy=choice))
        for text, choice in zip(read_list(policies), choices, strict=True)
    ]
    twin, *tried = _all(run, variants, jobs)
    outcomes = [run.happened, twin, *(replace(o, cost=max(0.0, o.cost - allowed)) for o in tried)]
    best = hindsight_of(replace(run, topology=changed))
    # What was and its twin paid the prices that were, so they are held against the plan at these.
    own = best.cost if changed == run.topology else bound_of(run)
    best = replace(best, cost=max(0.0, best.cost - allowed))
    rows = _rows(outcomes, own, best.cost)
    console = open_console()
    console.print(_table(run, outcomes, rows))
    folder = new_folder(out, f"replay-{run.topology.name}")
    console.print(f"report: {_write(folder, run, outcomes, rows, best)}")


def _changed(topology: Topology, btu: str | None, slo: str | None) -> Topology:
    changed = with_choices(topology, btu_s=None if btu is None else read_span(btu, "--btu"))
    if slo is None:
        return changed
    asked = read_list(slo)
    if len(asked) > 1 and not all("=" in part for part in asked):
        raise ConfigurationError(
            f"expected one SLO, or one for each name as in parse=2s,sum=5s; got {shown(slo)}"
        )
    parts = dict(part.split("=", 1) for part in asked if "=" in part)
    if unknown := sorted(parts.keys() - topology.operator_by_name.keys()):
        names = ", ".join(topology.operator_by_name)
        raise ConfigurationError(f"expected SLOs of the operators {names}, got {', '.join(unknown)}")
    slos = {name: read_span(text, "--slo") for name, text in parts.items()}
    if not slos:
        slos = dict.fromkeys(topology.operator_by_name, read_span(slo, "--slo"))
    operators = tuple(replace(o, slo_s=slos.get(o.name, o.slo_s)) for o in changed.operators)
    return replace(changed, operators=operators)


def _refuse_wrong(changed: Topology, run: Recorded) -> None:
    """TopologyError for what is wrong with a changed topology and was not with the run's own."""
    before = {mistake.message for mistake in find_mistakes(run.topology, known_names())}
    wrong = [m for m in find_mistakes(changed, known_names()) if m.message not in before]
    if wrong:
        raise TopologyError(wrong)
    refuse_endless(changed, run.duration_s)


def _offering(topology: Topology, flavours: str | None) -> Topology:
    """The topology with other flavours at every site that leases hosts out."""
    if flavours is None:
        return topology
    found = [_flavour(text) for text in read_list(flavours)]

    def offering(site: Site) -> Site:
        hours = Decimal(str(site.btu_s)) / 3600
        return replace(site, flavours=tuple(replace(f, price_per_btu=f.price_per_btu * hours) for f in found))

    return replace(topology, sites=tuple(offering(site) for site in topology.sites))


def _flavour(text: str) -> HostFlavour:
    """A flavour such as large=8x16GiB@0.38, its price still for an hour."""
    name, _, rest = text.partition("=")
    size, _, price = rest.partition("@")
    cores, _, memory = size.partition("x")
    try:
        return HostFlavour(name.strip(), number(cores), memory_mib(memory.strip()), _amount(price))
    except QuantityError as error:
        raise ConfigurationError(
            f"expected a flavour such as large=8x16GiB@0.38, got {shown(text)}: {error}"
        ) from None


def _amount(text: str) -> Decimal:
    """An amount of money for an hour, without its currency or its span."""
    found = price(text)
    if found.per_s is not None or found.currency:
        raise QuantityError(f"expected an amount for an hour such as 0.38, got {shown(text)}")
    return found.amount


def _on_spot(topology: Topology, share: float, taken_after_s: float) -> Topology:
    """The topology on spot hosts: cheaper, and taken away after a time, with two minutes' notice."""
    if not 0 < share <= 1:
        raise ConfigurationError(f"expected a share of the price above 0 and at most 1, got {share}")

    def on_spot(site: Site) -> Site:
        times = site.provider.parameters if site.provider.name == SimulatedParameters.name else {}
        flavours = tuple(
            replace(f, price_per_btu=f.price_per_btu * Decimal(str(share)), spot=True) for f in site.flavours
        )
        provider = Choice(SimulatedParameters.name, {**times, "taken_after_s": taken_after_s})
        return replace(site, flavours=flavours, provider=provider)

    return replace(topology, sites=tuple(on_spot(site) for site in topology.sites))


def _allowance(topology: Topology, free: str | None) -> float:
    """What hours that cost nothing are worth, at the cheapest flavour's price."""
    if free is None:
        return 0.0
    hourly = [float(f.price_per_btu) / site.btu_s * 3600 for site in topology.sites for f in site.flavours]
    return read_span(free, "--free") / 3600 * min(hourly)


def _repriced(topology: Topology, prices: str | None, minimum: str | None, increment: str | None) -> Topology:
    """The topology with other prices an hour, by flavour, and another minimum and increment of its leases."""
    asked: dict[str, Decimal] = {}
    for text in read_list(prices) if prices is not None else ():
        name, _, value = text.partition("=")
        try:
            asked[name.strip()] = _amount(value)
        except QuantityError as error:
            raise ConfigurationError(
                f"expected a price such as small=0.10, got {shown(text)}: {error}"
            ) from None
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
            minimum_s=site.minimum_s if minimum is None else read_span(minimum, "--minimum"),
            increment_s=site.increment_s if increment is None else read_span(increment, "--increment"),
        )

    return replace(topology, sites=tuple(repriced(site) for site in topology.sites))


def _all(run: Recorded, variants: Sequence[tuple[str, Topology]], jobs: int) -> list[Outcome]:
    with ProcessPoolExecutor(jobs or os.cpu_count()) as pool:
        pending = [pool.submit(replayed, run, topology, name) for name, topology in variants]
        return [task.result() for task in pending]


def _rows(outcomes: Sequence[Outcome], own: float, best: float) -> list[list[str]]:
    """A row for each: the run and its twin beside the plan at their own prices, all others beside `best`."""
    rows = [_written(o, own if number < 2 else best) for number, o in enumerate(outcomes)]
    return [*rows, ["clairvoyant plan", f"{best:.5g}", "1.00", "", "", ""]]


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


def _table(run: Recorded, outcomes: Sequence[Outcome], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=f"{run.topology.name}: {_trust(outcomes)}", title_justify="left")
    for place, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if place < 1 else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _write(
    folder: Path, run: Recorded, outcomes: Sequence[Outcome], rows: Sequence[Sequence[str]], best: Hindsight
) -> Path:
    page = Page(f"{run.topology.name}: replayed", _trust(outcomes))
    page.table("What it was and what it would have been", COLUMNS, rows, left=1)
    counts = [(o.name, o.times_s, o.instances) for o in outcomes]
    counts.append(("clairvoyant plan", best.times_s, best.instances))
    page.plot(
        "Instances",
        _curves(counts, "instances"),
        "All units together; the clairvoyant plan has as many as its load keeps busy.",
        height=420,
    )
    bills = [(o.name, o.billed_s, o.bill) for o in outcomes]
    page.plot("Bill so far", _curves(bills, "cost"), "Before what is free is taken off.", height=360)
    load = [("load", best.times_s, best.loads_per_s)]
    page.plot("Load", _curves(load, "records a second"), "What came to all units together.", height=300)
    return page.write(folder / "report.html")


def _curves(curves: Sequence[tuple[str, Sequence[float], Sequence[float]]], title: str) -> go.Figure:
    """Curves over each other, by the hours of the run."""
    figure = go.Figure()
    for name, times_s, values in curves:
        figure.add_scatter(
            x=[time_s / 3600 for time_s in times_s], y=list(values), name=name, line_shape="hv"
        )
    figure.update_xaxes(title="hours").update_yaxes(title=title)
    return figure
